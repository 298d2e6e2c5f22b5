"""A call of a function by some lanes of a chunk: its registers and where it returns to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ptxsearch.emulator.code import Code, Registers
from ptxsearch.emulator.lanes import Active
from ptxsearch.emulator.operation import Array
from ptxsearch.emulator.pattern import Pattern
from ptxsearch.ptx.syntax import Instruction

if TYPE_CHECKING:
    from ptxsearch.emulator.machine import Chunk

PATTERN_LIMIT = 256


@dataclass(frozen=True, slots=True)
class Origin:
    """Where undefined bits came from: a load with its addresses, or a register never written.

    `address` holds the address of each lane's last such load, `start` that of the object.
    """

    instruction: Instruction
    space: str
    object: str
    start: int
    address: Array | None
    size: int


class Frame:
    """The state of one call. Arrays in `registers` are never written in place.

    `taint` maps a slot to an int32 for each lane: 0, or 1 + the number of the `Origin` of its
    undefined bits.
    """

    __slots__ = (
        "chunk",
        "code",
        "depth",
        "local_base",
        "parent",
        "registers",
        "return_pc",
        "returns",
        "taint",
    )

    def __init__(self, chunk: Chunk, code: Code, parent: Frame | None, return_pc: int) -> None:
        self.chunk = chunk
        self.code = code
        self.parent = parent
        self.return_pc = return_pc
        self.depth: int = parent.depth + 1 if parent else 0
        self.local_base: int = parent.local_base + parent.code.frame_bytes if parent else 0
        self.taint: dict[int, Array] = {}
        self.returns: tuple[tuple[int, int], ...] = ()
        registers: Registers = [None] * code.size
        registers[0] = self
        for slot, value in code.constants.items():
            registers[slot] = value
        for slot, _ in code.uncertain:
            registers[slot] = np.zeros(1, code.kinds.get(slot, np.bool_))
        for slot, name in code.specials.items():
            value = chunk.special(name)
            kind = code.kinds.get(slot, value.dtype)
            registers[slot] = value if value.dtype == kind else value.astype(kind)
        for slot, offset in code.locals.items():
            registers[slot] = np.array([self.local_base + offset], np.uint64)
        self.registers = registers

    def pattern(self, slot: int, active: Active | None) -> Pattern:
        """The pattern of the addresses in a register over the active lanes."""
        source = self.registers[slot]
        patterns = self.code.patterns
        found = patterns.get((slot, id(active)))
        if found is None or not found.serves(source, active, self.chunk.lanes):
            if len(patterns) >= PATTERN_LIMIT:
                patterns.clear()
            found = Pattern(source, active, self.chunk.lanes)
            patterns[slot, id(active)] = found
        return found


class Group:
    """Lanes of a chunk that stand at one instruction of one frame."""

    __slots__ = ("active", "frame", "pc", "quiet", "steps", "version", "yielded")

    def __init__(self, frame: Frame, pc: int, active: Active | None, steps: int = 0) -> None:
        self.frame = frame
        self.pc = pc
        self.active = active
        self.steps = steps
        self.quiet = 0
        self.version = -1
        self.yielded = False
