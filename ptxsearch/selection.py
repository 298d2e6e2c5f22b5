"""Which node to expand next: the score of an edge, progressive widening, and the other rules.

Formulas are those of docs/search.md part 1: q of the max backup scaled to 0..1, an exploration
term sqrt(ln N / n) (UCT), and a prior term that fades with visits (as in PUCT).
"""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import dataclass

import numpy as np

from ptxsearch.policy import Policy
from ptxsearch.tree import Choice, Edge, Node, Tree

_SMALLEST_SPREAD = 0.05
_UNKNOWN = 0.5


@dataclass(frozen=True)
class Descent:
    """The node to expand and the edges from the root to it."""

    node: Node
    path: tuple[Edge, ...]


@dataclass(frozen=True)
class Situation:
    """What a decision depends on besides the tree and the policy.

    `hidden` counts the trials this decision may not see; `full` families have their share of what
    is in flight; near the end only `kept` families (None: all) are descended.
    """

    hidden: int = 0
    full: Set[int] = frozenset()
    kept: Set[int] | None = None


def select(
    tree: Tree, policy: Policy, situation: Situation, rng: np.random.Generator
) -> Descent | None:
    """The descent by `policy.rule`, or None: wait for results, or, at a closed root, stop."""
    if tree.root.state != "ok":
        return None
    if policy.rule == "mcts":
        return _descend(tree, policy, situation)
    return _RULES[policy.rule](tree, policy, rng)


def _descend(tree: Tree, policy: Policy, situation: Situation) -> Descent | None:
    blocked: set[int] = set()
    scale = _scale(tree)
    while True:
        path: list[Edge] = []
        node = tree.root
        while node.closed or _is_full(node, policy, situation):
            best = _best_edge(node, policy, situation, scale, blocked)
            if best is None:
                break
            path.append(best)
            node = best.node
        if not node.closed:
            # Also beyond its width, where no child can be descended.
            return Descent(node, tuple(path))
        if node is tree.root:
            return None
        # Closed with its children still in flight: not a way down for this decision.
        blocked.add(node.id)


def _path_to(tree: Tree, node: Node) -> list[Edge]:
    path: list[Edge] = []
    while node.parents:
        path.append(node.parents[0])
        node = tree.nodes[node.parents[0].parent]
    return path[::-1]


def used(node: Node) -> float:
    """Children that fill a node's width: a failure or a repeat counts half."""
    return node.passed + node.in_flight + 0.5 * node.lost


def _is_full(node: Node, policy: Policy, situation: Situation) -> bool:
    taken = used(node)
    return taken >= policy.least_children and taken >= width(node, policy, situation)


def width(node: Node, policy: Policy, situation: Situation) -> float:
    """k(n): how many children a node may have after its visits (progressive widening)."""
    least = policy.least_children
    if node.id == 0:
        least = max(least, policy.window)
    grown = float((node.visits + situation.hidden) ** policy.widening)
    return max(float(least), math.ceil(grown))


def _best_edge(
    node: Node,
    policy: Policy,
    situation: Situation,
    scale: tuple[float, float],
    blocked: Set[int],
) -> Edge | None:
    """The edge of largest score.

    The last scan's winner is kept with a bound on all others: between scans only tries grow, which
    lowers a score, and the common exploration factor. While the winner beats the bound, a scan
    would choose it again.
    """
    lowest, per_spread = scale
    explore = policy.exploration * math.sqrt(math.log(node.visits + situation.hidden + 1))
    by_prior = policy.prior_weight / (node.priors or 1.0)
    guarded = situation.kept is not None or bool(blocked or situation.full)
    held = node.choice
    if held is not None and not guarded and held.scale == scale:
        edge, others, explored, _ = held
        tried = edge.visits + edge.pending
        score = ((edge.node.value or 0.0) - lowest) * per_spread
        score += by_prior * edge.prior / (1 + tried) + explore / math.sqrt(tried or 1)
        if score > (others + explore - explored if explore > explored else others):
            return edge
    best, best_score, second = None, -math.inf, -math.inf
    for edge in node.edges:
        child, value = edge.node, edge.node.value
        if not child.live or edge.alias or value is None:
            continue
        if guarded and _shut(child, situation, blocked):
            continue
        tried = edge.visits + edge.pending
        score = (value - lowest) * per_spread + by_prior * edge.prior / (1 + tried)
        score += explore / math.sqrt(tried) if tried else explore
        if score > best_score:
            best, best_score, second = edge, score, best_score
        elif score > second:
            second = score
    node.choice = None
    if best is not None and not guarded:
        node.choice = Choice(best, second, explore, scale)
    return best


def _shut(child: Node, situation: Situation, blocked: Set[int]) -> bool:
    if child.id in blocked or child.family in situation.full:
        return True
    return situation.kept is not None and child.family not in situation.kept


def _scale(tree: Tree) -> tuple[float, float]:
    """The lowest reward and one over the spread: what maps values to 0..1."""
    lowest, highest = tree.lowest or 0.0, tree.highest or 0.0
    return lowest, 1.0 / max(highest - lowest, _SMALLEST_SPREAD)


def scaled(tree: Tree, value: float | None) -> float:
    """q: a value between the tree's lowest and highest reward, as 0..1; 0.5 where unknown."""
    if value is None or tree.lowest is None:
        return _UNKNOWN
    lowest, per_spread = _scale(tree)
    return (value - lowest) * per_spread


def _best_of_n(tree: Tree, policy: Policy, rng: np.random.Generator) -> Descent | None:
    return None if tree.root.closed else Descent(tree.root, ())


def _greedy(tree: Tree, policy: Policy, rng: np.random.Generator) -> Descent | None:
    for number in tree.ranking:
        if not tree.nodes[number].closed:
            return Descent(tree.nodes[number], tuple(_path_to(tree, tree.nodes[number])))
    return None


def _random(tree: Tree, policy: Policy, rng: np.random.Generator) -> Descent | None:
    count = len(tree.ranking)
    start = int(rng.integers(count)) if count else 0
    for offset in range(count):
        node = tree.nodes[tree.ranking[(start + offset) % count]]
        if not node.closed:
            return Descent(node, tuple(_path_to(tree, node)))
    return None


def _beam(tree: Tree, policy: Policy, rng: np.random.Generator) -> Descent | None:
    """The least expanded of the best `beam_width` open nodes; the deeper one in a tie."""
    beam: list[Node] = []
    for number in tree.ranking:
        if not tree.nodes[number].closed:
            beam.append(tree.nodes[number])
        if len(beam) == policy.beam_width:
            break
    if not beam:
        return None
    node = min(beam, key=lambda n: (len(n.edges), -n.depth, n.id))
    return Descent(node, tuple(_path_to(tree, node)))


_RULES = {"best_of_n": _best_of_n, "greedy": _greedy, "random": _random, "beam": _beam}
