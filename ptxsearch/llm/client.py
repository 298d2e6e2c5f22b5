"""A model behind any OpenAI-compatible server, with usage in tokens and dollars.

Servers differ in what they accept: a parameter that one refuses is left out from then on, so the
same class serves OpenAI, vLLM, llama.cpp's server, Ollama and gateways.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import openai

from ptxsearch.budget import Spend
from ptxsearch.errors import ProviderError, ProviderPaused
from ptxsearch.llm.prices import Price, load_prices, price_of
from ptxsearch.llm.retry import Patience, patiently, say
from ptxsearch.protocols import Completion, Message

OFFICIAL = "https://api.openai.com/v1"
_ADAPTATIONS = 5
_BYTES_PER_TOKEN = 4
_TOO_LONG = ("context_length", "context length", "maximum context", "too long", "context size",
             "exceeds the available context")  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """How a model is asked. `api` "auto" follows the price table and what the server says.

    `effort` is the reasoning effort for models that take one; `prices` replaces the bundled table.
    """

    api: Literal["auto", "chat", "responses"] = "auto"
    effort: str | None = None
    structured: bool = True
    patience: Patience = field(default_factory=Patience)
    prices: Mapping[str, Price] | None = None


@dataclass(frozen=True)
class _Usage:
    asked: int
    answered: int
    cached: int = 0


class OpenAIModel:
    """`model` at `base_url`; both and the key may come from the environment.

    OPENAI_BASE_URL and OPENAI_API_KEY are read where no argument is given, PTXSEARCH_PRICES names
    a price table; a server other than OpenAI's needs no key. Raises ProviderError for a missing
    key, UsageError for a table that cannot be read.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.model, self.settings = model, settings or Settings()
        self.base_url = (base_url or os.environ.get("OPENAI_BASE_URL") or OFFICIAL).rstrip("/")
        key = api_key or os.environ.get("OPENAI_API_KEY")
        if not key and self._official:
            raise ProviderError(
                "no API key for OpenAI's server",
                "export OPENAI_API_KEY, or OPENAI_BASE_URL to use another server",
            )
        self.price = price_of(model, self.settings.prices or _table())
        self._client = openai.OpenAI(
            api_key=key or "none",
            base_url=self.base_url,
            max_retries=0,
            timeout=self.settings.patience.timeout,
        )
        self._left_out: set[str] = set() if self.settings.structured else {"schema"}
        api = self.settings.api
        self._responses = (self.price.api if api == "auto" else api) == "responses"
        self._limit_name = "max_completion_tokens" if self._official else "max_tokens"

    @property
    def _official(self) -> bool:
        return self.base_url == OFFICIAL

    def dollars(self, asked: int, answered: int) -> float:
        """The most that so many tokens cost, nothing read from a cache."""
        return self.price.dollars(asked, answered)

    def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        temperature: float | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> Completion:
        """The model's answer. Raises ProviderError, or ProviderPaused where it may come back."""
        self._preflight(messages, max_tokens)
        for _ in range(_ADAPTATIONS):
            ask = self._ask_responses if self._responses else self._ask_chat
            try:
                return patiently(
                    partial(ask, messages, max_tokens, temperature, schema),
                    self.settings.patience,
                )
            except openai.APIStatusError as error:
                if not self._adapt(error):
                    raise self._explain(error) from error
        raise ProviderError(
            f"{self.base_url} refuses every form of request for {self.model}",
            "check that it serves Chat Completions or Responses",
        )

    def _preflight(self, messages: Sequence[Message], max_tokens: int) -> None:
        longest = self.price.answer
        if longest is not None and max_tokens > longest:
            raise ProviderError(
                f"answers of {max_tokens} tokens, {self.model} writes at most {longest}",
                f"set max_tokens of the policy to {longest} or less",
            )
        size = sum(len(message["content"].encode()) for message in messages)
        context = self.price.context
        if context is not None and size // _BYTES_PER_TOKEN + max_tokens > context:
            raise self._too_long(
                f"about {size // _BYTES_PER_TOKEN} prompt tokens and {max_tokens} for the answer",
                f" of {context} tokens",
            )

    def _too_long(self, got: str, context: str = "") -> ProviderError:
        return ProviderError(
            f"{got} exceed the context{context} of {self.model}",
            "lower the policy's max_tokens, shorten the kernel, or use a model with more context",
        )

    def _ask_chat(
        self,
        messages: Sequence[Message],
        max_tokens: int,
        temperature: float | None,
        schema: Mapping[str, Any] | None,
    ) -> Completion:
        options: dict[str, Any] = {self._limit_name: max_tokens}
        if temperature is not None and "temperature" not in self._left_out:
            options["temperature"] = temperature
        if self.settings.effort is not None and "effort" not in self._left_out:
            options["reasoning_effort"] = self.settings.effort
        if schema is not None and "schema" not in self._left_out:
            options["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "answer", "strict": True, "schema": dict(schema)},
            }
        answer: Any = self._client.chat.completions.create(
            model=self.model, messages=_plain(messages), **options
        )
        choices = getattr(answer, "choices", None) or []
        if not choices:
            raise ProviderError(
                f"{self.base_url} answered without a choice", "check that it serves chat models"
            )
        message = choices[0].message
        text = getattr(message, "content", None) or getattr(message, "refusal", None) or ""
        finish = getattr(choices[0], "finish_reason", None) or "stop"
        return self._completion(text, finish, _chat_usage(answer), messages)

    def _ask_responses(
        self,
        messages: Sequence[Message],
        max_tokens: int,
        temperature: float | None,
        schema: Mapping[str, Any] | None,
    ) -> Completion:
        options: dict[str, Any] = {"max_output_tokens": max_tokens, "store": False}
        if temperature is not None and "temperature" not in self._left_out:
            options["temperature"] = temperature
        if self.settings.effort is not None and "effort" not in self._left_out:
            options["reasoning"] = {"effort": self.settings.effort}
        if schema is not None and "schema" not in self._left_out:
            options["text"] = {
                "format": {
                    "type": "json_schema", "name": "answer", "strict": True, "schema": dict(schema),
                }
            }  # fmt: skip
        answer: Any = self._client.responses.create(
            model=self.model, input=_plain(messages), **options
        )
        finish = "stop"
        if getattr(answer, "status", "completed") == "incomplete":
            reason = getattr(answer.incomplete_details, "reason", "") or ""
            finish = "content_filter" if reason == "content_filter" else "length"
        return self._completion(
            answer.output_text or "", finish, _responses_usage(answer), messages
        )

    def _completion(
        self, text: str, finish: str, usage: _Usage | None, messages: Sequence[Message]
    ) -> Completion:
        if usage is None:
            # A server that counts nothing still did the work.
            asked = sum(len(message["content"].encode()) for message in messages)
            usage = _Usage(
                asked // _BYTES_PER_TOKEN + 1, len(text.encode()) // _BYTES_PER_TOKEN + 1
            )
        spend = Spend(
            calls=1,
            tokens=usage.asked + usage.answered,
            dollars=self.price.dollars(usage.asked, usage.answered, cached=usage.cached),
        )
        return Completion(text, finish, spend, self.model)

    def _adapt(self, error: openai.APIStatusError) -> bool:
        """Whether a refused request can be put in another form that was not tried."""
        text = f"{say(error)} {error.body}".lower()
        if error.status_code not in (400, 404, 415, 422, 501):
            return False
        if not self._responses and ("v1/responses" in text or "responses api" in text):
            self._responses = True
            return True
        if self._responses and error.status_code == 404 and "model" not in text:
            self._responses = False
            return True
        for name, marks in _REFUSED.items():
            if name not in self._left_out and any(mark in text for mark in marks):
                self._left_out.add(name)
                return True
        if "max_completion_tokens" in text or "max_tokens" in text:
            names = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
            if "limit" in self._left_out or any(mark in text for mark in _TOO_LONG):
                return False
            self._left_out.add("limit")
            self._limit_name = names[self._limit_name]
            return True
        return False

    def _explain(self, error: openai.APIStatusError) -> ProviderError:
        text = f"{say(error)} {error.body}".lower()
        if any(mark in text for mark in _TOO_LONG):
            return self._too_long("the prompt and the answer's limit")
        if error.status_code in (401, 403):
            return ProviderError(
                f"{self.base_url} refuses the API key ({say(error)})", "check OPENAI_API_KEY"
            )
        if error.status_code == 404:
            return ProviderError(f"{self.base_url} has no model {self.model!r}", self._offer())
        if error.status_code == 429:
            return ProviderPaused(
                f"the quota at {self.base_url} is used up ({say(error)})",
                "add credit or choose another model, then run the same command again",
            )
        return ProviderError(
            f"{self.base_url} refuses the request ({say(error)})", "check model and settings"
        )

    def _offer(self) -> str:
        try:
            names = sorted(model.id for model in self._client.models.list())
        except openai.OpenAIError:
            return "check the model's name and OPENAI_BASE_URL"
        near = difflib.get_close_matches(self.model, names, n=3, cutoff=0.4) or names[:8]
        return f"use one it serves, such as {', '.join(near)}" if near else "it serves no model"


