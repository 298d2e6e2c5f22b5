"""A device that needs no kernel to run: right outputs, times of your choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from ptxsearch.evaluation import Array, Built, Counters, Failure, Inputs, Outputs
from ptxsearch.expectation import expected
from ptxsearch.kernel import Kernel
from ptxsearch.tasks import Task, Workload

Seconds = Callable[[Kernel, Workload], float]


class FakeDevice:
    """A device on which every kernel computes what the reference of `task` says.

    `seconds` gives a kernel's time on a workload, `fails` the Failure of a kernel that has one
    (None: it runs). It is deterministic unless `seconds` is not.
    """

    def __init__(
        self,
        task: Task,
        *,
        seconds: Seconds = lambda kernel, workload: 1e-5,
        fails: Callable[[Kernel], Failure | None] = lambda kernel: None,
        name: str = "fake",
        arch: str = "sm_90",
        source: Literal["measured", "modelled"] = "modelled",
    ) -> None:
        self.name, self.arch, self.source = name, arch, source
        self.ran: list[tuple[Kernel, str]] = []
        self._task, self._seconds, self._fails = task, seconds, fails

    def run(
        self, built: Built, workload: Workload, inputs: Inputs, *, timeout: float
    ) -> Outputs | Failure:
        """The reference's outputs, or the kernel's failure."""
        self.ran.append((built.kernel, workload.name))
        failure = self._fails(built.kernel)
        if failure is not None:
            return failure
        return Outputs(arrays=reference_outputs(self._task, workload, inputs))

    def time(self, builts: Sequence[Built], workload: Workload, rounds: int) -> Array | Failure:
        """The chosen seconds, `rounds` times."""
        for built in builts:
            failure = self._fails(built.kernel)
            if failure is not None:
                return failure
        row = [self._seconds(built.kernel, workload) for built in builts]
        return np.tile(np.array(row, dtype=np.float64), (rounds, 1))

    def profile(self, built: Built, workload: Workload) -> Counters:
        """Counters of nothing but the duration."""
        return Counters(source="recorded", duration=self._seconds(built.kernel, workload))


def reference_outputs(task: Task, workload: Workload, inputs: Inputs) -> dict[str, Array]:
    """What the task's reference says for `inputs`, in the dtypes of its outputs."""
    arrays = expected(task, workload, inputs).arrays
    return {param.name: arrays[param.name].astype(param.numpy_dtype) for param in task.outputs}
