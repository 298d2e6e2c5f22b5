"""What the child process does on its GPU: hold input sets, run a kernel once, prove the device.

A kernel's fault comes back as a Failure where the context survives it; a lost context is the
DriverError or Hang that `worker` turns into a Failure before it ends the process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ptxsearch.errors import DeviceError
from ptxsearch.evaluation import Array, Failure
from ptxsearch.gpu.driver import Driver, DriverError
from ptxsearch.gpu.instruments import Instruments
from ptxsearch.gpu.memory import InputSet, Memory, Placement
from ptxsearch.gpu.sequence import ArgumentMismatch, Bound, Loaded, Program
from ptxsearch.gpu.timing import Sampler

__all__ = ["Left", "Session"]

PATTERNS = 0x7FFFFFFF


@dataclass(frozen=True)
class Left:
    """What one launch sequence left: arrays, changed inputs, notes, seconds of the events."""

    arrays: Mapping[str, Array]
    changed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0


@dataclass
class Session:
    """One context with its instruments, memory and clock, and the input sets by token.

    `kept` are placements of the last group of rounds: held until the next one is placed, so that
    its pages are others.
    """

    driver: Driver
    instruments: Instruments
    memory: Memory
    sampler: Sampler
    sets: dict[int, InputSet] = field(default_factory=dict)
    kept: list[Placement] = field(default_factory=list)

    @classmethod
    def open(cls, driver: Driver, *, cubin: bytes, budget: int) -> Session:
        """A session on a fresh context; `cubin` holds the instruments."""
        instruments = Instruments(driver, cubin)
        memory = Memory(driver, instruments, budget)
        return cls(driver, instruments, memory, Sampler(driver, instruments, memory))

    def pattern(self) -> int:
        """The number of a junk pattern that was not used before."""
        self.sampler.pattern = (self.sampler.pattern + 1) & PATTERNS
        return self.sampler.pattern

    def probe(self) -> bool:
        """Whether the device computes: a fill is found again. Raises DriverError or Hang."""
        address = self.memory.allocate(4096)
        self.instruments.fill(address, 4096, 7)
        self.sampler.settle(30.0)
        (found,) = self.instruments.unwritten([(address, 4096)], 7)
        self.memory.free(address)
        return found == 1024

    def hold(
        self,
        *,
        token: int,
        label: str,
        arrays: Mapping[str, Array],
        scalars: Mapping[str, bytes],
        roles: Mapping[str, str],
    ) -> int:
        """Keep an input set under `token`. Returns the bytes of the budget that are used."""
        inputs = InputSet(label, arrays, scalars, roles)
        try:
            self.memory.hold(inputs)
        except DriverError:
            self.memory.drop(inputs)
            raise
        self.sets[token] = inputs
        return self.memory.used

    def drop(self, *, token: int) -> int:
        """Forget an input set. Returns the bytes of the budget that are used."""
        self.release_kept()
        if token in self.sets:
            self.memory.drop(self.sets.pop(token))
        return self.memory.used

    def place(self, inputs: InputSet, scratch: Sequence[int]) -> Placement:
        """A placement of a set on blocks of its own; those kept back make room if they must."""
        seed = self.pattern()
        try:
            return self.memory.place(inputs, scratch, seed=seed)
        except DriverError:
            self.release_kept()
            return self.memory.place(inputs, scratch, seed=seed)

    def release_kept(self) -> None:
        """Give back the placements of the last group."""
        for placement in self.kept:
            self.memory.release(placement)
        self.kept.clear()

    def run(self, *, program: Program, token: int, timeout: float) -> Left | Failure:
        """One launch sequence on a fresh placement and module: what it left, or its fault."""
        loaded = Loaded(self.driver, program)
        try:
            placement = self.place(self.sets[token], list(program.scratch.values()))
        except DriverError as error:
            loaded.unload()
            if program.scratch:
                raise
            raise DeviceError(
                f"the buffers of this workload do not fit: {error}",
                "raise the device's memory setting",
            ) from error
        try:
            bound = loaded.bind(placement)
            pattern = self.pattern()
            self.memory.poison(placement, pattern, program.zero_fills)
            self.sampler.settle()
            seconds = self.launch(bound, timeout)
            fault = self.memory.breach(placement)
            return self.left(placement, seconds, pattern) if fault is None else Failure(fault)
        except ArgumentMismatch as mismatch:
            return mismatch.failure
        finally:
            self._clear(placement, loaded)

    def _clear(self, placement: Placement, loaded: Loaded) -> None:
        """Give memory and module back, unless the context is lost and has none."""
        if not self.sampler.lost:
            self.memory.wipe(placement)
            self.memory.release(placement)
            loaded.unload()

    def launch(self, bound: Bound, timeout: float) -> float:
        """Seconds of one launch sequence, events around it. Raises DriverError or Hang."""
        return self.sampler.once(bound, timeout)

    def left(self, placement: Placement, seconds: float, pattern: int | None = None) -> Left:
        """What lies in a placement; `pattern` is the junk that preceded the launch."""
        return Left(
            arrays=self.memory.read(placement),
            changed=self.memory.changed(placement),
            notes=() if pattern is None else self.memory.unwritten(placement, pattern),
            seconds=seconds,
        )
