"""Tests of a language model as a proposer: plans, kernels, repairs, budgets, resume."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ptxsearch.budget import Budget, Spend
from ptxsearch.errors import ProviderPaused
from ptxsearch.evaluation import Evaluation, Fault
from ptxsearch.kernel import Idea, Kernel, Proposal
from ptxsearch.llm import Ledger, Replay
from ptxsearch.policy import Policy
from ptxsearch.proposer import Hooks, LLMProposer, ideas, mending
from ptxsearch.proposer.roster import Roster
from ptxsearch.protocols import Completion
from ptxsearch.tasks import Task
from ptxsearch.testing import ProposerConformance, ScriptedLLM
from ptxsearch.tree import Node, Tree, TreeView
from tests.model_task import answer, attach, failed, grown, idea, passed, plan, task

GOOD = Evaluation("OK", "prune")


def random() -> np.random.Generator:
    """The same draws every time."""
    return np.random.Generator(np.random.Philox(5))


def propose(proposer: LLMProposer, tree: Tree, node: Node, n: int = 1) -> list[Proposal]:
    """Up to `n` proposals at `node`."""
    return proposer.propose(TreeView(tree), node, n, random())


def grow(proposer: LLMProposer, tree: Tree, verdict: Callable[[Proposal], Evaluation]) -> Node:
    """The next proposal at the root, judged and settled."""
    (proposal,) = propose(proposer, tree, tree.root)
    child = tree.add(
        tree.root, proposal.kernel, proposal.edit, prior=proposal.prior, idea=proposal.idea
    )
    found = verdict(proposal)
    state: Any = "ok" if found.ok else "failed"
    tree.settle(child, state, evaluation=found, reward=0.1 if found.ok else None)
    return child


def test_one_plan_serves_several_kernels() -> None:
    """Ideas are used one by one, the worthiest first; titles, strategies and priors arrive."""
    small, big = idea("Small gain", "unrolling", p90=0.1), idea("Big gain", "tiling", p90=2.0)
    llm = ScriptedLLM([plan(small, big), answer("a"), answer("b")])
    tree, _ = grown()
    first, second = propose(LLMProposer(task(), llm), tree, tree.root, 2)
    assert [p.edit.summary for p in (first, second)] == ["Big gain", "Small gain"]
    assert [p.edit.strategy for p in (first, second)] == ["tiling", "unrolling"]
    assert first.prior > second.prior > 0
    assert first.kernel is not None
    assert first.kernel.source.endswith("// a")
    assert len(llm.calls) == 3
    assert llm.calls[0].schema is not None
    assert llm.calls[1].schema is None


def test_an_idea_said_twice_is_implemented_once() -> None:
    """The same thought in other words is dropped before money is spent on it."""
    same = [idea("Use float4 vector loads"), idea("Vectorised loads using float4")]
    llm = ScriptedLLM([plan(*same), answer("a"), plan(same[1])], default="none")
    tree, _ = grown()
    proposer = LLMProposer(task(), llm)
    assert grow(proposer, tree, lambda p: passed(90)).edit.summary == "Use float4 vector loads"
    assert propose(proposer, tree, tree.root) == []
    assert len(llm.calls) == 3


def test_ideas_that_others_tried_are_not_repeated() -> None:
    """What any proposer tried on the node counts as tried."""
    tree, _ = grown(("Use float4 vector loads", passed(90)))
    llm = ScriptedLLM([plan(idea("Use float4 vector loads"), idea("Unroll by 4")), answer("a")])
    (proposal,) = propose(LLMProposer(task(), llm), tree, tree.root)
    assert proposal.edit.summary == "Unroll by 4"


def test_a_node_that_has_no_new_ideas_is_left() -> None:
    """After three plans, or one without anything new, there are no proposals."""
    texts = [["Alpha beta"], ["Gamma delta"], ["Epsilon zeta"], ["Eta theta"]]
    llm = ScriptedLLM(default=lambda m: _plan_or_answer(m, texts))
    tree, _ = grown()
    proposer = LLMProposer(task(), llm)
    for _ in range(3):
        grow(proposer, tree, lambda p: passed(90))
    assert propose(proposer, tree, tree.root) == []


def _plan_or_answer(messages: Any, texts: list[list[str]]) -> str:
    if "JSON object and nothing else" in messages[-1]["content"]:
        return plan(*(idea(title) for title in texts.pop(0)))
    return answer("x")


@pytest.mark.parametrize(
    ("reply", "fragment"),
    [
        ("Sorry.", "no JSON object"),
        (Completion('{"ideas": [{"ti', "length"), "cut off at 8000 tokens"),
        (Completion("", "content_filter"), "content filter"),
    ],
)
def test_a_plan_that_cannot_be_read_is_a_proposal_without_a_kernel(
    reply: str | Completion, fragment: str
) -> None:
    """It is asked for once more; then the reason stands in the note."""
    llm = ScriptedLLM([reply, reply])
    tree, _ = grown()
    (proposal,) = propose(LLMProposer(task(), llm), tree, tree.root)
    assert proposal.kernel is None
    assert fragment in proposal.note
    assert fragment in llm.calls[1].messages[-1]["content"]


def test_an_answer_without_a_kernel_is_repaired() -> None:
    """The conversation goes on with the reason; the mended answer counts."""
    llm = ScriptedLLM([plan(idea("A")), "I would use float4.", answer("mended")])
    tree, _ = grown()
    (proposal,) = propose(LLMProposer(task(), llm), tree, tree.root)
    assert proposal.kernel is not None
    assert proposal.kernel.source.endswith("// mended")
    roles = [message["role"] for message in llm.calls[2].messages]
    assert roles == ["system", "user", "assistant", "user"]
    assert "no fenced block" in llm.calls[2].messages[-1]["content"]


def test_an_answer_that_stays_unusable_is_a_proposal_without_a_kernel() -> None:
    """The same complaint twice ends the repairs; the note says why there is no kernel."""
    llm = ScriptedLLM([plan(idea("A"))], default="Never.")
    tree, _ = grown()
    (proposal,) = propose(LLMProposer(task(), llm), tree, tree.root)
    assert (proposal.kernel, proposal.edit.summary) == (None, "A")
    assert "no fenced block" in proposal.note
    assert len(llm.calls) == 3


def compiler(*verdicts: Evaluation) -> tuple[Hooks, list[Kernel]]:
    """Hooks whose check gives these verdicts in order, and the kernels it was shown."""
    shown: list[Kernel] = []

    def check(kernel: Kernel) -> Evaluation:
        shown.append(kernel)
        return verdicts[len(shown) - 1]

    return Hooks(check=check), shown


def test_compile_errors_are_repaired_before_they_become_trials() -> None:
    """At most two repairs, each told the error with its lines."""
    wrong = [failed("COMPILE_ERROR", f"line 3: {what} undefined") for what in ("foo", "bar")]
    hooks, shown = compiler(*wrong, GOOD)
    llm = ScriptedLLM([plan(idea("A")), answer("1"), answer("2"), answer("3")])
    tree, _ = grown()
    (proposal,) = propose(LLMProposer(task(), llm, hooks=hooks), tree, tree.root)
    assert proposal.kernel is not None
    assert proposal.kernel.source.endswith("// 3")
    assert len(shown) == 3
    assert "line 3: foo undefined" in llm.calls[2].messages[-1]["content"]


def test_repairs_stop_when_the_error_comes_back() -> None:
    """The same error at another line is the same error."""
    hooks, shown = compiler(
        failed("COMPILE_ERROR", "line 3: foo undefined"),
        failed("COMPILE_ERROR", "line 8: foo undefined"),
    )
    llm = ScriptedLLM([plan(idea("A")), answer("1"), answer("2")])
    tree, _ = grown()
    (proposal,) = propose(LLMProposer(task(), llm, hooks=hooks), tree, tree.root)
    assert proposal.kernel is not None
    assert proposal.kernel.source.endswith("// 2")
    assert len(shown) == 2


@pytest.mark.parametrize(
    ("status", "repairs"),
    [("WRONG", 1), ("CRASHED", 1), ("COMPILE_ERROR", 2), ("TIMEOUT", 0), ("DISHONEST", 0)],
)
def test_failures_get_the_repairs_of_their_kind(status: str, repairs: int) -> None:
    """Wrong results and crashes one, compile errors two, hangs and cheats none."""
    llm = ScriptedLLM([plan(idea("Alpha"), idea("Omega"))], default=answer("x"))
    tree, _ = grown()
    proposer = LLMProposer(task(), llm)
    count = iter(range(9))
    nodes = [
        grow(proposer, tree, lambda p: failed(status, "error " + "abcdefghi"[next(count)]))
        for _ in range(repairs + 2)
    ]
    summaries = [node.edit.summary for node in nodes]
    mends = [f"mends #{number}: Alpha" for number in range(1, repairs + 1)]
    assert summaries == ["Alpha", *mends, "Omega"]


def test_a_repair_shows_the_failed_kernel_and_the_fault() -> None:
    """Wrong results come with the fault's advice and the code that failed."""
    verdict = failed("WRONG", "race at line 2", faults=(Fault("data_race", "two writers"),))
    llm = ScriptedLLM([plan(idea("Alpha")), answer("bad"), answer("good")])
    tree, _ = grown()
    proposer = LLMProposer(task(), llm)
    grow(proposer, tree, lambda p: verdict)
    assert grow(proposer, tree, lambda p: passed(50)).edit.summary == "mends #1: Alpha"
    *_, code, request = llm.calls[2].messages
    assert "// bad" in code["content"]
    assert "data_race: two writers" in request["content"]
    assert "a barrier between writing and reading" in request["content"]


