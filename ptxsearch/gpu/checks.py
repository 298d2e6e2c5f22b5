"""Checks of one kernel: a launch sequence on each of several input sets, one module for all.

Every set has a placement of its own and fresh junk. Once a program is known to be quick, further
sets are queued before the first has come back: with several processes on a GPU each trip to it
waits for the others. Events tell the sets apart, so that each keeps its own time limit.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from ptxsearch.errors import DeviceError
from ptxsearch.evaluation import Failure
from ptxsearch.gpu.driver import DriverError
from ptxsearch.gpu.faults import failure_of, is_final, timed_out
from ptxsearch.gpu.inspection import SLOTS, Inspection
from ptxsearch.gpu.memory import Placement
from ptxsearch.gpu.sequence import ArgumentMismatch, Loaded, Program
from ptxsearch.gpu.session import COSTLY_BYTES, SETTLE_SECONDS, Left, Session
from ptxsearch.gpu.timing import Hang

__all__ = ["Checked", "Checks", "check"]

FEW_LAUNCHES = 32


@dataclass(frozen=True)
class Checks:
    """Programs of one cubin and the set of each by token, in the order that is to be told.

    A sequence may take `timeout` seconds. After `seconds` no other set is begun: whoever wants to
    time a kernel waits for this job.
    """

    programs: Sequence[Program]
    tokens: Sequence[int]
    timeout: float
    seconds: float = 0.25


@dataclass(frozen=True)
class Checked:
    """What the first sets left, and the failure of the next one, where there was one.

    With `among` above 1 the failure is that of one of so many sets: the driver cannot tell which.
    Without a failure fewer sets than asked for may have been run.
    """

    lefts: tuple[Left, ...]
    failure: Failure | None = None
    among: int = 1


def check(session: Session, plan: Checks) -> Checked:
    """What the sets of a plan left, up to the first failure.

    Raises DeviceError where not even the first set fits on the device.
    """
    line = _Line(session, plan)
    failure, among = None, 1
    try:
        line.run()
    except _Stopped as stopped:
        failure = stopped.failure
    except Hang as hang:
        failure = timed_out(hang.seconds)
    except DriverError as error:
        session.sampler.lost = is_final(error)
        failure, among = failure_of(error), line.suspects
    finally:
        line.end()
    return Checked(tuple(line.lefts), failure, among)


class _Stopped(Exception):
    """A set's own failure, told by something else than a fault of the context."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class _Full(Exception):
    """A set's buffers do not fit; `error` is for the user."""

    def __init__(self, error: DeviceError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass
class _Line:
    """Sets in the order in which they are queued and come back.

    `suspects` counts the sets that a fault of the context may belong to.
    """

    session: Session
    plan: Checks
    lefts: list[Left] = field(default_factory=list)
    pending: deque[Inspection] = field(default_factory=deque)
    loaded: Loaded | None = None
    suspects: int = 1

    def run(self) -> None:
        """Queue every set and read it back. Raises what ended it before."""
        started = time.perf_counter()
        for program, token in zip(self.plan.programs, self.plan.tokens, strict=True):
            while len(self.pending) > self._ahead(program):
                self._read()
            if self.lefts and time.perf_counter() - started > self.plan.seconds:
                break
            try:
                self._queue(program, token)
            except _Full as full:
                self._drain()
                if not self.lefts:
                    raise full.error from full
                break
        self._drain()

    def _ahead(self, program: Program) -> int:
        """How many sets may be on their way when one of `program` is queued."""
        done = len(self.lefts)
        if not done or self.plan.programs[done - 1] != program:
            return 0
        quick = SLOTS * self.lefts[-1].seconds < self.plan.seconds
        return SLOTS - 1 if quick and len(program.launches) <= FEW_LAUNCHES else 0

    def _queue(self, program: Program, token: int) -> None:
        """Place a set, launch on it and have it inspected, without waiting for any of it."""
        inputs, scratch = self.session.sets[token], list(program.scratch.values())
        # The driver may wait, without a limit, for a kernel that hangs before it gives memory.
        spare = self.session.memory.spare(inputs, scratch)
        if not (spare and self.session.inspector.fits(inputs)):
            self._drain()
        self.suspects = len(self.pending) + 1
        placement: Placement | None = None
        try:
            if self.loaded is None or self.loaded.program != program:
                self.loaded = Loaded(self.session.driver, program, like=self.loaded)
            placement = self._place(program, token)
            self.pending.append(self._launch(self.loaded, placement, program))
        except (ArgumentMismatch, DriverError) as refused:
            if isinstance(refused, DriverError) and is_final(refused):
                raise
            if placement is not None:
                self._give_back(placement)
            self._drain()
            # What was queued of the sequence before the refusal must end too.
            self.session.sampler.settle(self.plan.timeout)
            raise _Stopped(_failure(refused)) from refused
        if not self.pending[-1].whole:
            self._drain()

    def _place(self, program: Program, token: int) -> Placement:
        try:
            return self.session.place(self.session.sets[token], list(program.scratch.values()))
        except DriverError as error:
            if program.scratch or is_final(error):
                raise
            text = f"the buffers of this workload do not fit: {error}"
            raise _Full(DeviceError(text, "raise the device's memory setting")) from error

    def _launch(self, loaded: Loaded, placement: Placement, program: Program) -> Inspection:
        """Queue junk, the sequence between its events, the inspection, and junk again."""
        session, driver = self.session, self.session.driver
        bound = loaded.bind(placement)
        slot, pattern = session.inspector.slot(), session.pattern()
        session.memory.poison(placement, pattern, program.zero_fills)
        driver.record(slot.start)
        costly = placement.inputs.result_bytes >= COSTLY_BYTES
        try:
            bound.launch()
            driver.record(slot.end)
            inspection = session.inspector.queue(
                placement, slot, pattern=pattern, results=True, digests=costly
            )
        except DriverError:
            session.inspector.spare(slot)
            raise
        if inspection.whole:
            self._give_back(placement)
        driver.record(slot.last)
        return inspection

    def _read(self) -> None:
        """Wait for the set that was queued first. Raises what its kernel did wrong."""
        self.suspects = len(self.pending)
        inspection = self.pending[0]
        slot, sampler = inspection.slot, self.session.sampler
        sampler.wait(slot.start, SETTLE_SECONDS)
        sampler.wait(slot.end, self.plan.timeout)
        sampler.wait(slot.last, SETTLE_SECONDS)
        found = self.session.inspector.read(inspection)
        self.pending.popleft()
        if not inspection.whole:
            self._give_back(inspection.placement)
        if found.breach is not None:
            raise _Stopped(Failure(found.breach))
        seconds = self.session.driver.seconds(slot.start, slot.end)
        if found.digests:
            done = len(self.lefts)
            self.session.note(self.plan.programs[done], self.plan.tokens[done], found.digests)
        self.lefts.append(Left.of(found, seconds))

    def _drain(self) -> None:
        while self.pending:
            self._read()

    def _give_back(self, placement: Placement) -> None:
        """Free a placement, its results overwritten; work that is queued goes first."""
        self.session.memory.wipe(placement)
        self.session.memory.release(placement)

    def end(self) -> None:
        """Give everything back, unless the context is lost and has nothing."""
        sampler = self.session.sampler
        try:
            if self.pending and not sampler.lost:
                sampler.settle(len(self.pending) * self.plan.timeout)
        except (Hang, DriverError):
            # One set failed before; what those queued behind it did is of no interest.
            sampler.lost = True
        if sampler.lost:
            return
        for inspection in self.pending:
            self.session.inspector.drop(inspection)
            if not inspection.whole:
                self._give_back(inspection.placement)
        if self.loaded is not None:
            self.loaded.unload()


def _failure(refused: ArgumentMismatch | DriverError) -> Failure:
    return refused.failure if isinstance(refused, ArgumentMismatch) else failure_of(refused)
