"""Every exchange with a model as an event, and a run replayed from such events.

An exchange is found again by the hash of its messages alone, so that a replay needs neither the
model nor its settings. In a store the long texts are blobs and appear once, however often a
prefix was sent.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ptxsearch.budget import Spend
from ptxsearch.errors import RecordingError
from ptxsearch.protocols import Completion, Message, Store

Event = Mapping[str, Any]


def key(messages: Sequence[Message]) -> str:
    """The sha256 of the messages' roles and contents."""
    plain = [[message["role"], message["content"]] for message in messages]
    return hashlib.sha256(json.dumps(plain, ensure_ascii=False).encode()).hexdigest()


def event(
    messages: Sequence[Message], answer: Completion, context: Mapping[str, Any]
) -> dict[str, Any]:
    """The event of one exchange; `context` says what it was for."""
    return {
        "type": "exchange",
        **context,
        "key": key(messages),
        "messages": [dict(message) for message in messages],
        "reply": answer.text,
        "finish": answer.finish_reason,
        "model": answer.model,
        "spend": {k: v for k, v in answer.usage.to_dict().items() if k != "schema"},
    }


def completion(exchange: Event) -> Completion:
    """The answer of a recorded exchange."""
    return Completion(
        exchange["reply"],
        exchange.get("finish", "stop"),
        Spend(**exchange["spend"]),
        exchange.get("model", ""),
    )


def pack(exchange: Event, put: Callable[[bytes], str]) -> dict[str, Any]:
    """The event with its texts as the hashes of blobs."""
    return {
        **exchange,
        "messages": [
            {"role": message["role"], "sha": put(message["content"].encode())}
            for message in exchange["messages"]
        ],
        "reply": {"sha": put(exchange["reply"].encode())},
    }


def unpack(exchange: Event, get: Callable[[str], bytes]) -> dict[str, Any]:
    """The event `pack` made, with its texts."""
    reply = exchange["reply"]
    return {
        **exchange,
        "messages": [
            {"role": message["role"], "content": get(message["sha"]).decode()}
            if "sha" in message
            else message
            for message in exchange["messages"]
        ],
        "reply": get(reply["sha"]).decode() if isinstance(reply, Mapping) else reply,
    }


def exchanges(store: Store) -> Iterator[dict[str, Any]]:
    """The exchanges of a store, in order, with their texts."""
    for found in store.events():
        if found.get("type") == "exchange":
            yield unpack(found, store.get)


class Replay:
    """A model that answers as recorded; the same messages sent again get the next answer.

    Raises RecordingError for messages that were never recorded.
    """

    model = "replay"

    def __init__(self, recorded: Iterable[Event]) -> None:
        self._answers: dict[str, list[Completion]] = {}
        self._used: dict[str, int] = {}
        self._lock = threading.Lock()
        for exchange in recorded:
            name = exchange.get("key") or key(exchange["messages"])
            self._answers.setdefault(name, []).append(completion(exchange))

    def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        temperature: float | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> Completion:
        """The recorded answer to these messages."""
        name = key(messages)
        with self._lock:
            answers = self._answers.get(name)
            if not answers:
                raise RecordingError(
                    f"no recorded answer to these messages (key {name[:12]})",
                    "replay with the task, policy, seed, device and version of the recorded run",
                )
            used = self._used.get(name, 0)
            self._used[name] = used + 1
        return answers[min(used, len(answers) - 1)]
