"""The tree: backup, counts, closing, sharing, against brute force."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxsearch.kernel import Edit
from ptxsearch.tree import Node, Tree, TreeView
from tests.toy import toy_kernel

EDIT = Edit("s", "e")


def passed(tree: Tree, parent: Node, reward: float) -> Node:
    """A child that passed with `reward`."""
    node = tree.add(parent, toy_kernel(f"k{len(tree.nodes)}"), EDIT, prior=1.0, idea=None)
    tree.settle(node, "ok", reward=reward)
    return node


def started(reward: float = 0.0) -> Tree:
    """A tree whose root passed."""
    tree = Tree(toy_kernel())
    tree.settle(tree.root, "ok", reward=reward)
    return tree


def best_below(tree: Tree, node: Node, seen: frozenset[int] = frozenset()) -> float | None:
    """The largest reward in the subtree, by walking all of it."""
    values = [] if node.reward is None else [node.reward]
    for edge in node.edges:
        if not edge.alias and edge.child not in seen:
            value = best_below(tree, tree.nodes[edge.child], seen | {node.id})
            values += [] if value is None else [value]
    return max(values, default=None)


def test_value_is_the_maximum_of_the_subtree() -> None:
    """Backup takes the maximum, not the mean."""
    tree = started()
    a = passed(tree, tree.root, 0.1)
    b = passed(tree, a, 0.5)
    passed(tree, a, 0.2)
    assert (tree.root.value, a.value, b.value) == (0.5, 0.5, 0.5)


def test_failure_leaves_values_alone() -> None:
    """A failed child neither raises nor lowers its parent's value."""
    tree = started(0.3)
    child = tree.add(tree.root, toy_kernel("x"), EDIT, prior=1.0, idea=None)
    tree.settle(child, "failed")
    assert tree.root.value == 0.3
    assert (tree.root.passed, tree.root.lost, tree.root.losses) == (0, 1, 1)


def test_a_later_lower_verdict_reaches_the_root() -> None:
    """When the best node loses its reward, every ancestor's value falls."""
    tree = started()
    a = passed(tree, tree.root, 0.4)
    b = passed(tree, a, 0.9)
    tree.settle(b, "ok", reward=0.1)
    assert (tree.root.value, a.value) == (0.4, 0.4)


def test_visits_count_once_settled() -> None:
    """A descent is pending first and a visit when its result came."""
    tree = started()
    child = tree.add(tree.root, toy_kernel("x"), EDIT, prior=1.0, idea=None)
    tree.visit(child.parents, settled=False)
    assert (child.parents[0].pending, tree.root.visits) == (1, 0)
    tree.visit(child.parents, settled=True)
    assert (child.parents[0].pending, child.parents[0].visits, tree.root.visits) == (0, 1, 1)


def test_family_is_the_root_child() -> None:
    """Every node below a root child belongs to its family."""
    tree = started()
    a = passed(tree, tree.root, 0.1)
    b = passed(tree, passed(tree, a, 0.2), 0.3)
    assert (tree.root.family, a.family, b.family) == (0, a.id, a.id)


def test_closed_parent_is_exhausted_with_its_last_child() -> None:
    """Exhaustion needs the node and everything that passed below it closed."""
    tree = started()
    a = passed(tree, tree.root, 0.1)
    tree.close(tree.root)
    assert not tree.root.exhausted
    tree.close(a)
    assert a.exhausted
    assert tree.root.exhausted


def test_twin_is_shared_and_a_cycle_becomes_an_alias() -> None:
    """An equal template keeps one node; an edge to an ancestor is never descended."""
    tree = started()
    a, b = passed(tree, tree.root, 0.1), passed(tree, tree.root, 0.2)
    twin = tree.add(b, toy_kernel("t"), EDIT, prior=1.0, idea=None)
    tree.share(twin, a)
    assert twin.state == "repeated"
    assert [edge.parent for edge in a.parents] == [0, b.id]
    back = tree.add(a, toy_kernel("u"), EDIT, prior=1.0, idea=None)
    tree.share(back, b)
    assert back.parents[0].alias
    improved = passed(tree, a, 0.9)
    assert improved.value == 0.9
    assert (b.value, tree.root.value) == (0.9, 0.9)


def test_view_knows_lineage_and_incumbent() -> None:
    """Proposers see the path from the root and the best node."""
    tree = started()
    a = passed(tree, tree.root, 0.1)
    b = passed(tree, a, 0.5)
    view = TreeView(tree)
    assert [node.id for node in view.lineage(b)] == [0, a.id, b.id]
    assert view.incumbent is b
    assert view.children(a) == (b,)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 60))
def test_values_and_ranking_equal_brute_force(seed: int, steps: int) -> None:
    """After any sequence of additions, verdicts and corrections the incremental state is exact."""
    rng = np.random.default_rng(seed)
    tree = started()
    for _ in range(steps):
        ok = [node for node in tree.nodes if node.state == "ok"]
        node = ok[int(rng.integers(len(ok)))]
        action = rng.random()
        if action < 0.5:
            passed(tree, node, float(rng.normal()))
        elif action < 0.7:
            child = tree.add(node, toy_kernel("f"), EDIT, prior=1.0, idea=None)
            tree.settle(child, "failed")
        elif action < 0.9:
            tree.settle(node, "ok", reward=float(rng.normal()))
        else:
            tree.share(tree.add(node, toy_kernel("t"), EDIT, prior=1.0, idea=None), ok[0])
    for node in tree.nodes:
        assert node.value == best_below(tree, node)
    rewards = {n.id: n.reward for n in tree.nodes if n.reward is not None}
    assert list(tree.ranking) == sorted(rewards, key=lambda n: (-rewards[n], n))
    assert (tree.lowest, tree.highest) == (min(rewards.values()), max(rewards.values()))
