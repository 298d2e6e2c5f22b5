"""The arms of the ablation: the shipped policies, and `mcts` with one thing changed.

Most differ in a policy's setting. What no policy can choose stands here: a tree that backs up
means, a tree in which equal templates stay apart, another rule of widening, several workers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ptxsearch import selection
from ptxsearch.kernel import Kernel
from ptxsearch.policy import Policy
from ptxsearch.selection import Situation
from ptxsearch.tree import Node, Tree


class MeanTree(Tree):
    """A tree whose values are means of the rewards in a subtree; failures stay out, as ever.

    A node that two ways lead to counts once for each.
    """

    def __init__(self, baseline: Kernel) -> None:
        super().__init__(baseline)
        self._sums: dict[int, tuple[float, int]] = {}

    def _backup(self, node: Node) -> None:
        pending = [node]
        while pending:
            current = pending.pop()
            total, count = self._summed(current)
            if self._sums.get(current.id) == (total, count):
                continue
            self._sums[current.id] = total, count
            current.value = total / count if count else None
            for edge in current.parents:
                self.nodes[edge.parent].choice = None
                if not edge.alias:
                    pending.append(self.nodes[edge.parent])

    def _summed(self, node: Node) -> tuple[float, int]:
        below = [self._sums.get(edge.child, (0.0, 0)) for edge in node.edges if not edge.alias]
        own = (0.0, 0) if node.reward is None else (node.reward, 1)
        return own[0] + sum(total for total, _ in below), own[1] + sum(count for _, count in below)


class TreeApart(Tree):
    """A tree in which a template that is reached by another parent is a node of its own.

    It starts from what its twin is known to be worth. A child that repeats a sibling is a repeat.
    """

    def share(self, child: Node, twin: Node) -> None:
        """Settle `child` as `twin` was, unless a sibling has its template already."""
        assert child.kernel is not None
        template = child.kernel.template
        for edge in self.nodes[child.parents[0].parent].edges:
            sibling = edge.node
            if sibling.state == "ok" and sibling.kernel and sibling.kernel.template == template:
                super().share(child, sibling)
                return
        self.settle(child, "ok", evaluation=twin.evaluation, reward=twin.reward, kernel=twin.kernel)


def full_or_beaten(node: Node, policy: Policy, situation: Situation) -> bool:
    """Whether a node has its width, or, the root excepted, a child that is worth more than it."""
    taken = selection.used(node)
    if taken >= policy.least_children and taken >= selection.width(node, policy, situation):
        return True
    own = math.inf if node.reward is None or node.id == 0 else node.reward
    return any(
        edge.node.live and not edge.alias and edge.node.value is not None and edge.node.value > own
        for edge in node.edges
    )


@dataclass(frozen=True)
class Arm:
    """What a run is made with: a policy's settings, workers, parts of the library to replace.

    `parts` maps a name as `unittest.mock.patch` takes it to what stands there during a run.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    workers: int = 1
    parts: Mapping[str, Any] = field(default_factory=dict)


MEAN = {"ptxsearch.progress.Tree": MeanTree}
APART = {"ptxsearch.progress.Tree": TreeApart}
BEATEN = {"ptxsearch.selection._is_full": full_or_beaten}


POLICIES: Mapping[str, Arm] = {
    "mcts": Arm(),
    "greedy": Arm({"rule": "greedy"}),
    "beam": Arm({"rule": "beam"}),
    "best_of_n": Arm({"rule": "best_of_n"}),
    "random": Arm({"rule": "random"}),
}
SWITCHES: Mapping[str, Arm] = {
    "c 0": Arm({"exploration": 0.0}),
    "c .03": Arm({"exploration": 0.03}),
    "c .3": Arm({"exploration": 0.3}),
    "c 1": Arm({"exploration": 1.0}),
    "priors off": Arm({"prior_weight": 0.0}),
    "priors .2": Arm({"prior_weight": 0.2}),
    "widening .2": Arm({"widening": 0.2}),
    "widening .5": Arm({"widening": 0.5}),
    "least children 2": Arm({"least_children": 2}),
    "least children 10": Arm({"least_children": 10}),
    "window 1": Arm({"window": 1}),
    "window 16": Arm({"window": 16}),
    "greedy, window 1": Arm({"rule": "greedy", "window": 1}),
    "beam, window 1": Arm({"rule": "beam", "window": 1}),
    "family share .5": Arm({"family_share": 0.5}),
    "end share 0": Arm({"end_share": 0.0}),
    "tuner off": Arm({"tune_share": 0.0}),
    "tuner first": Arm({"tune_share": 1.0}),
    "greedy, tuner off": Arm({"rule": "greedy", "tune_share": 0.0}),
    "mean backup": Arm(parts=MEAN),
    "transpositions off": Arm(parts=APART),
    "beaten is full": Arm(parts=BEATEN),
    "beaten is full, window 1": Arm({"window": 1}, parts=BEATEN),
    "order, 4 workers": Arm(workers=4),
    "order, 16 workers": Arm(workers=16),
    "window 16, 16 workers": Arm({"window": 16}, workers=16),
    "live, 1 worker": Arm({"order": False}),
    "live, 4 workers": Arm({"order": False}, workers=4),
    "live, 16 workers": Arm({"order": False}, workers=16),
}
