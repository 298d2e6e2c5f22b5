"""Tests of whole runs with a model: journal, replay, resume, budgets, servers that misbehave."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ptxsearch.api import attach, drive, optimize
from ptxsearch.budget import Budget, Spend
from ptxsearch.errors import ProviderPaused
from ptxsearch.evaluation import Evaluation, Timing
from ptxsearch.kernel import Kernel
from ptxsearch.llm import Ledger, exchanges, preview
from ptxsearch.llm.client import OpenAIModel, Settings
from ptxsearch.llm.prices import Price
from ptxsearch.llm.retry import Patience
from ptxsearch.policy import Policy
from ptxsearch.proposer import LLMProposer
from ptxsearch.protocols import Message
from ptxsearch.run import Run
from ptxsearch.search import Search
from ptxsearch.store import SQLiteStore
from ptxsearch.tasks import Task
from ptxsearch.testing import Answer, Loopback, ScriptedLLM
from ptxsearch.trial import Result
from tests.model_task import answer, idea, plan, task

POLICY = Policy(tune_share=0.0, max_tokens=500)


class Judge:
    """A verdict and a time that depend on the source alone; nothing is compiled."""

    def evaluate(
        self,
        task: Task,
        kernel: Kernel,
        *,
        baseline: Kernel | None = None,
        rival: Kernel | None = None,
    ) -> Evaluation:
        """The verdict."""
        digest = hashlib.sha256(kernel.source.encode()).hexdigest()
        if kernel != task.baseline and digest[0] in "01234":
            return Evaluation("WRONG", "smoke", f"y[{digest[1]}] is off", source="modelled")
        seconds = 1e-4 if kernel == task.baseline else (1 + int(digest[:4], 16) / 65536) * 5e-5
        times = {"full": Timing(seconds, seconds, seconds, 1)}
        return Evaluation("OK", "quick", key=digest, source="modelled", times=times)


def author(messages: Sequence[Message]) -> str:
    """A model whose answers depend on what it is sent, some of them rubbish."""
    text = messages[-1]["content"]
    draw = hashlib.sha256(text.encode()).hexdigest()
    if "JSON object and nothing else" in text:
        return plan(*(idea(f"{word} {draw[i]}", f"s{draw[i]}") for i, word in enumerate("abcdef")))
    return "I cannot." if draw[0] in "012" else answer(draw[:8])


def facts(result: Result) -> list[Any]:
    """What a run did, without its clock."""
    return [
        (t.id, t.node, t.proposal.parent, t.proposal.edit, t.proposal.kernel, t.evaluation.status)
        for t in result.trials
    ]


def run(llm: Any, **more: Any) -> Result:
    """A run over the test task."""
    options = {"policy": POLICY, "budget": Budget(trials=12, proposals=40), "device": Judge()}
    return optimize(task(), llm, **{**options, **more})


def alone(llm: Any, path: Path, budget: Budget) -> Result:
    """A run without the menu, whose only ideas are the model's."""
    author = LLMProposer(task(), llm, policy=POLICY, ledger=Ledger(budget))
    with SQLiteStore(path) as store:
        search = Search(task(), proposers=(author,), policy=POLICY, budget=budget, store=store)
        attach(search, None)
        return drive(search, Judge())


def test_a_replay_reproduces_the_tree_without_a_model(tmp_path: Path) -> None:
    """`replay:STORE` answers every request of the same run from its journal."""
    path = tmp_path / "run.db"
    first = run(ScriptedLLM(default=author), store=path)
    again = run(f"replay:{path}")
    assert len(first.trials) > 10
    assert facts(again) == facts(first)
    assert (again.spend.calls, again.spend.tokens) == (first.spend.calls, first.spend.tokens)


@pytest.mark.parametrize("workers", [1, 4, 16])
def test_a_scripted_model_gives_the_same_tree_at_any_number_of_workers(workers: int) -> None:
    """In order mode the number of workers changes nothing."""
    assert facts(run(ScriptedLLM(default=author), workers=workers)) == facts(
        run(ScriptedLLM(default=author), workers=2)
    )


def test_every_exchange_is_in_the_journal_with_its_price(tmp_path: Path) -> None:
    """Messages and replies are found again; their spend is the run's."""
    path = tmp_path / "run.db"
    llm = ScriptedLLM(default=author)
    result = run(llm, store=path)
    with SQLiteStore(path, read_only=True) as store:
        found = list(exchanges(store))
    assert [tuple(e["messages"]) for e in found] == [call.messages for call in llm.calls]
    assert sum((Spend(**e["spend"]) for e in found), Spend()).tokens == result.spend.tokens
    assert {e["purpose"] for e in found} == {"plan", "implement", "repair"}


