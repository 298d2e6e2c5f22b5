"""Loads and stores of every space and width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ptxsearch.emulator.address import Piece, Target
from ptxsearch.emulator.checks import CHECKED, define, leave_undefined, note_read
from ptxsearch.emulator.code import Registers, Step
from ptxsearch.emulator.definedness import ORIGIN
from ptxsearch.emulator.frame import Frame
from ptxsearch.emulator.halt import TaintStarted, counted
from ptxsearch.emulator.lanes import Active, assigned, chosen
from ptxsearch.emulator.memory import UNSIGNED
from ptxsearch.emulator.notes import Values
from ptxsearch.emulator.operation import SIGNED, Array
from ptxsearch.emulator.shape import Shape, shape_of
from ptxsearch.emulator.taint import clear, mark
from ptxsearch.ptx.syntax import Instruction, Register

if TYPE_CHECKING:
    from ptxsearch.emulator.translate import Translator


def build_load(t: Translator, instruction: Instruction) -> Step:
    """The step of `ld`, `ldu`."""
    shape = shape_of(instruction)
    slot, offset, space = t.address(instruction.operands[1], shape.space)
    size = shape.element * shape.vector
    target = Target(slot, offset, space, size=size, instruction=instruction, write=False)
    registers = t.flattened(instruction.operands[0])
    counted(instruction, registers, shape.vector)
    slots = tuple(t.target(register) for register in registers)
    kinds = tuple(
        t.storage(register) if isinstance(register, Register) else None for register in registers
    )
    convert = tuple(_converter(shape, kind) for kind in kinds)
    target.counted = not t.is_parameter(instruction.operands[1])
    parameter = space == "param" and slot in t.code.constants

    def run(registers: Registers, active: Active | None) -> None:
        frame: Frame = registers[0]
        if parameter:
            active = None
        values, undefined = _fetch(frame, target, shape, active)
        lanes = frame.chunk.lanes
        for at, slot in enumerate(slots):
            if slot >= 0:
                column = values if shape.vector == 1 else values[:, at].copy()
                registers[slot] = assigned(registers[slot], convert[at](column), active, lanes)
                if frame.taint:
                    clear(frame.taint, slot, active)
        if undefined is not None:
            for at, slot in enumerate(slots):
                if slot >= 0:
                    mark(frame, slot, _marks(undefined, shape, at, kinds[at]), active)
            raise TaintStarted

    return Step(
        instruction,
        lambda registers: run(registers, None),
        run,
        targets=slots,
        critical=(slot,),
    )


def _converter(shape: Shape, kind: np.dtype[Any] | None) -> Any:
    """How an element becomes the contents of a register."""
    if kind is None or kind.itemsize == shape.element:
        return lambda column: column
    if kind.itemsize < shape.element:
        return lambda column: column.astype(kind)
    if shape.type.startswith("s"):
        narrow, wide = SIGNED[shape.element * 8], SIGNED[kind.itemsize * 8]
        return lambda column: column.view(narrow).astype(wide).view(kind)
    return lambda column: column.astype(kind)


@dataclass(frozen=True, slots=True)
class Undefined:
    """Undefined bytes of a load: by lane of the chunk the number of their origin, and which."""

    origin: Array
    bytes: Array


def _marks(undefined: Undefined, shape: Shape, at: int, kind: np.dtype[Any] | None) -> Array:
    """The marks of one target of a load."""
    size = shape.element
    part = undefined.bytes[:, at * size : (at + 1) * size]
    mask = np.packbits(part, axis=1, bitorder="little")[:, 0].astype(np.int64)
    if kind is not None and kind.itemsize > size and shape.type.startswith("s"):
        upper = (1 << kind.itemsize) - (1 << size)
        mask |= np.where(part[:, -1], upper, 0)
    return np.where(mask != 0, undefined.origin * ORIGIN + mask, 0)


def _fetch(
    frame: Frame, target: Target, shape: Shape, active: Active | None
) -> tuple[Array, Undefined | None]:
    """The elements each lane loads, and what of them is undefined."""
    result: Array | None = None
    undefined: Undefined | None = None
    chunk = frame.chunk
    lanes = chunk.lanes if active is None else active.count
    for piece in target.pieces(frame, active):
        data = piece.where.get(piece.allocation.view(shape.element, shape.vector))
        if data.base is not None:
            data = data.copy()
        if chunk.launch.checks and piece.allocation.space not in ("const", "param"):
            bad = note_read(frame, piece, target, shape.flags)
            if bad is not None:
                undefined = _undefined(frame, piece, target, bad, undefined)
        chunk.launch.counters.load(piece, target)
        if piece.rows is None:
            result = data
        else:
            if result is None:
                result = np.zeros((lanes, *data.shape[1:]), data.dtype)
            result[piece.rows] = data
    if shape.strong:
        chunk.polled = True
        if chunk.launch.synchron.used:
            chunk.launch.synchron.read(frame, target, active, acquire=shape.order == "acquire")
    assert result is not None
    return result, undefined


def _undefined(
    frame: Frame, piece: Piece, target: Target, bad: Array, known: Undefined | None
) -> Undefined:
    """What a piece adds to the undefined bytes of a load."""
    lanes = frame.chunk.lanes
    if known is None:
        known = Undefined(np.zeros(lanes, np.int64), np.zeros((lanes, target.size), np.bool_))
    mine = frame.chunk.numbers(piece.active)
    known.origin[mine] = frame.chunk.launch.load_origin(frame, piece, target)
    known.bytes[mine] = bad
    return known


def build_store(t: Translator, instruction: Instruction) -> Step:
    """The step of `st`."""
    shape = shape_of(instruction)
    slot, offset, space = t.address(instruction.operands[0], shape.space)
    size = shape.element * shape.vector
    target = Target(slot, offset, space, size=size, instruction=instruction, write=True)
    target.counted = not t.is_parameter(instruction.operands[0])
    operands = t.flattened(instruction.operands[1])
    counted(instruction, operands, shape.vector)
    sources = tuple(t.source(operand, shape.type) for operand in operands)
    kind = np.dtype(UNSIGNED[shape.element])

    def run(registers: Registers, active: Active | None) -> None:
        frame: Frame = registers[0]
        values = gathered(registers, sources, kind, active, frame.chunk.lanes)
        tainted = bool(frame.taint) and any(s in frame.taint for s in sources)
        if shape.strong and frame.chunk.launch.checks:
            frame.chunk.launch.synchron.write(
                frame, target, active, release=shape.order == "release"
            )
        for piece in target.pieces(frame, active):
            part = values if piece.rows is None or values.shape[0] == 1 else values[piece.rows]
            put(frame, piece, target, part, shape)
            if tainted:
                leave_undefined(frame, piece, target, shape, sources)

    return Step(
        instruction,
        lambda registers: run(registers, None),
        run,
        sources=sources,
        critical=(slot,),
    )


def gathered(
    registers: Registers,
    slots: Sequence[int],
    kind: np.dtype[Any],
    active: Active | None,
    lanes: int,
) -> Array:
    """The values of the active lanes, as elements or in rows of a vector."""
    columns = []
    for slot in slots:
        column = chosen(registers[slot], active)
        columns.append(column if column.dtype == kind else column.astype(kind))
    if len(columns) == 1:
        return columns[0]
    count = max(column.size for column in columns)
    rows = np.empty((count, len(columns)), kind)
    for at, column in enumerate(columns):
        rows[:, at] = column
    return rows


def put(frame: Frame, piece: Piece, target: Target, values: Array, shape: Shape) -> None:
    """Store the values of a piece's lanes with all checks."""
    chunk, allocation = frame.chunk, piece.allocation
    launch = chunk.launch
    if not allocation.writable:
        launch.read_only(frame, target, piece)
    view = allocation.view(shape.element, shape.vector)
    if launch.checks:
        if allocation.space in CHECKED:
            conflict = launch.shadow(allocation).write(
                piece.where,
                target.size,
                chunk.numbers(piece.active),
                chunk.order,
                target.instruction.line,
                Values(values, lambda: piece.where.get(view)),
                shape.flags,
            )
            if conflict is not None:
                launch.race(frame, target, allocation, conflict)
            elif allocation.shadow is not None and allocation.shadow.same_value:
                launch.same_value(target, allocation)
        define(piece, target.size)
    piece.where.put(view, values)
    launch.version += 1
    launch.counters.store(piece, target)
