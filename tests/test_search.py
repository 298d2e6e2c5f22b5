"""The search: budgets, order mode, resume, incumbents."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxsearch.budget import Budget
from ptxsearch.errors import StoreError, UsageError
from ptxsearch.evaluation import Evaluation
from ptxsearch.kernel import Kernel, Proposal
from ptxsearch.menu import Menu, MenuEdit
from ptxsearch.policy import Policy
from ptxsearch.search import Search
from ptxsearch.store import MemoryStore, SQLiteStore
from tests.toy import ToyProposer, toy_task, toy_verdict

RULES = ["mcts", "greedy", "beam", "best_of_n", "random"]


def run(search: Search, *, workers: int = 1, shuffle: int = 0) -> Search:
    """Drive a search with results that come back in a shuffled order."""
    rng = np.random.default_rng(shuffle)
    flying: list[Proposal] = []
    while True:
        flying += search.ask(workers - len(flying))
        if not flying:
            return search
        number = int(rng.integers(len(flying))) if shuffle else 0
        proposal = flying.pop(number)
        assert proposal.kernel is not None
        search.tell([(proposal.id, toy_verdict(proposal.kernel))])


def start(**keywords: Any) -> Search:
    """A toy search."""
    keywords.setdefault("budget", Budget(trials=60))
    return Search(toy_task(), proposers=[ToyProposer()], **keywords)


def digest(search: Search) -> str:
    """A hash of everything the tree and the trials hold."""
    tree = [
        (n.id, n.state, n.reward, n.value, n.visits, n.closed, [vars_of(e) for e in n.edges])
        for n in search.progress.tree.nodes
    ]
    trials = [trial.to_dict() for trial in search.progress.trials]
    return hashlib.sha256(json.dumps([tree, trials], default=str).encode()).hexdigest()


def vars_of(edge: Any) -> list[Any]:
    """The fields of an edge."""
    return [edge.parent, edge.child, edge.prior, edge.visits, edge.pending, edge.alias]


@pytest.mark.parametrize("rule", RULES)
def test_budget_is_exact(rule: str) -> None:
    """Every rule spends the trials it was given and never one more."""
    search = run(start(policy=Policy(rule=rule), budget=Budget(trials=40)))
    result = search.result()
    charged = sum(trial.charged for trial in result.trials)
    assert charged == result.spend.trials
    assert charged == 40 or result.reason == "no proposer has an idea left"
    assert charged <= 40


@pytest.mark.parametrize("rule", RULES)
def test_same_tree_for_any_number_of_workers(rule: str) -> None:
    """In order mode 1, 4 and 16 workers, with results shuffled, give one tree."""
    policy = Policy(rule=rule, window=16)
    digests = {
        digest(run(start(policy=policy), workers=workers, shuffle=seed))
        for workers, seed in [(1, 0), (4, 3), (16, 5), (16, 8)]
    }
    assert len(digests) == 1


def test_seed_changes_random_choices() -> None:
    """Two seeds of the random policy give two trees."""
    trees = {digest(run(start(policy=Policy(rule="random"), seed=seed))) for seed in (1, 2)}
    assert len(trees) == 2


def test_best_is_the_fastest_that_passed() -> None:
    """The result names the largest reward among all trials, and incumbents only improve."""
    result = run(start()).result()
    passed = [trial for trial in result.trials if trial.evaluation.ok]
    assert result.best is not None
    assert result.best.trial.reward == max(trial.reward for trial in passed)
    rewards = [trial.reward for trial in result.incumbents]
    assert rewards == sorted(rewards)
    fastest = min(trial.evaluation.seconds for trial in passed)
    assert result.best.seconds == fastest


@pytest.mark.parametrize("window", [1, 4])
def test_resume_at_every_event(window: int) -> None:
    """A run cut after any event goes on to the tree of a run that was not cut."""
    policy = Policy(window=window)
    whole = MemoryStore()
    expected = digest(run(start(store=whole, policy=policy, budget=Budget(trials=25))))
    events = list(whole.events())
    for cut in range(1, len(events)):
        store = MemoryStore()
        store._blobs = dict(whole._blobs)
        for event in events[:cut]:
            store.append(event)
        resumed = run(start(store=store, policy=policy, budget=Budget(trials=25)))
        assert digest(resumed) == expected, f"cut after event {cut}"


def test_resumed_run_asks_again_for_what_was_not_told() -> None:
    """A proposal that was asked and never told is asked first on resume, under its number."""
    store = MemoryStore()
    search = start(store=store)
    (baseline,) = search.ask()
    search.tell([("0", toy_verdict(baseline.kernel))])  # type: ignore[arg-type]
    (lost,) = search.ask()
    (again,) = start(store=store).ask()
    assert again == lost


def test_foreign_store_is_refused() -> None:
    """A store of another policy is not resumed, and nothing is written to it."""
    store = MemoryStore()
    run(start(store=store))
    count = len(list(store.events()))
    with pytest.raises(StoreError, match="another policy"):
        start(store=store, policy=Policy(rule="greedy"))
    assert len(list(store.events())) == count


def test_larger_budget_goes_on() -> None:
    """A finished run resumed with more trials spends the rest."""
    store = MemoryStore()
    run(start(store=store, budget=Budget(trials=20)))
    result = run(start(store=store, budget=Budget(trials=30))).result()
    assert result.spend.trials == 30


def test_unknown_and_repeated_results_are_refused() -> None:
    """A verdict is taken once, and only for what was asked."""
    search = start()
    (baseline,) = search.ask()
    verdict = toy_verdict(baseline.kernel)  # type: ignore[arg-type]
    search.tell([("0", verdict)])
    for identifier in ("0", "7", "x"):
        with pytest.raises(UsageError, match="not waiting"):
            search.tell([(identifier, verdict)])


def test_failing_baseline_ends_the_run() -> None:
    """Without a baseline that passes nothing is searched."""
    search = start()
    search.ask()
    search.tell([("0", Evaluation("WRONG", "correctness", "differs"))])
    assert search.ask() == []
    assert search.done
    assert search.result().best is None
    assert "baseline is WRONG" in search.result().reason


def test_infra_is_not_charged() -> None:
    """A fault of the machine costs the kernel nothing."""
    search = start()
    search.ask()
    search.tell([("0", toy_verdict(search.task.baseline))])
    (proposal,) = search.ask()
    search.tell([(proposal.id, Evaluation("INFRA", "quick", "the driver went away"))])
    run(search)
    trial = next(t for t in search.progress.trials if t.proposal.id == proposal.id)
    assert not trial.charged


def test_tuning_takes_at_most_its_share() -> None:
    """While a proposer has ideas, parameters get no more than their share of decisions."""
    search = run(start(policy=Policy(tune_share=0.25), budget=Budget(trials=80)))
    tunes = sum(trial.proposal.kind == "tune" for trial in search.progress.trials)
    assert 0 < tunes <= 0.25 * len(search.progress.trials) + 1


def test_no_configuration_is_measured_twice() -> None:
    """Within a template no values are tried twice."""
    search = run(start(budget=Budget(trials=200)))
    seen = [
        (t.node, tuple(sorted(t.proposal.kernel.values.items())))
        for t in search.progress.trials
        if t.proposal.kernel is not None
    ]
    assert len(seen) == len(set(seen))


def test_equal_templates_share_a_node() -> None:
    """A rewrite that gives a known template back is a repeat and adds no node to descend."""

    class Again(ToyProposer):
        def propose(self, view: Any, node: Any, n: int, rng: Any) -> list[Proposal]:
            found = super().propose(view, node, n, rng)
            return [Proposal("", p.parent, view.root.kernel, p.edit, prior=p.prior) for p in found]

    search = Search(toy_task(space=None), proposers=[Again()], budget=Budget(trials=10))
    result = run(search).result()
    assert {node.state for node in search.progress.tree.nodes[1:]} == {"repeated"}
    assert result.spend.trials == 0


def test_an_edit_that_led_to_a_known_template_is_not_proposed_again() -> None:
    """Edits a, b and c commute: 8 sets of them, 12 ways to add one, each is proposed once."""

    def add(letter: str) -> MenuEdit:
        def apply(kernel: Kernel) -> Kernel | None:
            made = set(kernel.source.split()[1:])
            if letter in made:
                return None
            return replace(kernel, source=" ".join(["start", *sorted(made | {letter})]))

        return MenuEdit(letter, letter, 0.5, apply)

    menu = Menu((add("a"), add("b"), add("c")))
    for rule in RULES[:3]:
        policy = Policy(rule=rule, stop_within=0)  # type: ignore[arg-type]
        search = Search(toy_task(space=None), proposers=[menu], policy=policy)
        while batch := search.ask(1):
            for proposal in batch:
                assert proposal.kernel is not None
                search.tell([(proposal.id, toy_verdict(proposal.kernel, failing=False))])
        made = [(t.proposal.parent, t.proposal.edit.strategy) for t in search.progress.trials[1:]]
        assert len(made) == len(set(made)) == 12
        assert sum(node.state == "ok" for node in search.view) == 8


@pytest.mark.parametrize(("share", "most"), [(1.0, 4), (0.5, 2)])
def test_a_bound_on_families_keeps_the_best_one_from_taking_all_in_flight(
    share: float, most: int
) -> None:
    """Below the root, four proposals in flight may be of one family unless the policy bounds it."""
    policy = Policy(window=4, tune_share=0.0, family_share=share, stop_within=0.0)
    search = start(policy=policy, budget=Budget(trials=80))
    found = 0
    while batch := search.ask(1):
        flying = [a.node.family for a in search.progress.waiting.values() if a.node.depth > 1]
        found = max([found, *(flying.count(family) for family in set(flying))])
        for proposal in batch:
            assert proposal.kernel is not None
            search.tell([(proposal.id, toy_verdict(proposal.kernel, failing=False))])
    assert found == most


def test_first_decision_is_the_baseline() -> None:
    """Trial 0 is the baseline, before anything is proposed."""
    search = start()
    (first,) = search.ask(5)
    assert (first.id, first.kernel) == ("0", search.task.baseline)
    assert search.ask(5) == []


def test_a_pause_leaves_the_tree_as_it_would_have_been() -> None:
    """A run paused with results that no decision has seen goes on to the uninterrupted tree."""
    policy = Policy(window=8)
    expected = digest(run(start(policy=policy, budget=Budget(trials=25))))
    store = MemoryStore()
    search = start(policy=policy, budget=Budget(trials=25), store=store)
    search.ask()
    search.tell([("0", toy_verdict(search.task.baseline))])
    batch = search.ask(6)
    search.tell([(p.id, toy_verdict(p.kernel)) for p in reversed(batch[1:]) if p.kernel])
    search.stop("paused", "the server is down")
    assert len(search.result().trials) == 6
    assert digest(run(start(policy=policy, budget=Budget(trials=25), store=store))) == expected


@pytest.mark.parametrize("form", ["pairs", "proposals", "mapping"])
def test_verdicts_come_in_several_forms(form: str, tmp_path: Path) -> None:
    """Results may be named by id or by proposal, or be a mapping; a store may be a path."""
    search = Search(toy_task(), proposers=[ToyProposer()], store=tmp_path / "s")
    (first,) = search.ask()
    verdict = toy_verdict(search.task.baseline)
    told: Any = {
        "pairs": [(first.id, verdict)],
        "proposals": [(first, verdict)],
        "mapping": {first.id: verdict},
    }[form]
    search.tell(told)
    assert isinstance(search.journal.store, SQLiteStore)
    search.journal.store.close()
    with SQLiteStore(tmp_path / "s", read_only=True) as store:
        assert len(Search.stored(toy_task(), store).progress.trials) == 1
