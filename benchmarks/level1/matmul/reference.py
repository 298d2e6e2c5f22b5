"""The product of two matrices in float64."""

import numpy as np


def reference(a, b, m, n, k):
    """`c` is `m` x `n`, the product of `a` (m x k) and `b` (k x n)."""
    return a.astype(np.float64) @ b.astype(np.float64)


def magnitude(a, b, m, n, k):
    """What errors are measured against: the sum of |a||b| of each element."""
    return np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)


def variant(arithmetic, a, b, m, n, k):
    """The same in the arithmetic of a kernel: its precision, its order of additions."""
    return arithmetic.dot(arithmetic.load(a), arithmetic.load(b))
