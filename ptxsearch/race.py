"""Whether one kernel is faster than another: a sequential test on interleaved rounds.

Formulas are those of EVALUATION section 7. The first column of samples is the candidate, the
second the rival, all in seconds; a group is the rounds between two reloads of the modules with
all buffers placed anew. Everything here is a pure function of the samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ptxsearch.errors import UsageError
from ptxsearch.evaluation import Array, Failure
from ptxsearch.record import Record

__all__ = [
    "AA_ROUNDS",
    "Decision",
    "Guard",
    "Rules",
    "combine",
    "guard",
    "hopeless",
    "judge",
    "log_evidence",
    "race",
]

Verdict = Literal["faster", "not_faster", "tie", "undecided"]
AA_ROUNDS = 60


@dataclass(frozen=True)
class Rules(Record):
    """When a race is decided.

    A round is won where the log ratio is below -`margin`. `alpha` bounds the chance that an equal
    kernel is ever accepted, `futility` that a race is given up wrongly. `tail` bounds the ratio of
    the 95 % quantiles. With `every_group` the candidate must also win each group by its median.
    """

    most: int = 60
    alpha: float = 0.05
    futility: float = 0.05
    margin: float = 0.005
    group: int = 20
    least_groups: int = 3
    tail: float = 1.02
    every_group: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1 or not 0 < self.futility < 1 or self.margin < 0:
            raise UsageError(
                f"alpha {self.alpha}, futility {self.futility}, margin {self.margin}",
                "give alpha and futility between 0 and 1 and a margin of 0 or more",
            )
        if self.group < 1 or self.most < self.group * self.least_groups:
            raise UsageError(
                f"at most {self.most} rounds in groups of {self.group}",
                f"allow at least {self.least_groups} groups",
            )

    @classmethod
    def incumbent(cls, races: int = 20) -> Rules:
        """The rules against the incumbent, where `races` such races are allowed in a run."""
        return cls(most=200, alpha=0.05 / max(races, 1), every_group=True)


@dataclass(frozen=True)
class Decision(Record):
    """Where a race stands: the verdict with everything it rests on.

    `log_e` is the evidence for faster, `log_futile` that against; `ratio` the median of time over
    the rival's, `groups` the medians of log ratios by group.
    """

    verdict: Verdict
    reason: str
    rounds: int
    wins: int
    log_e: float
    log_futile: float
    ratio: float
    mean_log_ratio: float
    tail_ratio: float
    groups: tuple[float, ...]

    @property
    def accepted(self) -> bool:
        """Whether the candidate beat the rival."""
        return self.verdict == "faster"


@dataclass(frozen=True)
class Guard(Record):
    """Whether a kernel raced against itself comes out equal, and the noise that was seen.

    `bias` is the median of the groups' median log ratios, `noise` the standard deviation of one
    pair's log ratio, `spread` the largest group median in size.
    """

    ok: bool
    message: str
    bias: float
    noise: float
    spread: float


def log_evidence(rounds: int, wins: int) -> float:
    """The logarithm of e_n: a uniform mixture over win chances above one half.

    `wins` of `rounds` rounds were won.

    e_n = 2^(n+1) B(s+1, n-s+1) I_{1/2}(n-s+1, s+1); under a win chance of at most 1/2 it exceeds
    1/alpha with probability at most alpha, whenever the race is stopped.
    """
    from scipy import special

    n, s = rounds, wins
    tail = float(special.betainc(n - s + 1, s + 1, 0.5))
    if tail <= 0.0:
        return -math.inf
    beta = float(special.betaln(s + 1, n - s + 1))
    return (n + 1) * math.log(2.0) + beta + math.log(tail)


def combine(times: Mapping[str, Array], weights: Mapping[str, float] | None = None) -> Array:
    """One column of times a side from several workloads: the weighted geometric mean by round."""
    names = list(times)
    if not names:
        raise UsageError("no workload was timed", "time at least one")
    share = np.array([1.0 if weights is None else weights[name] for name in names])
    logs = np.stack([np.log(times[name]) for name in names])
    combined: Array = np.exp(np.tensordot(share / share.sum(), logs, axes=1))
    return combined


def hopeless(samples: Array, *, factor: float = 1.5, rounds: int = 3) -> bool:
    """Whether the first rounds already show the candidate `factor` times slower than its rival."""
    first = samples[:rounds]
    if len(first) < rounds:
        return False
    return bool(np.median(first[:, 0] / first[:, 1]) > factor)


def judge(groups: Sequence[Array], rules: Rules) -> Decision:
    """Where a race stands after whole groups of rounds, each of shape (rounds, 2 or more)."""
    if not groups:
        raise UsageError("a race without rounds", "time at least one group")
    ratios = [np.log(group[:, 0] / group[:, 1]) for group in groups]
    medians = tuple(float(np.median(ratio)) for ratio in ratios)
    flat = np.concatenate(ratios)
    samples = np.concatenate([group[:, :2] for group in groups])
    wins = int(np.count_nonzero(flat < -rules.margin))
    n = len(flat)
    high = np.quantile(samples, 0.95, axis=0)
    facts = {
        "rounds": n,
        "wins": wins,
        "log_e": log_evidence(n, wins),
        "log_futile": log_evidence(n, n - wins),
        "mean_log_ratio": float(flat.mean()),
        "tail_ratio": float(high[0] / high[1]),
    }
    verdict, reason = _verdict(facts, medians, rules)
    return Decision(
        verdict=verdict,
        reason=reason,
        rounds=n,
        wins=wins,
        log_e=facts["log_e"],
        log_futile=facts["log_futile"],
        ratio=float(np.exp(np.median(flat))),
        mean_log_ratio=facts["mean_log_ratio"],
        tail_ratio=facts["tail_ratio"],
        groups=medians,
    )


def _verdict(
    facts: Mapping[str, float], medians: Sequence[float], rules: Rules
) -> tuple[Verdict, str]:
    if facts["log_futile"] >= -math.log(rules.futility):
        return "not_faster", "the rival wins too many rounds"
    enough = len(medians) >= rules.least_groups
    if enough and facts["log_e"] >= -math.log(rules.alpha):
        lacking = _lacking(facts, medians, rules)
        if not lacking:
            return "faster", f"wins {facts['wins']:.0f} of {facts['rounds']:.0f} rounds"
    else:
        lacking = "too few rounds won"
    if facts["rounds"] + rules.group > rules.most:
        return "tie", lacking
    return "undecided", lacking


def _lacking(facts: Mapping[str, float], medians: Sequence[float], rules: Rules) -> str:
    """What keeps a candidate with enough wins from being accepted; empty where nothing does."""
    if facts["mean_log_ratio"] >= 0.0:
        return "its mean is not below the rival's"
    if facts["tail_ratio"] > rules.tail:
        return f"its 95 % quantile is {facts['tail_ratio']:.3f} of the rival's"
    if rules.every_group:
        if max(medians) >= 0.0:
            return "it lost a group of rounds"
        if float(np.median(medians)) >= -rules.margin:
            return "its gain over groups is within the margin"
    return ""


def race(sample: Callable[[int], Array | Failure], rules: Rules) -> Decision | Failure:
    """The decision of a race; `sample(rounds)` times one group, modules and buffers new each time.

    Ends at a group's end once decided or out of rounds, or with the failure of a side.
    """
    groups: list[Array] = []
    while True:
        made = sample(rules.group)
        if isinstance(made, Failure):
            return made
        groups.append(made)
        decision = judge(groups, rules)
        if decision.verdict != "undecided":
            return decision


def guard(groups: Sequence[Array], rules: Rules | None = None) -> Guard:
    """Whether a harness is fit to judge, from a kernel raced against itself.

    Fit means that neither side is accepted and that no bias is left above the margin, or above
    three standard errors of a median (1.253 sd / sqrt(n)) where the noise is large.
    """
    rules = rules or Rules()
    there = judge(groups, rules)
    back = judge([group[:, 1::-1] for group in groups], rules)
    pairs = np.concatenate([np.log(group[:, 0] / group[:, 1]) for group in groups])
    bias = float(np.median(there.groups))
    noise = float(pairs.std(ddof=1))
    spread = max(abs(median) for median in there.groups)
    message = ""
    if there.accepted or back.accepted:
        message = "a kernel beats itself: the clock or the buffers favour one side"
    elif abs(bias) > max(rules.margin, 3 * 1.253 * noise / math.sqrt(len(pairs))):
        message = f"equal kernels differ by {100 * bias:.2f} %: times cannot be trusted"
    return Guard(not message, message, bias, noise, spread)
