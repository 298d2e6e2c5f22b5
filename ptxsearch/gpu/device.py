"""`CudaDevice`: one GPU as a Device, its kernels run in a child process that may be killed.

The parent binds kernels to problem sizes, keeps the input sets and the lock, restarts the child
when a kernel took it down, and asks NVIDIA's tools what happened.
"""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np

from ptxsearch.errors import DeviceError, UsageError
from ptxsearch.evaluation import Array, Built, Counters, Failure, Inputs, Outputs
from ptxsearch.gpu import ncu, sanitizer
from ptxsearch.gpu.batches import Case, bound
from ptxsearch.gpu.checker import Checker, key
from ptxsearch.gpu.cuda import binding
from ptxsearch.gpu.holdings import Held, Holdings
from ptxsearch.gpu.instruments import compile_instruments
from ptxsearch.gpu.lock import DeviceLock
from ptxsearch.gpu.process import CUDA_DRIVER
from ptxsearch.gpu.rounds import Timed
from ptxsearch.gpu.runner import Runner
from ptxsearch.gpu.sequence import Program, program
from ptxsearch.gpu.settings import Settings
from ptxsearch.race import Guard, guard
from ptxsearch.tasks import Workload

__all__ = ["CudaDevice", "Settings", "devices"]

FLOOR_SECONDS = 1.0
TIMES_SLOWER = 20.0
AUDITS_KEPT = 64
MOST_REPEATS = 16
GUARD_GROUPS = 3
GUARD_EVERY = 50


def devices() -> int:
    """How many GPUs are visible; 0 without a driver. CUDA_VISIBLE_DEVICES is respected."""
    try:
        driver = binding()
        if int(driver.cuInit(0)[0]) != 0:
            return 0
        return int(driver.cuDeviceGetCount()[1])
    except (DeviceError, RuntimeError):
        return 0


