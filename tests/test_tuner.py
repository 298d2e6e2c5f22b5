"""The parameter search: what it asks, what it is told, and how soon it is there."""

from __future__ import annotations

import math
import pickle
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ptxsearch import replay
from ptxsearch.errors import SpaceError, UsageError
from ptxsearch.space import Rows, Space, Value, Values
from ptxsearch.tuner import Told, Tuner, carried

DATA = Path(__file__).parent / "data" / "spaces"
SMALL = Space(
    {"bx": (16, 32, 64, 128), "tile": (1, 2, 3, 4), "mode": ("a", "b", "c"), "pad": (False, True)},
    ("bx * tile <= 256",),
    conditions={"pad": "mode != 'c'"},
)
HUGE = Space(
    {name: tuple(2**i for i in range(8)) for name in "abcdefg"} | {"m": ("x", "y")},
    ("a * b <= 1024",),
)


def seconds_of(values: Values) -> float | None:
    """A made-up kernel: best at bx 64, tile 2, mode b, pad; large tiles of mode c fail."""
    if values["mode"] == "c" and int(values["tile"]) > 2:
        return None
    distance = abs(math.log2(int(values["bx"]) / 64)) + abs(int(values["tile"]) - 2)
    return 1e-3 * (1 + distance + 2 * (values["mode"] != "b") + 0.5 * (not values["pad"]))


def huge_seconds(values: Values) -> float:
    """A made-up kernel on HUGE with one best configuration: all 16, mode y."""
    off = sum(abs(math.log2(int(values[name]) / 16)) for name in "abcdefg")
    return 1e-3 * (1 + off + (values["m"] == "x"))


def play(tuner: Tuner, judge: Callable[[Values], float | None], n: int) -> list[dict[str, Value]]:
    """Up to `n` configurations asked and told one at a time."""
    asked = []
    for _ in range(n):
        found = tuner.ask()
        if not found:
            break
        asked += found
        tuner.tell(found[0], judge(found[0]))
    return asked


def key(values: Values) -> tuple[Value, ...]:
    """A configuration as something to put into a set."""
    return tuple(values.values())


def test_every_configuration_is_asked_once_then_it_is_done() -> None:
    """All legal configurations come, none twice, and then the tuner is done."""
    tuner = Tuner(SMALL, seed=1)
    asked = play(tuner, seconds_of, 1000)
    legal = SMALL.legal()
    assert legal is not None
    assert len({key(values) for values in asked}) == len(asked) == len(legal)
    assert all(SMALL.is_legal(values) for values in asked)
    assert tuner.done
    assert tuner.ask() == []
    best = tuner.best
    assert best is not None
    assert best.values == {"bx": 64, "tile": 2, "mode": "b", "pad": True}


def test_budget_ends_it() -> None:
    """No more configurations are asked than the budget allows, pending ones included."""
    tuner = Tuner(SMALL, budget=12)
    assert len(tuner.ask(20)) == 12
    assert tuner.done


def test_same_seed_same_questions() -> None:
    """The questions depend on the seed and the answers alone."""
    first = play(Tuner(SMALL, seed=5), seconds_of, 30)
    assert play(Tuner(SMALL, seed=5), seconds_of, 30) == first
    assert play(Tuner(SMALL, seed=6), seconds_of, 30) != first


@pytest.mark.parametrize(
    ("space", "judge", "cut"),
    [
        (SMALL, seconds_of, 3),
        (SMALL, seconds_of, 17),
        (SMALL, seconds_of, 32),
        (HUGE, huge_seconds, 19),
    ],
)
def test_a_tuner_rebuilt_from_its_history_goes_on(
    space: Space, judge: Callable[[Values], float | None], cut: int
) -> None:
    """Rebuilt from its results, or from a pickle, it asks what it would have asked."""
    whole = Tuner(space, seed=2)
    play(whole, judge, cut)
    rebuilt = Tuner(space, seed=2, history=whole.history)
    copy = pickle.loads(pickle.dumps(whole))
    expected = play(whole, judge, 6)
    assert play(rebuilt, judge, 6) == expected
    assert play(copy, judge, 6) == expected


