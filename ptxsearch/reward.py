"""A verdict as a number: the lower bound of log speedup, or the value of a failure."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ptxsearch.evaluation import Evaluation

LOWEST = -0.7
Z_LOWER = 2.3
FEWEST_ROUNDS = 7
FAILURE_VALUE: Mapping[str, float] = {
    "NO_KERNEL": -1.0,
    "DISHONEST": -1.0,
    "REJECTED": -0.98,
    "COMPILE_ERROR": -0.95,
    "PRUNED": -0.93,
    "TIMEOUT": -0.92,
    "CRASHED": -0.9,
}


def failure_reward(evaluation: Evaluation) -> float:
    """The value of a kernel that did not pass: it informs text and priors, never the backup."""
    if evaluation.status == "WRONG":
        share = float(evaluation.evidence.get("share_right", 0.0))
        return -0.88 + 0.08 * min(max(share, 0.0), 1.0)
    return FAILURE_VALUE.get(evaluation.status, -1.0)


def log_speedup(evaluation: Evaluation, baseline: Evaluation) -> float:
    """Mean of log(T_baseline / T) over the timed workloads.

    Where the evaluation timed the baseline in its own rounds, that pair is used.
    """
    versus = evaluation.evidence.get("versus_baseline")
    if versus is not None:
        return float(versus["log_speedup"])
    logs = [
        math.log(baseline.times[name].median / timing.median)
        for name, timing in evaluation.times.items()
        if name in baseline.times
    ]
    return sum(logs) / len(logs) if logs else 0.0


def reward(evaluation: Evaluation, baseline: Evaluation) -> float:
    """The lower bound of log speedup over the baseline, clipped to what is physically possible.

    Modelled and recorded times have no error. A measured one needs 7 rounds to enter with its
    bound (z = 2.3); with fewer it enters only where it is slower than its parent.
    """
    if not evaluation.ok:
        return failure_reward(evaluation)
    value = log_speedup(evaluation, baseline)
    versus = evaluation.evidence.get("versus_baseline")
    if versus is not None and versus["rounds"] >= FEWEST_ROUNDS:
        value -= Z_LOWER * float(versus["standard_error"])
    return max(LOWEST, min(value, ceiling(evaluation, baseline)))


def ceiling(evaluation: Evaluation, baseline: Evaluation) -> float:
    """log(1.05 T_baseline / T_floor), infinite where no floor is known."""
    floor = evaluation.evidence.get("floor_seconds")
    if not floor or not baseline.times:
        return math.inf
    return math.log(1.05 * baseline.seconds / float(floor))
