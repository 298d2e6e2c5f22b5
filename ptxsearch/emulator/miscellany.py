"""Fences, hints, traps and what has no effect on results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ptxsearch.emulator.code import Registers, Step, simple
from ptxsearch.emulator.control import control_step
from ptxsearch.emulator.frame import Group
from ptxsearch.emulator.halt import Unable
from ptxsearch.emulator.lanes import Active, assigned
from ptxsearch.emulator.report import Unsupported
from ptxsearch.ptx.syntax import Instruction

if TYPE_CHECKING:
    from ptxsearch.emulator.machine import Chunk
    from ptxsearch.emulator.translate import Translator


def build_fence(t: Translator, instruction: Instruction) -> Step:
    """The step of `membar` and `fence`."""
    modifiers = instruction.modifiers
    if "proxy" in modifiers or any(m.startswith(("mbarrier_init", "proxy")) for m in modifiers):
        raise Unable(Unsupported(instruction.mnemonic, instruction.line, "proxies and mbarriers"))
    block_only = "cta" in modifiers

    def run(registers: Registers, active: Active | None) -> None:
        chunk = registers[0].chunk
        if chunk.launch.checks:
            chunk.launch.synchron.fence(chunk, active, block_only=block_only)

    return simple(instruction, run)


def build_nothing(t: Translator, instruction: Instruction) -> Step:
    """The step of a hint."""

    def run(registers: Registers, active: Active | None) -> None:
        registers[0].chunk.polled |= instruction.opcode == "nanosleep"

    return simple(instruction, run)


def build_policy(t: Translator, instruction: Instruction) -> Step:
    """The step of `createpolicy`: a value that only hints take."""
    where = t.target(instruction.operands[0])

    def run(registers: Registers, active: Active | None) -> None:
        value = np.zeros(1, np.uint64)
        lanes = registers[0].chunk.lanes
        registers[where] = assigned(registers[where], value, active, lanes)

    return simple(instruction, run, targets=(where,))


def build_trap(t: Translator, instruction: Instruction) -> Step:
    """The step of `trap`."""

    def control(chunk: Chunk, group: Group) -> bool:
        lanes = chunk.numbers(group.active)
        chunk.launch.fatal(
            chunk,
            instruction,
            int(lanes[0]),
            "trap",
            space="control",
            count=lanes.size,
            message="the kernel executed trap",
        )

    return control_step(instruction, control)


def build_alloca(t: Translator, instruction: Instruction) -> Step:
    """The step of `alloca`, `stacksave` and `stackrestore`."""
    raise Unable(Unsupported(instruction.mnemonic, instruction.line, "a stack of varying size"))
