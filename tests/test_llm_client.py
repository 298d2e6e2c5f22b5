"""Tests of the client against a real HTTP server on the loopback interface."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ptxsearch.errors import ProviderError, ProviderPaused, UsageError
from ptxsearch.llm import from_spec
from ptxsearch.llm.client import OpenAIModel, Settings
from ptxsearch.llm.prices import Price, bundled, load_prices, price_of
from ptxsearch.llm.retry import Patience
from ptxsearch.reply import PLAN_SCHEMA
from ptxsearch.testing import Answer, LLMConformance, Loopback

DATA = Path(__file__).parent / "data" / "llm"
ASK = [{"role": "system", "content": "You answer."}, {"role": "user", "content": "Why?"}]
TABLE = {"test-model": Price(input=2.0, cached=0.5, output=8.0, context=1000)}


def model(
    server: Loopback, *, name: str = "test-model", waits: list[float] | None = None, **changes: Any
) -> OpenAIModel:
    """A client of `server` that writes down its waits instead of sleeping."""
    slept = waits if waits is not None else []
    patience = Patience(attempts=4, sleep=slept.append, timeout=5.0)
    settings = Settings(**{"patience": patience, "prices": TABLE, **changes})
    return OpenAIModel(name, base_url=server.url, settings=settings)


def error(status: int, message: str, **more: Any) -> Answer:
    """An HTTP error as OpenAI words it."""
    headers = more.pop("headers", {})
    return Answer(status=status, error={"message": message, **more}, headers=headers)


def test_an_answer_has_text_tokens_and_dollars() -> None:
    """Cached prompt tokens cost less; reasoning inside completion_tokens is paid as output."""
    usage = {
        "prompt_tokens": 1000,
        "completion_tokens": 500,
        "total_tokens": 1500,
        "prompt_tokens_details": {"cached_tokens": 600},
        "completion_tokens_details": {"reasoning_tokens": 450},
    }
    with Loopback([Answer("Because.", usage=usage)]) as server:
        answer = model(server).complete(ASK, max_tokens=64, temperature=0.2)
    assert (answer.text, answer.finish_reason, answer.model) == ("Because.", "stop", "test-model")
    assert (answer.usage.calls, answer.usage.tokens) == (1, 1500)
    assert answer.usage.dollars == pytest.approx((400 * 2 + 600 * 0.5 + 500 * 8) / 1e6)
    path, body = server.requests[0]
    assert path == "/v1/chat/completions"
    assert (body["messages"], body["max_tokens"], body["temperature"]) == (ASK, 64, 0.2)


def test_reasoning_that_a_server_reports_apart_is_paid_too() -> None:
    """Where the total exceeds prompt and completion, the rest counts as output."""
    usage = {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 450}
    with Loopback([Answer("x", usage=usage)]) as server:
        answer = model(server).complete(ASK, max_tokens=64)
    assert answer.usage.tokens == 450
    assert answer.usage.dollars == pytest.approx((100 * 2 + 350 * 8) / 1e6)


def test_a_server_without_usage_is_estimated() -> None:
    """Work that a server does not count still costs tokens."""
    with Loopback([Answer("x" * 400, usage=None)]) as server:
        answer = model(server).complete(ASK, max_tokens=64)
    assert answer.usage.tokens > 100


def test_rate_limits_wait_as_long_as_the_server_asks() -> None:
    """Retry-After in seconds, in milliseconds and as a date is honoured, then jitter doubles."""
    script = [
        error(429, "slow down", headers={"Retry-After": "7"}),
        error(429, "slow down", headers={"retry-after-ms": "2500"}),
        error(503, "overloaded"),
        Answer("fine"),
    ]
    waits: list[float] = []
    with Loopback(script) as server:
        assert model(server, waits=waits).complete(ASK, max_tokens=8).text == "fine"
    assert waits[:2] == [7.0, 2.5]
    assert 0 <= waits[2] <= 60


@pytest.mark.parametrize(
    "trouble",
    [
        Answer(drop=True),
        Answer(raw=b"<html>Bad gateway</html>", status=502),
        Answer(raw=b'{"choices": [{"mess'),
        error(500, "internal"),
        error(408, "timeout"),
        error(409, "conflict"),
    ],
    ids=["dropped", "html", "broken json", "500", "408", "409"],
)
def test_trouble_that_passes_is_tried_again(trouble: Answer) -> None:
    """A dropped connection, broken JSON and server errors are retried."""
    with Loopback([trouble, Answer("fine")]) as server:
        assert model(server).complete(ASK, max_tokens=8).text == "fine"
    assert len(server.requests) == 2


def test_a_slow_server_is_tried_again() -> None:
    """A request that exceeds the timeout is given up and repeated."""
    patience = Patience(attempts=2, sleep=lambda seconds: None, timeout=0.2)
    with Loopback([Answer("late", delay=0.6), Answer("fine")]) as server:
        assert model(server, patience=patience).complete(ASK, max_tokens=8).text == "fine"


def test_a_server_that_stays_down_pauses_the_run() -> None:
    """After all attempts the run is paused, not failed."""
    with Loopback(default=error(503, "overloaded")) as server:
        with pytest.raises(ProviderPaused, match="4 attempts") as caught:
            model(server).complete(ASK, max_tokens=8)
        assert len(server.requests) == 4
    assert "again later" in caught.value.remedy


def test_a_used_up_quota_pauses_at_once() -> None:
    """Waiting does not bring credit back."""
    spent = error(429, "You exceeded your quota", code="insufficient_quota")
    with Loopback(default=spent) as server:
        with pytest.raises(ProviderPaused, match="quota"):
            model(server).complete(ASK, max_tokens=8)
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("answer", "fragment", "remedy"),
    [
        (error(401, "Incorrect API key"), "refuses the API key", "OPENAI_API_KEY"),
        (error(404, "The model does not exist"), "no model 'test-mod'", "test-model"),
        (error(400, "maximum context length is 8192 tokens", code="context_length_exceeded"),
         "exceed the context", "max_tokens"),
        (error(400, "bad request"), "refuses the request (Error code: 400", "settings"),
        (Answer(raw=b'{"choices": [], "object": "chat.completion"}'), "without a choice", "chat"),
    ],
)  # fmt: skip
def test_errors_say_what_to_do(answer: Answer, fragment: str, remedy: str) -> None:
    """Each refusal is one ProviderError with cause and remedy, and is not retried."""
    with Loopback(default=answer) as server:
        with pytest.raises(ProviderError) as caught:
            model(server, name="test-mod").complete(ASK, max_tokens=8)
        assert len(server.requests) == 1
    assert fragment in caught.value.message
    assert remedy in caught.value.remedy
    assert not isinstance(caught.value, ProviderPaused)


def test_a_prompt_that_cannot_fit_is_not_sent() -> None:
    """The context of the price table is checked before a request."""
    with Loopback() as server:
        with pytest.raises(ProviderError, match="exceed the context of 1000 tokens"):
            model(server).complete([{"role": "user", "content": "x" * 4000}], max_tokens=64)
        assert server.requests == []


@pytest.mark.parametrize(
    ("finish", "expected"), [("length", "length"), ("content_filter", "content_filter")]
)
def test_an_empty_answer_keeps_its_reason(finish: str, expected: str) -> None:
    """No content is a completion that says why."""
    with Loopback([Answer("", finish=finish)]) as server:
        answer = model(server).complete(ASK, max_tokens=8)
    assert (answer.text, answer.finish_reason) == ("", expected)


def unsupported(*refused: str) -> Callable[[Mapping[str, Any]], Answer]:
    """A server that refuses requests with any of these fields, naming one."""

    def answer(body: Mapping[str, Any]) -> Answer:
        for name in refused:
            if name in body:
                return error(400, f"Unsupported parameter: '{name}' is not supported", param=name)
        return Answer("fine")

    return answer


def test_parameters_that_a_server_refuses_are_left_out_from_then_on() -> None:
    """Schema, temperature and the name of the token limit adapt once."""
    refusing = unsupported("response_format", "temperature", "max_tokens")
    with Loopback(default=refusing) as server:
        client = model(server)
        for _ in range(2):
            answer = client.complete(ASK, max_tokens=9, temperature=0.1, schema=PLAN_SCHEMA)
            assert answer.text == "fine"
        bodies = [body for _, body in server.requests]
    assert len(bodies) == 5
    assert bodies[-1].keys() == {"model", "messages", "max_completion_tokens"}


def test_a_schema_is_sent_strictly() -> None:
    """PLAN asks for JSON of its schema where the server takes one."""
    with Loopback([Answer("{}")]) as server:
        model(server).complete(ASK, max_tokens=9, schema=PLAN_SCHEMA)
    sent = server.requests[0][1]["response_format"]
    assert sent["json_schema"] == {"name": "answer", "strict": True, "schema": PLAN_SCHEMA}


def test_a_model_of_the_responses_api_is_asked_there() -> None:
    """The price table, or the server's complaint, leads to Responses; its usage is counted."""
    usage = {
        "input_tokens": 70, "output_tokens": 30, "total_tokens": 100,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 25},
    }  # fmt: skip
    complaint = error(404, "This model is only supported in v1/responses")
    script = [complaint, Answer("Because.", usage=usage), Answer("", finish="max_output_tokens")]
    with Loopback(script) as server:
        client = model(server)
        first = client.complete(ASK, max_tokens=9)
        second = client.complete(ASK, max_tokens=9)
    paths = [path for path, _ in server.requests]
    assert paths == ["/v1/chat/completions", "/v1/responses", "/v1/responses"]
    assert (first.text, first.usage.tokens) == ("Because.", 100)
    assert (second.text, second.finish_reason) == ("", "length")
    assert server.requests[1][1]["max_output_tokens"] == 9


