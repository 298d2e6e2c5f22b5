"""The ablation of search policies: its statistics, its bank of kernels, its drawn worlds."""

from __future__ import annotations

import importlib
import math
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from ptxsearch.kernel import Edit, Kernel
from ptxsearch.policy import Policy
from ptxsearch.selection import Situation
from ptxsearch.tree import Node, Tree, TreeView

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def ablation() -> ModuleType:
    """The benchmark as a module; its parts lie beside it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        return importlib.import_module("ablation")


def test_an_interval_is_that_of_the_normal_mean(ablation: ModuleType) -> None:
    """400 draws of spread 2 about 1: mean +- 1.96 * 2 / 20, up to the bootstrap's own noise."""
    values = np.random.default_rng(5).normal(size=400)
    values = 1 + 2 * (values - values.mean()) / values.std()
    low, high = ablation.interval({"a": values[:200], "b": values[200:]}, by_task=False)
    assert low == pytest.approx(1 - 0.196, abs=0.01)
    assert high == pytest.approx(1 + 0.196, abs=0.01)


def test_tasks_that_differ_widen_the_interval_by_task(ablation: ModuleType) -> None:
    """Two tasks of constant lead 0 and 1: whole tasks drawn twice give 0 to 1."""
    lead = {"a": np.zeros(50), "b": np.ones(50)}
    assert ablation.interval(lead, by_task=True) == [0.0, 1.0]
    low, high = ablation.interval(lead, by_task=False)
    assert 0.35 < low < 0.5 < high < 0.65


def test_leads_are_paired(ablation: ModuleType) -> None:
    """Every run 0.1 above the reference's of its seed: a lead of 0.1 without spread."""
    curve = np.random.default_rng(1).random((6, 4)).cumsum(axis=1)
    row = ablation.compared({"greedy": {"t": curve}, "other": {"t": curve + 0.1}})[1]
    assert row["lead"] == pytest.approx(0.1)
    assert row["interval"] == pytest.approx([0.1, 0.1])
    assert row["lead on the way"] == pytest.approx(0.1)


def test_repeats_are_counted_at_the_node_and_anywhere(ablation: ModuleType) -> None:
    """Of two first, two second and one third idea, one second and the third repeat."""
    proposals = ((0, "x"), (1, "x"), (0, "y"), (1, "z"), (0, "x"))
    table = ablation.repeats([ablation.Run(np.zeros(5), proposals, ())])
    assert [row["ideas"] for row in table] == [2, 2, 1]
    assert [row["at node"] for row in table] == [0, 0, 1]
    assert [row["anywhere"] for row in table] == [0.5, 0, 1]


def test_a_drawn_world_fails_as_often_as_its_family_says(ablation: ModuleType) -> None:
    """70 of 100 kernels fail; 600 draws are within four standard errors of it."""
    world = ablation.drawn_world("plain", 3)
    rng = np.random.default_rng(0)
    kernels = []
    for _ in range(600):
        tokens = sorted(
            f"{i}{'abc'[rng.integers(3)]}" for i in rng.choice(24, size=4, replace=False)
        )
        source = " ".join(["start", *tokens])
        kernels.append(type(world.task.baseline)(**{**vars(world.task.baseline), "source": source}))
    failed = sum(not world.evaluator.evaluate(world.task, k).ok for k in kernels) / 600
    assert failed == pytest.approx(0.7, abs=4 * math.sqrt(0.21 / 600))


@pytest.mark.parametrize("rule", ["mcts", "greedy", "beam", "best_of_n", "random"])
def test_runs_cost_the_same_and_never_get_worse(ablation: ModuleType, rule: str) -> None:
    """Every policy makes exactly the decisions it is given."""
    policy = Policy(rule=rule, stop_within=0.0)  # type: ignore[arg-type]
    run = ablation.search(ablation.drawn_world("plain", 0), policy, decisions=25, seed=0)
    assert len(run.statuses) == len(run.curve) == 25
    assert (np.diff(run.curve) >= 0).all()


def test_the_bank_on_file_gives_a_run_without_judging(ablation: ModuleType) -> None:
    """Templates of saxpy have verdicts on file, so that a search over them needs no device."""
    policy = Policy(stop_within=0.0, tune_share=0.0)
    run = ablation.search(
        ablation.bank_world("saxpy", 0, tuned=False), policy, decisions=10, seed=0
    )
    assert run.statuses.count("OK") >= 8
    assert 0 < run.curve[-1] < math.log(10)


def test_edits_that_commute_are_one_template(ablation: ModuleType) -> None:
    """In a bank no template stands twice, and every idea leads to one that it holds."""
    bank = ablation.bank_world("sum", 0).proposer.bank
    templates = [kernel.template for kernel in bank.kernels.values()]
    assert len(set(templates)) == len(templates)
    for made in bank.kernels:
        assert all(idea.made in bank.kernels for idea in bank.ideas(made))


