"""Tests of the way from real answers of a language model to verdicts on the emulated device."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ptxsearch.api import make_evaluator, optimize
from ptxsearch.budget import Budget
from ptxsearch.kernel import Kernel
from ptxsearch.pipeline import Pipeline
from ptxsearch.policy import Policy
from ptxsearch.protocols import Message
from ptxsearch.reply import parse_implementation, parse_plan
from ptxsearch.taskfile import load_task
from ptxsearch.testing import ScriptedLLM

FOLDER = Path(__file__).parent / "data" / "llm" / "replies"
RECORDED: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.json"))
}
ANSWERS = [
    pytest.param(name, exchange, id=f"{name}-{exchange['language']}-{exchange['idea'][:40]}")
    for name, recorded in RECORDED.items()
    for exchange in recorded["exchanges"]
    if exchange["purpose"] == "implement"
]


def model(name: str, language: str) -> ScriptedLLM:
    """A model that gives the recorded answer to a plan or to the idea that a request names.

    Ideas that the recording has no kernel for are left out of the plan; below the root it has
    nothing to say, because its answers are changes to the baseline.
    """
    exchanges = [e for e in RECORDED[name]["exchanges"] if e["language"] == language]
    by_idea = {e["idea"]: e["reply"] for e in exchanges if e["purpose"] == "implement"}
    planned = parse_plan(exchanges[0]["reply"])
    assert isinstance(planned, tuple)
    ideas = [idea.to_dict() for idea in planned if idea.title in by_idea]
    plan = json.dumps({"ideas": ideas})

    def answer(messages: Sequence[Message]) -> str:
        request = messages[-1]["content"]
        if "The kernel to improve is the baseline" not in request:
            return "No idea."
        if "JSON object and nothing else" in request:
            return str(plan)
        named = (reply for idea, reply in by_idea.items() if f"\n{idea} [" in request)
        return str(next(named, "No idea."))

    return ScriptedLLM(default=answer)


def test_there_are_enough_exchanges_over_enough_tasks() -> None:
    """At least 24 exchanges over at least four tasks are recorded, in both languages."""
    counts = {name: len(recorded["exchanges"]) for name, recorded in RECORDED.items()}
    assert sum(counts.values()) >= 24
    assert len(counts) >= 4
    languages = {e["language"] for r in RECORDED.values() for e in r["exchanges"]}
    assert {"cuda", "ptx"} <= languages


@pytest.mark.parametrize("name", RECORDED)
def test_a_real_plan_gives_ideas_of_several_strategies(name: str) -> None:
    """Every plan reads as at least three ideas whose order of quantiles holds."""
    plan = next(e for e in RECORDED[name]["exchanges"] if e["purpose"] == "plan")
    ideas = parse_plan(plan["reply"])
    assert isinstance(ideas, tuple)
    assert len({idea.strategy for idea in ideas}) >= 3
    assert all(idea.gain[0] <= idea.gain[1] <= idea.gain[2] for idea in ideas)
    assert all(idea.mechanism and 0 < idea.p_correct < 1 for idea in ideas)


@pytest.mark.parametrize(("name", "exchange"), ANSWERS)
def test_a_real_answer_becomes_a_kernel_that_compiles(name: str, exchange: dict[str, Any]) -> None:
    """Each recorded kernel reads, binds to every size and passes compiler, lint and limits."""
    task = load_task(f"level1/{name}")
    kernel = parse_implementation(exchange["reply"], task.baseline, exchange["language"])
    assert isinstance(kernel, Kernel)
    pipeline = make_evaluator("emulated")
    assert isinstance(pipeline, Pipeline)
    verdict = pipeline.check(task, kernel)
    assert verdict.ok, verdict.message


LOOPS: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text("utf-8"))
    for path in sorted((FOLDER.parent / "loop").glob("*.json"))
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_whole_run_tried_twelve_kernels_of_the_model_or_more(name: str) -> None:
    """Kernels are told from the baseline and the tuner's, in the languages of the run's policy."""
    trials = [t for t in LOOPS[name]["trials"] if t["parent"] >= 0 and t["kind"] != "tune"]
    assert sum(t["kernel"] is not None for t in trials) >= 12
    languages = {t["kernel"]["language"] for t in trials if t["kernel"] is not None}
    assert languages == ({"cuda", "ptx"} if LOOPS[name]["language"] == "both" else {"cuda"})


@pytest.mark.parametrize("name", LOOPS)
def test_answers_deep_in_a_tree_become_the_kernels_that_were_tried(name: str) -> None:
    """The kernel that a request shows reads back, and the answer to it is the recorded trial."""
    trials, language = LOOPS[name]["trials"], LOOPS[name]["language"]
    baseline = Kernel.from_dict(trials[0]["kernel"])
    tried = {t["kernel"]["source"] for t in trials if t["kernel"] is not None}
    parent: Kernel | None = None
    for exchange in LOOPS[name]["exchanges"]:
        if exchange["purpose"] == "plan":
            assert isinstance(parse_plan(exchange["reply"]), tuple)
            continue
        if exchange["purpose"] == "implement":
            shown = exchange["messages"][0]["content"].split("The kernel to improve")[1]
            code = shown.split("\n\nFeedback on this kernel")[0].split("\n\nImplement this")[0]
            found = parse_implementation(code, baseline, language)
            assert isinstance(found, Kernel), found
            parent = found
        assert parent is not None
        kernel = parse_implementation(exchange["reply"], parent, language)
        if isinstance(kernel, Kernel) and kernel.source in tried:
            tried.discard(kernel.source)
    assert tried <= {baseline.source}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sum", "transpose", "saxpy", "softmax"])
def test_real_answers_run_through_the_whole_loop(name: str) -> None:
    """Recorded ideas become trials; most pass every check, and none is lost without a status."""
    llm = model(name, "cuda")
    policy = Policy(tune_share=0.0)
    result = optimize(
        load_task(f"level1/{name}"), llm, policy=policy, budget=Budget(trials=7), device="emulated"
    )
    tried = [trial for trial in result.trials if trial.proposal.idea is not None]
    statuses = Counter(trial.evaluation.status for trial in tried)
    assert set(statuses) <= {"OK", "UNSUPPORTED", "NO_KERNEL"}, statuses
    assert statuses["OK"] >= 2
    assert result.spend.calls == len(llm.calls)
    assert result.spend.tokens > 0
