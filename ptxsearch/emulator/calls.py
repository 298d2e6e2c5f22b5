"""Calls of device functions and returns from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ptxsearch.emulator import system
from ptxsearch.emulator.arithmetic import encode
from ptxsearch.emulator.code import Step
from ptxsearch.emulator.control import control_step
from ptxsearch.emulator.frame import Frame, Group
from ptxsearch.emulator.halt import Refused, Unable
from ptxsearch.emulator.lanes import Active, assigned
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
