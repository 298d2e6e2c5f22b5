"""Instruction semantics: `decode` turns an instruction into a function on register arrays.

The families live in modules beside this one; each has a table `RULES` from opcode to the forms
it knows. Memory, control flow and instructions across lanes are not decoded here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ptxsearch.emulator import (
    approximation,
    binary,
    carry,
    comparison,
    conversion,
    fields,
    floating,
    half,
    integer,
    moves,
    packed,
    packing,
    video,
)
from ptxsearch.emulator.fitting import fit
from ptxsearch.emulator.operation import (
    STORAGE,
    WIDTHS,
    Array,
    Decoded,
    Invalid,
    Operation,
    Rule,
    Unsupported,
    form_of,
)
from ptxsearch.ptx.syntax import Float, Instruction, Integer

__all__ = ["Array", "Decoded", "Invalid", "Operation", "Unsupported", "decode", "encode"]

FAMILIES = (
    moves,
    integer,
    floating,
    binary,
    fields,
    comparison,
    conversion,
    approximation,
    half,
    carry,
    packed,
    packing,
    video,
)


def _merged() -> Mapping[str, tuple[Rule, ...]]:
    table: dict[str, tuple[Rule, ...]] = {}
    for family in FAMILIES:
        for opcode, rules in family.RULES.items():
            table[opcode] = table.get(opcode, ()) + rules
    return table


RULES = _merged()
ROUNDINGS = frozenset(["rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi"])


def decode(instruction: Instruction, registers: Mapping[str, str]) -> Decoded:
    """The operation of an instruction, given the declared types of registers by name.

    Sources wider than the instruction's type are truncated and results extended to the declared
    width by the operation itself, so arrays go in and out as stored.
    """
    form = form_of(instruction, registers)
    if len(ROUNDINGS.intersection(form.flags)) > 1:
        return Invalid(f"{instruction.mnemonic} has more than one rounding mode")
    for candidate in RULES.get(form.opcode, ()):
        if candidate.matches(form):
            built = candidate.build(form)
            return fit(built, form) if isinstance(built, Operation) else built
    return Unsupported(instruction.mnemonic)


def encode(value: Integer | Float, type_: str) -> np.generic[Any]:
    """The stored bits of an immediate operand read as a PTX type."""
    width = WIDTHS[type_]
    if width == 1:
        return np.bool_(isinstance(value, Integer) and value.value != 0)
    kind = STORAGE[min(width, 64)].type
    if isinstance(value, Integer):
        bits = value.value & ((1 << min(width, 64)) - 1)
    else:
        bits = _float_bits(value, width)
    stored: np.generic[Any] = kind(bits)
    return stored


def _float_bits(value: Float, width: int) -> int:
    """The bits of a floating literal at a width.

    A 64-bit literal is rounded to f32. A 32-bit one read as f64 keeps its bits as they are:
    ptxas puts them into the lower word.
    """
    if value.width == 64 and width == 32:
        with np.errstate(all="ignore"):
            return int(np.uint64(value.bits).view(np.float64).astype(np.float32).view(np.uint32))
    return value.bits
