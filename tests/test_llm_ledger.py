"""Tests of reservations: no cap is passed, whatever the number of threads."""

from __future__ import annotations

import random
import threading

import pytest

from ptxsearch.budget import Budget, Spend
from ptxsearch.errors import UsageError
from ptxsearch.llm.ledger import Ledger
from ptxsearch.llm.prices import UNKNOWN
from ptxsearch.protocols import Message
from ptxsearch.testing import ScriptedLLM


class Dear(ScriptedLLM):
    """A model at one dollar for a hundred tokens either way."""

    def dollars(self, asked: int, answered: int) -> float:
        """The price."""
        return (asked + answered) / 100


def prompt(size: int) -> list[Message]:
    """One message of `size` bytes."""
    return [{"role": "user", "content": "x" * size}]


def test_the_price_is_an_upper_bound_of_bytes() -> None:
    """Before anything is known a token may be a single byte; multibyte text counts its bytes."""
    ledger = Ledger()
    assert ledger.price(ScriptedLLM(), prompt(1000), 50) == Spend(calls=1, tokens=1066)
    wide = [{"role": "user", "content": "é" * 100}]
    assert ledger.price(ScriptedLLM(), wide, 50).tokens == 200 + 16 + 50
    assert ledger.price(Dear(), prompt(1000), 50).dollars == 10.66


def test_the_bound_tightens_with_what_a_model_reports() -> None:
    """After three calls the worst ratio and a quarter counts; other models keep theirs."""
    ledger, llm, other = Ledger(), ScriptedLLM(model="a"), ScriptedLLM(model="b")
    for asked in (200, 300, 250):
        ledger.learn(llm, prompt(1000), asked)
    assert ledger.price(llm, prompt(1000), 50).tokens == 375 + 16 + 50
    assert ledger.price(other, prompt(1000), 50).tokens == 1066


def test_a_reservation_that_would_pass_a_cap_is_refused() -> None:
    """What is reserved counts like what is spent, until it is settled."""
    ledger = Ledger(Budget(trials=None, tokens=1000))
    price = Spend(calls=1, tokens=600)
    assert ledger.reserve(price)
    assert not ledger.reserve(price)
    ledger.settle(price, Spend(calls=1, tokens=300))
    assert ledger.reserve(price)
    assert ledger.spend == Spend(calls=1, tokens=300)


def test_a_failed_call_frees_its_reservation() -> None:
    """A call that cost nothing leaves the budget as it was."""
    ledger = Ledger(Budget(trials=None, dollars=1.0))
    price = Spend(calls=1, dollars=0.9)
    for _ in range(5):
        assert ledger.reserve(price)
        ledger.settle(price, Spend())
    assert ledger.spend == Spend()


def test_earlier_spend_counts_after_a_resume() -> None:
    """Tokens of the first part of a run leave less for the second."""
    ledger = Ledger(Budget(trials=None, tokens=1000))
    ledger.add(Spend(calls=3, tokens=900))
    assert not ledger.reserve(Spend(calls=1, tokens=101))
    assert ledger.reserve(Spend(calls=1, tokens=100))


def test_concurrent_calls_never_overshoot() -> None:
    """Sixteen threads that spend up to what they reserved stay within tokens and dollars."""
    budget = Budget(trials=None, tokens=50_000, dollars=40.0)
    ledger, most = Ledger(budget), []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(200):
            price = Spend(calls=1, tokens=rng.randint(1, 900), dollars=rng.random())
            if ledger.reserve(price):
                used = Spend(
                    calls=1,
                    tokens=rng.randint(0, price.tokens),
                    dollars=price.dollars * rng.random(),
                )
                ledger.settle(price, used)
                most.append(ledger.spend)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(spend.tokens for spend in most) <= 50_000
    assert max(spend.dollars for spend in most) <= 40.0
    assert ledger.spend.tokens > 40_000 or ledger.spend.dollars > 35.0
    assert not ledger.reserve(Spend(calls=1, tokens=50_000))


def test_dollars_are_not_capped_for_a_model_without_a_price() -> None:
    """A cap that could not be kept is refused at once, with the way out."""
    llm = Dear()
    llm.price = UNKNOWN  # type: ignore[attr-defined]
    Ledger(Budget(trials=None, tokens=5)).admit(llm)
    Ledger(Budget(trials=None, dollars=5.0)).admit(Dear())
    with pytest.raises(UsageError, match="PTXSEARCH_PRICES"):
        Ledger(Budget(trials=None, dollars=5.0)).admit(llm)
