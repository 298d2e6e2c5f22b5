"""Integer arithmetic: add, sub, mul, mad, div, rem, sad, min, max, abs, neg, dot products."""

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

Unary = Callable[[Array], Array]
Binary = Callable[[Array, Array], Array]


def _view(type_: str) -> np.dtype[np.generic]:
    """The numpy type in which values of a PTX integer type compare and extend."""
    width = WIDTHS[type_]
    return SIGNED[width] if type_.startswith("s") else STORAGE[width]


def _binary(form: Form, function: Binary) -> Operation:
    type_ = form.type

    def run(a: Array, b: Array) -> tuple[Array, ...]:
        return (function(a, b),)

    return Operation((type_, type_), (type_,), run)


def _typed(form: Form, function: Binary) -> Operation:
    """An operation of two sources whose result depends on the sign of the type."""
    seen, stored = _view(form.type), STORAGE[WIDTHS[form.type]]

    def run(a: Array, b: Array) -> tuple[Array, ...]:
        return (function(a.view(seen), b.view(seen)).view(stored),)

    return Operation((form.type, form.type), (form.type,), run)


def saturate(wide: Array, width: int = 32) -> Array:
    """A signed sum clamped to the range of a narrower signed type, as stored bits."""
    limits = np.iinfo(SIGNED[width])
    clamped = np.clip(wide, limits.min, limits.max)
    return clamped.astype(SIGNED[width]).view(STORAGE[width])


def _saturating(function: Binary) -> Binary:
    def run(a: Array, b: Array) -> Array:
        wide = function(a.view(np.int32).astype(np.int64), b.view(np.int32).astype(np.int64))
        return saturate(wide)

    return run


def _add(form: Form) -> Decoded:
    return _binary(form, _saturating(np.add) if form.has("sat") else np.add)


def _sub(form: Form) -> Decoded:
    return _binary(form, _saturating(np.subtract) if form.has("sat") else np.subtract)


def multiply_high(a: Array, b: Array, type_: str) -> Array:
    """The upper half of the product of two integers of a PTX type."""
    width = WIDTHS[type_]
    if width < 64:
        seen = _view(type_)
        wide = SIGNED[2 * width] if type_.startswith("s") else STORAGE[2 * width]
        product = np.multiply(a.view(seen), b.view(seen), dtype=wide)
        upper: Array = product.view(STORAGE[2 * width]) >> STORAGE[2 * width].type(width)
        return upper.astype(STORAGE[width])
    high: Array = _high64(a, b)
    if type_.startswith("s"):
        high = high - np.where(a.view(np.int64) < 0, b, np.uint64(0))
        high = high - np.where(b.view(np.int64) < 0, a, np.uint64(0))
    return high


def _high64(a: Array, b: Array) -> Array:
    """The upper 64 bits of an unsigned product, by 32-bit halves."""
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    a_low, a_high, b_low, b_high = a & low, a >> half, b & low, b >> half
    cross = a_high * b_low + ((a_low * b_low) >> half)
    middle = a_low * b_high + (cross & low)
    high: Array = a_high * b_high + (cross >> half) + (middle >> half)
    return high


def multiply_wide(a: Array, b: Array, type_: str) -> Array:
    """The full product of two integers of a PTX type in twice the width."""
    width = WIDTHS[type_]
    seen, stored = _view(type_), STORAGE[2 * width]
    wide = SIGNED[2 * width] if type_.startswith("s") else stored
    product: Array = a.view(seen).astype(wide) * b.view(seen).astype(wide)
    return product.view(stored)


def _double(type_: str) -> str:
    return f"{type_[0]}{2 * WIDTHS[type_]}"


def _product(form: Form) -> tuple[Binary, str]:
    """The product that mul or mad form of its first two sources, and its type."""
    type_ = form.type
    if form.has("wide"):
        return lambda a, b: multiply_wide(a, b, type_), _double(type_)
    if form.has("hi"):
        return lambda a, b: multiply_high(a, b, type_), type_
    return np.multiply, type_


def _mul(form: Form) -> Decoded:
    if len(form.flags) != 1:
        return Invalid(f"mul.{form.type} needs one of .hi .lo .wide")
    function, result = _product(form)
    return Operation((form.type, form.type), (result,), lambda a, b: (function(a, b),))


def _mad(form: Form) -> Decoded:
    if not form.one_of("hi", "lo", "wide") or form.flags in (("hi", "lo"), ("lo", "hi")):
        return Invalid(f"mad.{form.type} needs one of .hi .lo .wide")
    function, result = _product(form)
    return _multiply_add(form, function, result)


def _multiply_add(form: Form, function: Binary, result: str) -> Operation:
    def run(a: Array, b: Array, c: Array) -> tuple[Array, ...]:
        return (function(a, b) + c,)

    def saturated(a: Array, b: Array, c: Array) -> tuple[Array, ...]:
        high = function(a, b).view(np.int32).astype(np.int64)
        return (saturate(high + c.view(np.int32)),)

    sources = (form.type, form.type, result)
    return Operation(sources, (result,), saturated if form.has("sat") else run)


def _product24(form: Form) -> Binary:
    """The product of the low 24 bits: its bits 47..16 for hi, 31..0 for lo."""
    signed = form.type == "s32"
    shift = 16 if form.has("hi") else 0

    def extended(a: Array) -> Array:
        if signed:
            return ((a << np.uint32(8)).view(np.int32) >> np.int32(8)).astype(np.int64)
        return (a & np.uint32(0xFFFFFF)).astype(np.int64)

    return lambda a, b: ((extended(a) * extended(b)) >> shift).astype(np.uint32)


def _mul24(form: Form) -> Decoded:
    return _binary(form, _product24(form))


