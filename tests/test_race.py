"""The sequential race: its formula, its rules, and its error rates on pairs timed on an H200."""

from __future__ import annotations

import gzip
import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from ptxsearch.errors import UsageError
from ptxsearch.evaluation import Array, Failure, Fault
from ptxsearch.race import Decision, Rules, combine, guard, hopeless, judge, log_evidence, race

RECORDED = Path(__file__).parent / "data" / "gpu" / "timing" / "proof.json.gz"


def exact_evidence(n: int, s: int) -> float:
    """The mixture's integral over win chances above one half, term by term in fractions."""
    total = Fraction(0)
    for k in range(n - s + 1):
        # p^(s) (1-p)^(n-s) expanded: binomial terms of (1-p)^(n-s), integrated from 1/2 to 1.
        term = Fraction(math.comb(n - s, k) * (-1) ** k, s + k + 1)
        total += term * (1 - Fraction(1, 2 ** (s + k + 1)))
    return float(2 ** (n + 1) * total)


def group(log_ratios: Array, seconds: float = 1e-4) -> Array:
    """Samples whose log ratio of candidate to rival is as given."""
    return np.stack([seconds * np.exp(log_ratios), np.full(len(log_ratios), seconds)], axis=1)


def recorded(part: str) -> dict[str, Array]:
    """Log ratios by case, of shape (races, groups, rounds)."""
    data = json.loads(gzip.decompress(RECORDED.read_bytes()))
    return {name: np.array(case["log ratios"]) for name, case in data[part]["raw"].items()}


@pytest.mark.parametrize(("n", "s"), [(1, 0), (1, 1), (7, 7), (9, 9), (20, 3), (60, 45), (30, 15)])
def test_evidence_is_the_mixture_integral(n: int, s: int) -> None:
    """The closed form equals the integral it stands for."""
    assert math.exp(log_evidence(n, s)) == pytest.approx(exact_evidence(n, s), rel=1e-9)


def test_evidence_of_straight_wins() -> None:
    """Seven straight wins give 31.9 and nine 102, as published with the rule."""
    assert math.exp(log_evidence(7, 7)) == pytest.approx(31.9, abs=0.05)
    assert math.exp(log_evidence(9, 9)) == pytest.approx(102, abs=0.5)


def test_fair_coin_rarely_reaches_the_threshold() -> None:
    """With a win chance of one half, e ever reaches 1/alpha in at most alpha of long races."""
    rng = np.random.default_rng(1)
    crossed = 0
    for _ in range(400):
        wins = np.cumsum(rng.random(200) < 0.5)
        crossed += any(log_evidence(n + 1, int(s)) >= math.log(20) for n, s in enumerate(wins))
    assert crossed <= 0.05 * 400 + 2 * math.sqrt(400 * 0.05 * 0.95)


def test_clear_winner_needs_three_groups() -> None:
    """A kernel 10 % faster is undecided after two groups and accepted after the third."""
    groups = [group(np.full(20, -0.1)) for _ in range(3)]
    assert judge(groups[:2], Rules()).verdict == "undecided"
    assert judge(groups, Rules()).verdict == "faster"


def test_loser_is_given_up_early() -> None:
    """A kernel that loses every round ends after one group."""
    assert judge([group(np.full(20, 0.1))], Rules()).verdict == "not_faster"


def test_win_below_the_margin_is_no_win() -> None:
    """A gain of 0.3 % counts as lost rounds: the margin is 0.5 %."""
    decision = judge([group(np.full(20, -0.003))] * 3, Rules())
    assert decision.wins == 0
    assert decision.verdict == "not_faster"


def test_worse_tail_is_not_accepted() -> None:
    """A candidate that wins most rounds but has slow outliers stays a tie."""
    logs = np.full(20, -0.03)
    logs[:3] = 0.2
    decision = judge([group(logs)] * 3, Rules())
    assert decision.verdict == "tie"
    assert "mean" in decision.reason or "95 %" in decision.reason


def test_incumbent_must_win_every_group() -> None:
    """One lost group of placements keeps a candidate from replacing the incumbent."""
    groups = [group(np.full(20, -0.05)) for _ in range(9)] + [group(np.full(20, 0.001))]
    decision = judge(groups, Rules.incumbent())
    assert not decision.accepted
    assert judge(groups[:9], Rules.incumbent()).accepted


def test_incumbent_races_share_alpha() -> None:
    """Twenty allowed races make each threshold twenty times stricter."""
    assert Rules.incumbent(20).alpha == pytest.approx(0.0025)