def test_a_paused_run_resumes_to_the_tree_of_an_uninterrupted_one(tmp_path: Path) -> None:
    """The provider goes away after 9 calls; the same command later ends as if it had not."""
    policy = Policy(tune_share=0.0, max_tokens=500, window=1)
    whole = run(ScriptedLLM(default=author), policy=policy)
    path = tmp_path / "run.db"
    dying = ScriptedLLM([author] * 9, default=_down)
    paused = run(dying, store=path, policy=policy)
    assert paused.state == "paused"
    resumed = run(ScriptedLLM(default=author), store=path, policy=policy)
    assert facts(resumed) == facts(whole)
    assert resumed.spend.calls == whole.spend.calls
    assert resumed.spend.tokens == whole.spend.tokens


def _down(messages: Sequence[Message]) -> str:
    raise ProviderPaused("the server is down", "try later")


@pytest.mark.parametrize("tokens", [3_000, 30_000])
def test_a_cap_on_tokens_is_never_passed(tokens: int) -> None:
    """Whatever is asked and answered, the run ends within the cap."""
    llm = ScriptedLLM(default=author)
    result = run(llm, budget=Budget(trials=60, tokens=tokens))
    assert result.spend.tokens <= tokens
    assert result.spend.calls == len(llm.calls)
    if tokens == 30_000:
        assert result.spend.tokens > tokens // 2


def test_a_resume_with_more_tokens_asks_the_model_again_where_the_first_run_could_not_pay(
    tmp_path: Path,
) -> None:
    """A refused call closes no node for good: the end is that of a run that could always pay."""
    path = tmp_path / "run.db"
    poor = ScriptedLLM(default=author)
    budget = Budget(trials=60, proposals=40, tokens=12_000)
    first = alone(poor, path, budget)
    assert first.state == "budget"
    assert "tokens" in first.reason
    same = ScriptedLLM(default=author)
    assert alone(same, path, budget).trials == first.trials
    assert not same.calls
    rich = ScriptedLLM(default=author)
    more = Budget(trials=60, proposals=40, tokens=400_000)
    second = alone(rich, path, more)
    assert rich.calls[0].messages not in [call.messages for call in poor.calls]
    assert second.spend.calls == len(poor.calls) + len(rich.calls)
    assert facts(second)[: len(first.trials)] == facts(first)
    assert any(trial.node for trial in second.trials[len(first.trials) :])
    with SQLiteStore(path, read_only=True) as store:
        assert facts(Run.stored(task(), store).result()) == facts(second)


def test_a_cap_on_dollars_is_never_passed_with_a_real_client() -> None:
    """Usage that the server reports is priced, and calls stop in time."""
    usage = {"prompt_tokens": 2000, "completion_tokens": 400, "total_tokens": 2400}
    settings = Settings(prices={"m": Price(input=1.0, output=10.0)})
    default: Any = lambda body: Answer(author(body["messages"]), usage=usage)  # noqa: E731
    with Loopback(default=default) as server:
        llm = OpenAIModel("m", base_url=server.url, settings=settings)
        result = run(llm, budget=Budget(trials=60, dollars=0.06))
        calls = len(server.requests)
    assert result.spend.dollars == pytest.approx(calls * (2000 + 4000) / 1e6)
    assert 0.03 < result.spend.dollars <= 0.06


def test_a_run_survives_a_server_that_misbehaves() -> None:
    """Rate limits, dropped connections, broken JSON, empty and cut answers: trials go on."""
    trouble = [
        Answer(status=429, headers={"Retry-After": "1"}), Answer(drop=True), Answer(raw=b"{"),
        Answer("", finish="length"), Answer("", finish="content_filter"), Answer(status=500),
    ]  # fmt: skip
    count = iter(range(10**6))

    def answers(body: Any) -> Answer:
        number = next(count)
        return trouble[number // 2 % 6] if number % 2 else Answer(author(body["messages"]))

    settings = Settings(patience=Patience(sleep=lambda seconds: None))
    with Loopback(default=answers) as server:
        llm = OpenAIModel("m", base_url=server.url, settings=settings)
        result = run(llm, budget=Budget(trials=10, proposals=25))
    statuses = {trial.evaluation.status for trial in result.trials}
    assert {"OK", "NO_KERNEL"} <= statuses
    assert result.state == "budget"
    assert result.speedup > 1


def test_a_server_that_is_gone_pauses_the_run_with_its_best() -> None:
    """What was found so far is the result."""
    patience = Patience(attempts=2, sleep=lambda seconds: None)
    script = [lambda body: Answer(author(body["messages"]))] * 8
    with Loopback(script, default=Answer(status=503)) as server:
        llm = OpenAIModel("m", base_url=server.url, settings=Settings(patience=patience))
        result = run(llm, budget=Budget(trials=100))
    assert result.state == "paused"
    assert "did not answer" in result.reason
    assert result.best is not None


def test_the_price_of_a_run_is_said_before() -> None:
    """A known model has dollars, an unknown one a hint, a replay costs nothing."""
    assert "about $" in preview("openai:gpt-5-mini", Budget(trials=100, dollars=2))
    assert preview("openai:gpt-5-mini", Budget(trials=100, dollars=2)).endswith("capped at $2.00")
    assert "no price known" in preview("openai:llama", Budget())
    assert preview("replay:x.db", Budget()) == ""
