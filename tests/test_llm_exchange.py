"""Tests of recorded exchanges and their replay."""

from __future__ import annotations

import pytest

from ptxsearch.budget import Spend
from ptxsearch.errors import RecordingError
from ptxsearch.llm.exchange import Replay, event, exchanges, key, pack, unpack
from ptxsearch.protocols import Completion, Message
from ptxsearch.store import MemoryStore
from ptxsearch.testing import LLMConformance

ASK: list[Message] = [
    {"role": "system", "content": "Long " * 50},
    {"role": "user", "content": "é?"},
]
ANSWER = Completion("Because.", "length", Spend(calls=1, tokens=90, dollars=0.5), "m")
CONTEXT = {"purpose": "plan", "node": 3}


def test_the_key_is_of_roles_and_contents_alone() -> None:
    """Extra fields of a message do not matter; role, content and order do."""
    assert key([{**ASK[0], "name": "x"}, ASK[1]]) == key(ASK)
    assert len({key(ASK), key(ASK[::-1]), key([{**ASK[0], "role": "user"}, ASK[1]])}) == 3


def test_an_exchange_survives_the_store() -> None:
    """Texts become blobs, a prefix that was sent twice is kept once, and all comes back."""
    store = MemoryStore()
    first = event(ASK, ANSWER, CONTEXT)
    second = event([ASK[0], {"role": "user", "content": "And?"}], ANSWER, CONTEXT)
    for exchange in (first, second):
        store.append(pack(exchange, store.put))
    store.append({"type": "stop"})
    assert list(exchanges(store)) == [first, second]
    assert "Long" not in str(list(store.events()))
    assert unpack(first, store.get) == first


def test_a_replay_answers_as_recorded() -> None:
    """Text, reason to end, usage and model are those of the recording."""
    replay = Replay([event(ASK, ANSWER, CONTEXT)])
    assert replay.complete(ASK, max_tokens=5) == ANSWER


def test_messages_sent_again_get_the_next_answer() -> None:
    """Equal requests are answered in the order they were recorded, the last one again."""
    texts = ("a", "b")
    replay = Replay([event(ASK, Completion(text), CONTEXT) for text in texts])
    assert [replay.complete(ASK, max_tokens=5).text for _ in range(3)] == ["a", "b", "b"]


def test_unknown_messages_are_an_error() -> None:
    """A replay that leaves its recording says so instead of inventing an answer."""
    replay = Replay([event(ASK, ANSWER, CONTEXT)])
    with pytest.raises(RecordingError, match="no recorded answer"):
        replay.complete(ASK[:1], max_tokens=5)


class TestReplayConforms(LLMConformance):
    """A replay passes what every model must."""

    def make_llm(self) -> Replay:
        """A replay of what the conformance tests ask."""
        asked: list[list[Message]] = [
            [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi."}],
            [{"role": "user", "content": "Give {}."}],
        ]
        return Replay([event(messages, ANSWER, CONTEXT) for messages in asked])