class CudaDevice:
    """One GPU; usable from any thread. Raises DeviceError at once where there is none."""

    source: Literal["measured", "modelled"] = "measured"

    def __init__(
        self,
        index: int = 0,
        *,
        settings: Settings | None = None,
        driver: str = CUDA_DRIVER,
        instruments: bytes | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self._index = index
        self._runner = Runner(index, driver=driver, memory=self.settings.memory)
        self.properties = self._runner.properties
        self.name, self.arch = self.properties.name, self.properties.arch
        self._runner.instruments = instruments or compile_instruments(self.arch)
        self._lock = DeviceLock(self.properties.uuid)
        self._holdings = Holdings(self.settings.sets)
        self._checker = Checker(
            self._runner,
            lock=self._lock,
            holdings=self._holdings,
            settings=self.settings,
            visible=self._visible,
        )
        # Threads time different kernels: each one hears of its own launches alone.
        self._audits: dict[int, list[tuple[int, Inputs, Outputs]]] = {}
        self._counter = itertools.count(self.settings.seed << 32)
        self.last_times: Timed | None = None
        self._unguarded = GUARD_EVERY
        self._candidate = b""
        self.last_profile: ncu.Profile | None = None

    def run(
        self, built: Built, workload: Workload, inputs: Inputs, *, timeout: float
    ) -> Outputs | Failure:
        """One launch sequence on fresh junk: what it left, or its first fault."""
        return next(self.run_all(built, [(workload, inputs)], timeout=timeout))

    def run_all(
        self, built: Built, cases: Iterable[Case], *, timeout: float
    ) -> Iterator[Outputs | Failure]:
        """What `run` gives of each case in order, up to the first failure, for fewer waits.

        Cases are taken as they are needed, as many at a time as their results may be held.
        """
        return self._checker.results(built, cases, timeout=timeout)

    def time(self, builts: Sequence[Built], workload: Workload, rounds: int) -> Array | Failure:
        """Seconds of shape (rounds, len(builts)), interleaved, on the sets that `run` has seen.

        With two or more sides the second is the rival: its time sets the repeats of a sample. A
        failing side is named at the start of the fault's `object`: builts[0] is the first.
        """
        with self._lock.held():
            sets = self._some(self._sets(builts[0], workload))
            programs: list[Program] = []
            for side, built in enumerate(builts):
                made = bound(built, sets[-1].inputs)
                if isinstance(made, Failure):
                    return made.of_side(side)
                programs.append(made)
            limits = [self._limit(built, workload) for built in builts]
            self._runner.renew([built.cubin for built in builts], self.settings.recycle)
            timed = self._runner.job(
                "time",
                sets,
                2 * rounds * len(builts) * MOST_REPEATS * max(limits) / TIMES_SLOWER,
                programs=programs,
                tokens=[held.token for held in sets],
                rounds=rounds,
                limits=limits,
                seed=next(self._counter),
                group=self.settings.group,
                placements=self.settings.placements,
                audit_bytes=self.settings.audit_bytes,
                idle=self._lock.idle(),
            )
        if isinstance(timed, Failure):
            return timed
        self.last_times = timed
        self._unguarded += builts[0].cubin != self._candidate
        self._candidate = builts[0].cubin
        by_token = {held.token: held.inputs for held in sets}
        audits = self._audits.setdefault(threading.get_ident(), [])
        audits += [(s, by_token[token], left.outputs) for s, token, left in timed.audits]
        del audits[:-AUDITS_KEPT]
        samples: Array = timed.samples
        return samples

    def audit(self) -> Sequence[tuple[int, Inputs, Outputs]]:
        """Of this thread's `time` since its last call: (index into `builts`, inputs, outputs).

        Large outputs are left out where they are bit for bit what `run` gave of that kernel on
        those inputs, by digests under a key that no kernel knows.
        """
        return self._audits.pop(threading.get_ident(), [])

    @property
    def gpus(self) -> tuple[CudaDevice, ...]:
        """This one: as `CudaDevices.gpus`."""
        return (self,)

    @property
    def mine(self) -> CudaDevice:
        """This one: as `CudaDevices.mine`."""
        return self

    @property
    def guard_is_due(self) -> bool:
        """Whether 50 kernels were timed since the last guard, or there was none."""
        return self._unguarded >= GUARD_EVERY

    def guard(self, built: Built, workload: Workload) -> Guard | Failure:
        """Whether this GPU is fit to judge now: a kernel raced against itself in three groups."""
        self._unguarded = 0
        groups: list[Array] = []
        for _ in range(GUARD_GROUPS):
            samples = self.time([built, built], workload, self.settings.group)
            if isinstance(samples, Failure):
                return samples
            groups.append(samples)
        return guard(groups)

    def profile(self, built: Built, workload: Workload) -> Counters:
        """The counters ncu gives of one launch sequence; empty where it cannot count.

        `last_profile` then says why, and holds ncu's advice where it could.
        """
        with self._lock.held():
            made, inputs = self.prepared(built, workload)
            self.last_profile = ncu.collect(made, inputs, device=self._visible)
        return self.last_profile.counters

    def examine(
        self, built: Built, workload: Workload, tools: Sequence[sanitizer.Tool] = sanitizer.TOOLS
    ) -> dict[str, sanitizer.Findings]:
        """What compute-sanitizer's tools find in one launch sequence."""
        with self._lock.held():
            made, inputs = self.prepared(built, workload)
            return sanitizer.examine(made, inputs, tools=tools, device=self._visible)

    def stress(self, built: Built, workload: Workload, launches: int) -> Any:
        """Drift over many launches; see `stress.stress`. A Failure where the kernel fails."""
        return self._alone("stress", built, workload, launches=launches)

    def warm(self, built: Built, workload: Workload, replays: int = 50) -> list[float] | Failure:
        """Seconds a sequence on warm caches, from a CUDA graph."""
        seconds: list[float] | Failure = self._alone("warm", built, workload, replays=replays)
        return seconds

    @property
    def restarts(self) -> int:
        """How often a process had to be started again."""
        return self._runner.restarts

    @property
    def busy(self) -> float:
        """Seconds for which the GPU's process has worked so far."""
        return self._runner.busy

    def forget(self) -> None:
        """Drop every input set, so that `time` uses those alone that `run` sees from now on."""
        with self._lock.held():
            for held in self._holdings.clear():
                self._runner.drop(held)

    def restart(self) -> None:
        """End the process, so that the next job runs in a fresh one."""
        with self._lock.held():
            self._runner.kill()

    def close(self) -> None:
        """End the process and give its memory back."""
        self._runner.kill()

    def prepared(self, built: Built, workload: Workload) -> tuple[Program, Inputs]:
        """The program of a kernel and the inputs last run for a workload.

        Raises UsageError where none were run, KernelError where the kernel cannot be bound.
        """
        sets = self._sets(built, workload)
        return program(built, sets[-1].inputs), sets[-1].inputs

    def _some(self, sets: Sequence[Held]) -> Sequence[Held]:
        """As many of the sets as there are placements, chosen at random."""
        rng = np.random.Generator(np.random.Philox(next(self._counter)))
        count = min(len(sets), self.settings.placements)
        return [sets[index] for index in rng.choice(len(sets), count, replace=False)]

    def _sets(self, built: Built, workload: Workload) -> Sequence[Held]:
        sets = self._holdings.of(workload, built.kernel)
        if not sets:
            raise UsageError(f"no inputs of {workload.name!r} were run", "call run first")
        return sets

    @property
    def _visible(self) -> str | None:
        """What CUDA_VISIBLE_DEVICES must be for a tool whose process uses device 0."""
        if self._index == 0:
            return None
        return f"GPU-{uuid.UUID(self.properties.uuid)}"

    def _alone(self, job: str, built: Built, workload: Workload, **keywords: Any) -> Any:
        with self._lock.held():
            made, _ = self.prepared(built, workload)
            limit = self._limit(built, workload)
            held = self._sets(built, workload)[-1]
            return self._runner.job(
                job, [held], 600.0, program=made, token=held.token, limit=limit, **keywords
            )

    def _limit(self, built: Built, workload: Workload) -> float:
        known = self._checker.seconds.get(key(built, workload))
        return FLOOR_SECONDS if known is None else max(FLOOR_SECONDS, TIMES_SLOWER * known)
