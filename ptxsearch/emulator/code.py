"""The executable form of a function: steps, the straight runs between controls, its registers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ptxsearch.emulator.lanes import Active
from ptxsearch.emulator.operation import Array
from ptxsearch.emulator.pattern import Pattern
from ptxsearch.ptx.syntax import Function, Instruction

if TYPE_CHECKING:
    from ptxsearch.emulator.machine import Chunk, Group

Registers = list[Any]
"""The register file of a frame: slot 0 holds the `Frame`, every other slot an array or None."""

Fast = Callable[[Registers], None]
Masked = Callable[[Registers, Active | None], None]
Control = Callable[["Chunk", "Group"], bool]
"""Moves the group on; False where the scheduler has to choose anew."""


@dataclass(slots=True, eq=False)
class Step:
    """One instruction ready to run over all lanes (`fast`) or some (`masked`).

    `sources` are the slots whose undefined bits make the results undefined, `critical` those that
    must be defined (addresses, predicates, values that leave the kernel).
    """

    instruction: Instruction
    fast: Fast
    masked: Masked
    sources: tuple[int, ...] = ()
    targets: tuple[int, ...] = ()
    critical: tuple[int, ...] = ()
    tally: Mapping[str, int] = field(default_factory=dict)
    control: Control | None = None


def simple(instruction: Instruction, run: Masked, **facts: Any) -> Step:
    """A step whose one function serves all lanes and some."""
    return Step(instruction, lambda registers: run(registers, None), run, **facts)


@dataclass(slots=True, eq=False)
class Segment:
    """Steps from `start` up to a label or a control: they run one after the other.

    `tally` sums what one thread does in it; `control` moves the group on from `end`.
    """

    start: int
    end: int
    steps: tuple[Step, ...]
    fast: tuple[Fast, ...]
    masked: tuple[Masked, ...]
    tally: Mapping[str, int]
    control: Step | None

    @property
    def length(self) -> int:
        """Instructions in it, its control included."""
        return len(self.steps) + (self.control is not None)


@dataclass(frozen=True, slots=True)
class Place:
    """A variable in a frame's local memory or in a block's shared memory."""

    name: str
    space: str
    start: int
    size: int


class Code:
    """A function made executable.

    `kinds` and `widths` give dtype and bytes of a register's slot. `constants` and `specials`
    fill slots of a new frame, `locals` the addresses of variables in its local memory;
    `frame_bytes` is how much of that it needs. `uncertain` lists the slots that some path reads
    before it writes them, `patterns` the last pattern of each address register and set of lanes:
    other chunks often have the same.
    """

    def __init__(self, function: Function) -> None:
        self.function = function
        self.slots: dict[str, int] = {}
        self.kinds: dict[int, np.dtype[Any]] = {}
        self.widths: dict[int, int] = {}
        self.size = 1
        self.constants: dict[int, Array] = {}
        self.specials: dict[int, str] = {}
        self.locals: dict[int, int] = {}
        self.places: dict[str, Place] = {}
        self.frame_bytes = 0
        self.steps: list[Step] = []
        self.leaders: frozenset[int] = frozenset()
        self.uncertain: tuple[tuple[int, str], ...] = ()
        self.patterns: dict[tuple[int, int], Pattern] = {}
        self._segments: dict[int, Segment] = {}

    def new_slot(self) -> int:
        """A slot that nothing uses yet."""
        self.size += 1
        return self.size - 1

    def segment(self, start: int) -> Segment:
        """The run of steps from an instruction on."""
        found = self._segments.get(start)
        if found is None:
            found = self._cut(start)
            self._segments[start] = found
        return found

    def _cut(self, start: int) -> Segment:
        end = start
        while end < len(self.steps) and self.steps[end].control is None:
            end += 1
            if end in self.leaders:
                break
        steps = tuple(self.steps[start:end])
        control = None
        if end < len(self.steps) and (end == start or end not in self.leaders):
            control = self.steps[end] if self.steps[end].control is not None else None
        tally: dict[str, int] = {}
        for step in steps:
            for name, amount in step.tally.items():
                tally[name] = tally.get(name, 0) + amount
        return Segment(
            start,
            end,
            steps,
            tuple(step.fast for step in steps),
            tuple(step.masked for step in steps),
            tally,
            control,
        )
