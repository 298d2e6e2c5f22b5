"""Branches, calls, returns and exits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ptxsearch.emulator import system
from ptxsearch.emulator.code import Control, Registers, Step
from ptxsearch.emulator.frame import Frame, Group
from ptxsearch.emulator.halt import Refused, Unable
from ptxsearch.emulator.lanes import Active, Selection, assigned
from ptxsearch.emulator.operation import Array
from ptxsearch.emulator.report import Unsupported
from ptxsearch.emulator.taint import check
from ptxsearch.ptx.syntax import (
    Float,
    Function,
    Instruction,
    Integer,
    Name,
    Operand,
    Register,
)
from ptxsearch.ptx.syntax import (
    Group as Operands,
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


def _count(chunk: Chunk, group: Group) -> int:
    return chunk.lanes if group.active is None else group.active.count


def guarded_control(t: Translator, instruction: Instruction, step: Step) -> Step:
    """A control executed only by the lanes whose guard holds."""
    guard = instruction.guard
    if guard is None or step.control is None:
        return step
    slot, inner, sides = t.register(guard.register), step.control, Selection()

    def control(chunk: Chunk, group: Group) -> bool:
        before = _count(chunk, group)
        if not split_by_guard(chunk, group, outer, slot, sides, negated=guard.negated):
            return True
        whole = _count(chunk, group) == before
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


def build_return(t: Translator, instruction: Instruction) -> Step:
    """The step of `ret`: back to the caller, or the end of the thread in an entry."""

    def control(chunk: Chunk, group: Group) -> bool:
        leave(chunk, group)
        return False

    return control_step(instruction, control)


def leave(chunk: Chunk, group: Group) -> None:
    """Return the group's lanes to their caller, with the results."""
    frame, active = group.frame, group.active
    parent = frame.parent
    if parent is None:
        chunk.exit(active)
        return
    for source, target in frame.returns:
        value = frame.registers[source]
        if value is not None:
            wide = value if active is None or value.size == 1 else value[active.index]
            parent.registers[target] = assigned(parent.registers[target], wide, active, chunk.lanes)
            parent.taint.pop(target, None)
    _copy_results(chunk, frame, parent, active)
    chunk.add(Group(parent, frame.return_pc, active, group.steps))


def _copy_results(chunk: Chunk, frame: Frame, parent: Frame, active: Active | None) -> None:
    call = parent.code.function.instructions[frame.return_pc - 1]
    wanted = call.operands[0]
    if not isinstance(wanted, Operands):
        return
    for operand, variable in zip(wanted.elements, frame.code.function.returns, strict=False):
        if isinstance(operand, Name) and variable.name in frame.code.places:
            _copy_local(chunk, frame, variable.name, parent, operand.name, active)


def _copy_local(
    chunk: Chunk, source: Frame, name: str, target: Frame, into: str, active: Active | None
) -> None:
    """Copy a variable between two frames of the same lanes."""
    one, other = source.code.places[name], target.code.places[into]
    size = min(one.size, other.size)
    start, end = source.local_base + one.start, target.local_base + other.start
    lanes = slice(None) if active is None else active.index
    for array in (chunk.local.data, chunk.local.defined):
        if array is not None:
            rows = array.reshape(chunk.lanes, chunk.local_stride)
            rows[lanes, end : end + size] = rows[lanes, start : start + size]


