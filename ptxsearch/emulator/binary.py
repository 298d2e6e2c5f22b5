"""Bit operations on whole words: logic, shifts, reversal and counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ptxsearch.emulator.operation import (
    SIGNED,
    STORAGE,
    WIDTHS,
    Array,
    Decoded,
    Form,
    Invalid,
    Operation,
    Rule,
    rule,
)
from ptxsearch.ptx.syntax import Integer


def _same(function: Callable[..., Array], count: int) -> Callable[[Form], Decoded]:
    """A builder for `count` sources and a result of one type."""

    def build(form: Form) -> Decoded:
        def run(*arrays: Array) -> tuple[Array, ...]:
            return (function(*arrays),)

        return Operation((form.type,) * count, (form.type,), run)

    return build


def _cnot(a: Array) -> Array:
    return np.equal(a, 0).astype(a.dtype)


def shift_left(a: Array, amount: Array) -> Array:
    """`a << amount` with 0 for amounts of the width or more."""
    if a.dtype.itemsize < 4:
        return (a.astype(np.uint32) << amount).astype(a.dtype)
    shifted: Array = np.left_shift(a, amount)
    return shifted


def shift_right(a: Array, amount: Array) -> Array:
    """`a >> amount`, filled with 0 or, for a signed array, with the sign."""
    if a.dtype.kind == "u":
        return np.right_shift(a, amount).astype(a.dtype, copy=False)
    last = np.uint32(8 * a.dtype.itemsize - 1)
    shifted: Array = np.right_shift(a, np.minimum(amount, last).astype(a.dtype))
    return shifted


def _shl(form: Form) -> Decoded:
    def run(a: Array, amount: Array) -> tuple[Array, ...]:
        return (shift_left(a, amount),)

    return Operation((form.type, "u32"), (form.type,), run)


def _shr(form: Form) -> Decoded:
    stored = STORAGE[WIDTHS[form.type]]
    seen = SIGNED[WIDTHS[form.type]] if form.type.startswith("s") else stored

    def run(a: Array, amount: Array) -> tuple[Array, ...]:
        return (shift_right(a.view(seen), amount).view(stored),)

    return Operation((form.type, "u32"), (form.type,), run)


def _shf(form: Form) -> Decoded:
    """The funnel shift of {b, a}: upper word for l, lower word for r."""
    wrap, left = form.has("wrap"), form.has("l")
    if wrap == form.has("clamp") or left == form.has("r"):
        return Invalid("shf needs one of .l .r and one of .clamp .wrap")

    def run(a: Array, b: Array, c: Array) -> tuple[Array, ...]:
        amount = c & np.uint32(31) if wrap else np.minimum(c, np.uint32(32))
        word = (b.astype(np.uint64) << np.uint64(32)) | a
        if left:
            return (((word << amount.astype(np.uint64)) >> np.uint64(32)).astype(np.uint32),)
        return ((word >> amount.astype(np.uint64)).astype(np.uint32),)

    return Operation(("b32", "b32", "u32"), ("b32",), run)


TWO: tuple[Callable[[Array, Array], Array], ...] = (
    lambda a, b: (a ^ a) & b,
    lambda a, b: ~(a | b),
    lambda a, b: ~a & b,
    lambda a, b: ~a,
    lambda a, b: a & ~b,
    lambda a, b: ~b,
    lambda a, b: a ^ b,
    lambda a, b: ~(a & b),
    lambda a, b: a & b,
    lambda a, b: ~(a ^ b),
    lambda a, b: b,
    lambda a, b: ~a | b,
    lambda a, b: a,
    lambda a, b: a | ~b,
    lambda a, b: a | b,
    lambda a, b: ~(a ^ a) | b,
)
"""Every function of two bits by its truth table: bit 2a+b is the result."""


def _lop3(form: Form) -> Decoded:
    """Any function of three bits; the fourth source is its truth table.

    With .or or .and the result also meets a predicate: d|p, a, b, c, table, q. The table is split
    by its third bit into a function of the first two and what changes where that bit is set.
    """
    table = form.sources[3] if len(form.sources) > 3 else None
    if not isinstance(table, Integer) or not 0 <= table.value <= 255:
        return Invalid("lop3 needs an immediate truth table from 0 to 255 as its fourth source")
    without = sum((table.value >> (2 * index) & 1) << index for index in range(4))
    change = without ^ sum((table.value >> (2 * index + 1) & 1) << index for index in range(4))

    def combined(a: Array, b: Array, c: Array) -> Array:
        base: Array = TWO[without](a, b)
        return base ^ (c & TWO[change](a, b)) if change else base

    if not form.flags:
        sources = ("b32", "b32", "b32", "b32")
        return Operation(sources, ("b32",), lambda a, b, c, _: (combined(a, b, c),))
    join = np.logical_or if form.has("or") else np.logical_and

    def run(a: Array, b: Array, c: Array, _: Array, q: Array) -> tuple[Array, ...]:
        word = combined(a, b, c)
        return word, join(word != 0, q)

    return Operation(("b32", "b32", "b32", "b32", "pred"), ("b32", "pred"), run)


def reverse(a: Array) -> Array:
    """The bits of each element in opposite order."""
    width, kind = 8 * a.dtype.itemsize, a.dtype.type
    result = a.byteswap()
    for step, mask in ((4, 0x0F), (2, 0x33), (1, 0x55)):
        pattern = kind(int.from_bytes(bytes([mask]) * (width // 8), "little"))
        result = ((result >> kind(step)) & pattern) | ((result & pattern) << kind(step))
    return result


def highest(a: Array) -> Array:
    """The position of the highest set bit as int64, -1 where there is none."""
    if a.dtype.itemsize == 8:
        upper = highest((a >> np.uint64(32)).astype(np.uint32))
        return np.where(upper >= 0, upper + 32, highest(a.astype(np.uint32)))
    return np.frexp(a.astype(np.float64))[1].astype(np.int64) - 1


def _count(function: Callable[[Array], Array]) -> Callable[[Form], Decoded]:
    def build(form: Form) -> Decoded:
        return Operation((form.type,), ("u32",), lambda a: (function(a).astype(np.uint32),))

    return build


def _clz(a: Array) -> Array:
    return 8 * a.dtype.itemsize - 1 - highest(a)


def _bfind(form: Form) -> Decoded:
    """The highest bit that differs from the sign; 0xffffffff where there is none."""
    width = WIDTHS[form.type]
    signed, shift = form.type.startswith("s"), form.has("shiftamt")

    def run(a: Array) -> tuple[Array, ...]:
        bits = np.where(a.view(SIGNED[width]) < 0, ~a, a) if signed else a
        found = highest(bits)
        if shift:
            found = np.where(found >= 0, width - 1 - found, -1)
        return (found.astype(np.uint32),)

    return Operation((form.type,), ("u32",), run)


LOGIC = "pred b16 b32 b64"
WORDS = "b16 b32 b64"

RULES: Mapping[str, tuple[Rule, ...]] = {
    "and": (rule(LOGIC, "", _same(np.bitwise_and, 2)),),
    "or": (rule(LOGIC, "", _same(np.bitwise_or, 2)),),
    "xor": (rule(LOGIC, "", _same(np.bitwise_xor, 2)),),
    "not": (rule(LOGIC, "", _same(np.invert, 1)),),
    "cnot": (rule(WORDS, "", _same(_cnot, 1)),),
    "lop3": (rule("b32", "or and", _lop3),),
    "shl": (rule(WORDS, "", _shl),),
    "shr": (rule(f"{WORDS} u16 u32 u64 s16 s32 s64", "", _shr),),
    "shf": (rule("b32", "l r clamp wrap", _shf),),
    "brev": (rule("b32 b64", "", _same(reverse, 1)),),
    "popc": (rule("b32 b64", "", _count(np.bitwise_count)),),
    "clz": (rule("b32 b64", "", _count(_clz)),),
    "bfind": (rule("u32 u64 s32 s64", "shiftamt", _bfind),),
}
