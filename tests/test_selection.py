"""Selection: scores worked out by hand, widening, families, dead ends."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ptxsearch.kernel import Edit
from ptxsearch.policy import Policy
from ptxsearch.selection import Situation, scaled, select, used, width
from ptxsearch.tree import Node, Tree
from tests.toy import toy_kernel

RNG = np.random.default_rng(0)
EDIT = Edit("s", "e")


def grow(tree: Tree, parent: Node, reward: float | None, *, prior: float = 1.0) -> Node:
    """A child that passed, or failed where `reward` is None."""
    node = tree.add(parent, toy_kernel(f"k{len(tree.nodes)}"), EDIT, prior=prior, idea=None)
    tree.visit(node.parents, settled=False)
    tree.visit(node.parents, settled=True)
    tree.settle(node, "failed" if reward is None else "ok", reward=reward)
    return node


def started() -> Tree:
    """A tree whose root passed."""
    tree = Tree(toy_kernel())
    tree.settle(tree.root, "ok", reward=0.0)
    return tree


def test_waits_for_the_root() -> None:
    """Nothing is selected before the baseline passed."""
    assert select(Tree(toy_kernel()), Policy(), Situation(), RNG) is None


def test_width_grows_with_visits() -> None:
    """K = max(5, ceil(N^0.35)); at the root at least the window."""
    tree = started()
    child = grow(tree, tree.root, 0.1)
    child.visits = 10_000
    assert width(child, Policy(), Situation()) == math.ceil(10_000**0.35) == 26
    child.visits = 3
    assert width(child, Policy(), Situation()) == 5
    assert width(tree.root, Policy(window=9), Situation()) == 9


def test_failures_fill_half_a_place() -> None:
    """Used = passed + in flight + half of what was lost."""
    tree = started()
    for reward in (0.1, None, None, None):
        grow(tree, tree.root, reward)
    tree.add(tree.root, toy_kernel("p"), EDIT, prior=1.0, idea=None)
    assert used(tree.root) == 1 + 1 + 1.5


def test_scaled_value() -> None:
    """Q is 0 at the lowest reward, 1 at the highest, .5 where nothing is known."""
    tree = started()
    grow(tree, tree.root, 0.4)
    assert (scaled(tree, 0.0), scaled(tree, 0.4), scaled(tree, None)) == (0.0, 1.0, 0.5)


def test_small_spreads_are_not_blown_up() -> None:
    """A spread below .05 counts as .05."""
    tree = started()
    grow(tree, tree.root, 0.01)
    assert scaled(tree, 0.01) == pytest.approx(0.2)


def test_score_trades_value_for_exploration() -> None:
    """The edge with the larger q + c sqrt(ln(N+1)/n) + b P/(1+n), computed by hand, is taken."""
    tree = started()
    tree.close(tree.root)
    low, high = grow(tree, tree.root, 0.30), grow(tree, tree.root, 0.32)
    low.parents[0].visits, high.parents[0].visits = 1, 400
    tree.root.visits = 401
    policy = Policy(exploration=0.1, prior_weight=0.05)
    score_low = 0.30 / 0.32 + 0.1 * math.sqrt(math.log(402) / 1) + 0.05 * 0.5 / 2
    score_high = 1.0 + 0.1 * math.sqrt(math.log(402) / 400) + 0.05 * 0.5 / 401
    assert score_low > score_high
    found = select(tree, policy, Situation(), RNG)
    assert found is not None
    assert found.node is low
    greedy = select(tree, Policy(exploration=0.0, prior_weight=0.0), Situation(), RNG)
    assert greedy is not None
    assert greedy.node is high


def test_priors_break_ties() -> None:
    """Of two equal children the one with the larger prior is descended."""
    tree = started()
    tree.close(tree.root)
    grow(tree, tree.root, 0.1, prior=0.2)
    favoured = grow(tree, tree.root, 0.1, prior=0.8)
    found = select(tree, Policy(), Situation(), RNG)
    assert found is not None
    assert found.node is favoured


def test_full_family_is_not_descended() -> None:
    """A family with its share in flight is left alone."""
    tree = started()
    tree.close(tree.root)
    best, other = grow(tree, tree.root, 0.9), grow(tree, tree.root, 0.1)
    found = select(tree, Policy(), Situation(full={best.family}), RNG)
    assert found is not None
    assert found.node is other


def test_open_node_without_a_way_down_is_widened() -> None:
    """Where no child can be descended an open node is expanded beyond its width."""
    tree = started()
    for _ in range(30):
        grow(tree, tree.root, None)
    assert used(tree.root) > width(tree.root, Policy(), Situation())
    found = select(tree, Policy(), Situation(), RNG)
    assert found is not None
    assert found.node is tree.root


def test_closed_dead_end_sends_the_search_elsewhere() -> None:
    """A closed child whose own child is pending blocks this way only."""
    tree = started()
    tree.close(tree.root)
    best, other = grow(tree, tree.root, 0.9), grow(tree, tree.root, 0.1)
    tree.add(best, toy_kernel("p"), EDIT, prior=1.0, idea=None)
    tree.close(best)
    found = select(tree, Policy(), Situation(), RNG)
    assert found is not None
    assert found.node is other


def test_exhausted_root_ends() -> None:
    """Nothing is selected in a tree that is closed throughout."""
    tree = started()
    tree.close(tree.root)
    tree.close(grow(tree, tree.root, 0.1))
    for rule in ("mcts", "greedy", "beam", "best_of_n", "random"):
        assert select(tree, Policy(rule=rule), Situation(), RNG) is None  # type: ignore[arg-type]


def test_greedy_takes_the_best_open_node() -> None:
    """Greedy expands the incumbent, and the next best once that is closed."""
    tree = started()
    first, second = grow(tree, tree.root, 0.9), grow(tree, tree.root, 0.5)
    found = select(tree, Policy(rule="greedy"), Situation(), RNG)
    assert found is not None
    assert found.node is first
    tree.close(first)
    found = select(tree, Policy(rule="greedy"), Situation(), RNG)
    assert found is not None
    assert found.node is second


def test_beam_expands_its_members_in_turn() -> None:
    """The beam spreads over its width, the least expanded member first."""
    tree = started()
    members = [grow(tree, tree.root, reward) for reward in (0.9, 0.8)]
    grow(tree, tree.root, 0.1)
    chosen = []
    for _ in range(4):
        found = select(tree, Policy(rule="beam", beam_width=2), Situation(), RNG)
        assert found is not None
        chosen.append(found.node.id)
        grow(tree, found.node, None)
    assert chosen == [members[0].id, members[1].id] * 2


def test_path_leads_from_the_root() -> None:
    """The descent's edges connect the root with the chosen node."""
    tree = started()
    tree.close(tree.root)
    a = grow(tree, tree.root, 0.5)
    tree.close(a)
    b = grow(tree, a, 0.7)
    found = select(tree, Policy(), Situation(), RNG)
    assert found is not None
    assert [(edge.parent, edge.child) for edge in found.path] == [(0, a.id), (a.id, b.id)]


def test_remembered_choice_is_the_scanned_one() -> None:
    """What selection remembers between decisions never changes what it chooses."""
    rng = np.random.default_rng(3)
    tree = started()
    for _ in range(400):
        found = select(tree, Policy(), Situation(hidden=int(rng.integers(3))), RNG)
        assert found is not None
        for node in tree.nodes:
            node.choice = None
        scanned = select(tree, Policy(), Situation(hidden=0), RNG)
        again = select(tree, Policy(), Situation(hidden=0), RNG)
        assert scanned is not None
        assert again is not None
        assert scanned.node is again.node
        tree.visit(found.path, settled=False)
        tree.visit(found.path, settled=True)
        reward = (found.node.reward or 0.0) + float(rng.normal(-0.1, 0.2))
        grow(tree, found.node, reward if rng.random() < 0.7 else None)
        if rng.random() < 0.05:
            tree.close(tree.nodes[int(rng.integers(len(tree.nodes)))])
