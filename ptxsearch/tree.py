"""The search tree: nodes are kernel templates, edges are edits, visits live on edges.

Only three functions change statistics: `add` (a child, pending), `settle` (its verdict, with the
backup) and `visit` (one descent). The rules are those of docs/search.md: max backup, failures
that inform text and priors only, equal templates that share one node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from ptxsearch.evaluation import Evaluation
from ptxsearch.kernel import Edit, Idea, Kernel

State = Literal["pending", "ok", "failed", "repeated"]


@dataclass(slots=True)
class Edge:
    """One edit from a parent to a child: its prior and how often it was descended."""

    parent: int
    child: int
    prior: float
    visits: int = 0
    alias: bool = False


@dataclass(slots=True)
class Node:
    """A kernel template with its best known values and the verdict on them.

    `reward` is that of its best configuration (a lower bound of log speedup over the baseline),
    `value` the best reward of its subtree; both None until something in it passed. `family` is
    the root child it descends from (0 at the root).
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
    parents: list[Edge] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)

    @property
    def visits(self) -> int:
        """Descents through this node to a child."""
        return sum(edge.visits for edge in self.edges)


class Tree:
    """All nodes of a run by number; node 0 is the baseline."""

    def __init__(self, baseline: Kernel) -> None:
        root = Node(0, baseline, Edit("baseline", "the task's baseline"), depth=0, family=0)
        self.nodes: list[Node] = [root]

    @property
    def root(self) -> Node:
        """The baseline's node."""
        return self.nodes[0]

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
        edge = Edge(parent.id, number, prior)
        parent.edges.append(edge)
        child.parents.append(edge)
        self.nodes.append(child)
        return child

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
        node.state = state
        node.evaluation = evaluation if evaluation is not None else node.evaluation
        node.kernel = kernel if kernel is not None else node.kernel
        if state == "ok":
            node.reward = reward
        self._backup(node)

    def visit(self, path: list[Edge]) -> None:
        """Count one descent along `path`."""
        for edge in path:
            edge.visits += 1

    def share(self, edge: Edge, twin: Node) -> None:
        """Point `edge` at `twin`, whose template equals the child's; the old child is repeated.

        An edge that would close a cycle becomes an alias: kept, never descended.
        """
        old = self.nodes[edge.child]
        old.state = "repeated"
        parent = self.nodes[edge.parent]
        edge.alias = twin is parent or self._is_ancestor(twin, parent)
        edge.child = twin.id
        if not edge.alias:
            twin.parents.append(edge)
        self._backup(parent)

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
        # Recomputed, not incremented, so that a later and lower verdict also reaches ancestors.
        pending = [node]
        while pending:
            current = pending.pop()
            values = [
                value
                for edge in current.edges
                if not edge.alias and (value := self.nodes[edge.child].value) is not None
            ]
            if current.reward is not None:
                values.append(current.reward)
            best = max(values, default=None)
            if best != current.value or current is node:
                current.value = best
                pending.extend(self.nodes[edge.parent] for edge in current.parents)


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
        return max(
            self._tree.nodes,
            key=lambda node: (-1e9 if node.reward is None else node.reward, -node.id),
        )

    def children(self, node: Node) -> tuple[Node, ...]:
        """Every attempt at `node` in order: passed, failed and pending."""
        return tuple(self._tree.nodes[edge.child] for edge in node.edges)

    def lineage(self, node: Node) -> tuple[Node, ...]:
        """From the root to `node` along first parents."""
        path = [node]
        while path[-1].parents:
            path.append(self._tree.nodes[path[-1].parents[0].parent])
        return tuple(reversed(path))
