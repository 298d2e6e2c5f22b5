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
        self.space = space
        self._features = features
        self._prior = prior
        self._rows = space.legal(limit=_ENUMERATED)
        if self._rows is not None and not len(self._rows):
            raise SpaceError("no configuration satisfies the restrictions", "loosen them")
        self._scales = [_scale(values) for values in space.params.values()]
        logs = [_logs(values) for values in space.params.values()]
        numeric = [i for i, log in enumerate(logs) if log is not None and len(log) > 2]
        self._pairs = [(i, j) for i in numeric for j in numeric if i < j]
        self._logs = logs
        key = np.array([seed & (2**64 - 1), 9 << 32], dtype=np.uint64)
        rng = np.random.Generator(np.random.Philox(key=key))
        sample = self._rows if self._rows is not None else space.sample(rng, 4000)
        raw = self._raw(sample)
        with np.errstate(invalid="ignore"):
            self._low, high = np.nanmin(raw, axis=0), np.nanmax(raw, axis=0)
        self._low = np.nan_to_num(self._low)
        self._range = np.nan_to_num(np.maximum(high - self._low, 1e-12), nan=1.0)
        base = len(space.names)
        self.start = Shape((1.0,) * base + (np.inf,) * raw.shape[1])

    @property
    def enumerated(self) -> bool:
        """Whether all legal rows are held."""
        return self._rows is not None

    @property
    def count(self) -> int | None:
        """The number of legal configurations, None where they are not enumerated."""
        return None if self._rows is None else len(self._rows)

    def pool(self, rng: np.random.Generator, best: list[NDArray[Any]]) -> Rows:
        """Candidates: all legal rows, or random ones and the neighbourhoods of the `best`."""
        if self._rows is not None:
            return self._rows
        near = [self.space.neighbour_rows(row) for row in best]
        return np.unique(np.concatenate([self.space.sample(rng, _RANDOM_POOL), *near]), axis=0)

    def _raw(self, rows: Rows) -> Array:
        columns = [self._logs[i][rows[:, i]] + self._logs[j][rows[:, j]] for i, j in self._pairs]
        for column in self.space.derived_columns(rows).values():
            positive = bool(np.nanmin(column) > 0)
            columns.append(np.log2(column) if positive else column)
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
        basis = np.ones((len(rows), 1))
        if self._prior is not None:
            predicted = np.asarray(self._prior(rows), dtype=float)
            middle = np.nanmedian(predicted) if np.isfinite(predicted).any() else 0.0
            basis = np.column_stack([basis, np.where(np.isfinite(predicted), predicted, middle)])
        return self.encode(rows), basis


def _logs(values: tuple[Value, ...]) -> Any:
    numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    if not numeric or min(float(v) for v in values) <= 0:
        return None
    return np.log2(np.array(values, dtype=float))


def _scale(values: tuple[Value, ...]) -> Array:
    """A parameter's values on 0..1: by log2 where they span a factor of 4, else by position."""
    logs = _logs(values)
    if len(values) == 1:
        return np.zeros(1)
    if logs is not None and logs.max() - logs.min() >= 2:
        return np.asarray((logs - logs.min()) / (logs.max() - logs.min()))
    return np.arange(len(values)) / (len(values) - 1)
