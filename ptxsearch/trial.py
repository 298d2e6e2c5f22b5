"""Trials and the result of a run: what was tried, what it was worth, what came out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ptxsearch.budget import Spend
from ptxsearch.evaluation import Evaluation
from ptxsearch.kernel import Kernel, Proposal
from ptxsearch.record import Record

RunState = Literal["done", "budget", "paused", "interrupted"]


@dataclass(frozen=True)
class Trial(Record):
    """One evaluated proposal: the node it belongs to, its verdict, its reward, what it cost.

    `id` is the number of the decision that asked for it; trial 0 is the baseline. `charged` is
    False where an equal kernel was known or the kernel was not to blame. `reward` is a lower bound
    of log(T_baseline / T), or the failure's value.
    """

    id: int
    node: int
    proposal: Proposal
    evaluation: Evaluation
    reward: float
    spend: Spend = field(default_factory=Spend)
    charged: bool = True


@dataclass(frozen=True)
class Best(Record):
    """The winning kernel with its evidence; `cubin` is hexadecimal, empty without a compiler."""

    trial: Trial
    evaluation: Evaluation
    kernel: Kernel
    cubin: str = ""

    @property
    def seconds(self) -> float:
        """Geometric mean of its median seconds over the timed workloads."""
        return self.evaluation.seconds


@dataclass(frozen=True)
class Result(Record):
    """What a run found. `best` is the baseline itself where nothing beat it.

    `incumbents` are the trials that were the best when they came, in order; `reason` says why
    the run ended.
    """

    task: str
    state: RunState
    best: Best | None
    incumbents: tuple[Trial, ...]
    trials: tuple[Trial, ...]
    spend: Spend
    reason: str = ""
    baseline: Evaluation | None = None

    @property
    def speedup(self) -> float:
        """Baseline time over best time, 1.0 where nothing beat the baseline."""
        if self.best is None or self.baseline is None or not self.baseline.ok:
            return 1.0
        return self.baseline.seconds / self.best.seconds
