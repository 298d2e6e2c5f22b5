"""Whose parameters come next: blocks, halving over families, what a child takes from its parent."""

from __future__ import annotations

from ptxsearch.kernel import Edit
from ptxsearch.policy import Policy
from ptxsearch.tree import Node, Tree
from ptxsearch.tuner import Told
from ptxsearch.tuning import Tunings, first_block
from tests.toy import toy_kernel


def started(tree: Tree, parent: Node | None, reward: float) -> Node:
    """A node that passed."""
    node = tree.root
    if parent is not None:
        text = f"k{len(tree.nodes)}"
        node = tree.add(parent, toy_kernel(text), Edit("s", "e"), prior=1.0, idea=None)
    tree.settle(node, "ok", reward=reward)
    return node


def spend(tunings: Tunings, count: int, seconds: float = 1.0) -> list[int]:
    """Ask and tell `count` configurations, each a little slower; whose they were."""
    chosen = []
    for number in range(count):
        found = tunings.next(last_resort=False)
        assert found is not None
        node, values = found
        tunings.hold(node, values)
        tunings.tell(node, Told(values, seconds * (1 + 0.1 * number)))
        chosen.append(node.id)
    return chosen


def test_first_block_follows_the_budget() -> None:
    """A sixteenth of the trials, within 5 and 25."""
    assert [first_block(trials) for trials in (10, 160, 1000, None)] == [5, 10, 25, 5]


def test_every_template_gets_a_block_before_one_gets_two() -> None:
    """Rung 0 goes round all templates, the better one first; then the better half goes on."""
    tree = Tree(toy_kernel())
    tunings = Tunings(tree, Policy(tune_spread=0.0), trials=80, seed=0)
    root = started(tree, None, 0.0)
    good = started(tree, root, 0.5)
    tunings.start(root, 1.0)
    tunings.start(good, 0.5)
    order = spend(tunings, 10)
    assert order == [good.id] * 5 + [root.id] * 5
    found = tunings.next(last_resort=False)
    assert found is not None
    assert found[0] is good


def test_flat_template_is_left_alone() -> None:
    """A template whose times hardly differ gets no second block."""
    tree = Tree(toy_kernel())
    tunings = Tunings(tree, Policy(tune_spread=0.5), trials=80, seed=0)
    tunings.start(started(tree, None, 0.0), 1.0)
    spend(tunings, 5, seconds=1.0)
    assert tunings.next(last_resort=False) is None
    assert tunings.next(last_resort=True) is None


def test_child_tries_its_parents_best_first() -> None:
    """A template made from a tuned one starts from the values that were best there."""
    tree = Tree(toy_kernel())
    tunings = Tunings(tree, Policy(), trials=80, seed=0)
    root = started(tree, None, 0.0)
    tunings.start(root, 1.0)
    best = {"A": 8, "B": 2}
    tunings.tell(root, Told({"A": 2, "B": 1}, 0.7))
    tunings.tell(root, Told(best, 0.2))
    child = started(tree, root, 0.5)
    tunings.start(child, 0.9)
    found = tunings.next(last_resort=False)
    assert found == (child, best)


def test_nothing_is_marked_before_it_is_held() -> None:
    """Asking twice without holding gives the same answer; holding moves on."""
    tree = Tree(toy_kernel())
    tunings = Tunings(tree, Policy(), trials=80, seed=0)
    tunings.start(started(tree, None, 0.0), 1.0)
    first = tunings.next(last_resort=False)
    assert first == tunings.next(last_resort=False)
    assert first is not None
    tunings.hold(*first)
    assert tunings.next(last_resort=False) != first
