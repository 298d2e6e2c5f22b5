"""`CudaDevices`: the equal GPUs of a machine as one Device; each thread that judges keeps to one.

A verdict's runs and times all come from the thread's own GPU, sides interleaved there as ever, so
that nothing is compared across GPUs but reports.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from ptxsearch.evaluation import Array, Built, Counters, Failure, Inputs, Outputs
from ptxsearch.gpu.device import CudaDevice
from ptxsearch.race import Guard
from ptxsearch.tasks import Workload

__all__ = ["CudaDevices"]


class CudaDevices:
    """Several GPUs of one model. Threads are dealt out to them in turn.

    GPUs of another model than the first are closed and not used: their times mean something else.
    """

    source: Literal["measured", "modelled"] = "measured"

    def __init__(self, gpus: Sequence[CudaDevice]) -> None:
        first = gpus[0]
        self.gpus = tuple(gpu for gpu in gpus if gpu.name == first.name and gpu.arch == first.arch)
        for other in gpus:
            if other not in self.gpus:
                other.close()
        self.name, self.arch, self.properties = first.name, first.arch, first.properties
        self._turn = itertools.count()
        self._thread = threading.local()

    @property
    def mine(self) -> CudaDevice:
        """The GPU of the calling thread."""
        if not hasattr(self._thread, "gpu"):
            self._thread.gpu = self.gpus[next(self._turn) % len(self.gpus)]
        gpu: CudaDevice = self._thread.gpu
        return gpu

    def run(
        self, built: Built, workload: Workload, inputs: Inputs, *, timeout: float
    ) -> Outputs | Failure:
        """As `CudaDevice.run`, on the thread's GPU; so are all methods below."""
        return self.mine.run(built, workload, inputs, timeout=timeout)

    def run_all(
        self, built: Built, cases: Iterable[tuple[Workload, Inputs]], *, timeout: float
    ) -> Iterator[Outputs | Failure]:
        """What `run` would give of each case."""
        return self.mine.run_all(built, cases, timeout=timeout)

    def time(self, builts: Sequence[Built], workload: Workload, rounds: int) -> Array | Failure:
        """Seconds of shape (rounds, len(builts))."""
        return self.mine.time(builts, workload, rounds)

    def audit(self) -> Sequence[tuple[int, Inputs, Outputs]]:
        """Since the last call: (index into `builts`, the inputs, the outputs it left)."""
        return self.mine.audit()

    @property
    def guard_is_due(self) -> bool:
        """Whether this GPU has not raced a kernel against itself for 50 kernels."""
        return self.mine.guard_is_due

    def guard(self, built: Built, workload: Workload) -> Guard | Failure:
        """Whether this GPU is fit to judge now."""
        return self.mine.guard(built, workload)

    def profile(self, built: Built, workload: Workload) -> Counters:
        """The counters ncu gives of one launch sequence."""
        return self.mine.profile(built, workload)

    def close(self) -> None:
        """End every process and give the memory back."""
        for gpu in self.gpus:
            gpu.close()
