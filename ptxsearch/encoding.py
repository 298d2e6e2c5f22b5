"""Configurations as numbers in 0..1, the columns a surrogate learns from, and pools of candidates.

Beside the parameters themselves come products of pairs (threads = x times y, extent = block times
tile), the declared derived quantities, and features that a caller knows before measuring.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxsearch.errors import SpaceError
from ptxsearch.space import Rows, Space, Value
from ptxsearch.surrogate import Array, Shape

Columns = Callable[[Rows], NDArray[Any]]

_ENUMERATED = 200_000
_RANDOM_POOL = 2000
_SPREAD_FROM = 300
_ALIGNED = 7.0


class Encoding:
    """Configurations as numbers in 0..1: parameters, products of pairs, derived, features."""

    def __init__(
        self,
        space: Space,
        *,
        seed: int = 0,
        features: Columns | None = None,
        prior: Columns | None = None,
    ) -> None:
        if not space.params:
            raise SpaceError("a space without parameters has nothing to tune", "declare some")
        self.space = space
        self._features = features
        self._prior = prior
        self._rows = space.legal(limit=_ENUMERATED)
        if self._rows is not None and not len(self._rows):
            raise SpaceError("no configuration satisfies the restrictions", "loosen them")
        self._scales = [_scale(values) for values in space.params.values()]
        self._logs = [_logs(values) for values in space.params.values()]
        self._twos = [_twos(values) for values in space.params.values()]
        numeric = [i for i, log in enumerate(self._logs) if log is not None and len(log) > 2]
        self._pairs = [(i, j) for i in numeric for j in numeric if i < j]
        self._uneven = [i for i in numeric if not np.array_equal(self._twos[i], self._logs[i])]
        key = np.array([seed & (2**64 - 1), 9 << 32], dtype=np.uint64)
        rng = np.random.Generator(np.random.Philox(key=key))
        sample = self._rows if self._rows is not None else space.sample(rng, 4000)
        derived = space.derived_columns(sample)
        self._positive = {name for name, column in derived.items() if np.fmin.reduce(column) > 0}
        raw = self._raw(sample)
        low, high = np.fmin.reduce(raw, axis=0), np.fmax.reduce(raw, axis=0)
        self._low = np.nan_to_num(low)
        self._range = np.nan_to_num(np.maximum(high - self._low, 1e-12), nan=1.0)
        predicted = np.zeros(1) if prior is None else np.asarray(prior(sample), dtype=float)
        finite = predicted[np.isfinite(predicted)]
        self._usual = float(np.median(finite)) if len(finite) else 0.0
        base = len(space.names)
        self.start = Shape((1.0,) * base + (np.inf,) * raw.shape[1])

    @property
    def count(self) -> int | None:
        """The number of legal configurations, None where they are not enumerated."""
        return None if self._rows is None else len(self._rows)

    def costs(self, parameter: float, other: float) -> Array:
        """One cost for every column that is a parameter, another for the rest."""
        base = len(self.space.names)
        rest = len(self.start.lengths) - base
        return np.concatenate([np.full(base, parameter), np.full(rest, other)])

    def pool(self, rng: np.random.Generator, *, near: Rows | None = None) -> Rows:
        """Candidates: all legal rows, or random ones and the neighbours of those in `near`."""
        if self._rows is not None:
            return self._rows
        close = [self.space.neighbour_rows(row) for row in ([] if near is None else near)]
        return np.unique(np.concatenate([self.space.sample(rng, _RANDOM_POOL), *close]), axis=0)

    def spread(self, rng: np.random.Generator, n: int) -> Rows:
        """Up to `n` random legal rows, each the farthest from those before it."""
        rows = rng.permutation(np.unique(self.space.sample(rng, _SPREAD_FROM), axis=0))
        x = self.encode(rows)[:, : len(self.space.names)]
        chosen = [0]
        distance = np.abs(x - x[0]).sum(axis=1)
        while len(chosen) < min(n, len(rows)):
            chosen.append(int(np.argmax(distance)))
            distance = np.minimum(distance, np.abs(x - x[chosen[-1]]).sum(axis=1))
        return rows[chosen]

    def _raw(self, rows: Rows) -> Array:
        """Products of pairs, alignment, derived quantities, features.

        Alignment is the largest power of 2 that divides a value or a product: warps, sectors
        and tiles divide evenly or not, whatever the size.
        """
        columns = [self._logs[i][rows[:, i]] + self._logs[j][rows[:, j]] for i, j in self._pairs]
        twos = {i: self._twos[i][rows[:, i]] for pair in self._pairs for i in pair}
        twos |= {i: self._twos[i][rows[:, i]] for i in self._uneven}
        columns += [np.minimum(twos[i], _ALIGNED) for i in self._uneven]
        columns += [
            np.minimum(twos[i] + twos[j], _ALIGNED)
            for i, j in self._pairs
            if i in self._uneven or j in self._uneven
        ]
        for name, column in self.space.derived_columns(rows).items():
            logarithmic = name in self._positive
            columns.append(np.log2(np.maximum(column, 1e-300)) if logarithmic else column)
        if self._features is not None:
            columns += list(np.asarray(self._features(rows), dtype=float).T)
        if not columns:
            return np.zeros((len(rows), 0))
        return np.column_stack(columns).astype(float)

    def encode(self, rows: Rows) -> Array:
        """The columns of `rows`, (n, d) in 0..1."""
        base = np.column_stack([scale[rows[:, i]] for i, scale in enumerate(self._scales)])
        raw = (self._raw(rows) - self._low) / self._range
        return np.column_stack([base, np.clip(np.nan_to_num(raw, nan=0.5), 0, 1)])

    def columns(self, rows: Rows) -> tuple[Array, Array]:
        """The encoded rows and the columns of the mean: 1, and the prior where there is one."""
        return self.encode(rows), self._basis(rows)

    def _basis(self, rows: Rows) -> Array:
        basis = np.ones((len(rows), 1))
        if self._prior is None:
            return basis
        predicted = np.asarray(self._prior(rows), dtype=float)
        return np.column_stack([basis, np.where(np.isfinite(predicted), predicted, self._usual)])


def _logs(values: tuple[Value, ...]) -> Any:
    numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    if not numeric or min(float(v) for v in values) <= 0:
        return None
    return np.log2(np.array(values, dtype=float))


def _twos(values: tuple[Value, ...]) -> Any:
    """Log2 of the largest power of 2 that divides each value; 0 for fractions."""
    if _logs(values) is None:
        return None
    whole = [int(value) if float(value).is_integer() else 1 for value in values]
    return np.log2([value & -value for value in whole])


def _scale(values: tuple[Value, ...]) -> Array:
    """A parameter's values on 0..1: by log2 where they span a factor of 4, else by position."""
    logs = _logs(values)
    if len(values) == 1:
        return np.zeros(1)
    if logs is not None and logs.max() - logs.min() >= 2:
        return np.asarray((logs - logs.min()) / (logs.max() - logs.min()))
    return np.arange(len(values)) / (len(values) - 1)