@pytest.mark.parametrize("told", [0, 15])
def test_batches_hold_distinct_configurations(told: int) -> None:
    """A batch repeats neither itself, nor what is pending, nor what is measured."""
    tuner = Tuner(SMALL, seed=3)
    known = play(tuner, seconds_of, told)
    batches = tuner.ask(8) + tuner.ask(8)
    assert len({key(values) for values in known + batches}) == told + 16


def test_pending_results_are_not_needed_to_go_on() -> None:
    """Eight devices that answer late still lead to the best configuration."""
    tuner, pending = Tuner(HUGE, budget=120, seed=0), []
    for _ in range(15):
        pending.append(tuner.ask(8))
        if len(pending) > 1:
            for values in pending.pop(0):
                tuner.tell(values, huge_seconds(values))
    best = tuner.best
    assert best is not None
    assert best.seconds is not None
    assert best.seconds <= 2e-3


def test_forgotten_configurations_may_come_again() -> None:
    """What was taken back is not pending, and what is held is not asked."""
    tuner = Tuner(SMALL, seed=4)
    first = tuner.ask()[0]
    tuner.forget(first)
    assert tuner.ask()[0] == first
    other = Tuner(SMALL, seed=4)
    other.hold(first)
    assert other.ask()[0] != first


def test_failures_do_not_stop_it() -> None:
    """A space in which nothing works is asked to its end without an error."""
    tuner = Tuner(SMALL, seed=0)
    asked = play(tuner, lambda values: None, 1000)
    legal = SMALL.legal()
    assert legal is not None
    assert len(asked) == len(legal)
    assert tuner.best is None


def test_equal_times_do_not_stop_it() -> None:
    """Where all that works is equally fast, every configuration still comes once."""
    space = Space({"a": tuple(range(14)), "b": (0.5, 1.5)}, (), {"z": "a % b", "w": "1 / a"})
    tuner = Tuner(space)
    asked = play(tuner, lambda values: 1.0 if int(values["a"]) % 3 else None, 100)
    assert len({key(values) for values in asked}) == len(asked) == 28


def test_large_space_is_searched_without_enumeration() -> None:
    """Of 3 million configurations the best, or one step from it, comes within 60 evaluations."""
    assert HUGE.size == 8**7 * 2
    tuner = Tuner(HUGE, budget=60, seed=0)
    asked = play(tuner, huge_seconds, 60)
    assert len({key(values) for values in asked}) == 60
    best = tuner.best
    assert best is not None
    assert best.seconds is not None
    assert best.seconds <= 2e-3


def test_measured_matrix_product_is_tuned_in_few_evaluations() -> None:
    """On the recorded matrix product (3 of 2,040 within 5 %) it needs under 100 evaluations.

    Random search needs (2,040 + 1) / (3 + 1) = 510 in expectation.
    """
    task, recording = replay.load(DATA / "matmul_H200.npz", noise=False)
    spent = []
    for seed in range(3):
        tuner = Tuner(recording.space, seed=seed)
        for n in range(1, 401):
            values = tuner.ask()[0]
            verdict = recording.evaluate(task, task.baseline.with_values(**values))
            tuner.tell(values, verdict.seconds if verdict.ok else None)
            if verdict.ok and verdict.seconds <= 1.05 * recording.best_seconds:
                spent.append(n)
                break
    assert len(spent) == 3
    assert np.mean(spent) < 100


@pytest.mark.slow
def test_a_proposal_costs_under_ten_milliseconds() -> None:
    """400 proposals on 4,092 configurations cost under 10 ms of CPU each."""
    _, recording = replay.load(DATA / "pnpoly_RTX_3090.npz", noise=False)
    table = recording.table
    started = time.process_time()
    tuner = Tuner(recording.space, budget=400)
    while asked := tuner.ask():
        place = recording.find(asked[0])
        assert place is not None
        seconds = float(table.seconds[place])
        tuner.tell(asked[0], seconds if math.isfinite(seconds) else None)
    assert (time.process_time() - started) / 400 < 0.010


