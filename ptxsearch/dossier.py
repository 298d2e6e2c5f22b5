"""What is known of a candidate while it passes the gates; it becomes an `Evaluation`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ptxsearch.evaluation import (
    Array,
    Built,
    Counters,
    Evaluation,
    Failure,
    Fault,
    Origin,
    Resources,
    Stage,
    Status,
    Timing,
)
from ptxsearch.kernel import Kernel
from ptxsearch.tasks import Task


@dataclass
class Dossier:
    """One candidate on its way: inputs of the judgement, and what each stage adds."""

    task: Task
    kernel: Kernel
    baseline: Kernel | None
    rival: Kernel | None
    device: str
    source: Origin
    built: Built | None = None
    key: str = ""
    resources: Mapping[str, Resources] = field(default_factory=dict)
    times: dict[str, Timing] = field(default_factory=dict)
    counters: dict[str, Counters] = field(default_factory=dict)
    evidence: dict[str, Any] = field(default_factory=dict)
    cost: dict[str, float] = field(default_factory=dict)
    samples: dict[str, list[Array]] = field(default_factory=dict)

    @contextmanager
    def at(self, stage: Stage) -> Iterator[None]:
        """Charges the wall seconds spent inside to `stage`."""
        started = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - started
            self.cost[stage] = self.cost.get(stage, 0.0) + spent

    def verdict(
        self, status: Status, stage: Stage, message: str = "", *, faults: tuple[Fault, ...] = ()
    ) -> Evaluation:
        """The evaluation with everything known so far."""
        return Evaluation(
            status=status,
            stage=stage,
            message=message,
            key=self.key,
            device=self.device,
            source=self.source,
            resources=self.resources,
            times=dict(self.times),
            counters=dict(self.counters),
            faults=faults,
            evidence=dict(self.evidence),
            cost=dict(self.cost),
        )

    def failed(self, failure: Failure, stage: Stage) -> Evaluation:
        """The evaluation for what a device reported."""
        faults = failure.faults or ((failure.fault,) if failure.fault is not None else ())
        return self.verdict(failure.status, stage, failure.message, faults=faults)
