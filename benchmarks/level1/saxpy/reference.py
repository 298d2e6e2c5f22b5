"""y = a x + y in float64."""

import numpy as np


def reference(x, y, a, n):
    """`y` is replaced by `a x + y`, element by element."""
    return float(a) * x.astype(np.float64) + y.astype(np.float64)


def magnitude(x, y, a, n):
    """What errors are measured against: |a x| + |y|."""
    return abs(float(a)) * np.abs(x).astype(np.float64) + np.abs(y).astype(np.float64)


def variant(arithmetic, x, y, a, n):
    """The same in the arithmetic of a kernel: its precision, fused or not."""
    return arithmetic.fma(arithmetic.load(x), arithmetic.load(np.float32(a)), arithmetic.load(y))