def test_no_call_is_made_that_the_budget_may_not_cover() -> None:
    """Where the highest price of a call does not fit, nothing is sent."""
    llm = ScriptedLLM([plan(idea("A"))])
    tree, _ = grown()
    ledger = Ledger(Budget(trials=None, tokens=3000))
    proposer = LLMProposer(task(), llm, policy=Policy(max_tokens=100), ledger=ledger)
    assert propose(proposer, tree, tree.root) == []
    assert llm.calls == []


def test_failed_and_repaired_answers_are_paid_for() -> None:
    """Every answer counts in the ledger and in its event, the useless ones too."""
    events: list[Any] = []
    llm = ScriptedLLM([plan(idea("A")), "No.", answer("a")])
    tree, _ = grown()
    proposer = LLMProposer(task(), llm, hooks=Hooks(record=events.append))
    propose(proposer, tree, tree.root)
    assert [event["purpose"] for event in events] == ["plan", "implement", "repair"]
    assert proposer.ledger.spend.calls == 3
    paid = sum((Spend(**event["spend"]) for event in events), Spend())
    assert paid == proposer.ledger.spend


def test_a_paused_provider_leaves_no_reservation() -> None:
    """The exception passes through and the budget is as before."""
    llm = ScriptedLLM([ProviderPaused("down")], default=plan(idea("A")))
    tree, _ = grown()
    ledger = Ledger(Budget(trials=None, tokens=40_000))
    proposer = LLMProposer(task(), llm, ledger=ledger)
    with pytest.raises(ProviderPaused):
        propose(proposer, tree, tree.root)
    assert ledger.spend == Spend()
    assert ledger.reserve(Spend(calls=1, tokens=40_000))


