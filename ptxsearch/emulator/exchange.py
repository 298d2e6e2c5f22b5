"""How an instruction across the lanes of a warp waits for them, computes and hands out results."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ptxsearch.emulator.code import Registers, Step, simple
from ptxsearch.emulator.control import control_step
from ptxsearch.emulator.definedness import ORIGIN
from ptxsearch.emulator.frame import Frame, Group
from ptxsearch.emulator.halt import Refused
from ptxsearch.emulator.lanes import Active, assigned, expanded
from ptxsearch.emulator.operation import Array
from ptxsearch.emulator.taint import check, clear, mark
from ptxsearch.emulator.waiting import Parked, park
from ptxsearch.ptx.syntax import Instruction, Negated, Operand

if TYPE_CHECKING:
    from ptxsearch.emulator.machine import Chunk
    from ptxsearch.emulator.translate import Translator

BITS = np.uint32(1) << np.arange(32, dtype=np.uint32)
FULL = 0xFFFF_FFFF

Compute = Callable[[list[Array], Array, Array], tuple[list[Array], Array | None]]
"""Takes source rows (warps, 32), the participating lanes and each lane's mask (both the same
shape); gives result rows and, where lanes read another lane, which lane each one read (-1: a
lane that does not take part)."""


class Exchange:
    """One such instruction: its operands and what it computes for whole warps."""

    def __init__(
        self,
        t: Translator,
        instruction: Instruction,
        *,
        sources: list[tuple[Operand, str]],
        targets: list[Operand],
        mask: Operand | None,
        compute: Compute,
    ) -> None:
        if mask is None and "sync" in instruction.modifiers:
            raise Refused(f"line {instruction.line}: {instruction.mnemonic} needs a member mask")
        self.instruction = instruction
        self.inverted = [isinstance(operand, Negated) for operand, _ in sources]
        self.slots = tuple(
            t.register(operand.register)
            if isinstance(operand, Negated)
            else t.source(operand, kind)
            for operand, kind in sources
        )
        self.targets = tuple(t.target(operand) for operand in targets)
        self.mask = t.source(mask, "b32") if mask is not None else -1
        self.compute = compute

    def step(self) -> Step:
        """The step: a control where lanes may have to wait for others of their mask."""
        if self.mask < 0:

            def run(registers: Registers, active: Active | None) -> None:
                frame: Frame = registers[0]
                self._complete(frame.chunk, [(frame, frame.chunk.numbers(active))])

            return simple(self.instruction, run, sources=self.slots, targets=self.targets)
        critical = (self.mask,)
        step = control_step(
            self.instruction,
            self._control,
            critical=critical,
            sources=self.slots,
            targets=self.targets,
        )
        self._step = step
        return step

    def _control(self, chunk: Chunk, group: Group) -> bool:
        frame, active = group.frame, group.active
        if frame.taint:
            check(frame, self._step, active)
        held = frame.registers[self.mask]
        if active is None and held.size == 1 and int(held[0]) == FULL:
            self._complete(chunk, [(frame, chunk.threads_range)])
            group.pc += 1
            return True
        index = chunk.numbers(active)
        masks = expanded(held, chunk.lanes)[index].astype(np.uint32)
        inside = (masks >> (index & 31).astype(np.uint32)) & 1
        if not inside.all():
            lane = int(index[int((inside == 0).argmax())])
            chunk.launch.illegal(
                chunk,
                group,
                self.instruction,
                "a lane executes it that its own member mask leaves out",
                lane=lane,
            )
        if self._satisfied(chunk, index, masks):
            self._complete(chunk, [(frame, index)])
            group.pc += 1
            return True
        instruction = self.instruction
        meets = ".".join(m for m in (instruction.opcode, *instruction.modifiers) if m != "aligned")
        parked = Parked(
            frame,
            group.pc,
            group.steps,
            index,
            self._step,
            meets,
            masks,
            np.zeros(index.size, np.int64),
            False,
            self._finish,
        )
        park(chunk, parked)
        return False

    def _satisfied(self, chunk: Chunk, index: Array, masks: Array) -> bool:
        """Whether every live lane of every mask is among the lanes."""
        here = np.zeros(chunk.lanes, np.bool_)
        here[index] = True
        missing = (chunk.live & ~here).reshape(-1, 32)
        if not missing.any():
            return True
        absent = (missing * BITS).sum(axis=1, dtype=np.uint32)
        return not bool((masks & absent[index >> 5]).any())

    def _finish(self, chunk: Chunk, going: list[tuple[Parked, Array]]) -> None:
        steps = {id(parked.step) for parked, _ in going}
        parts = [(parked.frame, index) for parked, index in going]
        if len(steps) == 1:
            self._complete(chunk, parts)
            return
        makers = [parked.finish.__self__ for parked, _ in going]  # type: ignore[attr-defined]
        self._complete(chunk, parts, makers)

    def _complete(
        self,
        chunk: Chunk,
        parts: list[tuple[Frame, Array]],
        makers: list[Exchange] | None = None,
    ) -> None:
        """Compute for the lanes of all parts together; each part has its own registers."""
        makers = makers or [self] * len(parts)
        whole = len(parts) == 1 and parts[0][1].size == chunk.lanes
        there = np.ones(chunk.lanes, np.bool_) if whole else np.zeros(chunk.lanes, np.bool_)
        masks = np.full(chunk.lanes, FULL, np.uint32)
        values: list[Array] = []
        for (frame, index), maker in zip(parts, makers, strict=True):
            there[index] = True
            if maker.mask >= 0:
                masks[index] = expanded(frame.registers[maker.mask], chunk.lanes)[index]
            for at, slot in enumerate(maker.slots):
                held = frame.registers[slot]
                lanes = expanded(held, chunk.lanes)
                if maker.inverted[at]:
                    lanes = ~lanes
                if whole:
                    values.append(lanes)
                    continue
                if at >= len(values):
                    values.append(np.zeros(chunk.lanes, lanes.dtype))
                values[at][index] = lanes[index]
        rows = [value.reshape(-1, 32) for value in values]
        results, read = self.compute(rows, there.reshape(-1, 32), masks.reshape(-1, 32))
        if self.instruction.opcode in ("bar", "barrier"):
            self._order(chunk, there, masks)
        for (frame, index), maker in zip(parts, makers, strict=True):
            active = None if index.size == chunk.lanes else Active(index, chunk.lanes)
            for target, result in zip(maker.targets, results, strict=False):
                if target >= 0:
                    flat = np.ascontiguousarray(result).reshape(-1)[index]
                    flat = flat.astype(frame.code.kinds.get(target, flat.dtype), copy=False)
                    old = frame.registers[target]
                    frame.registers[target] = assigned(old, flat, active, chunk.lanes)
            if frame.taint or (read is not None and bool((read < 0).any())):
                maker._taint(frame, index, active, read)

    def _order(self, chunk: Chunk, there: Array, masks: Array) -> None:
        if not chunk.launch.checks:
            return
        rows = there.reshape(-1, 32)
        warps = np.flatnonzero(rows.any(axis=1))
        first = masks.reshape(-1, 32)[warps]
        lead = first[np.arange(warps.size), rows[warps].argmax(axis=1)]
        members = rows[warps] & ((lead[:, None] & BITS) != 0)
        real = chunk.real.reshape(-1, 32)[warps]
        live = chunk.live.reshape(-1, 32)[warps]
        chunk.order.warp_sync(
            warps, members | (members.any(axis=1)[:, None] & ~live & real) | ~real
        )
        rest = rows[warps] & ~members
        if rest.any():
            self._order(chunk, _spread(chunk, warps, rest), masks)

    def _taint(self, frame: Frame, index: Array, active: Active | None, read: Array | None) -> None:
        chunk = frame.chunk
        total = np.zeros(chunk.lanes, np.int64)
        for at, slot in enumerate(self.slots):
            found = frame.taint.get(slot)
            if found is None:
                continue
            if read is not None and at == 0:
                base = np.arange(chunk.lanes) // 32 * 32
                source = base + np.maximum(read.reshape(-1), 0)
                found = np.where(read.reshape(-1) < 0, 0, found[source])
            total = np.maximum(total, found)
        if read is not None and chunk.launch.checks:
            bad = (read.reshape(-1) < 0)[index]
            if bad.any():
                number = chunk.launch.lane_origin(frame, self.instruction)
                total[index[bad]] = number * ORIGIN + 15
        for target in self.targets[:1]:
            if target >= 0:
                clear(frame.taint, target, active)
                mark(frame, target, total, active)


def _spread(chunk: Chunk, warps: Array, rows: Array) -> Array:
    out = np.zeros((chunk.lanes // 32, 32), np.bool_)
    out[warps] = rows
    return out.reshape(-1)