def test_first_configurations_come_first_and_at_most_ten() -> None:
    """Another device's best are tried before anything else, ten at most."""
    legal = SMALL.legal()
    assert legal is not None
    ranked = [SMALL.values(row) for row in legal[:14]]
    tuner = Tuner(SMALL, first=ranked)
    assert tuner.ask(10) == ranked[:10]
    assert tuner.ask()[0] not in ranked[:10]


def test_results_of_another_template_are_carried_over() -> None:
    """Shared parameters keep their value, others the default; illegal and equal ones drop out."""
    told = [
        Told({"bx": 128, "tile": 2, "unroll": 4}, 3.0),
        Told({"bx": 64, "tile": 2, "unroll": 1}, 1.0),
        Told({"bx": 64, "tile": 2, "unroll": 2}, 1.5),
        Told({"bx": 128, "tile": 4, "unroll": 1}, 2.0),
        Told({"bx": 16, "tile": 1, "unroll": 1}, None),
    ]
    defaults: dict[str, Value] = {"bx": 32, "tile": 1, "mode": "b", "pad": True}
    expected = [
        {"bx": 64, "tile": 2, "mode": "b", "pad": True},
        {"bx": 128, "tile": 2, "mode": "b", "pad": True},
    ]
    assert carried(told, SMALL, defaults=defaults) == expected


def test_a_good_prior_shortens_the_search() -> None:
    """Told the true times as a prior, it has the best within 20 questions; without, it has not."""
    found: dict[bool, list[float]] = {True: [], False: []}
    for seed in range(3):
        for given in found:
            tuner = Tuner(HUGE, budget=20, seed=seed, prior=true_log if given else None)
            asked = play(tuner, huge_seconds, 20)
            found[given].append(min(huge_seconds(values) for values in asked))
    assert found[True] == [1e-3] * 3
    assert min(found[False]) > 1e-3


def true_log(rows: Rows) -> NDArray[np.float64]:
    """The log seconds of `huge_seconds`, for many rows at once: levels are powers of 2."""
    off = np.abs(rows[:, :7] - 4).sum(axis=1) + (rows[:, 7] == 0)
    return np.asarray(np.log(1e-3 * (1 + off)))


def test_a_feature_known_beforehand_is_used() -> None:
    """A feature that orders a shuffled parameter leads to the best sooner than without."""
    order = np.random.default_rng(0).permutation(200)
    space = Space({"choice": tuple(f"v{i}" for i in range(200))})

    def judge(values: Values) -> float:
        return 1e-3 * (1 + int(order[int(str(values["choice"])[1:])]))

    def feature(rows: Rows) -> NDArray[np.int64]:
        return order[rows[:, 0]][:, None]

    found = [
        min(judge(v) for v in play(Tuner(space, seed=1, features=f), judge, 20))
        for f in (None, feature)
    ]
    assert found[1] == 1e-3
    assert found[1] < found[0]


def test_contenders_are_those_that_noise_hides() -> None:
    """Only configurations within the noise of the best are worth a longer look."""
    tuner = Tuner(Space({"a": (1, 2, 3, 4)}))
    for a, seconds, sd in ((1, 1.0, 0.02), (2, 1.03, 0.02), (3, 1.5, 0.02)):
        tuner.tell({"a": a}, seconds, sd=sd)
    tuner.tell({"a": 4}, None)
    assert tuner.contenders() == [{"a": 2}]
    tuner.tell({"a": 2}, 1.03, sd=0.001)
    tuner.tell({"a": 1}, 1.0, sd=0.001)
    assert tuner.contenders() == []
    assert len(tuner.history) == 4


def test_mistakes_are_refused() -> None:
    """A budget of nothing, a time that is none and undeclared values are a user's mistakes."""
    with pytest.raises(UsageError, match="budget"):
        Tuner(SMALL, budget=0)
    with pytest.raises(UsageError, match="time of -1"):
        Tuner(Space({"a": (1,)})).tell({"a": 1}, -1.0)
    with pytest.raises(SpaceError, match="a = 2"):
        Tuner(Space({"a": (1,)})).tell({"a": 2}, 1.0)
    with pytest.raises(SpaceError, match="without parameters"):
        Tuner(Space({}))
    with pytest.raises(SpaceError, match="no configuration"):
        Tuner(Space({"a": (1,)}, ("a > 1",)))
