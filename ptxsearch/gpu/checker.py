"""The parent's side of checks: cases in batches, one by one where that must be told apart."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace

from ptxsearch.errors import DeviceError
from ptxsearch.evaluation import Built, Failure, Inputs, Outputs
from ptxsearch.gpu import sanitizer
from ptxsearch.gpu.batches import Case, batches, bounds
from ptxsearch.gpu.checks import Checked
from ptxsearch.gpu.holdings import Holdings
from ptxsearch.gpu.lock import DeviceLock
from ptxsearch.gpu.runner import Runner
from ptxsearch.gpu.sequence import Program
from ptxsearch.gpu.settings import Settings
from ptxsearch.tasks import Workload

__all__ = ["Checker", "key"]


def key(built: Built, workload: Workload) -> tuple[bytes, str]:
    """What a kernel's seconds on a workload are known by."""
    return hashlib.sha256(built.cubin).digest(), workload.name


@dataclass
class Checker:
    """Checks kernels in the process of `runner`. `seconds` holds what each took last, by `key`.

    `visible` is what CUDA_VISIBLE_DEVICES must be for a tool whose process uses device 0.
    """

    runner: Runner
    _: KW_ONLY
    lock: DeviceLock
    holdings: Holdings
    settings: Settings
    visible: str | None
    seconds: dict[tuple[bytes, str], float] = field(default_factory=dict)

    def results(
        self, built: Built, cases: Iterable[Case], *, timeout: float
    ) -> Iterator[Outputs | Failure]:
        """What each case left, in order, up to the first failure."""
        for batch in batches(cases, memory=self.settings.memory, sets=self.settings.sets):
            for result in self._batch(built, batch, timeout):
                yield result
                if isinstance(result, Failure):
                    return

    def _batch(
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
            with self.lock.held(shared=True):
                self.runner.clear()
            checked = self._job(built, cases[:1], made[:1], timeout)
        if checked.failure is not None and checked.among == 1:
            index = len(checked.lefts)
            explained = self._explained(checked.failure, made[index], cases[index][1])
            return replace(checked, failure=explained)
        return checked

    def _job(
        self, built: Built, cases: Sequence[Case], programs: Sequence[Program], timeout: float
    ) -> Checked:
        with self.lock.held(shared=True):
            self.runner.renew([built.cubin], self.settings.recycle)
            sets = []
            for workload, inputs in cases:
                held, dropped = self.holdings.keep(workload, inputs)
                sets.append(held)
                for old in dropped:
                    self.runner.drop(old)
            checked = self.runner.job(
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
            self.seconds[code, workload.name] = left.seconds
        return checked

    def _explained(self, failure: Failure, made: Program, inputs: Inputs) -> Failure:
        """The failure with memcheck's finding, where the process died of it and a tool is there."""
        fault = failure.fault
        if fault is None or self.runner.alive or not self.settings.explain:
            return failure
        # A broken guard ends no process: a set queued behind it did.
        told = fault.kind in ("timeout", "machine", "guard_written")
        if told or not sanitizer.available():
            return failure
        with self.lock.held():
            examined = sanitizer.examine(made, inputs, tools=("memcheck",), device=self.visible)
        found = examined["memcheck"]
        if not found.faults:
            return failure
        first = found.faults[0]
        message = f"{fault.message}: {first.message}"
        return Failure(replace(first, message=message), faults=found.faults)