def test_a_missing_key_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without key and base URL nothing is sent; a server of one's own needs no key."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ProviderError, match="export OPENAI_API_KEY"):
        OpenAIModel("gpt-5")
    with Loopback([Answer("fine")]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        assert OpenAIModel("any").complete(ASK, max_tokens=8).text == "fine"


def test_a_version_of_a_model_has_its_price_and_a_successor_has_none(tmp_path: Any) -> None:
    """A dated or prefixed name finds its model; an unknown one is marked, not guessed."""
    assert price_of("gpt-4o-mini-2024-07-18").input == 0.15
    assert price_of("gemini-2.5-pro-preview-05-06").output == 10
    assert price_of("claude-haiku-4-5-20251001").input == 1
    assert price_of("openai/GPT-5-pro").api == "responses"
    for unknown in ("llama-3.1-8b", "gpt-5.9", "claude-opus-5-9", "gpt-4o-audio-preview"):
        assert not price_of(unknown).known
    path = tmp_path / "prices.yaml"
    path.write_text("llama-3.1-8b: {input: 0.1, output: 0.2}\n")
    assert price_of("meta/llama-3.1-8b-latest", load_prices(path)).output == 0.2
    path.write_text("llama: {input: cheap}\n")
    with pytest.raises(UsageError, match="input of llama is 'cheap'"):
        load_prices(path)


def test_the_bundled_prices_are_those_of_a_public_table() -> None:
    """Every entry agrees with the row of a package that collects what providers publish."""
    rows = json.loads((DATA / "prices.json").read_text())
    assert {name.rsplit("/", 1)[-1] for name in rows} == set(bundled())
    for name, row in rows.items():
        price = price_of(name)
        dollars = {"input": row["input_cost_per_token"], "output": row["output_cost_per_token"]}
        dollars["cached"] = row.get("cache_read_input_token_cost", dollars["input"])
        for field, cost in dollars.items():
            assert getattr(price, field) == pytest.approx(cost * 1e6), name
        assert (price.context, price.answer) == (row["max_input_tokens"], row["max_output_tokens"])
        assert price.api == ("responses" if row["mode"] == "responses" else "chat")


def test_an_answer_longer_than_the_model_writes_is_not_asked_for() -> None:
    """The longest answer of the price table is checked before a request."""
    table = {"test-model": Price(answer=100)}
    with Loopback([]) as server:
        llm = OpenAIModel("test-model", base_url=server.url, settings=Settings(prices=table))
        with pytest.raises(ProviderError, match="writes at most 100"):
            llm.complete(ASK, max_tokens=101)


def test_a_users_price_table_is_named_by_the_environment(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PTXSEARCH_PRICES adds models to the bundled ones."""
    path = tmp_path / "prices.yaml"
    path.write_text("mine-7b: {input: 3.0, output: 5.0}\n")
    monkeypatch.setenv("PTXSEARCH_PRICES", str(path))
    mine = OpenAIModel("mine-7b", base_url="http://127.0.0.1:9/v1")
    assert mine.dollars(1_000_000, 1_000_000) == 8.0


def test_a_spec_names_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """One name gives one model, several names several, an object itself; the rest is refused."""
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    models = from_spec("openai:a, openai:b")
    assert [getattr(one, "model", "") for one in models] == ["a", "b"]
    assert from_spec(models[0]) == (models[0],)
    for wrong in ("gpt-5", "openai:", "replay:x", ""):
        with pytest.raises(UsageError, match='give "openai:MODEL"'):
            from_spec(wrong)
    with pytest.raises(UsageError, match="llm is a int"):
        from_spec(7)  # type: ignore[arg-type]


def test_one_client_serves_many_threads() -> None:
    """Concurrent requests each get an answer."""
    with Loopback(default=lambda body: Answer(body["messages"][0]["content"])) as server:
        client, found = model(server), []

        def ask(number: int) -> None:
            message = [{"role": "user", "content": str(number)}]
            found.append(client.complete(message, max_tokens=8).text == str(number))

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [True] * 8


class TestClientConforms(LLMConformance):
    """The client passes what every model must."""

    @pytest.fixture(autouse=True)
    def _serve(self) -> Any:
        with Loopback(default="{}") as server:
            self.server = server
            yield

    def make_llm(self) -> OpenAIModel:
        """A client of the loopback server."""
        return model(self.server)
