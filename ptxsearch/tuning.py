"""Which template's parameters to tune next: successive halving over families, in blocks.

Every template that passed gets a first block of trials; the better half of the families gets one
twice as long, and so on. A template whose times spread less than the policy's bound is left alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from ptxsearch.kernel import Value
from ptxsearch.policy import Policy
from ptxsearch.space import Space, Values
from ptxsearch.tree import Node, Tree
from ptxsearch.tuner import Told, Tuner, carried

_FEWEST, _MOST, _SHARE = 5, 25, 16
_CARRIED = 3


def first_block(trials: int | None) -> int:
    """Trials of a template's first block: a sixteenth of the budget, within 5 to 25."""
    return _FEWEST if trials is None else max(_FEWEST, min(_MOST, trials // _SHARE))


@dataclass
class Tuning:
    """The parameter search of one node: its tuner and how far halving took it."""

    node: Node
    space: Space
    tuner: Tuner
    rung: int = 0
    asked: int = 0
    told: int = 0
    times: list[float] = field(default_factory=list)

    def spread(self) -> float:
        """(worst - best) / best of the times measured, infinite for fewer than three."""
        if len(self.times) < 3:
            return math.inf
        return (max(self.times) - min(self.times)) / min(self.times)


class Tunings:
    """All parameter searches of a run. Deterministic: the same tells give the same choices."""

    def __init__(self, tree: Tree, policy: Policy, *, trials: int | None, seed: int) -> None:
        self._tree, self._policy, self._seed = tree, policy, seed
        # The configuration a template starts with is known and no trial of its tuner.
        self._budget = (trials or 400) + 1
        self._block = first_block(trials)
        self._open: dict[int, Tuning] = {}
        self._tuners: dict[int, Tuner] = {}

    def start(self, node: Node, seconds: float) -> None:
        """Begin to tune a node that passed with its values measured at `seconds`."""
        kernel = node.kernel
        if kernel is None or kernel.space is None or kernel.space.size < 2:
            return
        space = kernel.space
        values = {name: kernel.values[name] for name in space.params}
        tuner = Tuner(
            space,
            budget=self._budget,
            seed=self._seed + node.id,
            first=self._from_parent(node, space, values),
        )
        tuner.tell(values, seconds)
        self._tuners[node.id] = tuner
        self._open[node.id] = Tuning(node, space, tuner, times=[seconds])

    def _from_parent(self, node: Node, space: Space, values: Values) -> list[dict[str, Value]]:
        """The best configurations of the template this one was made from, to try first."""
        parent = self._tuners.get(node.parents[0].parent) if node.parents else None
        if parent is None:
            return []
        return carried(parent.history, space, defaults=values, most=_CARRIED)

    def next(self, *, last_resort: bool) -> tuple[Node, dict[str, Value]] | None:
        """The node to tune and the values to try; with `last_resort` no template is left out.

        Nothing is marked: the decision takes effect with `hold`, when its event is applied.
        """
        for tuning in self._ordered(last_resort):
            found = tuning.tuner.ask()
            if found:
                tuning.tuner.forget(found[0])
                return tuning.node, dict(found[0])
            del self._open[tuning.node.id]
        return None

    def hold(self, node: Node, values: dict[str, Value]) -> None:
        """Mark values as asked for."""
        tuning = self._open.get(node.id)
        if tuning is not None:
            tuning.tuner.hold(values)
            tuning.asked += 1

    def tell(self, node: Node, told: Told) -> None:
        """A configuration's result. Closes a template whose times hardly differ."""
        tuning = self._open.get(node.id)
        if tuning is None:
            return
        tuning.told += 1
        if told.seconds is not None:
            tuning.times.append(told.seconds)
        tuning.tuner.tell(told.values, told.seconds, resources=told.resources, sd=told.sd)
        if tuning.told >= self._due(tuning.rung) and tuning.spread() < self._policy.tune_spread:
            del self._open[node.id]

    def _due(self, rung: int) -> int:
        """Trials after which a template has finished `rung`: b, 3b, 7b, ..."""
        return self._block * ((2 << rung) - 1)

    def _ordered(self, last_resort: bool) -> list[Tuning]:
        self._promote()
        ready = [t for t in self._open.values() if t.asked < self._due(t.rung)]
        ready.sort(key=lambda t: (t.rung, -(t.node.reward or 0.0), t.node.id))
        if not last_resort:
            return ready
        rest = [t for t in self._open.values() if t not in ready]
        return ready + sorted(rest, key=lambda t: (-(t.node.reward or 0.0), t.node.id))

    def _promote(self) -> None:
        """Let the better half of the families that finished a rung enter the next one."""
        best = self._family_best(self._open.values())
        for rung in {t.rung for t in best}:
            finished = [t for t in best if t.rung > rung or t.told >= self._due(rung)]
            finished.sort(key=lambda t: (-(t.node.reward or 0.0), t.node.id))
            for tuning in finished[: math.ceil(len(finished) / 2)]:
                if tuning.rung == rung:
                    tuning.rung += 1

    def _family_best(self, tunings: Iterable[Tuning]) -> list[Tuning]:
        best: dict[int, Tuning] = {}
        for tuning in tunings:
            held = best.get(tuning.node.family)
            if held is None or (tuning.node.reward or 0.0) > (held.node.reward or 0.0):
                best[tuning.node.family] = tuning
        return list(best.values())
