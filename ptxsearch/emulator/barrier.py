"""Barriers of a block: sync, arrive and the reductions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ptxsearch.emulator.code import Step
from ptxsearch.emulator.control import control_step
from ptxsearch.emulator.frame import Group
from ptxsearch.emulator.halt import Unable, one_of
from ptxsearch.emulator.lanes import Active, assigned, expanded
from ptxsearch.emulator.operation import Array
from ptxsearch.emulator.report import Unsupported
from ptxsearch.emulator.taint import check
from ptxsearch.emulator.waiting import BARRIER, Parked, park
from ptxsearch.ptx.syntax import Instruction

if TYPE_CHECKING:
    from ptxsearch.emulator.machine import Chunk
    from ptxsearch.emulator.translate import Translator

BARRIERS = 16


def build_barrier(t: Translator, instruction: Instruction) -> Step:
    """The step of `bar` and `barrier`."""
    modifiers = instruction.modifiers
    if "cluster" in modifiers:
        raise Unable(Unsupported(instruction.mnemonic, instruction.line, "clusters"))
    if "warp" in modifiers:
        from ptxsearch.emulator.crosslane import build_warp_barrier

        return build_warp_barrier(t, instruction)
    aligned = instruction.opcode == "bar" or "aligned" in modifiers
    if "red" in modifiers:
        return _build_reduction(t, instruction, aligned=aligned)
    operands = instruction.operands
    number = t.source(operands[0], "b32") if operands else t.number(0, "b32")
    count = t.source(operands[1], "b32") if len(operands) > 1 else -1
    if "arrive" in modifiers:
        return _build_arrive(instruction, number, count)

    def control(chunk: Chunk, group: Group) -> bool:
        if group.frame.taint:
            check(group.frame, step, group.active)
        chunk.launch.counters.barrier(chunk, group.active)
        if count < 0 and _alone(chunk, group) and group.frame.registers[number].size == 1:
            chunk.order.barrier(None)
            chunk.shared_settled()
            group.pc += 1
            return True
        park(chunk, _parked(chunk, group, step, number, count, aligned=aligned))
        return False

    critical = (number,) if count < 0 else (number, count)
    step = control_step(instruction, control, critical=critical)
    return step


def _alone(chunk: Chunk, group: Group) -> bool:
    """Whether the group holds every live lane and no warp has lost only some lanes."""
    if chunk.parked or chunk.ragged or chunk.announced:
        return False
    return group.active is None or group.active.count == chunk.live_count


def _parked(
    chunk: Chunk, group: Group, step: Step, number: int, count: int, *, aligned: bool
) -> Parked:
    index = chunk.numbers(group.active)
    held = group.frame.registers
    numbers = _lanes(held[number], index, chunk).astype(np.int64)
    if int(numbers.max()) >= BARRIERS:
        chunk.launch.illegal(
            chunk, group, step.instruction, f"barrier {int(numbers.max())} does not exist (0 to 15)"
        )
    if count >= 0:
        expected = _lanes(held[count], index, chunk).astype(np.int64)
        threads = chunk.launch.threads
        if bool((expected % 32).any()) or int(expected.max()) > -(-threads // 32) * 32:
            chunk.launch.illegal(
                chunk,
                group,
                step.instruction,
                f"a barrier cannot wait for {int(expected.max())} of {threads} threads; "
                "the count must be a multiple of 32 within the block",
            )
    else:
        expected = np.zeros(index.size, np.int64)
    return Parked(
        group.frame,
        group.pc,
        group.steps,
        index,
        step,
        BARRIER,
        numbers,
        expected,
        aligned,
        lambda chunk, going: None,
    )


def _lanes(value: Array, index: Array, chunk: Chunk) -> Array:
    return expanded(value, chunk.lanes)[index]


def _build_arrive(instruction: Instruction, number: int, count: int) -> Step:
    def control(chunk: Chunk, group: Group) -> bool:
        index = chunk.numbers(group.active)
        numbers = _lanes(group.frame.registers[number], index, chunk)
        chunk.launch.counters.barrier(chunk, group.active)
        for warp in np.unique(index // 32).tolist():
            at = int(numbers[int((index // 32 == warp).argmax())])
            row, part = divmod(warp * 32, chunk.width)
            chunk.announced.setdefault((row, at), []).append(part // 32)
        group.pc += 1
        if chunk.parked:
            chunk.add(group)
            from ptxsearch.emulator.waiting import resolve

            resolve(chunk)
            return False
        return True

    critical = (number,) if count < 0 else (number, count)
    return control_step(instruction, control, critical=critical)


def _build_reduction(t: Translator, instruction: Instruction, *, aligned: bool) -> Step:
    """The step of `bar.red`: the operands are d, number, [count,] [!]p."""
    operands = instruction.operands
    target = t.target(operands[0])
    number = t.source(operands[1], "b32")
    count = t.source(operands[2], "b32") if len(operands) > 3 else -1
    predicate, inverted = t.predicate(operands[-1])
    operation = one_of(instruction, "popc", "and", "or")

    def finish(chunk: Chunk, going: list[tuple[Parked, Array]]) -> None:
        held = np.zeros(chunk.lanes, np.bool_)
        there = np.zeros(chunk.lanes, np.bool_)
        for parked, index in going:
            values = expanded(parked.frame.registers[predicate], chunk.lanes)[index]
            held[index] = values ^ inverted
            there[index] = True
        rows, present = held.reshape(chunk.rows, -1), there.reshape(chunk.rows, -1)
        if operation == "popc":
            result: Array = (rows & present).sum(axis=1).astype(np.uint32)
        elif operation == "and":
            result = np.asarray((rows | ~present).all(axis=1))
        else:
            result = np.asarray((rows & present).any(axis=1))
        wide = np.repeat(result, chunk.width)
        for parked, index in going:
            active = None if index.size == chunk.lanes else Active(index, chunk.lanes)
            old = parked.frame.registers[target]
            parked.frame.registers[target] = assigned(old, wide[index], active, chunk.lanes)

    def control(chunk: Chunk, group: Group) -> bool:
        if group.frame.taint:
            check(group.frame, step, group.active)
        chunk.launch.counters.barrier(chunk, group.active)
        parked = _parked(chunk, group, step, number, count, aligned=aligned)
        parked.finish = finish
        park(chunk, parked)
        return False

    step = control_step(instruction, control, critical=(number, predicate), targets=(target,))
    return step