def _mad24(form: Form) -> Decoded:
    return _multiply_add(form, _product24(form), form.type)


def _div(form: Form) -> Decoded:
    """Division that rounds toward zero; by zero it gives all ones."""
    return _typed(form, _quotient)


def _quotient(a: Array, b: Array) -> Array:
    zero = b == 0
    if a.dtype.itemsize < 8:
        # Exact: an inexact quotient of 32-bit integers is never that near to a whole number.
        real = np.trunc(a.astype(np.float64) / b)
        if not zero.any():
            # The least value over -1 needs the 64 bits before it wraps.
            return real.astype(np.int64).astype(a.dtype)
    divisor = np.where(zero, b.dtype.type(1), b)
    quotient = a // divisor if b.dtype.kind == "u" else _truncated(a, divisor)
    return np.where(zero, ~b, quotient)


def _truncated(a: Array, b: Array) -> Array:
    """`a / b` toward zero; the least value over -1 wraps to itself."""
    unsigned = STORAGE[8 * a.dtype.itemsize]
    size: Array = np.abs(a).view(unsigned) // np.abs(b).view(unsigned)
    size = size.view(a.dtype)
    return np.where((a < 0) != (b < 0), -size, size)


def _rem(form: Form) -> Decoded:
    """The remainder with the sign of the dividend; by zero it gives all ones."""

    def remainder(a: Array, b: Array) -> Array:
        return np.where(b == 0, ~b, a - _quotient(a, b) * b)

    return _typed(form, remainder)


def _sad(form: Form) -> Decoded:
    seen, stored = _view(form.type), STORAGE[WIDTHS[form.type]]

    def run(a: Array, b: Array, c: Array) -> tuple[Array, ...]:
        x, y = a.view(seen), b.view(seen)
        return (c + (np.maximum(x, y).view(stored) - np.minimum(x, y).view(stored)),)

    return Operation((form.type,) * 3, (form.type,), run)


def _extreme(function: Binary) -> Callable[[Form], Decoded]:
    def build(form: Form) -> Decoded:
        operation = _typed(form, function)
        if not form.has("relu"):
            return operation
        return _typed(form, lambda a, b: np.maximum(function(a, b), 0))

    return build


def _unary(function: Unary) -> Callable[[Form], Decoded]:
    def build(form: Form) -> Decoded:
        stored = STORAGE[WIDTHS[form.type]]
        seen = SIGNED[WIDTHS[form.type]]

        def run(a: Array) -> tuple[Array, ...]:
            return (function(a.view(seen)).view(stored),)

        return Operation((form.type,), (form.type,), run)

    return build


def _lanes(a: Array, type_: str, bits: int) -> list[Array]:
    """The `bits`-wide fields of a 32-bit word from the lowest, as int32."""
    word = a.view(np.int32)
    left = np.int32(32 - bits)
    if type_ == "s32":
        return [(word << np.int32(left - at)) >> left for at in range(0, 32, bits)]
    mask = np.int32((1 << bits) - 1)
    return [(word >> np.int32(at)) & mask for at in range(0, 32, bits)]


def _dp4a(form: Form) -> Decoded:
    return _dot(form, (form.types[0], 8), (form.types[1], 8), 0)


def _dp2a(form: Form) -> Decoded:
    return _dot(form, (form.types[0], 16), (form.types[1], 8), 2 if form.has("hi") else 0)


def _dot(form: Form, left: tuple[str, int], right: tuple[str, int], first: int) -> Operation:
    """The sum of products of fields, those of the right source counted from `first`."""
    count = 32 // left[1]

    def run(a: Array, b: Array, c: Array) -> tuple[Array, ...]:
        x, y = _lanes(a, *left), _lanes(b, *right)[first : first + count]
        total = c.view(np.int32)
        for p, q in zip(x, y, strict=True):
            total = total + p * q
        return (total.view(np.uint32),)

    result = "s32" if "s32" in form.types[:2] else "u32"
    return Operation((form.types[0], form.types[1], result), (result,), run)


INTEGERS = "u16 u32 u64 s16 s32 s64"
SIGNED_TYPES = "s16 s32 s64"

RULES: Mapping[str, tuple[Rule, ...]] = {
    "add": (rule("s32", "sat", _add), rule(INTEGERS, "", _add)),
    "sub": (rule("s32", "sat", _sub), rule(INTEGERS, "", _sub)),
    "mul": (rule("u16 s16 u32 s32", "wide", _mul), rule(INTEGERS, "hi lo", _mul)),
    "mad": (
        rule("s32", "hi sat", _mad),
        rule("u16 s16 u32 s32", "wide", _mad),
        rule(INTEGERS, "hi lo", _mad),
    ),
    "mul24": (rule("u32 s32", "hi lo", _mul24),),
    "mad24": (rule("s32", "hi sat", _mad24), rule("u32 s32", "hi lo", _mad24)),
    "div": (rule(INTEGERS, "", _div),),
    "rem": (rule(INTEGERS, "", _rem),),
    "sad": (rule(INTEGERS, "", _sad),),
    "min": (rule("s32", "relu", _extreme(np.minimum)), rule(INTEGERS, "", _extreme(np.minimum))),
    "max": (rule("s32", "relu", _extreme(np.maximum)), rule(INTEGERS, "", _extreme(np.maximum))),
    "abs": (rule(SIGNED_TYPES, "", _unary(np.abs)),),
    "neg": (rule(SIGNED_TYPES, "", _unary(np.negative)),),
    "dp4a": (rule("u32 s32", "", _dp4a, 2, others="u32 s32"),),
    "dp2a": (rule("u32 s32", "hi lo", _dp2a, 2, others="u32 s32"),),
}
