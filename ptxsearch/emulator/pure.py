"""Steps that only compute on registers, and guards around steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ptxsearch.emulator.arithmetic import decode
from ptxsearch.emulator.code import Fast, Masked, Registers, Step, simple
from ptxsearch.emulator.frame import Frame
from ptxsearch.emulator.halt import Refused, Unable
from ptxsearch.emulator.lanes import Active, assigned, blended, chosen
from ptxsearch.emulator.operation import Array, Invalid, Operation
from ptxsearch.emulator.operation import Unsupported as Unknown
from ptxsearch.emulator.report import Unsupported
from ptxsearch.emulator.translate import CARRY, DYNAMIC_SPECIALS
from ptxsearch.ptx.syntax import Instruction, Name, Negated, Operand, Register, Special

if TYPE_CHECKING:
    from ptxsearch.emulator.translate import Translator

Run = Callable[..., tuple[Array, ...]]

SPECIAL_FUNCTIONS = frozenset({"rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2", "tanh"})
INTEGER = frozenset({"s", "u", "b"})


def build_arithmetic(t: Translator, instruction: Instruction) -> Step:
    """The step of an instruction whose meaning is a function of its sources alone."""
    if instruction.opcode == "mov":
        copied = _build_copy(t, instruction)
        if copied is not None:
            return copied
    decoded = decode(instruction, _registers(t))
    if isinstance(decoded, Unknown):
        raise Unable(Unsupported(instruction.mnemonic, instruction.line, decoded.reason))
    if isinstance(decoded, Invalid):
        raise Refused(f"line {instruction.line}: {instruction.mnemonic}: {decoded.reason}")
    destinations = t.flattened(instruction.operands[0])
    operands = [o for operand in instruction.operands[1:] for o in t.flattened(operand)]
    if len(operands) != len(decoded.sources):
        raise Refused(
            f"line {instruction.line}: {instruction.mnemonic} takes {len(decoded.sources)} "
            f"sources, got {len(operands)}"
        )
    sources, run = _sources(t, operands, decoded)
    targets = tuple(t.target(operand) for operand in destinations)
    if decoded.reads_carry:
        sources = (*sources, t.named(CARRY))
    if decoded.writes_carry:
        targets = (*targets, t.named(CARRY))
    return Step(
        instruction,
        over_all(run, sources, targets),
        over_some(run, sources, targets),
        sources=sources,
        targets=targets,
        tally=_tally(instruction, decoded.flops),
    )


def _registers(t: Translator) -> Mapping[str, str]:
    return t.function.registers


def _tally(instruction: Instruction, flops: Mapping[str, int]) -> dict[str, int]:
    tally = dict(flops)
    if instruction.opcode in SPECIAL_FUNCTIONS and "approx" in instruction.modifiers:
        tally["special_functions"] = 1
    elif instruction.opcode not in ("mov", "cvt", "selp") and instruction.modifiers:
        kind = instruction.modifiers[-1]
        if kind[0] in INTEGER and kind[1:].isdigit():
            tally["integer_operations"] = 1
    return tally


def _sources(
    t: Translator, operands: list[Operand], operation: Operation
) -> tuple[tuple[int, ...], Run]:
    """The slots of the sources, and the function with complemented predicates put right."""
    slots = []
    inverted = []
    for at, (operand, type_) in enumerate(zip(operands, operation.sources, strict=True)):
        if isinstance(operand, Negated):
            inverted.append(at)
            slots.append(t.register(operand.register))
        else:
            slots.append(t.source(operand, type_))
    if not inverted:
        return tuple(slots), operation.run
    run = operation.run

    def complemented(*arrays: Array) -> tuple[Array, ...]:
        values = list(arrays)
        for at in inverted:
            values[at] = ~values[at]
        return run(*values)

    return tuple(slots), complemented


def over_all(run: Run, sources: tuple[int, ...], targets: tuple[int, ...]) -> Fast:
    """The function over all lanes, registers read and written without a loop where possible."""
    if len(targets) == 1 and targets[0] >= 0:
        target = targets[0]
        match sources:
            case (a,):

                def one(registers: Registers) -> None:
                    registers[target] = run(registers[a])[0]

                return one
            case (a, b):

                def two(registers: Registers) -> None:
                    registers[target] = run(registers[a], registers[b])[0]

                return two
            case (a, b, c):

                def three(registers: Registers) -> None:
                    registers[target] = run(registers[a], registers[b], registers[c])[0]

                return three

    def many(registers: Registers) -> None:
        results = run(*[registers[slot] for slot in sources])
        for slot, result in zip(targets, results, strict=False):
            if slot >= 0:
                registers[slot] = result

    return many


def over_some(run: Run, sources: tuple[int, ...], targets: tuple[int, ...]) -> Masked:
    """The function over the active lanes, or over all of them blended in where they are many."""

    def masked(registers: Registers, active: Active | None) -> None:
        held = [registers[slot] for slot in sources]
        lanes = registers[0].chunk.lanes
        dense = active is None or active.dense
        results = run(*(held if dense else [chosen(value, active) for value in held]))
        for slot, result in zip(targets, results, strict=False):
            if slot < 0:
                continue
            if active is None:
                registers[slot] = result
            elif dense:
                registers[slot] = blended(registers[slot], result, active, lanes)
            else:
                registers[slot] = assigned(registers[slot], result, active, lanes)

    return masked


def _build_copy(t: Translator, instruction: Instruction) -> Step | None:
    """A `mov` that needs no arithmetic: addresses, special registers, a register of its width."""
    target, source = instruction.operands
    if not isinstance(target, Register):
        return None
    if isinstance(source, Special) and source.name in DYNAMIC_SPECIALS:
        return _build_clock(t, instruction, source.name)
    kind = t.storage(target)
    if isinstance(source, Register):
        if t.storage(source) != kind or t.register_type(source) == "b128":
            return None
        if len(t.flattened(source)) > 1:
            return None
    elif not isinstance(source, Special | Name):
        return None
    slot, where = t.source(source, t.register_type(target)), t.target(target)
    cast = isinstance(source, Special | Name)

    def fast(registers: Registers) -> None:
        value = registers[slot]
        registers[where] = value.astype(kind) if cast and value.dtype != kind else value

    def masked(registers: Registers, active: Active | None) -> None:
        value = chosen(registers[slot], active)
        if cast and value.dtype != kind:
            value = value.astype(kind)
        registers[where] = assigned(registers[where], value, active, registers[0].chunk.lanes)

    return Step(instruction, fast, masked, sources=(slot,), targets=(where,))


def _build_clock(t: Translator, instruction: Instruction, name: str) -> Step:
    where = t.target(instruction.operands[0])
    kind = t.storage(instruction.operands[0])  # type: ignore[arg-type]
    shift = 32 if name.endswith("_hi") else 0

    def run(registers: Registers, active: Active | None) -> None:
        frame: Frame = registers[0]
        now = frame.chunk.launch.tick(name) >> shift
        value = np.array([now & ((1 << 8 * kind.itemsize) - 1)], kind)
        registers[where] = assigned(registers[where], value, active, frame.chunk.lanes)

    return simple(instruction, run, targets=(where,))