def build_call(t: Translator, instruction: Instruction) -> Step:
    """The step of a direct or an indirect `call`."""
    operands = list(instruction.operands)
    returns = operands[0].elements if isinstance(operands[0], Operands) else ()
    callee, rest = operands[1], operands[2:]
    arguments = rest[0].elements if rest and isinstance(rest[0], Operands) else ()
    if isinstance(callee, Name):
        known = system.CALLS.get(callee.name)
        if known is not None:
            return control_step(instruction, known(t, instruction, returns, arguments))
        return _build_direct(t, instruction, callee.name, returns, arguments)
    if not isinstance(callee, Register):
        raise Refused(f"line {instruction.line}: a call needs a function or a register")
    slot = t.register(callee)
    used, given = _registers(t, arguments), _registers(t, returns)

    def control(chunk: Chunk, group: Group) -> bool:
        if group.frame.taint:
            check(group.frame, step, group.active)
        held = group.frame.registers[slot]
        picked = held if group.active is None or held.size == 1 else held[group.active.index]
        index = chunk.numbers(group.active)
        for value in np.unique(picked).tolist():
            function = t.program.function_at(value)
            if function is None:
                chunk.launch.illegal(chunk, group, instruction, f"call of {value:#x}: no function")
            lanes = index[np.broadcast_to(picked == value, index.shape)]
            part = None if lanes.size == chunk.lanes else Active(lanes, chunk.lanes)
            once = Group(group.frame, group.pc, part, group.steps)
            enter(chunk, once, t, function, returns, arguments)
        return False

    step = control_step(instruction, control, critical=(slot,), sources=used, targets=given)
    return step


def _registers(t: Translator, operands: Sequence[Operand]) -> tuple[int, ...]:
    return tuple(t.register(operand) for operand in operands if isinstance(operand, Register))


def _build_direct(
    t: Translator,
    instruction: Instruction,
    name: str,
    returns: Sequence[Operand],
    arguments: Sequence[Operand],
) -> Step:
    function = t.program.module.functions.get(name)
    if function is None or function.declared:
        raise Unable(Unsupported(f"call {name}", instruction.line, "the function has no body"))
    used, given = _registers(t, arguments), _registers(t, returns)

    def control(chunk: Chunk, group: Group) -> bool:
        enter(chunk, group, t, function, returns, arguments)
        return False

    return control_step(instruction, control, sources=used, targets=given)


def enter(
    chunk: Chunk,
    group: Group,
    t: Translator,
    function: Function,
    returns: Sequence[Operand],
    arguments: Sequence[Operand],
) -> None:
    """Start a call: a frame of its own for the group's lanes, the arguments handed over."""
    caller, active = group.frame, group.active
    code = t.program.code(function)
    chunk.launch.deep(chunk, group, caller.depth + 1)
    frame = Frame(chunk, code, caller, group.pc + 1)
    chunk.reserve(frame)
    for parameter, argument in zip(function.params, arguments, strict=False):
        if parameter.space == "reg":
            value = _argument(caller, t, argument, parameter.type)
            slot = code.slots.get(parameter.name)
            if slot is not None:
                frame.registers[slot] = value
        elif isinstance(argument, Name) and argument.name in caller.code.places:
            _copy_local(chunk, caller, argument.name, frame, parameter.name, active)
        else:
            _place_argument(
                chunk, frame, parameter.name, _argument(caller, t, argument, parameter.type)
            )
    frame.returns = tuple(
        (code.slots[variable.name], caller.code.slots[operand.name])
        for variable, operand in zip(function.returns, returns, strict=False)
        if isinstance(operand, Register) and variable.name in code.slots
    )
    chunk.begin(frame)
    chunk.add(Group(frame, 0, active, group.steps))


def _argument(caller: Frame, t: Translator, argument: Operand, type_: str) -> Array:
    if isinstance(argument, Register):
        held = caller.registers[caller.code.slots[argument.name]]
        return np.zeros(1, t.storage(argument)) if held is None else held
    if isinstance(argument, Integer | Float):
        from ptxsearch.emulator.arithmetic import encode

        return np.array([encode(argument, type_)])
    raise Refused(f"argument {argument} of a call is neither a register nor a constant")


def _place_argument(chunk: Chunk, frame: Frame, name: str, value: Array) -> None:
    place = frame.code.places[name]
    start = frame.local_base + place.start
    raw = np.ascontiguousarray(value).view(np.uint8).reshape(value.size, -1)
    rows = chunk.local.data.reshape(chunk.lanes, chunk.local_stride)
    size = min(place.size, raw.shape[1])
    rows[:, start : start + size] = raw[:, :size]
    if chunk.local.defined is not None:
        chunk.local.defined.reshape(chunk.lanes, chunk.local_stride)[:, start : start + size] = True