def test_race_stops_at_a_failure() -> None:
    """A side that fails while it is timed ends the race with its failure."""
    failure = Failure(Fault("timeout", "hung"))
    made = iter([group(np.full(20, -0.1)), failure])
    assert race(lambda rounds: next(made), Rules()) is failure


def test_race_ends_within_its_rounds() -> None:
    """Noise around nothing is decided or tied within the most rounds allowed."""
    rng = np.random.default_rng(2)
    decision = race(lambda rounds: group(rng.normal(-0.006, 0.01, rounds)), Rules())
    assert isinstance(decision, Decision)
    assert decision.rounds <= 60


def test_combine_is_the_geometric_mean() -> None:
    """Two workloads at 1 and 4 us count as 2 us."""
    times = {"a": np.full((3, 2), 1e-6), "b": np.full((3, 2), 4e-6)}
    np.testing.assert_allclose(combine(times), np.full((3, 2), 2e-6))


def test_hopeless_needs_three_rounds_of_half_again() -> None:
    """Three rounds at 1.6 times the rival end quick timing, at 1.4 they do not."""
    assert hopeless(group(np.full(3, math.log(1.6))))
    assert not hopeless(group(np.full(3, math.log(1.4))))
    assert not hopeless(group(np.full(2, math.log(9.0))))


def test_decision_survives_json() -> None:
    """A decision written and read is the same."""
    decision = judge([group(np.full(20, -0.1))] * 3, Rules())
    assert Decision.from_dict(decision.to_dict()) == decision


def test_rules_refuse_too_few_rounds() -> None:
    """Fewer rounds than three groups cannot decide anything."""
    with pytest.raises(UsageError, match="at most 30 rounds"):
        Rules(most=30)


def test_equal_kernels_on_hardware_are_never_faster() -> None:
    """Of 200 recorded races of a cubin against itself at most 1 % accept it, either way round."""
    accepted = total = 0
    for races in recorded("races").values():
        for logs in races:
            for sign in (1, -1):
                made = iter([group(sign * part) for part in logs])
                decision = race(lambda rounds, made=made: next(made), Rules())
                assert isinstance(decision, Decision)
                accepted += decision.accepted
                total += 1
    assert total == 400
    assert accepted <= 0.01 * total


@pytest.mark.parametrize(("gain", "least"), [(0.01, 0.6), (0.02, 0.9), (0.05, 0.99)])
def test_planted_gain_is_found_at_recorded_noise(gain: float, least: float) -> None:
    """Gains added to recorded pairs of equal kernels (0.6-1 % noise) are found that often."""
    found = total = 0
    for name, races in recorded("races").items():
        if not name.startswith("double_it"):
            continue
        for logs in races:
            made = iter([group(part + math.log(1 - gain)) for part in logs])
            decision = race(lambda rounds, made=made: next(made), Rules())
            assert isinstance(decision, Decision)
            found += decision.accepted
            total += 1
    assert total == 100
    assert found >= least * total


def test_measured_gains_are_found() -> None:
    """Kernels with 1, 2 and 5 % less work were accepted in every recorded race."""
    data = json.loads(gzip.decompress(RECORDED.read_bytes()))
    for row in data["power"]:
        for logs in np.array(row["log ratios"]):
            made = iter([group(part) for part in logs])
            decision = race(lambda rounds, made=made: next(made), Rules())
            assert isinstance(decision, Decision)
            assert decision.accepted
            assert decision.ratio == pytest.approx(1 - row["planted %"] / 100, abs=0.002)


def test_guard_passes_recorded_equal_kernels() -> None:
    """A recorded race of a kernel against itself shows a harness that is fit."""
    logs = recorded("races")["work 1048576"][0]
    found = guard([group(part) for part in logs])
    assert found.ok
    assert found.noise < 0.005


def test_guard_refuses_a_favoured_side() -> None:
    """A harness that favours one side by 2 % is not fit, whichever side it is."""
    rng = np.random.default_rng(3)
    for bias in (-0.02, 0.02):
        groups = [group(rng.normal(bias, 0.003, 20)) for _ in range(3)]
        assert not guard(groups).ok


def test_guard_rarely_stops_a_fit_harness() -> None:
    """Of 200 recorded races of equal kernels the guard finds fault with at most 1 %."""
    refused = sum(
        not guard([group(part) for part in logs]).ok
        for races in recorded("races").values()
        for logs in races
    )
    assert refused <= 2