_REFUSED: Mapping[str, tuple[str, ...]] = {
    "schema": ("response_format", "json_schema", "text.format", "grammar", "structured output"),
    "temperature": ("temperature",),
    "effort": ("reasoning_effort", "reasoning.effort"),
}


def _table() -> Mapping[str, Price] | None:
    path = os.environ.get("PTXSEARCH_PRICES")
    return load_prices(path) if path else None


def _plain(messages: Sequence[Message]) -> Any:
    return [dict(message) for message in messages]


def _chat_usage(answer: Any) -> _Usage | None:
    usage = getattr(answer, "usage", None)
    asked = getattr(usage, "prompt_tokens", None)
    answered = getattr(usage, "completion_tokens", None)
    if not isinstance(asked, int) or not isinstance(answered, int):
        return None
    # Some servers leave reasoning out of completion_tokens; the total then holds it.
    total = getattr(usage, "total_tokens", None)
    if isinstance(total, int):
        answered = max(answered, total - asked)
    return _Usage(asked, answered, _cached(usage, "prompt_tokens_details"))


def _responses_usage(answer: Any) -> _Usage | None:
    usage = getattr(answer, "usage", None)
    asked, answered = getattr(usage, "input_tokens", None), getattr(usage, "output_tokens", None)
    if not isinstance(asked, int) or not isinstance(answered, int):
        return None
    return _Usage(asked, answered, _cached(usage, "input_tokens_details"))


def _cached(usage: Any, name: str) -> int:
    count = getattr(getattr(usage, name, None), "cached_tokens", None)
    return count if isinstance(count, int) else 0
