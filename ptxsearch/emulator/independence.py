"""How many global loads a warp issues before it needs the first: its memory parallelism.

A static estimate over the instructions in order: a run of loads ends where an instruction reads a
register that one of them writes, or at a barrier. ptxas schedules loads early in the same way.
"""

from __future__ import annotations

from ptxsearch.ptx.syntax import (
    Address,
    Function,
    Group,
    Instruction,
    Operand,
    Pair,
    Register,
    Vector,
)


def independent_loads(function: Function) -> float:
    """The mean length of a run of independent loads, at least 1."""
    runs: list[int] = []
    written: set[str] = set()
    count = 0
    starts = set(function.labels.values())
    for number, instruction in enumerate(function.instructions):
        ends = instruction.opcode in ("bar", "barrier") or number in starts
        if ends or _reads(instruction) & written:
            runs += [count] if count else []
            written, count = set(), 0
        if instruction.opcode == "ld" and "global" in instruction.modifiers:
            written |= _names(instruction.operands[:1])
            count += 1
    runs += [count] if count else []
    return max(1.0, sum(runs) / len(runs)) if runs else 1.0


def _reads(instruction: Instruction) -> set[str]:
    stores = instruction.opcode in ("st", "red")
    return _names(instruction.operands if stores else instruction.operands[1:])


def _names(operands: tuple[Operand, ...]) -> set[str]:
    found: set[str] = set()
    pending = list(operands)
    while pending:
        match pending.pop():
            case Register(name=name):
                found.add(name)
            case Address(base=Register(name=name)):
                found.add(name)
            case Vector(elements=elements) | Group(elements=elements):
                pending.extend(elements)
            case Pair(first=first, second=second):
                pending += [first, second]
    return found
