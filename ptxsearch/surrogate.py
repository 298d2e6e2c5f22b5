"""The model a tuner learns: a Gaussian process over encoded configurations.

k(a, b) = prod_j (1 + theta exp(-|a_j - b_j| / l_j)) / (1 + theta): every column may matter on its
own (theta small: a product of nearly constants is nearly a sum) or only together with the others
(theta large). A column whose length is infinite drops out, so derived columns cost nothing until
the data ask for them. Mean and variance are profiled out of the likelihood.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

Array = NDArray[np.float64]
Single = NDArray[np.float32]

LENGTHS = (0.15, 0.4, 1.0, 3.0, np.inf)
THETAS = (0.5, 1.0, 2.0, 5.0)
_CENTRE = 1.0
_SPREAD = 1.5
_FIT_POINTS = 200


@dataclass(frozen=True)
class Shape:
    """The shape of the kernel function: `lengths` by column (in units of its range) and theta."""

    lengths: tuple[float, ...]
    theta: float = 1.0

    @property
    def active(self) -> NDArray[np.int64]:
        """The columns that have a finite length."""
        return np.flatnonzero(np.isfinite(self.lengths))

    def penalty(self) -> float:
        """Minus the log prior: lengths log-normal, an infinite one counts as the longest."""
        finite = np.minimum(self.lengths, 12.0)
        return float(0.5 * np.sum((np.log(finite / _CENTRE) / _SPREAD) ** 2))


def correlation(a: Any, b: Any, shape: Shape) -> Any:
    """The kernel between the rows of `a` (n, d) and `b` (m, d), as (n, m) of `a`'s type."""
    result = np.ones((len(a), len(b)), dtype=a.dtype)
    for j in shape.active:
        result *= _factor(a[:, j, None] - b[None, :, j], shape.lengths[j], shape.theta)
    return result


def _factor(difference: Any, length: float, theta: float) -> Any:
    factor = np.abs(difference)
    factor *= factor.dtype.type(-1.0 / length)
    np.exp(factor, out=factor)
    factor *= factor.dtype.type(theta / (1.0 + theta))
    factor += factor.dtype.type(1.0 / (1.0 + theta))
    return factor


def _misfit(matrix: Array, y: Array, basis: Array, noise: Array) -> float:
    """Minus the restricted log likelihood, mean and variance profiled out."""
    lower, info = lapack.dpotrf(matrix + np.diag(noise), lower=1, overwrite_a=1)
    if info:
        return np.inf
    white, _ = lapack.dtrtrs(lower, np.column_stack([y, basis]), lower=1)
    q, r = np.linalg.qr(white[:, 1:])
    residual = white[:, 0] - q @ (q.T @ white[:, 0])
    freedom = len(y) - basis.shape[1]
    variance = max(float(residual @ residual) / freedom, 1e-12)
    log_det = 2.0 * np.sum(np.log(np.diag(lower))) + 2.0 * np.sum(np.log(np.abs(np.diag(r))))
    return float(0.5 * (freedom * np.log(variance) + log_det))


