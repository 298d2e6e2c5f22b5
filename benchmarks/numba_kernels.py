"""The speed kernels for Numba, whose simulator stands in for CUDA when its flag is set.

Numba compiles them: types are its business.
"""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np
from numba import cuda


@cuda.jit
def vadd(a, b, c, n):
    i = cuda.grid(1)
    if i < n:
        c[i] = a[i] + b[i]


@cuda.jit
def block_sum(x, out, n):
    s = cuda.shared.array(256, np.float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    s[t] = x[i] if i < n else 0
    cuda.syncthreads()
    k = 128
    while k > 0:
        if t < k:
            s[t] += s[t + k]
        cuda.syncthreads()
        k >>= 1
    if t == 0:
        out[cuda.blockIdx.x] = s[0]


@cuda.jit
def matmul(a, b, c, k):
    sa = cuda.shared.array((16, 16), np.float32)
    sb = cuda.shared.array((16, 16), np.float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    col, row = cuda.grid(2)
    total = np.float32(0)
    for p in range(0, k, 16):
        sa[y, x] = a[row, p + x]
        sb[y, x] = b[p + y, col]
        cuda.syncthreads()
        for q in range(16):
            total += sa[y, q] * sb[q, x]
        cuda.syncthreads()
    c[row, col] = total
