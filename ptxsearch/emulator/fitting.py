"""Fits an operation to the declared registers and the literals of its instruction.

ptxas wants registers of the instruction's own width and kind; only `cvt` may read wider ones,
which are cut, and write wider ones, which are extended by the sign of the result's type.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ptxsearch.emulator.operation import (
    SIGNED,
    STORAGE,
    WIDTHS,
    Array,
    Form,
    Invalid,
    Operation,
    Run,
)
from ptxsearch.ptx.syntax import Float, Integer, Operand

Cast = tuple[np.dtype[Any], ...]


def fit(operation: Operation, form: Form) -> Operation | Invalid:
    """The operation adapted to the form's operands, or what is wrong with one of them."""
    pairs = (
        ("source", operation.sources, form.sources),
        ("destination", operation.destinations, form.destinations),
    )
    for role, types, operands in pairs:
        if len(types) != len(operands):
            return Invalid(
                f"{form.opcode} takes {len(types)} {role}s here, got {len(operands)}; "
                f"their types are {', '.join(types)}"
            )
        for type_, operand in zip(types, operands, strict=True):
            if wrong := _misfit(form, type_, operand):
                return Invalid(f"{form.opcode} has {wrong} as a {role} of type {type_}")
    cuts = [_cut(form, *pair) for pair in zip(operation.sources, form.sources, strict=True)]
    grown = [
        _grown(form, *pair) for pair in zip(operation.destinations, form.destinations, strict=True)
    ]
    if not any(cuts) and not any(grown):
        return operation
    wide = zip(operation.destinations, form.destinations, grown, strict=True)
    destinations = tuple(
        form.register_type(operand) if growth else type_ for type_, operand, growth in wide
    )
    return replace(operation, destinations=destinations, run=_adapted(operation.run, cuts, grown))


def _misfit(form: Form, type_: str, operand: Operand) -> str:
    """The operand in words where it cannot hold the type, else nothing."""
    if isinstance(operand, Integer):
        return f"the integer {operand.value}" if _kind(type_) in ("f", "bf") else ""
    if isinstance(operand, Float):
        floats = {32: ("f32", "f64", "b32"), 64: ("f32", "f64", "b64")}
        return "" if type_ in floats[operand.width] else "a floating literal"
    declared = form.register_type(operand)
    if declared not in WIDTHS:
        return ""
    relaxed = form.opcode == "cvt" and WIDTHS[declared] > WIDTHS[type_] > 1
    if _alike(declared, type_, relaxed) and (relaxed or WIDTHS[declared] == WIDTHS[type_]):
        return ""
    return f"a register of type {declared}"


def _kind(type_: str) -> str:
    """Of what a type is: b (bits), i (integers), f, bf (needs untyped registers) or pred."""
    if type_ == "pred" or type_ in ("b8", "b16", "b32", "b64", "b128"):
        return type_.rstrip("0123456789")
    if type_[0] in "us" and type_ != "ue8m0x2":
        return "i"
    return "f" if type_[0] == "f" else "bf"


def _alike(declared: str, type_: str, relaxed: bool) -> bool:
    """Whether a register of the declared type may hold the type, widths aside."""
    have, need = _kind(declared), _kind(type_)
    if "pred" in (have, need):
        return have == need
    if have == "f" and need == "f":
        return declared == type_ and not relaxed
    return have == "b" or need in ("b", have) or (declared == "f16x2" and need == "i")


def _cut(form: Form, type_: str, operand: Operand) -> Cast:
    """The cast that brings a wider register to the width of the type."""
    have, need = WIDTHS.get(form.register_type(operand), 0), WIDTHS[type_]
    return (STORAGE[need],) if have > need else ()


def _grown(form: Form, type_: str, operand: Operand) -> Cast:
    """The casts that bring a result of the type to the width of a wider register."""
    have, need = WIDTHS.get(form.register_type(operand), 0), WIDTHS[type_]
    if have <= need:
        return ()
    if type_.startswith("s"):
        return (SIGNED[need], SIGNED[have], STORAGE[have])
    return (STORAGE[have],)


def _adapted(run: Run, cuts: list[Cast], grown: list[Cast]) -> Run:
    """`run` with sources cut and results extended."""

    def adapted(*arrays: Array) -> tuple[Array, ...]:
        given = zip(arrays, cuts, strict=True)
        results = run(*[array.astype(cast[0]) if cast else array for array, cast in given])
        return tuple(
            _extended(result, casts) if casts else result
            for result, casts in zip(results, grown, strict=True)
        )

    return adapted


def _extended(result: Array, casts: Cast) -> Array:
    if len(casts) == 1:
        return result.astype(casts[0])
    wide: Array = result.view(casts[0]).astype(casts[1]).view(casts[2])
    return wide
