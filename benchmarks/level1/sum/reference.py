"""The sum of a vector, exactly rounded terms added in float64."""

import numpy as np


def reference(x, n):
    """`out[0]` is the sum of the `n` elements of `x`."""
    return np.array([np.sum(x, dtype=np.float64)])


def magnitude(x, n):
    """What errors are measured against: the sum of |x|."""
    return np.array([np.sum(np.abs(x), dtype=np.float64)])


def variant(arithmetic, x, n):
    """The same in the arithmetic of a kernel: its precision, its order of additions."""
    return arithmetic.sum(arithmetic.load(x)).reshape(1)
