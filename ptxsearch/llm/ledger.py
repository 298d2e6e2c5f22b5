"""Money before it is spent: a call's highest price is reserved, then settled by its usage.

Reservations are made under a lock, so that concurrent calls together stay within every cap.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from ptxsearch.budget import Budget, Spend
from ptxsearch.errors import UsageError
from ptxsearch.llm.prices import Price
from ptxsearch.protocols import LLM, Message

_PER_MESSAGE = 16
_MARGIN = 1.25
_FEW = 3


@runtime_checkable
class Priced(Protocol):
    """A model that knows what a token costs, in US dollars."""

    def dollars(self, asked: int, answered: int) -> float:
        """The price of `asked` prompt tokens and `answered` completion tokens."""
        ...


class Ledger:
    """What a run has spent on models and what calls in flight may still spend."""

    def __init__(self, budget: Budget | None = None, spend: Spend | None = None) -> None:
        self._budget = budget
        self._spent = spend or Spend()
        self._reserved = Spend()
        self._worst_ratio: dict[str, float] = {}
        self._seen: dict[str, int] = {}
        self._lock = threading.Lock()

    @property
    def spend(self) -> Spend:
        """What was spent, reservations not counted."""
        with self._lock:
            return self._spent

    def add(self, spend: Spend) -> None:
        """Count what was spent earlier or elsewhere, such as before a resume."""
        with self._lock:
            self._spent += spend

    def admit(self, llm: LLM) -> None:
        """Raises UsageError where dollars are capped and what the model costs is not known."""
        price = getattr(llm, "price", None)
        capped = self._budget is not None and self._budget.dollars is not None
        if capped and isinstance(price, Price) and not price.known:
            raise UsageError(
                f"dollars are capped and {_name(llm)} has no price",
                "name a price table in PTXSEARCH_PRICES, or cap tokens instead",
            )

    def price(self, llm: LLM, messages: Sequence[Message], max_tokens: int) -> Spend:
        """The most that a call can cost.

        A token is at least one byte, which bounds the prompt; after a few calls the worst ratio of
        tokens to bytes that this model reported, and a quarter, is used where it is lower.
        """
        size = sum(len(message["content"].encode()) for message in messages)
        bound = size + _PER_MESSAGE * len(messages)
        with self._lock:
            if self._seen.get(_name(llm), 0) >= _FEW:
                learned = _MARGIN * self._worst_ratio[_name(llm)] * size
                bound = min(bound, math.ceil(learned) + _PER_MESSAGE * len(messages))
        dollars = llm.dollars(bound, max_tokens) if isinstance(llm, Priced) else 0.0
        return Spend(calls=1, tokens=bound + max_tokens, dollars=dollars)

    def reserve(self, price: Spend) -> bool:
        """Set `price` aside; False, and nothing set aside, where a cap would be passed."""
        with self._lock:
            taken = self._spent + self._reserved
            if self._budget is not None and not self._budget.allows(taken, price):
                return False
            self._reserved += price
            return True

    def settle(self, price: Spend, actual: Spend) -> None:
        """Replace the reservation `price` by what the call really cost (nothing if it failed)."""
        with self._lock:
            self._reserved -= price
            self._spent += actual

    def learn(self, llm: LLM, messages: Sequence[Message], asked: int) -> None:
        """Note that a prompt took `asked` tokens."""
        size = sum(len(message["content"].encode()) for message in messages)
        if asked <= 0 or not size:
            return
        with self._lock:
            name = _name(llm)
            self._seen[name] = self._seen.get(name, 0) + 1
            self._worst_ratio[name] = max(self._worst_ratio.get(name, 0.0), asked / size)


def _name(llm: LLM) -> str:
    return str(getattr(llm, "model", "") or type(llm).__name__)
