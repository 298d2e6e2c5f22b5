"""cvt between words that hold several narrow floats, and cvt.pack of integers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ptxsearch.emulator.conversion import encoded, rectified
from ptxsearch.emulator.formats import FORMATS, Format, numbers
from ptxsearch.emulator.operation import Array, Decoded, Form, Invalid, Operation, Rule, rule
from ptxsearch.emulator.packed import joined, lanes
from ptxsearch.emulator.rounding import quantised

NARROW = ("e4m3", "e5m2", "e2m3", "e3m2")


def _decoded(format_: Format) -> Array:
    """The value of every code of an 8-bit container as float32."""
    codes = np.arange(256, dtype=np.int64)
    size = codes & (format_.sign - 1)
    fraction_bits = format_.precision - 1
    exponent, fraction = size >> fraction_bits, size & ((1 << fraction_bits) - 1)
    units = np.where(exponent > 0, fraction + (1 << fraction_bits), fraction)
    power = np.maximum(exponent, 1) - format_.bias - fraction_bits
    values = np.ldexp(units.astype(np.float32), power)
    if format_.infinity is not None:
        values = np.where(size == format_.infinity, np.inf, values)
        values = np.where(size > format_.infinity, np.nan, values)
    elif format_.nan is not None:
        values = np.where(size == format_.nan, np.nan, values)
    signed: Array = np.where(codes & format_.sign, -values, values).astype(np.float32)
    return signed


TABLES: Mapping[str, Array] = {name: _decoded(FORMATS[name]) for name in (*NARROW, "e2m1")}


def _two(form: Form) -> Decoded:
    """Two f32 into one word, the first source in its upper half."""
    type_, mode = form.type.removesuffix("x2"), form.one_of("rn", "rz", "rna", "rp")
    if not mode:
        return Invalid(f"cvt.{form.type}.f32 needs a rounding mode")
    narrow = _narrowing(form, type_, mode)

    def run(a: Array, b: Array) -> tuple[Array, ...]:
        high, low = narrow(a.view(np.float32)), narrow(b.view(np.float32))
        return (_word(high, low, type_),)

    return Operation(("f32", "f32"), (form.type,), run)


def _word(high: Array, low: Array, type_: str) -> Array:
    if type_ in ("f16", "bf16"):
        return (high.astype(np.uint32) << np.uint32(16)) | low
    if type_ == "e2m1":
        return (high << np.uint8(4)) | low
    return (high.astype(np.uint16) << np.uint16(8)) | low


def _narrowing(form: Form, type_: str, mode: str) -> Callable[[Array], Array]:
    relu, finite = form.has("relu"), form.has("satfinite")

    def narrow(x: Array) -> Array:
        if relu:
            x = rectified(x)
        if type_ in ("f16", "bf16"):
            return encoded(x, type_, mode, finite=finite)
        if type_ == "ue8m0":
            return _powers(x, mode, finite)
        return quantised(x.astype(np.float64), FORMATS[type_], mode, finite=True)

    return narrow


def _powers(x: Array, mode: str, finite: bool) -> Array:
    """Sizes as biased exponents, rounded toward zero or up; NaN and, unless clamped, overflow 255.

    Code k means 2**(k - 127); what lies below the least power becomes it.
    """
    size = np.abs(x.astype(np.float64))
    fraction, exponent = np.frexp(size)
    power = exponent.astype(np.int64) - 1
    if mode == "rp":
        power = power + (fraction > 0.5)
    code = np.where(size == 0, 0, power + 127)
    code = np.maximum(code, 0)
    over = (code > 254) | np.isinf(size)
    code = np.where(over, 254 if finite else 255, code)
    return np.where(np.isnan(size), 255, code).astype(np.uint8)


def _from_pair(form: Form) -> Decoded:
    """A word of two f16 or bf16 into two 8-bit floats or biased exponents."""
    result, source = (type_.removesuffix("x2") for type_ in form.types)
    mode = form.one_of("rn", "rz", "rp")
    if not mode:
        return Invalid(f"cvt.{form.types[0]}.{form.types[1]} needs a rounding mode")
    narrow = _narrowing(form, result, mode)

    def run(a: Array) -> tuple[Array, ...]:
        values = numbers(lanes(a), source)
        return (joined(narrow(values), np.uint16),)

    return Operation((form.types[1],), (form.types[0],), run)


def _to_pair(form: Form) -> Decoded:
    """A word of two narrow floats into two f16, exactly."""
    source, relu = form.types[1].removesuffix("x2"), form.has("relu")
    if not form.has("rn"):
        return Invalid(f"cvt.f16x2.{form.types[1]} needs .rn")
    table = TABLES[source]

    def run(a: Array) -> tuple[Array, ...]:
        if source == "e2m1":
            codes = np.stack([a & np.uint8(15), a >> np.uint8(4)], axis=-1)
        else:
            codes = lanes(a, np.uint8)
        values = table[codes]
        half = encoded(rectified(values) if relu else values, "f16")
        return (joined(half),)

    return Operation((form.types[1],), (form.types[0],), run)


def _from_powers(form: Form) -> Decoded:
    """A word of two biased exponents into two bf16; 0 is subnormal there and 255 NaN."""
    table = np.arange(256, dtype=np.uint16) << np.uint16(7)
    table[0], table[255] = 0x0040, FORMATS["bf16"].nan or 0

    def run(a: Array) -> tuple[Array, ...]:
        return (joined(table[lanes(a, np.uint8)]),)

    return Operation((form.types[1],), (form.types[0],), run)


def _convert(form: Form) -> Decoded:
    """The forms of cvt that a packed type names, told apart by both types."""
    result, source = form.types
    if source == "f32":
        return _two(form)
    if result == "bf16x2" and source == "ue8m0x2":
        return _from_powers(form)
    if result == "f16x2" and source.removesuffix("x2") in TABLES:
        return _to_pair(form)
    if source == "f16x2" and result.removesuffix("x2") in NARROW[:2]:
        return _from_pair(form)
    if source == "bf16x2" and result == "ue8m0x2":
        return _from_pair(form)
    return Invalid(f"there is no cvt.{result}.{source}")


BITS: Mapping[str, int] = {"16": 16, "8": 8, "4": 4, "2": 2}


def _pack(form: Form) -> Decoded:
    """cvt.pack: two s32 clamped to a narrow type below the low bits of a third source."""
    words = [word for word in (*form.flags, *form.types[:1]) if word not in ("pack", "sat")]
    if not words or not form.has("sat"):
        return Invalid("cvt.pack needs .sat and a type to convert to")
    narrow = words[0]
    bits = BITS[narrow[1:]]
    low = -(1 << (bits - 1)) if narrow[0] == "s" else 0
    high = low + (1 << bits) - 1

    def part(x: Array) -> Array:
        clamped: Array = np.clip(x.view(np.int32), low, high).astype(np.int64)
        return (clamped & ((1 << bits) - 1)).astype(np.uint32)

    def two(a: Array, b: Array) -> tuple[Array, ...]:
        return ((part(a) << np.uint32(bits)) | part(b),)

    def three(a: Array, b: Array, c: Array) -> tuple[Array, ...]:
        return ((c << np.uint32(2 * bits)) | two(a, b)[0],)

    if bits == 16:
        return Operation(("s32", "s32"), ("b32",), two)
    return Operation(("s32", "s32", "b32"), ("b32",), three)


NARROW_TYPES = " ".join(f"{name}x2" for name in (*NARROW, "e2m1", "ue8m0"))
RULES: Mapping[str, tuple[Rule, ...]] = {
    "cvt": (
        rule(
            f"f16x2 bf16x2 {NARROW_TYPES}",
            "rn rz rna rp relu satfinite",
            _convert,
            2,
            others=f"f32 f16x2 bf16x2 {NARROW_TYPES}",
        ),
        rule("u8 s8 u16 s16 s32", "pack sat u2 s2 u4 s4", _pack, 2, 3, others="s32 b32"),
    )
}
