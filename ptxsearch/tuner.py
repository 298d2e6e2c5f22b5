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
from scipy.special import ndtr

from ptxsearch.encoding import Columns, Encoding
from ptxsearch.errors import UsageError
from ptxsearch.space import Rows, Space, Value, Values
from ptxsearch.surrogate import Array, Process, Shape, fit

_DESIGN = 10
_REFITS = (10, 14, 20, 28, 40, 56, 80, 110, 150, 200, 260, 330)
_FOLLOWED = 4096
_NOISE = 1e-3
_FAILED_QUANTILE = 0.75


@dataclass(frozen=True)
class Told:
    """One result: seconds, or None where the configuration failed; `sd` of seconds if known."""

    values: Mapping[str, Value]
    seconds: float | None
    sd: float | None = None
    resources: Mapping[str, float] | None = None


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
        self._first = [space.row(values) for values in first[:10]]
        self._encoding = Encoding(space, seed=seed, features=features, prior=prior)
        self._rows: dict[tuple[int, ...], int] = {}
        self._pending: dict[tuple[int, ...], None] = {}
        self._design: list[tuple[int, ...]] | None = None
        self._model: _Model | None = None
        self._shapes: dict[int, Shape] = {}
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

    def _random(self, purpose: int, number: int = 0) -> np.random.Generator:
        key = np.array([self.seed & (2**64 - 1), purpose << 32 | number], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=key))

    def _seen(self, row: tuple[int, ...]) -> bool:
        return row in self._rows or row in self._pending

    def _next(self) -> tuple[int, ...] | None:
        if self._design is None:
            self._design = self._first + self._spread()
        started = len(self._rows) + len(self._pending)
        valid = sum(told.seconds is not None for told in self.history)
        if started < len(self._design) or valid < 2:
            for row in self._design:
                if not self._seen(row):
                    return row
        if valid < 2:
            return self._unseen_at_random()
        return self._most_promising()

    def _unseen_at_random(self) -> tuple[int, ...] | None:
        rows = self._encoding.pool(self._random(2, len(self._rows)), [])
        for row in self._random(3, len(self._rows)).permutation(rows):
            if not self._seen(key := tuple(map(int, row))):
                return key
        return None

    def _spread(self) -> list[tuple[int, ...]]:
        """The first configurations: random legal ones, each far from those before it."""
        rng = self._random(1)
        rows = np.unique(self.space.sample(rng, 300), axis=0)
        rows = rng.permutation(rows)
        x = self._encoding.encode(rows)[:, : len(self.space.names)]
        chosen = [0]
        distance = np.abs(x - x[0]).sum(axis=1)
        while len(chosen) < min(_DESIGN, len(rows)):
            chosen.append(int(np.argmax(distance)))
            distance = np.minimum(distance, np.abs(x - x[chosen[-1]]).sum(axis=1))
        return [tuple(map(int, rows[i])) for i in chosen]

    def _most_promising(self) -> tuple[int, ...] | None:
        model = self._updated_model()
        score = model.improvement(self.history, list(self._pending), self._encoding)
        for i in np.argsort(-score, kind="stable"):
            if not self._seen(row := tuple(map(int, model.rows[i]))):
                return row
        return self._unseen_at_random()

    def _updated_model(self) -> _Model:
        epoch = max((n for n in _REFITS if n <= len(self.history)), default=len(self.history))
        if not self._encoding.enumerated:
            step = max(1, epoch // 8)
            epoch_pool = epoch + (len(self.history) - epoch) // step * step
        else:
            epoch_pool = epoch
        if self._model is None or self._model.epoch != epoch_pool:
            shape = self._shape(epoch)
            self._model = _Model(self, epoch_pool, shape)
        return self._model

    def _shape(self, epoch: int) -> Shape:
        """The kernel shape fitted to the first `epoch` results, from the fit before it."""
        if epoch not in self._shapes:
            earlier = [n for n in _REFITS if n < epoch]
            start = self._shape(earlier[-1]) if earlier else self._encoding.start
            prefix = self.history[:epoch]
            x, basis = self._encoding.columns(_rows_of(self.space, prefix))
            self._shapes[epoch] = fit(x, targets(prefix), basis, noises(prefix), start=start)
        return self._shapes[epoch]


class _Model:
    """A process of one shape over a pool of candidates, extended as results come."""

    def __init__(self, tuner: Tuner, epoch: int, shape: Shape) -> None:
        self.epoch = epoch
        encoding, history = tuner._encoding, tuner.history
        told = _rows_of(tuner.space, history[:epoch])
        best = sorted(
            (i for i in range(epoch) if history[i].seconds is not None),
            key=lambda i: history[i].seconds or math.inf,
        )
        rows = encoding.pool(tuner._random(2, epoch), [told[i] for i in best[:5]])
        self.rows = rows
        capacity = len(history) + 64
        if len(rows) > _FOLLOWED:
            x, basis = encoding.columns(rows)
            process = Process(shape, candidates=x.astype(np.float32), basis=basis, capacity=epoch)
            process.add(*encoding.columns(told), noises(history[:epoch]))
            score = _log_improvement(*process.posterior(targets(history[:epoch])))
            self.rows = rows[np.sort(np.argsort(-score, kind="stable")[:_FOLLOWED])]
        x, basis = encoding.columns(self.rows)
        later = [n for n in _REFITS if n > epoch]
        capacity = (later[0] if later else len(history) + tuner.budget) + 64
        self._process = Process(
            shape, candidates=x.astype(np.float32), basis=basis, capacity=capacity
        )
        self._space = tuner.space

    def improvement(
        self, history: list[Told], pending: list[tuple[int, ...]], encoding: Encoding
    ) -> Array:
        """The log expected improvement of every row of the pool."""
        process = self._process
        fresh = history[process.count :]
        if fresh:
            process.add(*encoding.columns(_rows_of(self._space, fresh)), noises(fresh))
        return _log_improvement(*process.posterior(targets(history)))


def _rows_of(space: Space, history: Sequence[Told]) -> Rows:
    return np.array([space.row(told.values) for told in history], dtype=np.int64)


def targets(history: Sequence[Told]) -> Array:
    """What the model learns: -(best / time); a failure is as bad as the slowest quarter, no worse.

    The best configurations sit beside the resource limits: punished failures would hide them.
    """
    seconds = np.array([np.nan if told.seconds is None else told.seconds for told in history])
    y = -np.nanmin(seconds) / seconds
    return np.asarray(np.where(np.isnan(y), np.nanquantile(y, _FAILED_QUANTILE), y))


def noises(history: Sequence[Told]) -> Array:
    """The relative noise of each result."""
    return np.full(len(history), _NOISE)


def _log_improvement(mean: Array, sd: Array) -> Array:
    """Log E max(-1 - y, 0) for y normal: how much faster than the best, in units of its speed."""
    z = (-1.0 - mean) / sd
    log_phi = -0.5 * z * z - 0.5 * math.log(2 * math.pi)
    near = np.maximum(z, -6.0)
    value = near * ndtr(near) + np.exp(-0.5 * near * near) / math.sqrt(2 * math.pi)
    far = log_phi - 2 * np.log(np.maximum(-z, 1.0))
    return np.asarray(np.log(sd) + np.where(z > -6.0, np.log(np.maximum(value, 1e-300)), far))
