"""Rewards: lower bounds, clips, values of failures; budgets."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ptxsearch.budget import Budget, Spend
from ptxsearch.errors import UsageError
from ptxsearch.evaluation import Evaluation, Status, Timing
from ptxsearch.reward import reward


def timed(seconds: float, **evidence: Any) -> Evaluation:
    """A kernel that passed at `seconds`."""
    times = {"w": Timing(seconds, seconds, seconds, 1)}
    return Evaluation("OK", "quick", times=times, evidence=evidence)


def test_modelled_times_enter_exactly() -> None:
    """Without rounds the reward is log(T_base / T)."""
    assert reward(timed(1e-4), timed(2e-4)) == pytest.approx(math.log(2))


def test_measured_times_enter_with_their_lower_bound() -> None:
    """Seven rounds or more lose 2.3 standard errors; fewer enter as they are."""
    versus = {"log_speedup": 0.5, "standard_error": 0.1, "rounds": 7}
    assert reward(timed(1e-4, versus_baseline=versus), timed(2e-4)) == pytest.approx(0.27)
    few = {**versus, "rounds": 3}
    assert reward(timed(1e-4, versus_baseline=few), timed(2e-4)) == pytest.approx(0.5)


def test_clips() -> None:
    """Rewards stay within -0.7 and log(1.05 T_base / T_floor)."""
    assert reward(timed(1.0), timed(1e-4)) == -0.7
    impossible = reward(timed(1e-6, floor_seconds=5e-5), timed(1e-4))
    assert impossible == pytest.approx(math.log(1.05 * 1e-4 / 5e-5))


@pytest.mark.parametrize(
    ("status", "value"),
    [
        ("NO_KERNEL", -1.0), ("REJECTED", -0.98), ("COMPILE_ERROR", -0.95), ("PRUNED", -0.93),
        ("TIMEOUT", -0.92), ("CRASHED", -0.9), ("WRONG", -0.88), ("DISHONEST", -1.0),
    ],
)  # fmt: skip
def test_failures(status: Status, value: float) -> None:
    """Each failure has the value docs/search.md gives it."""
    assert reward(Evaluation(status, "compile"), timed(1e-4)) == value


def test_nearly_right_is_worth_more() -> None:
    """A wrong kernel gains with its share of right elements, up to -0.8."""
    half = Evaluation("WRONG", "correctness", evidence={"share_right": 0.5})
    assert reward(half, timed(1e-4)) == pytest.approx(-0.84)


def test_budget_reserves_before_it_spends() -> None:
    """A price that would pass a cap is not allowed."""
    budget = Budget(trials=None, tokens=100)
    assert budget.allows(Spend(tokens=60), Spend(tokens=40))
    assert not budget.allows(Spend(tokens=60), Spend(tokens=41))
    assert budget.exhausted(Spend(tokens=100)) == "tokens"
    assert budget.fraction(Spend(tokens=25, trials=10)) == 0.25


@pytest.mark.parametrize("caps", [{"trials": 0}, {"dollars": -1.0}, {"trials": None}])
def test_budgets_that_cannot_be(caps: dict[str, Any]) -> None:
    """A cap is positive, and one there must be."""
    with pytest.raises(UsageError):
        Budget(**caps)
