"""The search tree: nodes are kernel templates, edges are edits, visits live on edges.

Statistics change only here: `add` (a child, pending), `visit` (one descent), `settle` (a verdict,
with the backup), `close` and `share`, which end a node, and `reopen`. The rules are those of
docs/search.md: max backup, failures that inform text and priors only, equal templates that share
one node.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, overload

from ptxsearch.evaluation import Evaluation
from ptxsearch.kernel import Edit, Idea, Kernel

State = Literal["pending", "ok", "failed", "repeated"]


@dataclass(slots=True, eq=False)
class Edge:
    """One edit from a parent to a child: its prior, how often it was descended, and how often
    such a descent still waits for its result. `repeated` is the attempt whose template `node` had
    already, None where the edge leads to the attempt itself.
    """

    parent: int
    node: Node
    prior: float
    visits: int = 0
    pending: int = 0
    alias: bool = False
    repeated: Node | None = None

    @property
    def child(self) -> int:
        """The number of the node it leads to."""
        return self.node.id


class Choice(NamedTuple):
    """The edge a node's last scan chose, and what bounds the score of its others since.

    `others` is the second score then, `explore` the exploration factor and `scale` the scale of
    values it was computed with.
    """

    edge: Edge
    others: float
    explore: float
    scale: tuple[float, float]


@dataclass(slots=True, eq=False)
class Node:
    """A kernel template with its best known values and the verdict on them.

    `reward` is that of its best configuration (a lower bound of log speedup over the baseline),
    `value` the best reward of its subtree; both None until something in it passed. `family` is
    the root child it descends from (0 at the root). A closed node gets no more children; it is
    exhausted where nothing below it is open or in flight either, and live while it passed and is
    not exhausted. `passed`, `in_flight` and `lost` count its children, `losses` the latest ones in
    a row that failed or repeated; `priors` sums those of its edges. `choice` is what selection
    remembers; whatever changes a child drops it.
    """

    id: int
    kernel: Kernel | None
    edit: Edit
    depth: int
    family: int
    idea: Idea | None = None
    state: State = "pending"
    evaluation: Evaluation | None = None
    reward: float | None = None
    value: float | None = None
    closed: bool = False
    exhausted: bool = False
    live: bool = False
    visits: int = 0
    priors: float = 0.0
    choice: Choice | None = None
    passed: int = 0
    in_flight: int = 0
    lost: int = 0
    losses: int = 0
    parents: list[Edge] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)


class Tree:
    """All nodes of a run by number; node 0 is the baseline.

    `ranking` holds the nodes that passed, best reward first; `lowest` and `highest` are the
    extreme rewards among them.
    """

    def __init__(self, baseline: Kernel) -> None:
        root = Node(0, baseline, Edit("baseline", "the task's baseline"), depth=0, family=0)
        self.nodes: list[Node] = [root]
        self._ranked: list[tuple[float, int]] = []

    @property
    def root(self) -> Node:
        """The baseline's node."""
        return self.nodes[0]

    @property
    def ranking(self) -> Ranking:
        """Numbers of the nodes that passed, best reward first, the older one in a tie."""
        return Ranking(self._ranked)

    @property
    def lowest(self) -> float | None:
        """The lowest reward of a node that passed."""
        return -self._ranked[-1][0] if self._ranked else None

    @property
    def highest(self) -> float | None:
        """The highest reward of a node that passed."""
        return -self._ranked[0][0] if self._ranked else None

    def add(
        self, parent: Node, kernel: Kernel | None, edit: Edit, *, prior: float, idea: Idea | None
    ) -> Node:
        """A new pending child of `parent`."""
        number = len(self.nodes)
        child = Node(
            number,
            kernel,
            edit,
            depth=parent.depth + 1,
            family=parent.family or number,
            idea=idea,
        )
        edge = Edge(parent.id, child, prior)
        parent.edges.append(edge)
        parent.priors += prior
        parent.choice = None
        parent.in_flight += 1
        child.parents.append(edge)
        self.nodes.append(child)
        return child

    def visit(self, path: Sequence[Edge], *, settled: bool) -> None:
        """Count one descent along `path`: pending when it begins, a visit once settled."""
        for edge in path:
            if settled:
                edge.pending -= 1
                edge.visits += 1
                self.nodes[edge.parent].visits += 1
            else:
                edge.pending += 1

    def settle(
        self,
        node: Node,
        state: State,
        *,
        evaluation: Evaluation | None = None,
        reward: float | None = None,
        kernel: Kernel | None = None,
    ) -> None:
        """Record a verdict on `node` (its best configuration's) and back the value up."""
        if node.state == "pending":
            for edge in node.parents:
                self._count(self.nodes[edge.parent], state)
        node.state = state
        node.live = state == "ok" and not node.exhausted
        for edge in node.parents:
            self.nodes[edge.parent].choice = None
        node.evaluation = evaluation if evaluation is not None else node.evaluation
        node.kernel = kernel if kernel is not None else node.kernel
        self._rank(node, reward if state == "ok" else None)
        self._backup(node)

    def close(self, node: Node) -> None:
        """No more children for `node`."""
        node.closed = True
        self._exhaust(node)

    def reopen(self, node: Node) -> None:
        """Children for `node` again."""
        node.closed = False
        self._exhaust(node)

    def share(self, child: Node, twin: Node) -> None:
        """Let `child`'s parent point at `twin`, whose template is equal; the child is repeated.

        An edge that would close a cycle becomes an alias: kept, never descended.
        """
        edge = child.parents[0]
        parent = self.nodes[edge.parent]
        self.settle(child, "repeated")
        edge.alias = twin is parent or self._is_ancestor(twin, parent)
        edge.node, edge.repeated = twin, child
        parent.choice = None
        if not edge.alias:
            twin.parents.append(edge)
        self._backup(parent)

    def _count(self, parent: Node, state: State) -> None:
        parent.in_flight -= 1
        if state == "ok":
            parent.passed += 1
            parent.losses = 0
        else:
            parent.lost += 1
            parent.losses += 1
        self._exhaust(parent)

    def _rank(self, node: Node, reward: float | None) -> None:
        if node.reward is not None:
            del self._ranked[bisect_left(self._ranked, (-node.reward, node.id))]
        node.reward = reward
        if reward is not None:
            insort(self._ranked, (-reward, node.id))

    def _exhaust(self, node: Node) -> None:
        pending = [node]
        while pending:
            current = pending.pop()
            over = current.closed and all(
                edge.alias or edge.node.exhausted or edge.node.state not in ("ok", "pending")
                for edge in current.edges
            )
            if over != current.exhausted:
                current.exhausted = over
                current.live = current.state == "ok" and not over
                for edge in current.parents:
                    self.nodes[edge.parent].choice = None
                pending.extend(self.nodes[edge.parent] for edge in current.parents)

    def _is_ancestor(self, candidate: Node, node: Node) -> bool:
        pending, seen = [node], {node.id}
        while pending:
            for edge in pending.pop().parents:
                if edge.parent == candidate.id:
                    return True
                if edge.parent not in seen:
                    seen.add(edge.parent)
                    pending.append(self.nodes[edge.parent])
        return False

    def _backup(self, node: Node) -> None:
        pending = [node]
        while pending:
            current = pending.pop()
            before = current.value
            current.value = self._best(current)
            if current.value == before:
                continue
            for edge in current.parents:
                parent = self.nodes[edge.parent]
                parent.choice = None
                # A rise needs no look at the siblings; a fall of the best does.
                if edge.alias or (before is None and _below(current.value, parent.value)):
                    continue
                if _below(current.value, parent.value) and before != parent.value:
                    continue
                pending.append(parent)

    def _best(self, node: Node) -> float | None:
        values = [
            value
            for edge in node.edges
            if not edge.alias and (value := edge.node.value) is not None
        ]
        if node.reward is not None:
            values.append(node.reward)
        return max(values, default=None)


