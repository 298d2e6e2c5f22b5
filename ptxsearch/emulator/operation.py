"""What one decoded instruction is: its operand types and a function from arrays to arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ptxsearch.ptx.syntax import Instruction, Operand, Pair, Register, Vector

Array = np.ndarray[Any, np.dtype[Any]]
Run = Callable[..., tuple[Array, ...]]

WIDTHS: Mapping[str, int] = {
    "pred": 1,
    **{f"{kind}{width}": width for kind in "bus" for width in (8, 16, 32, 64)},
    "b128": 128,
    "f16": 16,
    "bf16": 16,
    "f32": 32,
    "tf32": 32,
    "f64": 64,
    "f16x2": 32,
    "bf16x2": 32,
    "u16x2": 32,
    "s16x2": 32,
    "f32x2": 64,
    "e4m3x2": 16,
    "e5m2x2": 16,
    "e2m3x2": 16,
    "e3m2x2": 16,
    "ue8m0x2": 16,
    "e2m1x2": 8,
    "e4m3x4": 32,
    "e5m2x4": 32,
    "e2m3x4": 32,
    "e3m2x4": 32,
    "e2m1x4": 16,
}
"""Bits of every type an arithmetic instruction can name."""

STORAGE: Mapping[int, np.dtype[Any]] = {
    1: np.dtype(np.bool_),
    8: np.dtype(np.uint8),
    16: np.dtype(np.uint16),
    32: np.dtype(np.uint32),
    64: np.dtype(np.uint64),
}
"""How a register of a width is stored: predicates as bool, all else as unsigned integers."""

SIGNED: Mapping[int, np.dtype[Any]] = {
    8: np.dtype(np.int8),
    16: np.dtype(np.int16),
    32: np.dtype(np.int32),
    64: np.dtype(np.int64),
}


@dataclass(frozen=True)
class Operation:
    """The meaning of one instruction.

    `sources` and `destinations` name the PTX type of each operand in the order of the
    instruction, vectors and pairs flattened. `run` takes the stored arrays of the sources, all of
    one length or of length 1, and returns those of the destinations; it never writes into its
    arguments. Arrays of length 1 in give arrays of length 1 out. With `reads_carry` a trailing
    bool array is taken, with `writes_carry` one more is returned. `flops` counts per executed
    thread under the names `fp64_add`, `fp64_mul`, `fp64_fma`, and the same for fp32 and fp16.
    """

    sources: tuple[str, ...]
    destinations: tuple[str, ...]
    run: Run
    reads_carry: bool = False
    writes_carry: bool = False
    flops: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Unsupported:
    """An instruction this emulator does not know; `reason` names it."""

    reason: str


@dataclass(frozen=True)
class Invalid:
    """An instruction that no PTX assembler accepts; `reason` says what is wrong."""

    reason: str


Decoded = Operation | Unsupported | Invalid


@dataclass(frozen=True)
class Form:
    """An instruction with its modifiers split into flags and types, its operands flattened."""

    opcode: str
    flags: tuple[str, ...]
    types: tuple[str, ...]
    destinations: tuple[Operand, ...]
    sources: tuple[Operand, ...]
    registers: Mapping[str, str]

    @property
    def type(self) -> str:
        """The first type, empty where there is none."""
        return self.types[0] if self.types else ""

    def has(self, flag: str) -> bool:
        """Whether the instruction carries the modifier."""
        return flag in self.flags

    def one_of(self, *flags: str, default: str = "") -> str:
        """The first of the modifiers that the instruction carries."""
        return next((flag for flag in flags if flag in self.flags), default)

    def register_type(self, operand: Operand) -> str:
        """The declared type of a register operand, empty for any other operand."""
        if not isinstance(operand, Register):
            return ""
        declared = self.registers.get(operand.name, "")
        return declared.rpartition(".")[2] if operand.component else declared


def form_of(instruction: Instruction, registers: Mapping[str, str]) -> Form:
    """The instruction with its first operand as destinations and the rest as sources."""
    flat = [_flatten(operand) for operand in instruction.operands]
    return Form(
        opcode=instruction.opcode,
        flags=tuple(word for word in instruction.modifiers if word not in WIDTHS),
        types=tuple(word for word in instruction.modifiers if word in WIDTHS),
        destinations=flat[0] if flat else (),
        sources=tuple(operand for group in flat[1:] for operand in group),
        registers=registers,
    )


def _flatten(operand: Operand) -> tuple[Operand, ...]:
    if isinstance(operand, Vector):
        return operand.elements
    if isinstance(operand, Pair):
        return (operand.first, operand.second)
    return (operand,)


@dataclass(frozen=True)
class Rule:
    """How forms of an opcode with `arity` types, the first in `types`, the rest in `others`.

    `flags` are all modifiers that this family may carry; a form with any other one does not
    belong to it.
    """

    types: frozenset[str]
    flags: frozenset[str]
    build: Callable[[Form], Decoded]
    arity: tuple[int, ...] = (1,)
    others: frozenset[str] = frozenset(WIDTHS)

    def matches(self, form: Form) -> bool:
        """Whether the form belongs to this family."""
        return (
            form.type in self.types
            and len(form.types) in self.arity
            and self.others.issuperset(form.types[1:])
            and self.flags.issuperset(form.flags)
        )


def rule(
    types: str,
    flags: str,
    build: Callable[[Form], Decoded],
    *arity: int,
    others: str = " ".join(WIDTHS),
) -> Rule:
    """A `Rule` from blank-separated words; without `arity` it takes one type."""
    words = (frozenset(text.split()) for text in (types, flags, others))
    first, allowed, rest = words
    return Rule(first, allowed, build, arity or (1,), rest)
