"""`CudaDevice`: one GPU as a Device, its kernels run in a child process that may be killed.

The parent binds kernels to problem sizes, keeps the input sets and the lock, restarts the child
when a kernel took it down, and asks NVIDIA's tools what happened.
"""

from __future__ import annotations

import hashlib
import itertools
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from ptxsearch.errors import DeviceError, UsageError
from ptxsearch.evaluation import Array, Built, Counters, Failure, Inputs, Outputs
from ptxsearch.gpu import ncu, sanitizer
from ptxsearch.gpu.batches import Case, batches, bound, bounds
from ptxsearch.gpu.checks import Checked
from ptxsearch.gpu.cuda import binding
from ptxsearch.gpu.holdings import Held, Holdings
from ptxsearch.gpu.instruments import compile_instruments
from ptxsearch.gpu.lock import DeviceLock
from ptxsearch.gpu.process import CUDA_DRIVER
from ptxsearch.gpu.rounds import Timed
from ptxsearch.gpu.runner import Runner
from ptxsearch.gpu.sequence import Program, program
from ptxsearch.race import Guard, guard
from ptxsearch.tasks import Workload

__all__ = ["CudaDevice", "Settings", "devices"]

FLOOR_SECONDS = 1.0
TIMES_SLOWER = 20.0
AUDITS_KEPT = 64
MOST_REPEATS = 16
GUARD_GROUPS = 3
GUARD_EVERY = 50


@dataclass(frozen=True)
class Settings:
    """How a device works: `memory` bytes it may take, input `sets` kept for each workload.

    `recycle` kernels renew its process, `explain` asks compute-sanitizer about crashes. Modules
    and buffers are new after `group` rounds; `placements` copies of as many sets rotate.
    """

    memory: int = 16 << 30
    sets: int = 8
    recycle: int = 50
    explain: bool = True
    group: int = 20
    placements: int = 4
    audit_bytes: int = 64 << 20
    seed: int = 0


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
        self._seconds: dict[tuple[bytes, str], float] = {}
        self._audits: list[tuple[int, Inputs, Outputs]] = []
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
        for batch in batches(cases, memory=self.settings.memory, sets=self.settings.sets):
            for result in self._results(built, batch, timeout):
                yield result
                if isinstance(result, Failure):
                    return

    def _results(
        self, built: Built, batch: Sequence[Case], timeout: float
    ) -> Iterator[Outputs | Failure]:
        """The results of a batch, up to the first failure."""
        rest = list(batch)
        while rest:
            checked = self._check(built, rest, timeout)
            yield from (left.outputs for left in checked.lefts)
            rest = rest[len(checked.lefts) :]
            if checked.failure is None:
                continue
            # Which set it was shows when they run one by one.
            for case in rest[: checked.among] if checked.among > 1 else ():
                alone = self._check(built, [case], timeout)
                yield from (left.outputs for left in alone.lefts)
                if alone.failure is not None:
                    yield alone.failure
                    return
            yield checked.failure
            return

    def _check(self, built: Built, cases: Sequence[Case], timeout: float) -> Checked:
        """One job of the process for cases; a failure comes explained."""
        made = bounds(built, cases)
        if isinstance(made, Failure):
            return Checked((), made)
        try:
            checked = self._job(built, cases[: len(made)], made, timeout)
        except DeviceError:
            # Sets that this one does not need may be in its way.
            self._runner.clear()
            checked = self._job(built, cases[:1], made[:1], timeout)
        if checked.failure is not None and checked.among == 1:
            index = len(checked.lefts)
            explained = self._explained(checked.failure, made[index], cases[index][1])
            return replace(checked, failure=explained)
        return checked

    def _job(
        self, built: Built, cases: Sequence[Case], programs: Sequence[Program], timeout: float
    ) -> Checked:
        with self._lock.held(shared=True):
            self._runner.renew([built.cubin], self.settings.recycle)
            sets = []
            for workload, inputs in cases:
                held, dropped = self._holdings.keep(workload, inputs)
                sets.append(held)
                for old in dropped:
                    self._runner.drop(old)
            checked = self._runner.job(
                "check",
                sets,
                timeout * len(sets),
                programs=programs,
                tokens=[held.token for held in sets],
                timeout=timeout,
            )
        if isinstance(checked, Failure):
            # The process died without a reason: that of any of the sets.
            return Checked((), checked, among=len(sets))
        assert isinstance(checked, Checked)
        code = hashlib.sha256(built.cubin).digest()
        for (workload, _), left in zip(cases, checked.lefts, strict=False):
            self._seconds[code, workload.name] = left.seconds
        return checked

    def time(self, builts: Sequence[Built], workload: Workload, rounds: int) -> Array | Failure:
        """Seconds of shape (rounds, len(builts)), interleaved, on the sets that `run` has seen.

        With two or more sides the second is the rival: its time sets the repeats of a sample. A
        failing side is named at the start of the fault's `object`: builts[0] is the first.
        """
        sets = self._some(self._sets(builts[0], workload))
        programs = [bound(built, sets[-1].inputs) for built in builts]
        for side, made in enumerate(programs):
            if isinstance(made, Failure) and made.fault is not None:
                return replace(made, fault=replace(made.fault, object=f"builts[{side}]"))
        limits = [self._limit(built, workload) for built in builts]
        with self._lock.held():
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
        self._audits += [(s, by_token[token], left.outputs) for s, token, left in timed.audits]
        del self._audits[:-AUDITS_KEPT]
        samples: Array = timed.samples
        return samples

    def audit(self) -> Sequence[tuple[int, Inputs, Outputs]]:
        """Since the last call: (index into `builts`, the inputs, the outputs it left)."""
        audits, self._audits = self._audits, []
        return audits

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
        made, inputs = self.prepared(built, workload)
        with self._lock.held():
            self.last_profile = ncu.collect(made, inputs, device=self._visible)
        return self.last_profile.counters

    def examine(
        self, built: Built, workload: Workload, tools: Sequence[sanitizer.Tool] = sanitizer.TOOLS
    ) -> dict[str, sanitizer.Findings]:
        """What compute-sanitizer's tools find in one launch sequence."""
        made, inputs = self.prepared(built, workload)
        with self._lock.held():
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
        made, _ = self.prepared(built, workload)
        limit = self._limit(built, workload)
        held = self._sets(built, workload)[-1]
        with self._lock.held():
            return self._runner.job(
                job, [held], 600.0, program=made, token=held.token, limit=limit, **keywords
            )

    def _limit(self, built: Built, workload: Workload) -> float:
        known = self._seconds.get(_key(built, workload))
        return FLOOR_SECONDS if known is None else max(FLOOR_SECONDS, TIMES_SLOWER * known)

    def _explained(self, failure: Failure, made: Program, inputs: Inputs) -> Failure:
        """The failure with memcheck's finding, where the process died of it and a tool is there."""
        fault = failure.fault
        if fault is None or self._runner.alive or not self.settings.explain:
            return failure
        if fault.kind in ("timeout", "machine") or not sanitizer.available():
            return failure
        with self._lock.held():
            examined = sanitizer.examine(made, inputs, tools=("memcheck",), device=self._visible)
        found = examined["memcheck"]
        if not found.faults:
            return failure
        first = found.faults[0]
        message = f"{fault.message}: {first.message}"
        return Failure(replace(first, message=message), faults=found.faults)


def _key(built: Built, workload: Workload) -> tuple[bytes, str]:
    return hashlib.sha256(built.cubin).digest(), workload.name
