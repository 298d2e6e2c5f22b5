"""The transpose of a matrix: no arithmetic, so every bit counts."""

import numpy as np


def reference(x, rows, cols):
    """`out` is `cols` x `rows`, `out[c, r] = x[r, c]`."""
    return np.ascontiguousarray(x.T)