def child(tree: Tree, parent: Node, kernel: Kernel | None, reward: float | None = None) -> Node:
    """A child of `parent`, settled where a reward is given."""
    node = tree.add(parent, kernel, Edit("e", "an edit"), prior=1.0, idea=None)
    if reward is not None:
        tree.settle(node, "ok", reward=reward)
    return node


def test_a_mean_tree_backs_up_the_mean_of_what_passed(ablation: ModuleType) -> None:
    """Rewards 0 over .4 (over .8 and a failure) and -.2: the means are .6 and .25; one may fall."""
    start = ablation.drawn_world("plain", 0).task.baseline
    (made,) = ablation.SWITCHES["mean backup"].parts.values()
    tree = made(start)
    tree.settle(tree.root, "ok", reward=0.0)
    first = child(tree, tree.root, start, 0.4)
    deep = child(tree, first, start, 0.8)
    tree.settle(child(tree, first, start), "failed")
    child(tree, tree.root, start, -0.2)
    assert (first.value, tree.root.value) == pytest.approx((0.6, 0.25))
    tree.settle(deep, "ok", reward=0.0)
    assert (first.value, tree.root.value) == pytest.approx((0.2, 0.05))


def test_templates_kept_apart_share_no_node_but_with_a_sibling(ablation: ModuleType) -> None:
    """By another parent an equal template is a node with the twin's reward; a sibling repeats."""
    start = ablation.drawn_world("plain", 0).task.baseline
    (grown,) = ablation.SWITCHES["transpositions off"].parts.values()
    tree = grown(start)
    tree.settle(tree.root, "ok", reward=0.0)
    made = replace(start, source="start 1a 2b")
    twin = child(tree, child(tree, tree.root, replace(start, source="start 1a"), 0.1), made, 0.3)
    other = child(tree, tree.root, replace(start, source="start 2b"), 0.2)
    apart, again = child(tree, other, made), child(tree, other, made)
    tree.share(apart, twin)
    assert (apart.state, apart.reward, len(twin.parents)) == ("ok", 0.3, 1)
    tree.share(again, twin)
    assert (again.state, other.passed, other.lost) == ("repeated", 1, 1)


def test_workers_change_the_order_of_verdicts_and_in_order_mode_nothing_else(
    ablation: ModuleType,
) -> None:
    """16 workers of drawn speed give the run of one, sooner; without order they give another."""
    runs = {
        (order, workers): ablation.search(
            ablation.drawn_world("plain", 1),
            Policy(stop_within=0.0, order=order),
            decisions=40,
            seed=1,
            workers=workers,
        )
        for order, workers in ((True, 1), (True, 16), (False, 16))
    }
    one, ordered, live = runs.values()
    assert one.statuses == ordered.statuses
    assert one.proposals == ordered.proposals != live.proposals
    assert len(live.statuses) == 40
    assert live.elapsed < ordered.elapsed < one.elapsed / 2


def test_a_world_of_plans_has_so_many_different_ideas_at_a_node(ablation: ModuleType) -> None:
    """A plan of ideas is 8 different ones; a node that had them is asked for no more."""
    run = ablation.search(
        ablation.drawn_world("plans", 2),
        Policy(rule="best_of_n", stop_within=0.0, tune_share=0.0),
        decisions=20,
        seed=2,
    )
    assert len(set(run.proposals)) == len(run.proposals) == 8


def test_a_plan_is_shorter_where_fewer_ideas_are_left(ablation: ModuleType) -> None:
    """A kernel with 22 of 24 ideas has two of three variants left, fewer than the plan of 8."""
    world = ablation.drawn_world("plans", 2)
    source = " ".join(["start", *(f"{i}a" for i in range(22))])
    tree = Tree(replace(world.task.baseline, source=source))
    view, rng = TreeView(tree), np.random.default_rng(0)
    drawn = []
    while found := world.proposer.propose(view, tree.root, 1, rng):
        drawn.append(found[0].edit.summary)
        tree.add(tree.root, found[0].kernel, found[0].edit, prior=1.0, idea=None)
    assert sorted(drawn) == ["22a", "22b", "22c", "23a", "23b", "23c"]


def test_a_node_that_a_child_beats_is_full(ablation: ModuleType) -> None:
    """One better child fills a node, not the root; a worse one does not."""
    (rule,) = ablation.SWITCHES["beaten is full"].parts.values()
    tree = Tree(ablation.drawn_world("plain", 0).task.baseline)
    tree.settle(tree.root, "ok", reward=0.0)
    first = child(tree, tree.root, None, 0.3)
    child(tree, first, None, 0.2)
    now = Policy(), Situation()
    assert not rule(first, *now)
    child(tree, first, None, 0.4)
    assert rule(first, *now)
    assert not rule(tree.root, *now)