def test_a_resumed_run_goes_on_with_the_ideas_it_has() -> None:
    """From the exchanges alone: no new plan, spend counted, and the next idea is due."""
    events: list[Any] = []
    llm = ScriptedLLM([plan(idea("Alpha", p90=1.0), idea("Omega")), answer("a")])
    tree, _ = grown()
    grow(LLMProposer(task(), llm, hooks=Hooks(record=events.append)), tree, lambda p: passed(80))
    fresh = ScriptedLLM([answer("o")])
    resumed = LLMProposer(task(), fresh)
    resumed.attach(Hooks(), events)
    (proposal,) = propose(resumed, tree, tree.root)
    assert proposal.edit.summary == "Omega"
    assert len(fresh.calls) == 1
    assert resumed.ledger.spend.calls == 3


def test_an_answer_that_was_paid_but_not_used_is_not_bought_twice() -> None:
    """A run that died between an answer and its proposal uses the recorded answer."""
    events: list[Any] = []
    llm = ScriptedLLM([plan(idea("Alpha")), answer("a")])
    tree, _ = grown()
    lost = propose(LLMProposer(task(), llm, hooks=Hooks(record=events.append)), tree, tree.root)
    again = LLMProposer(task(), ScriptedLLM())
    again.attach(Hooks(), events)
    assert propose(again, tree, tree.root) == lost


def test_a_replay_gives_the_same_proposals() -> None:
    """The exchanges of a run, served by their messages' hash, lead to the same kernels."""
    events: list[Any] = []
    replies = [plan(idea("Alpha"), idea("Omega")), "No.", answer("a"), answer("b")]
    runs = []
    for llm in (ScriptedLLM(replies), None):
        tree, _ = grown()
        source = llm or Replay(tuple(events))
        hooks = Hooks(record=events.append if llm else None)
        proposer = LLMProposer(task(), source, hooks=hooks)
        runs.append([grow(proposer, tree, lambda p: passed(80)).kernel for _ in range(2)])
    assert runs[0] == runs[1]


