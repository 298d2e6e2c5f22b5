"""The model a tuner learns: a Gaussian process over encoded configurations.

k(a, b) = prod_j (1 + theta exp(-|a_j - b_j| / l_j)) / (1 + theta): every column may matter on its
own (theta small: a product of nearly constants is nearly a sum) or only together with the others
(theta large). A column whose length is infinite drops out, so derived columns cost nothing until
the data ask for them. Mean and variance are profiled out of the likelihood.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxsearch.linear import factored, solved

Array = NDArray[np.float64]
Single = NDArray[np.float32]

LENGTHS = (0.15, 0.4, 1.0, 3.0, np.inf)
THETAS = (0.5, 1.0, 2.0, 5.0)
_SPREAD = 1.5
FIT_POINTS = 120
NOISE = 1e-3
_FAILED_QUANTILE = 0.75


def targets(seconds: Array) -> Array:
    """What is learned of times (nan: failed), lower is better: normal scores of their ranks.

    Ranks make a kernel whose times span 100x and one whose times span 2x alike. A failure is as
    bad as the slowest quarter, no worse: the best configurations sit beside the resource limits,
    and punished failures would hide them.
    """
    from scipy.special import ndtri

    valid = np.isfinite(seconds)
    scores = ndtri((ranks(seconds[valid]) - 0.5) / valid.sum())
    y = np.full(len(seconds), np.quantile(scores, _FAILED_QUANTILE))
    y[valid] = scores
    return y


def ranks(values: Array) -> Array:
    """The rank of each value from 1 up; equal ones share the mean of theirs."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((counts.cumsum() - 0.5 * (counts - 1))[places])


def noises(seconds: Array, deviations: Array) -> Array:
    """The noise variance of each result relative to the process' variance.

    A standard deviation (0: unknown) counts against the spread of all log times, which the ranks
    map to about 1.
    """
    logs = np.log(seconds[np.isfinite(seconds)])
    spread = max(float(np.std(logs)), 1e-3) if len(logs) > 1 else 1.0
    relative = np.where(np.isfinite(seconds), deviations / seconds, 0.0)
    return np.asarray(NOISE + (relative / spread) ** 2)


def log_improvement(mean: Array, sd: Array, *, best: float) -> Array:
    """Log E max(best - y, 0) for y normal, also where the improvement is next to impossible.

    Below z = -6 the tail expansion phi(z) / z^2 stands for the difference of nearly equal terms.
    """
    from scipy.special import ndtr

    z = (best - mean) / sd
    near = np.maximum(z, -6.0)
    density = np.exp(-0.5 * near * near) / math.sqrt(2 * math.pi)
    value = np.log(np.maximum(near * ndtr(near) + density, 1e-300))
    tail = -0.5 * z * z - 0.5 * math.log(2 * math.pi) - 2 * np.log(np.maximum(-z, 1.0))
    return np.asarray(np.log(sd) + np.where(z > -6.0, value, tail))


@dataclass(frozen=True)
class Shape:
    """The shape of the kernel function: `lengths` by column (in units of its range) and theta."""

    lengths: tuple[float, ...]
    theta: float = 1.0

    @property
    def active(self) -> NDArray[np.int64]:
        """The columns that have a finite length."""
        return np.flatnonzero(np.isfinite(self.lengths))

    def penalty(self, costs: Array) -> float:
        """Minus the log prior: lengths log-normal about 1, and its cost for each active column."""
        active = self.active
        logs = np.log(np.array(self.lengths)[active])
        return float(0.5 * (logs @ logs) / _SPREAD**2 + costs[active].sum())


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
    lower = factored(matrix + np.diag(noise))
    if lower is None:
        return np.inf
    white = solved(lower, np.column_stack([y, basis]))
    inner = white.T @ white
    weights = np.linalg.solve(inner[1:, 1:], inner[1:, 0])
    freedom = len(y) - basis.shape[1]
    variance = max(float(inner[0, 0] - inner[0, 1:] @ weights) / freedom, 1e-12)
    log_det = 2.0 * np.log(lower.diagonal()).sum() + np.linalg.slogdet(inner[1:, 1:])[1]
    return float(0.5 * (freedom * math.log(variance) + log_det))


