"""Code of a function that cannot matter: unreachable blocks and values that nothing reads."""

from __future__ import annotations

from collections.abc import Iterator

from ptxsearch.ptx.controlflow import ControlFlow
from ptxsearch.ptx.syntax import (
    Address,
    Function,
    Group,
    Instruction,
    Name,
    Negated,
    Operand,
    Pair,
    Register,
    Vector,
)
from ptxsearch.ptx.vocabulary import words

# Opcodes that do nothing but compute their first operand.
_PURE = frozenset(
    words(
        """
        abs add and bfe bfi bfind bmsk brev clz cnot copysign cos cvt cvta div dp2a dp4a ex2 fma
        fns isspacep lg2 lop3 mad mad24 mapa max min mov mul mul24 neg not or popc prmt rcp rem
        rsqrt sad selp set setp shf shl shr sin slct sqrt sub szext tanh testp xor
        """
    )
)


def live_instructions(function: Function) -> list[int]:
    """The indices of the instructions that may have an effect, in order.

    Carry chains and everything that touches memory other than parameters always stay.
    """
    flow = ControlFlow(function)
    kept = [
        index
        for number in sorted(flow.reachable)
        for index in range(flow.blocks[number].start, flow.blocks[number].end)
    ]
    readers: dict[str, int] = {}
    writers: dict[str, list[int]] = {}
    formals = {variable.name for variable in function.returns}
    for index in kept:
        instruction = function.instructions[index]
        for name in read_registers(instruction):
            readers[name] = readers.get(name, 0) + 1
        for name in _written(instruction):
            writers.setdefault(name, []).append(index)
    dead: set[int] = set()
    waiting = list(reversed(kept))
    while waiting:
        index = waiting.pop()
        instruction = function.instructions[index]
        if index in dead or not _removable(instruction):
            continue
        if any(readers.get(name) or name in formals for name in _written(instruction)):
            continue
        dead.add(index)
        for name in read_registers(instruction):
            readers[name] -= 1
            if not readers[name]:
                waiting += writers.get(name, ())
    return [index for index in kept if index not in dead]


def _removable(instruction: Instruction) -> bool:
    modifiers = instruction.modifiers
    if instruction.opcode == "ld":
        return modifiers[:1] == ("param",)
    return instruction.opcode in _PURE and "cc" not in modifiers and bool(instruction.operands)


def _written(instruction: Instruction) -> Iterator[str]:
    """Registers that an instruction writes."""
    if instruction.operands and instruction.opcode not in ("st", "red"):
        yield from registers(instruction.operands[0])


def read_registers(instruction: Instruction) -> Iterator[str]:
    """Registers whose value an instruction needs, its guard's included."""
    if instruction.guard is not None:
        yield instruction.guard.register.name
    first = 1 if _removable(instruction) else 0
    for operand in instruction.operands[first:]:
        yield from registers(operand)


def registers(operand: Operand) -> Iterator[str]:
    """Names of the registers in an operand."""
    match operand:
        case Register(name) | Address(Register(name)) | Negated(Register(name)):
            yield name
        case Vector(elements) | Group(elements):
            for element in elements:
                yield from registers(element)
        case Pair(first, second):
            yield from registers(first)
            yield from registers(second)


def names(operand: Operand) -> Iterator[str]:
    """Variables, functions and labels in an operand."""
    match operand:
        case Name(name) | Address(Name(name)):
            yield name
        case Vector(elements) | Group(elements):
            for element in elements:
                yield from names(element)
        case Pair(first, second):
            yield from names(first)
            yield from names(second)
