"""What the child process has on its GPU: input sets, placements, the inspector, the clock.

The jobs themselves are `checks`, `rounds` and `stress`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ptxsearch.evaluation import Array, Outputs
from ptxsearch.gpu.driver import Driver, DriverError
from ptxsearch.gpu.inspection import Found, Inspector
from ptxsearch.gpu.instruments import Cells, Instruments
from ptxsearch.gpu.memory import InputSet, Memory, Placement
from ptxsearch.gpu.sequence import Program
from ptxsearch.gpu.timing import Sampler

__all__ = ["Left", "Session"]

PATTERNS = 0x7FFFFFFF
COSTLY_BYTES = 4 << 20
PROBE_SECONDS, SETTLE_SECONDS = 30.0, 60.0


@dataclass(frozen=True)
class Left:
    """What one launch sequence left: arrays, changed inputs, notes, seconds of the events."""

    arrays: Mapping[str, Array]
    changed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @classmethod
    def of(cls, found: Found, seconds: float = 0.0) -> Left:
        """What an inspection found of a sequence that took `seconds`."""
        return cls(found.arrays, found.changed, found.notes, seconds)

    @property
    def outputs(self) -> Outputs:
        """The same as a device gives it."""
        return Outputs(
            arrays=dict(self.arrays),
            inputs_changed=self.changed,
            notes=self.notes,
            seconds=self.seconds,
        )


@dataclass
class Session:
    """One context with its instruments, memory and clock, and the input sets by token.

    `kept` are placements of the last group of rounds: held until the next one is placed, so that
    its pages are others. `seen` holds the digests of what checks left, by cubin and set.
    """

    driver: Driver
    instruments: Instruments
    memory: Memory
    sampler: Sampler
    inspector: Inspector
    sets: dict[int, InputSet] = field(default_factory=dict)
    kept: list[Placement] = field(default_factory=list)
    seen: dict[tuple[str, int], tuple[Program, Mapping[str, int]]] = field(default_factory=dict)

    @classmethod
    def open(cls, driver: Driver, *, cubin: bytes, budget: int) -> Session:
        """A session on a fresh context; `cubin` holds the instruments."""
        instruments = Instruments(driver, cubin)
        memory = Memory(driver, instruments, budget)
        sampler = Sampler(driver, instruments, memory)
        return cls(driver, instruments, memory, sampler, Inspector(driver, instruments))

    def pattern(self) -> int:
        """The number of a junk pattern that was not used before."""
        self.sampler.pattern = (self.sampler.pattern + 1) & PATTERNS
        return self.sampler.pattern

    def probe(self) -> bool:
        """Whether the device computes: a fill is found again. Raises DriverError or Hang."""
        address = self.memory.allocate(4096)
        (cells,) = Cells.several(self.driver, 1)
        (cell,) = cells.set([0])
        self.instruments.fill(address, 4096, 7)
        self.instruments.unwritten(address, 4096, 7, cell)
        cells.fetch()
        self.sampler.settle(PROBE_SECONDS)
        self.memory.free(address)
        return cells.read(1) == [1024]

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

    def note(self, program: Program, token: int, digests: Mapping[str, int]) -> None:
        """Keep the digests of what a check of a program left on a set."""
        self.seen[program.sha256, token] = program, digests

    def noted(self, program: Program, token: int) -> Mapping[str, int]:
        """The digests of what the last check of a program left on a set; empty where unknown."""
        checked, digests = self.seen.get((program.sha256, token), (None, {}))
        return digests if checked == program else {}

    def inspect(
        self,
        placement: Placement,
        *,
        pattern: int | None = None,
        results: bool = False,
        digests: bool = False,
    ) -> Found:
        """What lies in a placement and around it now, in one trip to the device."""
        slot = self.inspector.slot()
        inspection = self.inspector.queue(
            placement, slot, pattern=pattern, results=results, digests=digests
        )
        self.driver.record(slot.last)
        self.sampler.wait(slot.last, SETTLE_SECONDS)
        return self.inspector.read(inspection)
