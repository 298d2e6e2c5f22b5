"""Partners for tests of code that uses ptxsearch: a scripted model and what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ptxsearch.budget import Spend
from ptxsearch.protocols import Completion, Message


@dataclass(frozen=True)
class Call:
    """One request that a scripted model received."""

    messages: tuple[Message, ...]
    max_tokens: int
    temperature: float | None
    schema: Mapping[str, Any] | None


class ScriptedLLM:
    """A model that plays `replies` in order and keeps its `calls`.

    A reply is text, a Completion, an exception to raise, or a function of the messages. After the
    last one it answers `default` (an empty text where none is given). Usage is counted as four
    characters a token unless a Completion says otherwise.
    """

    def __init__(
        self,
        replies: Iterable[
            str | Completion | Exception | Callable[[Sequence[Message]], str | Completion]
        ] = (),
        *,
        default: str | Callable[[Sequence[Message]], str | Completion] = "",
        model: str = "scripted",
    ) -> None:
        self.model = model
        self.calls: list[Call] = []
        self._replies = list(replies)
        self._default = default
        self._lock = threading.Lock()

    def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        temperature: float | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> Completion:
        """The next reply."""
        with self._lock:
            number = len(self.calls)
            copies = tuple(dict(message) for message in messages)
            self.calls.append(Call(copies, max_tokens, temperature, schema))
        reply = self._replies[number] if number < len(self._replies) else self._default
        if isinstance(reply, Exception):
            raise reply
        answer = reply(messages) if callable(reply) else reply
        if isinstance(answer, Completion):
            return answer
        asked = sum(len(message["content"]) for message in messages)
        usage = Spend(calls=1, tokens=-(-(asked + len(answer)) // 4))
        return Completion(answer, usage=usage, model=self.model)