def _below(value: float | None, other: float | None) -> bool:
    return other is not None and (value is None or value <= other)


class Ranking(Sequence[int]):
    """Node numbers by reward, best first, read off the tree's sorted list."""

    def __init__(self, ranked: list[tuple[float, int]]) -> None:
        self._ranked = ranked

    def __len__(self) -> int:
        return len(self._ranked)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        if isinstance(index, slice):
            return [number for _, number in self._ranked[index]]
        return self._ranked[index][1]


class TreeView:
    """What proposers may see: everything, to read."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def __iter__(self) -> Iterator[Node]:
        return iter(self._tree.nodes)

    def __getitem__(self, number: int) -> Node:
        return self._tree.nodes[number]

    @property
    def root(self) -> Node:
        """The baseline's node."""
        return self._tree.root

    @property
    def incumbent(self) -> Node:
        """The node with the best reward so far; the root where nothing passed."""
        ranking = self._tree.ranking
        return self._tree.nodes[ranking[0]] if len(ranking) else self._tree.root

    def children(self, node: Node) -> tuple[Node, ...]:
        """Every attempt at `node` in order: passed, failed, repeated and pending."""
        return tuple(edge.repeated or edge.node for edge in node.edges)

    def lineage(self, node: Node) -> tuple[Node, ...]:
        """From the root to `node` along first parents."""
        path = [node]
        while path[-1].parents:
            path.append(self._tree.nodes[path[-1].parents[0].parent])
        return tuple(reversed(path))
