"""Lint of alignment: accesses whose address can only be misaligned.

Each register is known as residue modulo a power of two, from variables' alignments and arithmetic
with constants, whatever the order of instructions. Only what is wrong in every case is reported;
an address that depends on an argument is left to the emulator.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator

from ptxsearch.ptx.finding import Finding
from ptxsearch.ptx.syntax import (
    Address,
    Function,
    Instruction,
    Integer,
    Module,
    Name,
    Operand,
    Pair,
    Register,
    Variable,
    Vector,
)
from ptxsearch.ptx.vocabulary import TYPE_BYTES

Residue = tuple[int, int]
_WIDEST = 1 << 12
_UNKNOWN: Residue = (1, 0)
_VECTOR = re.compile(r"v([248])")
_ACCESSES = frozenset({"ld", "st", "ldu", "atom", "red"})
_MAPS = frozenset({"mov", "cvta", "cvt", "add", "sub", "mul", "mad", "shl"})
_KEEP = frozenset({"to", "global", "shared", "local", "const", "param", "lo", "wide", "cc"}) | {
    *("b32", "b64", "u32", "u64", "s32", "s64")
}


def misaligned(module: Module, function: Function) -> Iterator[Finding]:
    """A finding for each access of `function` to an address that is never aligned for it."""
    if not any(_bytes(instruction) > 1 for instruction in function.instructions):
        return
    known = _Residues(module, function)
    for instruction in function.instructions:
        size = _bytes(instruction)
        for operand in instruction.operands:
            if size < 2 or not isinstance(operand, Address):
                continue
            modulus, residue = known.of(operand)
            off = residue % min(modulus, size)
            if off:
                yield Finding(
                    "alignment",
                    instruction.line,
                    f"{instruction.mnemonic} accesses {size} bytes at an address that is {off} "
                    f"past a multiple of {min(modulus, size)}; align it to {size} bytes or use a "
                    "narrower access",
                )


def _bytes(instruction: Instruction) -> int:
    """Bytes of one access of a load, store or atomic; 0 for other instructions."""
    if instruction.opcode not in _ACCESSES or not instruction.modifiers:
        return 0
    size = TYPE_BYTES.get(instruction.modifiers[-1], 0)
    for modifier in instruction.modifiers:
        match = _VECTOR.fullmatch(modifier)
        size *= int(match[1]) if match else 1
    return size


class _Residues:
    """What is known of each register of a function."""

    def __init__(self, module: Module, function: Function) -> None:
        self.variables: dict[str, Variable] = {**module.variables}
        self.variables |= {v.name: v for v in (*function.variables, *function.params)}
        readers: dict[str, list[Instruction]] = {}
        written: set[str] = set()
        for instruction in function.instructions:
            written.update(_registers(instruction.operands[:1]))
            for name in _registers(instruction.operands[1:]):
                readers.setdefault(name, []).append(instruction)
        self.known = {name: _UNKNOWN for name in readers if name not in written}
        waiting = list(reversed(function.instructions))
        while waiting:
            instruction = waiting.pop()
            for name, residue in self._written(instruction):
                before = self.known.get(name)
                after = residue if before is None else _join(before, residue)
                if after != before:
                    self.known[name] = after
                    waiting += readers.get(name, ())

    def of(self, operand: Operand) -> Residue:
        """What is known of an operand's value; a register not yet written may be anything."""
        match operand:
            case Integer(value):
                return _WIDEST, value % _WIDEST
            case Register(name, ""):
                return self.known.get(name, _UNKNOWN)
            case Name(name):
                variable = self.variables.get(name)
                return (min(variable.align, _WIDEST), 0) if variable else _UNKNOWN
            case Address(base, offset):
                modulus, residue = self.of(base) if base is not None else (_WIDEST, 0)
                return modulus, (residue + offset) % modulus
        return _UNKNOWN

    def _written(self, instruction: Instruction) -> Iterator[tuple[str, Residue]]:
        """What an instruction makes known; nothing while a source of it is still unread."""
        operands = instruction.operands
        if not operands or instruction.opcode in ("st", "red"):
            return
        if not isinstance(operands[0], Register) or not _is_followed(instruction):
            yield from ((name, _UNKNOWN) for name in _registers(operands[:1]))
        elif all(name in self.known for name in _registers(operands[1:])):
            yield operands[0].name, self._result(instruction, operands[1:])

    def _result(self, instruction: Instruction, sources: tuple[Operand, ...]) -> Residue:
        opcode = instruction.opcode
        values = [self.of(source) for source in sources]
        if opcode in ("mov", "cvta", "cvt"):
            return values[0]
        if opcode == "add":
            return _add(values[0], values[1])
        if opcode == "sub":
            return _add(values[0], (values[1][0], -values[1][1] % values[1][0]))
        if opcode == "shl":
            count = sources[1]
            if not isinstance(count, Integer) or not 0 <= count.value < 64:
                return _UNKNOWN
            return _multiply(values[0], (_WIDEST, (1 << count.value) % _WIDEST))
        product = _multiply(values[0], values[1])
        return _add(product, values[2]) if opcode == "mad" else product


def _is_followed(instruction: Instruction) -> bool:
    """Whether the low bits of the result follow from the low bits of the sources."""
    modifiers = set(instruction.modifiers)
    return instruction.opcode in _MAPS and modifiers <= _KEEP and len(instruction.operands) > 1


def _registers(operands: Iterable[Operand]) -> Iterator[str]:
    for operand in operands:
        match operand:
            case Register(name) | Address(Register(name)):
                yield name
            case Vector(elements):
                yield from _registers(elements)
            case Pair(first, second):
                yield from _registers((first, second))


def _join(first: Residue, second: Residue) -> Residue:
    modulus = math.gcd(first[0], second[0], first[1] - second[1])
    return modulus, first[1] % modulus


def _add(first: Residue, second: Residue) -> Residue:
    modulus = math.gcd(first[0], second[0])
    return modulus, (first[1] + second[1]) % modulus


def _multiply(first: Residue, second: Residue) -> Residue:
    modulus = math.gcd(first[1] * second[0], second[1] * first[0], first[0] * second[0], _WIDEST)
    return modulus, first[1] * second[1] % modulus
