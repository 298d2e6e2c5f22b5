"""Branches, calls, returns and exits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ptxsearch.emulator.code import Control, Registers, Step
from ptxsearch.emulator.frame import Group
from ptxsearch.emulator.halt import Refused
from ptxsearch.emulator.lanes import Active, Selection
from ptxsearch.emulator.taint import check
from ptxsearch.ptx.syntax import (
    Instruction,
    Name,
)

if TYPE_CHECKING:
    from ptxsearch.emulator.machine import Chunk
    from ptxsearch.emulator.translate import Translator


def _nothing(registers: Registers, active: Active | None = None) -> None:
    """A control has no step of its own."""


def control_step(
    instruction: Instruction,
    control: Control,
    *,
    critical: tuple[int, ...] = (),
    sources: tuple[int, ...] = (),
    targets: tuple[int, ...] = (),
) -> Step:
    """A step that moves its group itself."""
    return Step(
        instruction,
        _nothing,
        _nothing,
        sources=sources,
        targets=targets,
        critical=critical,
        control=control,
    )


def split_by_guard(
    chunk: Chunk, group: Group, step: Step, slot: int, sides: Selection, *, negated: bool
) -> bool:
    """Leave in the group the lanes whose guard holds; the others go on. False where none is left.

    A group of which some lanes go on is not merged with them before its control is done.
    """
    held = group.frame.registers[slot]
    if group.frame.taint:
        check(group.frame, step, group.active)
    on = held if group.active is None or held.size == 1 else held[group.active.index]
    on = ~on if negated else on
    if on.all():
        return True
    if not on.any():
        group.pc += 1
        return False
    taken, rest = sides.split(on, group.active, chunk.lanes)
    chunk.add(Group(group.frame, group.pc + 1, rest, group.steps))
    group.active = taken
    return True


def lanes_of(chunk: Chunk, group: Group) -> int:
    """How many lanes a group has."""
    return chunk.lanes if group.active is None else group.active.count


def guarded_control(t: Translator, instruction: Instruction, step: Step) -> Step:
    """A control executed only by the lanes whose guard holds."""
    guard = instruction.guard
    if guard is None or step.control is None:
        return step
    slot, inner, sides = t.register(guard.register), step.control, Selection()

    def control(chunk: Chunk, group: Group) -> bool:
        before = lanes_of(chunk, group)
        if not split_by_guard(chunk, group, outer, slot, sides, negated=guard.negated):
            return True
        whole = lanes_of(chunk, group) == before
        if inner(chunk, group):
            if whole:
                return True
            chunk.add(group)
        return False

    outer = control_step(
        instruction,
        control,
        critical=(*step.critical, slot),
        sources=step.sources,
        targets=step.targets,
    )
    return outer


def build_branch(t: Translator, instruction: Instruction) -> Step:
    """The step of `bra`."""
    operand = instruction.operands[0]
    if not isinstance(operand, Name) or operand.name not in t.function.labels:
        raise Refused(f"line {instruction.line}: branch to an unknown label")
    target = t.function.labels[operand.name]
    backward = target <= t.pc
    guard = instruction.guard
    if guard is None:

        def jump(chunk: Chunk, group: Group) -> bool:
            chunk.launch.counters.branches += _warps(chunk, group)
            group.pc = target
            return chunk.looped(group) if backward else True

        return control_step(instruction, jump)
    slot, negated, after = t.register(guard.register), guard.negated, t.pc + 1
    sides = Selection()

    def branch(chunk: Chunk, group: Group) -> bool:
        frame, active = group.frame, group.active
        if frame.taint:
            check(frame, step, active)
        chunk.launch.counters.branches += _warps(chunk, group)
        held = frame.registers[slot]
        if held.size == 1:
            taken = bool(held[0]) != negated
        else:
            on = held if active is None else held[active.index]
            count = int(np.count_nonzero(on))
            if 0 < count < on.size:
                yes, no = sides.split(~on if negated else on, active, chunk.lanes)
                return _diverge(chunk, group, yes, no, target, after)
            taken = (count > 0) != negated
        if not taken:
            group.pc = after
            return True
        group.pc = target
        return chunk.looped(group) if backward else True

    step = control_step(instruction, branch, critical=(slot,))
    return step


def _warps(chunk: Chunk, group: Group) -> int:
    return chunk.lanes // 32 if group.active is None else group.active.warps


def _diverge(
    chunk: Chunk, group: Group, yes: Active | None, no: Active | None, target: int, after: int
) -> bool:
    """Part a group at a branch; the scheduler decides who goes first."""
    counters = chunk.launch.counters
    counters.divergent_branches += max(yes.warps + no.warps - _warps(chunk, group), 0)  # type: ignore[union-attr]
    jumped = Group(group.frame, target, yes, group.steps)
    jumped.quiet, jumped.version = group.quiet, group.version
    group.active, group.pc = no, after
    chunk.add(group)
    if target > after - 1 or chunk.looped(jumped):
        chunk.add(jumped)
    return False


def build_indexed_branch(t: Translator, instruction: Instruction) -> Step:
    """The step of `brx.idx`."""
    slot = t.source(instruction.operands[0], "u32")
    table = instruction.operands[1]
    if not isinstance(table, Name) or table.name not in t.function.tables:
        raise Refused(f"line {instruction.line}: brx without a list of targets")
    targets = [t.function.labels[label] for label in t.function.tables[table.name]]
    here = t.pc

    def control(chunk: Chunk, group: Group) -> bool:
        if group.frame.taint:
            check(group.frame, step, group.active)
        held = group.frame.registers[slot]
        if held.size == 1:
            at = int(held[0])
            if at >= len(targets):
                chunk.launch.illegal(
                    chunk, group, instruction, f"brx index {at} is outside its list"
                )
            group.pc = targets[at]
            return chunk.looped(group) if targets[at] <= here else True
        picked = held if group.active is None else held[group.active.index]
        values = np.unique(picked)
        if int(values[-1]) >= len(targets):
            chunk.launch.illegal(
                chunk, group, instruction, f"brx index {int(values[-1])} is outside its list"
            )
        index = chunk.numbers(group.active)
        for value in values.tolist():
            lanes = index[picked == value]
            part = None if lanes.size == chunk.lanes else Active(lanes, chunk.lanes)
            chunk.add(Group(group.frame, targets[value], part, group.steps))
        return False

    step = control_step(instruction, control, critical=(slot,))
    return step


def build_exit(t: Translator, instruction: Instruction) -> Step:
    """The step of `exit`."""

    def control(chunk: Chunk, group: Group) -> bool:
        chunk.exit(group.active)
        return False

    return control_step(instruction, control)
