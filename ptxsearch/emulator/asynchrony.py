"""Asynchronous copies from global to shared memory: `cp.async` and its groups.

The bytes arrive when their group is waited for. Until then the destination belongs to the copy:
any other access to it is a race.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ptxsearch.emulator.address import Target
from ptxsearch.emulator.checks import define, note_read, report_undefined
from ptxsearch.emulator.code import Registers, Step, simple
from ptxsearch.emulator.frame import Frame
from ptxsearch.emulator.halt import Refused, Unable
from ptxsearch.emulator.lanes import Active, chosen
from ptxsearch.emulator.notes import Values, base_stamp
from ptxsearch.emulator.operation import Array
from ptxsearch.emulator.ordering import ASYNC
from ptxsearch.emulator.report import Unsupported
from ptxsearch.ptx.syntax import Instruction, Integer, Register

if TYPE_CHECKING:
    from ptxsearch.emulator.machine import Chunk
    from ptxsearch.emulator.translate import Translator


@dataclass(slots=True, eq=False)
class Copy:
    """One `cp.async` by some lanes: shared bytes to fill (a row for each lane) and from where."""

    lanes: Array
    group: Array
    start: Array
    size: int
    source: Array
    valid: Array
    line: int


class Copies:
    """The copies in flight of a chunk and how many groups each lane has committed."""

    def __init__(self, lanes: int) -> None:
        self.committed = np.zeros(lanes, np.int64)
        self.flying: list[Copy] = []

    def wait(self, chunk: Chunk, active: Active | None, left: int | None) -> None:
        """Finish the active lanes' copies but those of the `left` newest groups (None: all)."""
        index = chunk.numbers(active)
        bound = np.full(chunk.lanes, -1, np.int64)
        bound[index] = (1 << 40) if left is None else self.committed[index] - left
        still: list[Copy] = []
        for copy in self.flying:
            ready = copy.group < bound[copy.lanes]
            if ready.any():
                land(chunk, copy, ready)
            if not ready.all():
                keep = ~ready
                still.append(
                    Copy(
                        copy.lanes[keep],
                        copy.group[keep],
                        copy.start[keep],
                        copy.size,
                        copy.source[keep],
                        copy.valid[keep],
                        copy.line,
                    )
                )
        self.flying = still
        if not still and chunk.shared.shadow is not None:
            chunk.shared.shadow.in_flight = 0


def land(chunk: Chunk, copy: Copy, ready: Array) -> None:
    """Let the bytes of some lanes of a copy arrive."""
    bytes_of = np.arange(copy.size)
    rows = np.where(bytes_of < copy.valid[ready][:, None], copy.source[ready], 0)
    where = copy.start[ready]
    chunk.shared.data[where[:, None] + bytes_of] = rows
    chunk.launch.version += 1
    if chunk.launch.checks:
        shadow = chunk.launch.shadow(chunk.shared)
        stamps = copy.lanes[ready] + base_stamp(chunk.order)
        shadow.landed(where // copy.size, copy.size, stamps, copy.lanes[ready], copy.line)


def copies_of(chunk: Chunk) -> Copies:
    """The chunk's copies, made on first use."""
    if chunk.copies is None:
        chunk.copies = Copies(chunk.lanes)
    return chunk.copies


def build_async(t: Translator, instruction: Instruction) -> Step:
    """The step of `cp.async` in all its forms."""
    modifiers = instruction.modifiers
    if "bulk" in modifiers or "mbarrier" in modifiers or "reduce" in modifiers:
        raise Unable(
            Unsupported(instruction.mnemonic, instruction.line, "bulk copies and mbarriers")
        )
    if "commit_group" in modifiers:
        return _build_commit(instruction)
    if "wait_group" in modifiers or "wait_all" in modifiers:
        return _build_wait(instruction)
    return _build_copy(t, instruction)


def _build_commit(instruction: Instruction) -> Step:
    def run(registers: Registers, active: Active | None) -> None:
        frame: Frame = registers[0]
        copies_of(frame.chunk).committed[frame.chunk.numbers(active)] += 1

    return simple(instruction, run)


def _build_wait(instruction: Instruction) -> Step:
    operand = instruction.operands[0] if instruction.operands else None
    left = operand.value if isinstance(operand, Integer) else None

    def run(registers: Registers, active: Active | None) -> None:
        chunk = registers[0].chunk
        copies_of(chunk).wait(chunk, active, left)

    return simple(instruction, run)


def _build_copy(t: Translator, instruction: Instruction) -> Step:
    operands = list(instruction.operands)
    if "L2::cache_hint" in instruction.modifiers:
        operands.pop()
    if len(operands) < 3:
        raise Refused(f"line {instruction.line}: cp.async needs two addresses and a size")
    size_operand = operands[2]
    if not isinstance(size_operand, Integer):
        raise Unable(Unsupported(instruction.mnemonic, instruction.line, "a size in a register"))
    size = size_operand.value
    slot, offset, _ = t.address(operands[0], "shared")
    into = Target(slot, offset, "shared", size=size, instruction=instruction, write=True)
    slot2, offset2, _ = t.address(operands[1], "global")
    source = Target(slot2, offset2, "global", size=size, instruction=instruction, write=False)
    given = -1
    ignored = False
    if len(operands) > 3:
        last = operands[3]
        kind = t.register_type(last) if isinstance(last, Register) else "u32"
        ignored = kind == "pred"
        given = t.source(operands[3], kind)

    def run(registers: Registers, active: Active | None) -> None:
        frame: Frame = registers[0]
        lanes = frame.chunk.lanes if active is None else active.count
        valid = np.full(lanes, size, np.int64)
        if given >= 0:
            held = chosen(registers[given], active)
            valid[:] = np.where(held, 0, size) if ignored else held.astype(np.int64)
        issue(frame, active, into, source, valid)

    critical = (slot, slot2) if given < 0 else (slot, slot2, given)
    return simple(instruction, run, critical=critical)


def issue(frame: Frame, active: Active | None, into: Target, source: Target, valid: Array) -> None:
    """Start the copies of the active lanes; `valid` bytes are read, the rest become zero."""
    chunk = frame.chunk
    launch, size, line = chunk.launch, into.size, into.instruction.line
    lanes = chunk.numbers(active)
    rows = np.zeros((lanes.size, size), np.uint8)
    reading = np.flatnonzero(valid > 0)
    if reading.size:
        part = active
        if reading.size < lanes.size:
            part = Active(lanes[reading], chunk.lanes)
        for piece in source.pieces(frame, part):
            at = reading if piece.rows is None else reading[piece.rows]
            whole = piece.allocation.size // size * size
            rows[at] = piece.where.get(piece.allocation.data[:whole].reshape(-1, size))
            if launch.checks:
                bad = note_read(frame, piece, source)
                if bad is not None:
                    report_undefined(frame, piece, source, bad)
            launch.counters.copy_in(piece, size, chunk)
    for piece in into.pieces(frame, active):
        elements = piece.where.indices()
        if launch.checks:
            shadow = launch.shadow(piece.allocation)
            values = Values(rows, lambda: ~rows)
            conflict = shadow.write(piece.where, size, lanes, chunk.order, line, values, ASYNC)
            if conflict is not None:
                launch.race(frame, into, piece.allocation, conflict)
            shadow.in_flight += 1
            define(piece, size)
        launch.counters.copy_out(piece, size)
        copies = copies_of(chunk)
        copies.flying.append(
            Copy(lanes, copies.committed[lanes], elements * size, size, rows, valid, line)
        )
