"""The pipeline on a device that runs many sets at a time: the verdicts of one that does not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from ptxsearch.emulator.device import EmulatedDevice
from ptxsearch.evaluation import Array, Built, Counters, Failure, Inputs, Outputs
from ptxsearch.pipeline import Pipeline
from ptxsearch.protocols import BatchDevice
from ptxsearch.tasks import Workload
from tests.test_pipeline import GOOD, TASK, body, kernel

SMALL = replace(
    TASK, workloads=(Workload("small", {"n": 100}), Workload("odd", {"n": 1031}, timed=True))
)
SECONDS = 1e-5


class OneByOne:
    """An emulator that passes for hardware; it notes the labels of the sets it ran."""

    source: Literal["measured", "modelled"] = "measured"

    def __init__(self) -> None:
        self._emulated = EmulatedDevice()
        self.name, self.arch = "stand-in", self._emulated.arch
        self.ran: list[str] = []

    def run(
        self, built: Built, workload: Workload, inputs: Inputs, *, timeout: float
    ) -> Outputs | Failure:
        """What the emulator says."""
        self.ran.append(f"{workload.name} {inputs.label}")
        return self._emulated.run(built, workload, inputs, timeout=timeout)

    def time(self, builts: Sequence[Built], workload: Workload, rounds: int) -> Array:
        """The same seconds for all."""
        return np.full((rounds, len(builts)), SECONDS)

    def profile(self, built: Built, workload: Workload) -> Counters:
        """Nothing is counted."""
        return Counters()


class ManyAtATime(OneByOne):
    """The same, running every set it can get before it gives the first result."""

    def run_all(
        self, built: Built, cases: Iterable[tuple[Workload, Inputs]], *, timeout: float
    ) -> Iterator[Outputs | Failure]:
        """The results up to the first failure."""
        results: list[Outputs | Failure] = []
        for workload, inputs in cases:
            results.append(self.run(built, workload, inputs, timeout=timeout))
            if isinstance(results[-1], Failure):
                break
        yield from results


# True on the third distribution of the larger size alone.
SMALL_VALUES = "x[0] > 0.0f && x[0] < 1e-3f && n > 1000"
CASES = {
    "right": ("OK", GOOD),
    "wrong on the third distribution": (
        "WRONG",
        body(f"  float c = {SMALL_VALUES} ? 2.0f : 1.0f;\n  if (i < n) y[i] = a * x[i] + c;"),
    ),
    "faults on the third distribution": (
        "CRASHED",
        body(f"  int j = {SMALL_VALUES} ? i + n : i;\n  if (i < n) y[j] = a * x[i] + 1.0f;"),
    ),
    "writes its input on the third distribution": (
        "WRONG",
        body(
            f"  bool bad = {SMALL_VALUES};\n  if (i < n) y[i] = a * x[i] + 1.0f;\n"
            "  if (bad && i == n - 1) ((float*)x)[i] = 0.0f;"
        ),
    ),
    "wrong on the larger size": (
        "WRONG",
        body("  if (i < n) y[i] = n > 1000 ? 0.0f : a * x[i] + 1.0f;"),
    ),
}


@pytest.fixture(scope="module")
def pipelines() -> tuple[Pipeline, Pipeline]:
    """A pipeline on each kind of device."""
    return Pipeline(OneByOne()), Pipeline(ManyAtATime())


@pytest.mark.parametrize(("status", "source"), CASES.values(), ids=CASES)
def test_verdicts_are_equal(pipelines: tuple[Pipeline, Pipeline], status: str, source: str) -> None:
    """Status, stage, message, faults and evidence are the same both ways."""
    one, many = (p.evaluate(SMALL, kernel(source)).to_dict() for p in pipelines)
    assert isinstance(pipelines[1].device, BatchDevice)
    assert not isinstance(pipelines[0].device, BatchDevice)
    assert one["status"] == status
    for field in ("status", "stage", "message", "faults", "evidence", "key"):
        assert one[field] == many[field], field


def test_every_set_runs_on_the_device_whichever_way() -> None:
    """A right kernel is run on the sets of all sizes and distributions, once more in smoke."""
    devices = OneByOne(), ManyAtATime()
    for device in devices:
        assert Pipeline(device).evaluate(SMALL, kernel(GOOD)).ok
    assert devices[0].ran == devices[1].ran
    assert len(set(devices[0].ran)) == len(devices[0].ran) - 3
