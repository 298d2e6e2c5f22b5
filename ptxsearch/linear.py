"""Cholesky factors and triangular solves by LAPACK, in the precision of what is given.

scipy takes half a second of processor time to import, so it is imported where it is first used.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def factored(matrix: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """The lower Cholesky factor of `matrix` (n, n), None where it is not positive definite."""
    from scipy.linalg import lapack

    lower, info = lapack.dpotrf(matrix, lower=1)
    return None if info else np.asarray(lower)


def solved(lower: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    """X of `lower` x = `right`, for a lower triangle (n, n) and (n, m) right sides."""
    from scipy.linalg import lapack

    solve = lapack.strtrs if lower.dtype == np.float32 else lapack.dtrtrs
    x, _ = solve(lower, right, lower=1)
    return np.asarray(x)
