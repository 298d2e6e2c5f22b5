"""Atomic read-modify-write instructions, with and without a result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from ptxsearch.emulator.access import gathered
from ptxsearch.emulator.address import Piece, Target
from ptxsearch.emulator.checks import define, note_read, report_undefined
from ptxsearch.emulator.code import Registers, Step, simple
from ptxsearch.emulator.frame import Frame
from ptxsearch.emulator.halt import Unable, counted
from ptxsearch.emulator.lanes import Active, assigned, expanded
from ptxsearch.emulator.memory import UNSIGNED
from ptxsearch.emulator.notes import Values
from ptxsearch.emulator.operation import Array
from ptxsearch.emulator.ordering import BLOCK_SCOPE, STRONG
from ptxsearch.emulator.report import Unsupported
from ptxsearch.emulator.shape import Shape, shape_of
from ptxsearch.ptx.syntax import Instruction

if TYPE_CHECKING:
    from ptxsearch.emulator.translate import Translator

OPERATIONS = ("add", "min", "max", "inc", "dec", "exch", "cas", "and", "or", "xor")
MANY = 64
BFLOAT16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
TINY = np.float32(np.finfo(np.float32).tiny)

Update = Callable[[Array, Array, Array], Array]
Ufunc = Any


def build_atomic(t: Translator, instruction: Instruction) -> Step:
    """The step of `atom` or `red`."""
    modifiers = instruction.modifiers
    name = next((m for m in modifiers if m in OPERATIONS), "")
    shape = shape_of(instruction)
    result = instruction.opcode == "atom"
    operands = instruction.operands[1:] if result else instruction.operands
    slot, offset, space = t.address(operands[0], shape.space)
    kind = np.dtype(UNSIGNED[min(shape.element, 8)])
    size = shape.element * shape.vector
    if not name or shape.type == "b128":
        return unsupported(instruction, "atomic operation outside what is known")
    target = Target(slot, offset, space, size=size, instruction=instruction, write=True)
    for operand in operands[1:]:
        counted(instruction, t.flattened(operand), shape.vector)
    sources = [tuple(t.source(o, shape.type) for o in t.flattened(op)) for op in operands[1:]]
    if len(sources) < (2 if name == "cas" else 1):
        return unsupported(instruction, "operands are missing")
    targets = tuple(t.target(o) for o in t.flattened(instruction.operands[0])) if result else ()
    operation = _Operation(name, shape, "noftz" in modifiers)

    def run(registers: Registers, active: Active | None) -> None:
        frame: Frame = registers[0]
        chunk = frame.chunk
        lanes = chunk.lanes if active is None else active.count
        inputs = [gathered(registers, s, kind, active, chunk.lanes) for s in sources]
        old = np.zeros((lanes, shape.vector), kind)
        if chunk.launch.checks:
            chunk.launch.synchron.atomic(
                frame, target, active, release=shape.order in ("release", "acq_rel")
            )
        for piece in target.pieces(frame, active):
            rows = np.arange(lanes) if piece.rows is None else piece.rows
            parts = [expanded(values, lanes)[rows].reshape(rows.size, -1) for values in inputs]
            old[rows] = _apply(frame, piece, target, operation, parts)
        if result:
            chunk.polled = True
        for at, where in enumerate(targets):
            if where >= 0:
                held = frame.code.kinds.get(where, kind)
                column = np.ascontiguousarray(old[:, at]).astype(held, copy=False)
                registers[where] = assigned(registers[where], column, active, chunk.lanes)

    flat = tuple(s for group in sources for s in group)
    return simple(instruction, run, targets=targets, critical=(slot, *flat))


def _apply(
    frame: Frame, piece: Piece, target: Target, operation: _Operation, inputs: list[Array]
) -> Array:
    """Update memory for the lanes of a piece, in lane order; what was there before each."""
    chunk, allocation = frame.chunk, piece.allocation
    launch, shape = chunk.launch, operation.shape
    if not allocation.writable:
        launch.read_only(frame, target, piece)
    flags = STRONG | BLOCK_SCOPE if shape.block_scope else STRONG
    if launch.checks:
        bad = note_read(frame, piece, target, flags)
        if bad is not None:
            report_undefined(frame, piece, target, bad)
        if allocation.space in ("global", "shared"):
            conflict = launch.shadow(allocation).write(
                piece.where,
                target.size,
                chunk.numbers(piece.active),
                chunk.order,
                target.instruction.line,
                Values(inputs[0], lambda: ~inputs[0]),
                flags,
            )
            if conflict is not None:
                launch.race(frame, target, allocation, conflict)
        define(piece, target.size)
    elements = piece.where.indices()
    view = allocation.view(shape.element)
    results = []
    flush = allocation.space == "global" and shape.type == "f32"
    for at in range(shape.vector):
        index = elements * shape.vector + at
        columns = [np.ascontiguousarray(part[:, at]) for part in inputs]
        results.append(operation.apply(view, index, columns, flush=flush))
    if operation.changed:
        launch.version += 1
    launch.counters.atomic(piece, target.size, chunk, returns=target.instruction.opcode == "atom")
    return np.stack(results, axis=1)


class _Operation:
    """One kind of update on one type."""

    def __init__(self, name: str, shape: Shape, keep_subnormals: bool) -> None:
        self.name = name
        self.shape = shape
        self.keep_subnormals = keep_subnormals
        self.changed = False
        self.typed = _type_of(shape.type)

    def apply(self, view: Array, index: Array, inputs: list[Array], *, flush: bool) -> Array:
        """Update the elements in lane order; the value each lane found."""
        update = self._update(flush=flush and not self.keep_subnormals)
        second = inputs[1] if len(inputs) > 1 else inputs[0]
        ranks = _ranks(index)
        deepest = int(ranks.max()) if ranks.size else 0
        before = view[index]
        if deepest == 0:
            new = update(before, inputs[0], second)
            view[index] = new
            self.changed = bool((new != before).any())
            return before
        scan = self._scan()
        old = np.empty_like(before)
        if deepest >= MANY and scan is not None:
            self._by_address(view, index, inputs[0], old, scan)
        else:
            for rank in range(deepest + 1):
                rows = np.flatnonzero(ranks == rank)
                at = index[rows]
                old[rows] = view[at]
                view[at] = update(old[rows], inputs[0][rows], second[rows])
        self.changed = bool((view[index] != before).any())
        return old

    def _by_address(
        self, view: Array, index: Array, values: Array, old: Array, scan: Ufunc
    ) -> None:
        """Updates of few addresses by many lanes: a running total for each address."""
        order = np.argsort(index, kind="stable")
        sorted_index = index[order]
        starts = np.flatnonzero(np.concatenate(([True], sorted_index[1:] != sorted_index[:-1])))
        for start, end in zip(starts, [*starts[1:], index.size], strict=True):
            rows = order[start:end]
            at = index[rows[0]]
            chain = np.concatenate((view[at : at + 1], values[rows]))
            running = scan(chain.view(self.typed)).view(view.dtype)
            old[rows] = running[:-1]
            view[at] = running[-1]

    def _scan(self) -> Ufunc | None:
        if self.name == "exch":
            return lambda chain: chain
        ufunc = {
            "add": np.add,
            "and": np.bitwise_and,
            "or": np.bitwise_or,
            "xor": np.bitwise_xor,
            "min": np.minimum,
            "max": np.maximum,
        }.get(self.name)
        if ufunc is None or (self.shape.type not in ("f32", "f64") and "f" in self.shape.type):
            return None
        return lambda chain: ufunc.accumulate(chain, dtype=chain.dtype)

    def _update(self, *, flush: bool) -> Update:
        typed = self.typed

        def over(function: Callable[[Array, Array], Array]) -> Update:
            def update(old: Array, value: Array, _: Array) -> Array:
                out = function(old.view(typed), value.view(typed))
                return np.ascontiguousarray(out.astype(typed, copy=False)).view(old.dtype)

            return update

        match self.name:
            case "add" if flush:
                return over(lambda a, b: _flushed(_flushed(a) + _flushed(b)))
            case "add":
                return over(np.add)
            case "min":
                return over(np.fmin if typed.kind in "fV" else np.minimum)
            case "max":
                return over(np.fmax if typed.kind in "fV" else np.maximum)
            case "and":
                return lambda old, value, _: old & value
            case "or":
                return lambda old, value, _: old | value
            case "xor":
                return lambda old, value, _: old ^ value
            case "exch":
                return lambda old, value, _: value
            case "inc":
                return lambda old, value, _: np.where(old >= value, 0, old + 1).astype(old.dtype)
            case "dec":
                return lambda old, value, _: np.where(
                    (old == 0) | (old > value), value, old - 1
                ).astype(old.dtype)
        return lambda old, value, other: np.where(old == value, other, old)


def _flushed(values: Array) -> Array:
    return np.where(np.abs(values) < TINY, np.copysign(np.float32(0), values), values)


def _type_of(name: str) -> np.dtype[Any]:
    """The numpy type an atomic computes in; packed types are pairs of it."""
    match name:
        case "f16" | "f16x2":
            return np.dtype(np.float16)
        case "bf16" | "bf16x2":
            return BFLOAT16
        case "f32" | "f64":
            return np.dtype(np.float32 if name == "f32" else np.float64)
    width = int(name[1:]) // 8
    return np.dtype(f"{'i' if name.startswith('s') else 'u'}{width}")


def _ranks(index: Array) -> Array:
    """For each lane how many lanes before it address the same element."""
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    fresh = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    if fresh.all():
        return np.zeros(index.size, np.int64)
    starts = np.flatnonzero(fresh)
    group = np.cumsum(fresh) - 1
    ranks = np.empty(index.size, np.int64)
    ranks[order] = np.arange(index.size) - starts[group]
    return ranks


def unsupported(instruction: Instruction, reason: str) -> Step:
    """A step that ends the launch as unsupported when it is reached."""

    def run(registers: Registers, active: Active | None) -> None:
        raise Unable(Unsupported(instruction.mnemonic, instruction.line, reason))

    return simple(instruction, run)