def test_a_crossing_shows_the_best_kernel_of_another_family() -> None:
    """An idea of kind cross gets both kernels."""
    tree, (left, right) = grown(("Left", passed(50)), ("Right", passed(40)))
    llm = ScriptedLLM([plan(idea("Combine", "cross", kind="cross")), answer("c")])
    (proposal,) = propose(LLMProposer(task(), llm), tree, left)
    assert proposal.kind == "cross"
    assert f"Kernel #{right.id} of another branch" in llm.calls[0].messages[1]["content"]
    request = llm.calls[1].messages[1]["content"]
    assert "// Left" in request
    assert f"The other kernel, #{right.id}" in request
    assert "// Right" in request


def test_the_roots_first_children_differ_in_strategy() -> None:
    """A strategy comes again only when no other is left."""
    planned = [idea(f"Idea {name}", s, p90=2.0) for name, s in zip("abc", "xxx", strict=True)]
    planned += [idea("Idea d", "y"), idea("Idea e", "z")]
    llm = ScriptedLLM([plan(*planned)], default=answer("k"))
    tree, _ = grown()
    proposer = LLMProposer(task(), llm)
    strategies = [grow(proposer, tree, lambda p: passed(80)).edit.strategy for _ in range(4)]
    assert sorted(strategies[:3]) == ["x", "y", "z"]
    assert strategies[3] == "x"


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("Use float4 vector loads", "Vectorised loads with float4", True),
        ("Pad the shared tile by one column", "Padding of the shared-memory tile", False),
        ("Tile 32x32 in shared memory", "Tile 64x64 in shared memory", True),
        ("Unroll the inner loop by 4", "Unrolling the inner loop by 4", True),
    ],
)
def test_titles_that_say_the_same_are_recognised(first: str, second: str, same: bool) -> None:
    """Endings and little words do not matter, nor does a size, which is the tuner's to choose."""
    kept = ideas.fresh([Idea(second, "s")], [first])
    assert (kept == []) is same


def test_errors_are_compared_without_their_numbers() -> None:
    """Line numbers and sizes may differ, names may not."""
    prints = [
        mending.fingerprint(failed("WRONG", text))
        for text in ("y[3] is 7.0", "y[18] is 9.5", "z[3] is 7.0")
    ]
    assert prints[0] == prints[1] != prints[2]


def test_a_cheap_model_that_succeeds_is_asked_most() -> None:
    """Two models of equal success at prices of 1 and 20: the cheap one gets most requests."""
    tree, _ = grown()
    cheap, dear = ScriptedLLM(model="cheap"), ScriptedLLM(model="dear")
    roster = Roster([cheap, dear])
    for number, (author, cost) in enumerate([(0, 0.01), (1, 0.2)] * 8):
        title = f"idea {number}"
        attach(tree, tree.root, title, passed(100 - number))
        roster.note(
            {"author": author, "node": 0, "idea": title, "purpose": "implement",
             "spend": {"dollars": cost}}
        )  # fmt: skip
    rng = random()
    chosen = [roster.choose(TreeView(tree), rng) for _ in range(50)]
    assert chosen.count(0) > 40
    assert roster.author(0, "idea 3") == 1


def test_a_dear_model_is_asked_where_the_cheap_one_always_fails() -> None:
    """Success counts, not price alone."""
    tree, _ = grown()
    roster = Roster([ScriptedLLM(model="cheap"), ScriptedLLM(model="dear")])
    for number in range(60):
        title, author = f"idea {number}", number % 2
        verdict = passed(99) if author else failed("WRONG", "no")
        attach(tree, tree.root, title, verdict)
        roster.note(
            {"author": author, "node": 0, "idea": title, "purpose": "implement",
             "spend": {"dollars": 0.03 if author else 0.01}}
        )  # fmt: skip
    rng = random()
    chosen = [roster.choose(TreeView(tree), rng) for _ in range(50)]
    assert chosen.count(1) > 40


class TestProposerConforms(ProposerConformance):
    """The model's proposer passes what every proposer must."""

    def make_proposer(self) -> LLMProposer:
        """A proposer with two ideas, one of which never becomes a kernel."""
        replies = [plan(idea("Alpha"), idea("Omega")), answer("a")]
        return LLMProposer(task(), ScriptedLLM(replies, default="No."))

    def make_task(self) -> Task:
        """The task of these tests."""
        return task()
