"""How often each byte value occurs, exactly."""

import numpy as np


def reference(x, n):
    """`out[v]` counts the bytes equal to `v`."""
    return np.bincount(x, minlength=256).astype(np.uint32)