def fit(x: Array, y: Array, basis: Array, noise: Array, *, start: Shape, sweeps: int = 2) -> Shape:
    """The shape that explains `y` best, by coordinate ascent on the likelihood from `start`.

    x is (n, d) in 0..1, basis (n, q) the columns of the mean, noise (n,) relative to the variance.
    """
    if len(y) > _FIT_POINTS:
        order = np.argsort(y, kind="stable")
        half = _FIT_POINTS // 2
        kept = np.sort(
            np.concatenate([order[:half], order[half:][:: max(1, (len(y) - half) // half)]])
        )
        x, y, basis, noise = x[kept], y[kept], basis[kept], noise[kept]
    distances = np.abs(x[:, None, :] - x[None, :, :]).transpose(2, 0, 1)
    best = start
    matrix = correlation(x, x, best)
    value = _misfit(matrix, y, basis, noise) + best.penalty()
    for _ in range(sweeps):
        before = value
        for j in range(x.shape[1]):
            best, matrix, value = _improve_length(
                j, best, matrix, value, data=(distances[j], y, basis, noise)
            )
        for theta in THETAS:
            trial = Shape(best.lengths, theta)
            trial_matrix = correlation(x, x, trial)
            trial_value = _misfit(trial_matrix, y, basis, noise) + trial.penalty()
            if trial_value < value:
                best, matrix, value = trial, trial_matrix, trial_value
        if value > before - 0.1:
            break
    return best


def _improve_length(
    j: int,
    best: Shape,
    matrix: Array,
    value: float,
    *,
    data: tuple[Array, Array, Array, Array],
) -> tuple[Shape, Array, float]:
    """Moves length `j` one level at a time while the likelihood gains."""
    distance, y, basis, noise = data
    level = LENGTHS.index(best.lengths[j])
    rest = matrix
    if np.isfinite(best.lengths[j]):
        rest = matrix / _factor(distance, best.lengths[j], best.theta)
    for direction in (-1, 1):
        moved = level + direction
        while 0 <= moved < len(LENGTHS):
            lengths = (*best.lengths[:j], LENGTHS[moved], *best.lengths[j + 1 :])
            trial = Shape(lengths, best.theta)
            trial_matrix = rest
            if np.isfinite(LENGTHS[moved]):
                trial_matrix = rest * _factor(distance, LENGTHS[moved], best.theta)
            trial_value = _misfit(trial_matrix, y, basis, noise) + trial.penalty()
            if trial_value >= value:
                break
            best, matrix, value = trial, trial_matrix, trial_value
            moved += direction
        if best.lengths[j] != LENGTHS[level]:
            break
    return best, matrix, value


class Process:
    """A Gaussian process of one shape that grows by a point at a time and follows candidates.

    `add` costs O(n^2 + n m) for n points and m candidates: nothing is solved anew.
    """

    def __init__(self, shape: Shape, *, candidates: Single, basis: Array, capacity: int) -> None:
        self.shape = shape
        active = shape.active
        self._shape = Shape(tuple(shape.lengths[j] for j in active), shape.theta)
        self._candidates = np.ascontiguousarray(candidates[:, active])
        self._basis = basis
        self._points = np.zeros((0, len(active)))
        self._lower = np.zeros((capacity, capacity))
        self._white = np.zeros((capacity, len(candidates)), dtype=np.float32)
        self._left = np.ones(len(candidates), dtype=np.float32)
        self._mean_basis = np.zeros((0, basis.shape[1]))
        self.count = 0

    def add(self, x: Array, basis: Array, noise: Sequence[float] | Array) -> None:
        """Adds points x (n, d) with their mean columns (n, q) and relative noise (n,)."""
        x = x[:, self.shape.active]
        old, new = self.count, self.count + len(x)
        if new > len(self._lower):
            raise ValueError(f"{new} points exceed the capacity {len(self._lower)}")
        inner = correlation(x, x, self._shape) + np.diag(np.asarray(noise, dtype=float))
        outer = correlation(x.astype(np.float32), self._candidates, self._shape)
        if old:
            cross = correlation(self._points, x, self._shape)
            side, _ = lapack.dtrtrs(self._lower[:old, :old], cross, lower=1)
            self._lower[old:new, :old] = side.T
            inner -= side.T @ side
            outer -= side.T.astype(np.float32) @ self._white[:old]
        corner, info = lapack.dpotrf(inner, lower=1)
        if info:
            corner = np.diag(np.sqrt(np.maximum(np.diag(inner), 1e-6)))
        corner = np.tril(corner)
        self._lower[old:new, old:new] = corner
        rows, _ = lapack.strtrs(corner.astype(np.float32), outer, lower=1)
        self._white[old:new] = rows
        self._left -= np.einsum("ij,ij->j", rows, rows)
        self._points = np.concatenate([self._points, x])
        self._mean_basis = np.concatenate([self._mean_basis, basis])
        self.count = new

    def posterior(self, y: Array) -> tuple[Array, Array]:
        """Mean and standard deviation at every candidate, given the values y (n,) of the points."""
        n = self.count
        white, _ = lapack.dtrtrs(
            self._lower[:n, :n], np.column_stack([y, self._mean_basis]), lower=1
        )
        weights, *_ = np.linalg.lstsq(white[:, 1:], white[:, 0], rcond=None)
        residual = white[:, 0] - white[:, 1:] @ weights
        variance = float(residual @ residual) / max(1, n - len(weights))
        mean = residual.astype(np.float32) @ self._white[:n]
        left = np.maximum(self._left, 1e-9)
        return mean + self._basis @ weights, np.sqrt(variance * left.astype(float))
