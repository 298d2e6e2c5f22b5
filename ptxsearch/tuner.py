"""Parameter search: which configuration of a kernel template to measure next.

A Gaussian process is fitted to what was measured and the configuration of largest expected
improvement is asked for. The decision is a function of the space, the seed and the told results
in their order, so that a tuner is rebuilt from its history and goes on as if it had not stopped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ptxsearch.encoding import Columns, Encoding
from ptxsearch.errors import UsageError
from ptxsearch.space import Rows, Space, Value, Values
from ptxsearch.surrogate import (
    NOISE,
    Array,
    Process,
    Sample,
    Shape,
    fit,
    log_improvement,
    noises,
    targets,
    thinned,
)

_DESIGN = 10
_MOST_FIRST = 10
_REFITS = (10, 14, 20, 28, 40, 56, 80, 110, 150, 200, 260, 330, 420, 540, 700, 900, 1200, 1600)
_FOLLOWED = 3072
_NEAR_BEST = 5
_COSTS = ((-1.4, 0.0), (1.0, 1.0))


@dataclass(frozen=True)
class Told:
    """One result: seconds, or None where the configuration failed; `sd` of seconds if known."""

    values: Mapping[str, Value]
    seconds: float | None
    sd: float | None = None
    resources: Mapping[str, float] | None = None


def carried(
    history: Iterable[Told], space: Space, *, defaults: Values, most: int = _MOST_FIRST
) -> list[dict[str, Value]]:
    """The best results of another template, size or device as configurations of `space`.

    Parameters of the same name keep their value, the others take the one in `defaults`; what is
    not legal here, or comes twice, is passed over. Fastest first: made for `Tuner(first=...)`.
    """
    found: list[dict[str, Value]] = []
    valid = [told for told in history if told.seconds is not None]
    for told in sorted(valid, key=lambda told: told.seconds or math.inf):
        values = {name: told.values.get(name, defaults[name]) for name in space.names}
        if values not in found and space.is_legal(values):
            found.append(values)
        if len(found) == most:
            break
    return found


class Tuner:
    """Asks for configurations of `space`, is told their times, never asks for one twice.

    `features` gives further columns (n, k) of rows that are known before measuring (ptxas
    resources, a launch's waves); `prior` a predicted log time (n,), nan where unknown: the mean of
    the model. `first` are configurations to try first, such as another device's best (at most
    10). `history` are earlier results.
    """

    def __init__(
        self,
        space: Space,
        *,
        budget: int = 400,
        seed: int = 0,
        features: Columns | None = None,
        prior: Columns | None = None,
        first: Sequence[Values] = (),
        history: Iterable[Told] = (),
    ) -> None:
        if budget < 1:
            raise UsageError(f"tuner budget is {budget}", "give at least 1")
        self.space = space
        self.budget = budget
        self.seed = seed
        self.history: list[Told] = []
        self._first = [space.row(values) for values in first[:_MOST_FIRST]]
        self._encoding = Encoding(space, seed=seed, features=features, prior=prior)
        self._rows: dict[tuple[int, ...], int] = {}
        self._pending: dict[tuple[int, ...], None] = {}
        self._design: list[tuple[int, ...]] | None = None
        self._model: _Model | None = None
        self._shapes: dict[int, list[Shape]] = {}
        for told in history:
            self.tell(told.values, told.seconds, resources=told.resources, sd=told.sd)

    @property
    def best(self) -> Told | None:
        """The fastest result told, or None before the first success."""
        valid = [told for told in self.history if told.seconds is not None]
        return min(valid, key=lambda told: told.seconds or math.inf, default=None)

    @property
    def done(self) -> bool:
        """Whether nothing is left to ask: the budget is spent or every configuration is known."""
        spent = len(self._rows) + len(self._pending)
        total = self._encoding.count
        return spent >= self.budget or (total is not None and spent >= total)

    def ask(self, n: int = 1) -> list[dict[str, Value]]:
        """Up to `n` configurations that are neither measured nor pending; fewer when done."""
        asked: list[dict[str, Value]] = []
        while len(asked) < n and not self.done:
            row = self._next()
            if row is None:
                break
            self._pending[row] = None
            asked.append(self.space.values(row))
        return asked

    def tell(
        self,
        values: Values,
        seconds: float | None,
        *,
        resources: Mapping[str, float] | None = None,
        sd: float | None = None,
    ) -> None:
        """Takes the result of a configuration, asked for or not; None says it failed.

        A configuration told again replaces its earlier result (a longer measurement).
        """
        if seconds is not None and not 0 < seconds < math.inf:
            raise UsageError(f"time of {seconds} s", "tell positive seconds, or None for a failure")
        row = self.space.row(values)
        self._pending.pop(row, None)
        told = Told(dict(values), seconds, sd, resources)
        if row in self._rows:
            self.history[self._rows[row]] = told
            self._model = None
            self._shapes.clear()
        else:
            self._rows[row] = len(self.history)
            self.history.append(told)

    def hold(self, values: Values) -> None:
        """Marks a configuration as pending, as `ask` does for those it gives."""
        self._pending[self.space.row(values)] = None

    def forget(self, values: Values) -> None:
        """Takes back a pending configuration that will not be measured."""
        self._pending.pop(self.space.row(values), None)

    def contenders(self, *, z: float = 2.0) -> list[dict[str, Value]]:
        """Measured configurations that noise does not tell from the best: worth a longer look.

        Those whose time is within `z` standard deviations of the difference; none where no `sd`
        was told. `tell` takes the longer measurement in place of the first.
        """
        best = self.best
        if best is None:
            return []
        return [
            dict(told.values)
            for told in sorted(self.history, key=lambda told: told.seconds or math.inf)
            if told is not best
            and told.seconds is not None
            and told.seconds - (best.seconds or 0) < z * math.hypot(told.sd or 0, best.sd or 0)
        ]

    def _random(self, purpose: int, number: int = 0) -> np.random.Generator:
        key = np.array([self.seed & (2**64 - 1), purpose << 32 | number], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=key))

    def _seen(self, row: tuple[int, ...]) -> bool:
        return row in self._rows or row in self._pending

    def _next(self) -> tuple[int, ...] | None:
        if self._design is None:
            spread = self._encoding.spread(self._random(1), _DESIGN)
            self._design = self._first + [tuple(map(int, row)) for row in spread]
        started = len(self._rows) + len(self._pending)
        learned = self.history[: _epoch(len(self.history))]
        valid = sum(told.seconds is not None for told in learned)
        if started < len(self._design) or valid < 2:
            for row in self._design:
                if not self._seen(row):
                    return row
        if valid < 2:
            return self._unseen_at_random()
        return self._most_promising()

    def _unseen_at_random(self) -> tuple[int, ...] | None:
        rows = self._encoding.pool(self._random(2, len(self._rows)))
        for row in self._random(3, len(self._rows)).permutation(rows):
            if not self._seen(key := tuple(map(int, row))):
                return key
        return None

    def _most_promising(self) -> tuple[int, ...] | None:
        start = self._start_of_model()
        if self._model is None or self._model.start != start:
            self._model = self._new_model(start)
        score = self._model.improvement(self.history, list(self._pending))
        for i in np.argsort(-score, kind="stable"):
            if not self._seen(row := tuple(map(int, self._model.rows[i]))):
                return row
        return self._unseen_at_random()

    def _start_of_model(self) -> int:
        """The number of results that the model in force was built from.

        A model is built anew at every refit; where the candidates are a sample, also as results
        gather, and at every new best, whose neighbours join them.
        """
        told = len(self.history)
        epoch = _epoch(told)
        if self._encoding.count is not None:
            return epoch
        step = max(4, epoch // 8)
        redrawn = epoch + (told - epoch) // step * step
        best = min(range(told), key=lambda i: self.history[i].seconds or math.inf)
        return max(redrawn, best + 1)

    def _new_model(self, start: int) -> _Model:
        prefix = self.history[:start]
        told = _rows_of(self.space, prefix)
        fastest = sorted(range(start), key=lambda i: prefix[i].seconds or math.inf)
        rows = self._encoding.pool(self._random(2, start), near=told[fastest[:_NEAR_BEST]])
        shapes = self._shapes_at(_epoch(start))
        model = _Model(self._encoding, shapes, rows, start=start, capacity=start)
        if len(rows) > _FOLLOWED:
            score = model.improvement([prefix[i] for i in thinned(targets(_seconds(prefix)))], [])
            rows = rows[np.sort(np.argsort(-score, kind="stable")[:_FOLLOWED])]
        later = min((n for n in _REFITS if n > start), default=self.budget + start)
        return _Model(self._encoding, shapes, rows, start=start, capacity=later)

    def _shapes_at(self, epoch: int) -> list[Shape]:
        """The shapes fitted to the first `epoch` results, one a prior, from the fit before."""
        if epoch not in self._shapes:
            earlier = [n for n in _REFITS if n < epoch]
            before = (
                self._shapes_at(earlier[-1]) if earlier else [self._encoding.start] * len(_COSTS)
            )
            prefix = self.history[:epoch]
            x, basis = self._encoding.columns(_rows_of(self.space, prefix))
            seconds = _seconds(prefix)
            noise = noises(seconds, _deviations(prefix))
            sample = Sample(x, targets(seconds), basis, noise)
            self._shapes[epoch] = [
                fit(
                    sample,
                    start=shape,
                    costs=self._encoding.costs(*costs),
                    sweeps=1 if earlier else 2,
                )
                for shape, costs in zip(before, _COSTS, strict=True)
            ]
        return self._shapes[epoch]


class _Model:
    """Processes of several shapes over a pool of candidates, extended as results come.

    One shape comes from a prior that takes every parameter to matter, one from a prior that asks
    for few columns: which is right differs between kernels and cannot be told from few results.
    """

    def __init__(
        self, encoding: Encoding, shapes: Sequence[Shape], rows: Rows, *, start: int, capacity: int
    ) -> None:
        self.start = start
        self.rows = rows
        self._encoding = encoding
        x, basis = encoding.columns(rows)
        single = x.astype(np.float32)
        self._processes = [
            Process(shape, candidates=single, basis=basis, capacity=capacity) for shape in shapes
        ]

    def improvement(self, history: Sequence[Told], pending: Sequence[tuple[int, ...]]) -> Array:
        """The log expected improvement of every row, the mean over the processes.

        A pending configuration counts as measured at its predicted mean: the mean stays, the
        uncertainty around it goes, and a batch spreads out.
        """
        fresh = history[self._processes[0].count :]
        seconds = _seconds(history)
        y, noise = targets(seconds), noises(seconds, _deviations(history))
        score = np.full(len(self.rows), -np.inf)
        for process in self._processes:
            if fresh:
                rows = _rows_of(self._encoding.space, fresh)
                process.add(*self._encoding.columns(rows), noise[-len(fresh) :])
            left = None
            if pending:
                x = self._encoding.encode(np.array(pending, dtype=np.int64))
                left = process.shrunk(x, NOISE)
            mean, sd = process.posterior(y, left=left)
            score = np.logaddexp(score, log_improvement(mean, sd, best=float(y.min())))
        return score


def _epoch(told: int) -> int:
    """The number of results that the last refit saw."""
    return max((n for n in _REFITS if n <= told), default=told)


def _rows_of(space: Space, history: Sequence[Told]) -> Rows:
    return np.array([space.row(told.values) for told in history], dtype=np.int64)


def _seconds(history: Sequence[Told]) -> Array:
    return np.array([np.nan if told.seconds is None else told.seconds for told in history])


def _deviations(history: Sequence[Told]) -> Array:
    return np.array([told.sd or 0.0 for told in history])