@dataclass(frozen=True)
class Sample:
    """What a shape is fitted to: x (n, d) in 0..1, y (n,), mean columns (n, q), noise (n,).

    `noise` is relative to the variance of the process.
    """

    x: Array
    y: Array
    basis: Array
    noise: Array

    def thinned(self) -> Sample:
        """At most FIT_POINTS of the points."""
        kept = thinned(self.y)
        return Sample(self.x[kept], self.y[kept], self.basis[kept], self.noise[kept])


def thinned(y: Array) -> NDArray[np.int64]:
    """Which points to keep of many: the best, and every so many of the rest, FIT_POINTS in all."""
    if len(y) <= FIT_POINTS:
        return np.arange(len(y))
    order = np.argsort(y, kind="stable")
    half = FIT_POINTS // 2
    rest = order[half:]
    return np.sort(np.concatenate([order[:half], rest[:: -(-len(rest) // half)]]))


class _Ascent:
    """Coordinate ascent on the likelihood of a sample, one column's length at a time."""

    def __init__(self, sample: Sample, start: Shape, costs: Array) -> None:
        self._sample = sample
        self._costs = costs
        self._distances = np.abs(sample.x[:, None, :] - sample.x[None, :, :]).transpose(2, 0, 1)
        self.best = start
        self._matrix = correlation(sample.x, sample.x, start)
        self.value = self._worth(start, self._matrix)

    def _worth(self, shape: Shape, matrix: Array) -> float:
        sample = self._sample
        misfit = _misfit(matrix, sample.y, sample.basis, sample.noise)
        return misfit + shape.penalty(self._costs)

    def _try(self, shape: Shape, matrix: Array) -> bool:
        value = self._worth(shape, matrix)
        if value >= self.value:
            return False
        self.best, self._matrix, self.value = shape, matrix, value
        return True

    def sweep(self) -> None:
        """Visits every length once, then theta."""
        for j in range(self._sample.x.shape[1]):
            self._improve_length(j)
        for theta in THETAS:
            shape = Shape(self.best.lengths, theta)
            self._try(shape, correlation(self._sample.x, self._sample.x, shape))

    def _improve_length(self, j: int) -> None:
        """Moves length `j` one level at a time, either way, while the likelihood gains."""
        start, rest = self.best, self._matrix
        if np.isfinite(start.lengths[j]):
            rest = rest / _factor(self._distances[j], start.lengths[j], start.theta)
        level = LENGTHS.index(start.lengths[j])
        for direction in (-1, 1):
            moved = level + direction
            while 0 <= moved < len(LENGTHS):
                length = LENGTHS[moved]
                lengths = (*start.lengths[:j], length, *start.lengths[j + 1 :])
                matrix = rest
                if np.isfinite(length):
                    matrix = rest * _factor(self._distances[j], length, start.theta)
                if not self._try(Shape(lengths, start.theta), matrix):
                    break
                moved += direction
            if self.best is not start:
                break


def fit(sample: Sample, *, start: Shape, costs: Array, sweeps: int = 2) -> Shape:
    """The shape that explains the sample best, by coordinate ascent from `start`.

    `costs` (d,) are the prior's price of each active column in units of log likelihood; below 0
    it asks for the column to be used. Long samples are thinned, their best half kept.
    """
    ascent = _Ascent(sample.thinned(), start, costs)
    for _ in range(sweeps):
        before = ascent.value
        ascent.sweep()
        if ascent.value > before - 0.1:
            break
    return ascent.best


def _corner(inner: Array) -> Array:
    """The factor of what new points add; where rounding left none, as if they were independent."""
    factor = factored(inner)
    return np.diag(np.sqrt(np.maximum(np.diag(inner), 1e-6))) if factor is None else factor


class Process:
    """A Gaussian process of one shape that grows by a point at a time and follows candidates.

    `add` costs O(n^2 + n m) for n points and m candidates: nothing is solved anew.
    """

    def __init__(self, shape: Shape, *, candidates: Single, basis: Array, capacity: int) -> None:
        self.shape = shape
        active = shape.active
        self._shape = Shape(tuple(shape.lengths[j] for j in active), shape.theta)
        self._levels = [np.unique(candidates[:, j], return_inverse=True) for j in active]
        self._basis = basis
        self._points = np.zeros((0, len(active)))
        self._lower = np.zeros((capacity, capacity))
        self._white = np.zeros((capacity, len(candidates)), dtype=np.float32)
        self._left = np.ones(len(candidates), dtype=np.float32)
        self._mean_basis = np.zeros((0, basis.shape[1]))
        self.count = 0

    def _toward_candidates(self, x: Array) -> Single:
        """The kernel between x (n, d) and the candidates, by the few values each column has."""
        single = x.astype(np.float32)
        result = np.ones((len(x), self._white.shape[1]), dtype=np.float32)
        for j, (levels, places) in enumerate(self._levels):
            difference = single[:, j, None] - levels[None, :]
            factor = _factor(difference, self._shape.lengths[j], self._shape.theta)
            result *= np.take(factor, places, axis=1)
        return result

    def add(self, x: Array, basis: Array, noise: Sequence[float] | Array) -> None:
        """Adds points x (n, d) with their mean columns (n, q) and relative noise (n,)."""
        x = x[:, self.shape.active]
        old, new = self.count, self.count + len(x)
        if new > len(self._lower):
            raise ValueError(f"{new} points exceed the capacity {len(self._lower)}")
        inner = correlation(x, x, self._shape) + np.diag(np.asarray(noise, dtype=float))
        outer = self._toward_candidates(x)
        if old:
            cross = correlation(self._points, x, self._shape)
            side = solved(self._lower[:old, :old], cross)
            self._lower[old:new, :old] = side.T
            inner -= side.T @ side
            outer -= side.T.astype(np.float32) @ self._white[:old]
        corner = _corner(inner)
        self._lower[old:new, old:new] = corner
        rows = solved(corner.astype(np.float32), outer)
        self._white[old:new] = rows
        self._left -= np.einsum("ij,ij->j", rows, rows)
        self._points = np.concatenate([self._points, x])
        self._mean_basis = np.concatenate([self._mean_basis, basis])
        self.count = new

    def shrunk(self, x: Array, noise: float) -> Single:
        """What is left of each candidate's variance once x (p, d) are measured too."""
        x, n = x[:, self.shape.active], self.count
        inner = correlation(x, x, self._shape) + noise * np.eye(len(x))
        outer = self._toward_candidates(x)
        side = solved(self._lower[:n, :n], correlation(self._points, x, self._shape))
        corner = _corner(inner - side.T @ side)
        outer -= side.T.astype(np.float32) @ self._white[:n]
        rows = solved(corner.astype(np.float32), outer)
        return np.asarray(self._left - np.einsum("ij,ij->j", rows, rows))

    def posterior(self, y: Array, *, left: Single | None = None) -> tuple[Array, Array]:
        """Mean and standard deviation at every candidate, given the values y (n,) of the points.

        `left` is the share of the variance that is left, where `shrunk` gave another.
        """
        n = self.count
        white = solved(self._lower[:n, :n], np.column_stack([y, self._mean_basis]))
        weights, *_ = np.linalg.lstsq(white[:, 1:], white[:, 0], rcond=None)
        residual = white[:, 0] - white[:, 1:] @ weights
        variance = max(float(residual @ residual) / max(1, n - len(weights)), 1e-12)
        mean = residual.astype(np.float32) @ self._white[:n]
        remaining = np.maximum(self._left if left is None else left, 1e-9)
        return mean + self._basis @ weights, np.sqrt(variance * remaining.astype(float))
