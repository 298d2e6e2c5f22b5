"""Trials and the result of a run: what was tried, what it was worth, what came out."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ptxsearch.budget import Spend
from ptxsearch.evaluation import Evaluation
from ptxsearch.export import write_file, write_kernel
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
    """The winning kernel with its evidence.

    `cubin` is hexadecimal, empty without a compiler. `document` holds the parameters and the
    launches of each workload as plain numbers.
    """

    trial: Trial
    evaluation: Evaluation
    kernel: Kernel
    cubin: str = ""
    document: Mapping[str, Any] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Geometric mean of its median seconds over the timed workloads."""
        return self.evaluation.seconds

    def export(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write the kernel as files that run without ptxsearch, and return their paths.

        Source, cubin, launches and a short loader each for cuda-python, CuPy and torch. Raises
        UsageError where the folder cannot be written.
        """
        return write_kernel(
            folder,
            self.kernel,
            evaluation=self.evaluation,
            cubin=bytes.fromhex(self.cubin),
            document=self.document,
        )


@dataclass(frozen=True)
class Result(Record):
    """What a run found. `best` is the baseline itself where nothing beat it.

    `incumbents` are the trials that were the best when they came, in order; `reason` says why
    the run ended, `digest` is that of the task's files.
    """

    task: str
    state: RunState
    best: Best | None
    incumbents: tuple[Trial, ...]
    trials: tuple[Trial, ...]
    spend: Spend
    reason: str = ""
    baseline: Evaluation | None = None
    digest: str = ""

    @property
    def speedup(self) -> float:
        """Baseline time over best time, 1.0 where nothing beat the baseline."""
        if self.best is None or self.baseline is None or not self.baseline.ok:
            return 1.0
        return self.baseline.seconds / self.best.seconds

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the result as JSON, which `ptxsearch verify` reads, and return the path."""
        text = json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n"
        return write_file(Path(path), text.encode())
