"""cvt between integer and floating types, one value at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ptxsearch.emulator.formats import (
    FORMATS,
    canonical32,
    canonical64,
    flushed32,
    numbers,
)
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
    Unsupported,
    rule,
)
from ptxsearch.emulator.rounding import integral, narrowed32, odd, quantised, two_sum

Convert = Callable[[Array], Array]
FLOATS = ("f16", "bf16", "f32", "f64")
TO_INTEGER = ("rni", "rzi", "rmi", "rpi")
ONE = np.uint32(1)
TO_FLOAT = ("rn", "rna", "rz", "rm", "rp")


def _cvt(form: Form) -> Decoded:
    if len(form.sources) != 1:
        return Unsupported(f"cvt of types {form.types}")
    result, source = form.types
    if not _permitted(form, result, source):
        return Invalid(f"there is no cvt.{'.'.join((*form.flags, result, source))}")
    if source not in FLOATS and result not in FLOATS:
        convert: Convert | Invalid = _between_integers(form, result, source)
    elif source not in FLOATS:
        convert = _integer_to_float(form, result, source)
    elif result not in FLOATS and result != "tf32":
        convert = _float_to_integer(form, result, source)
    else:
        convert = _between_floats(form, result, source)
    if isinstance(convert, Invalid):
        return convert
    function = convert
    return Operation((source,), (result,), lambda a: (function(a),))


def _permitted(form: Form, result: str, source: str) -> bool:
    """Whether the types may carry the form's modifiers other than rounding."""
    flags = set(form.flags) - set(TO_INTEGER) - set(TO_FLOAT)
    if source == "tf32":
        return False
    allowed = set()
    if "f32" in (result, source) and result != "tf32":
        allowed.add("ftz")
    if "bf16" not in (result, source) and result != "tf32":
        allowed.add("sat")
    if source == "f32" and result in ("f16", "bf16", "tf32"):
        allowed |= {"relu", "satfinite"}
    return flags <= allowed and not ("sat" in flags and flags & {"relu", "satfinite"})


def _seen(type_: str) -> np.dtype[Any]:
    return SIGNED[WIDTHS[type_]] if type_.startswith("s") else STORAGE[WIDTHS[type_]]


def _between_integers(form: Form, result: str, source: str) -> Convert | Invalid:
    """Truncation or extension by the sign of the source; with .sat a clamp."""
    if set(form.flags) - {"sat"}:
        return Invalid(f"cvt.{result}.{source} takes no {form.flags}")
    stored, seen = STORAGE[WIDTHS[result]], _seen(source)
    if not form.has("sat"):
        wide = SIGNED[WIDTHS[result]] if source.startswith("s") else stored

        def extend(a: Array) -> Array:
            wider: Array = a.view(seen).astype(wide).view(stored)
            return wider

        return extend
    limits = np.iinfo(_seen(result))

    def clamp(a: Array) -> Array:
        values = a.view(seen)
        own = np.iinfo(seen)
        low, high = max(limits.min, own.min), min(limits.max, own.max)
        clamped: Array = np.clip(values, low, high).astype(_seen(result)).view(stored)
        return clamped

    return clamp


def _integer_to_float(form: Form, result: str, source: str) -> Convert | Invalid:
    mode = form.one_of(*TO_FLOAT)
    if not mode:
        return Invalid(f"cvt.{result}.{source} needs a rounding mode")
    seen, clamp = _seen(source), form.has("sat")

    def convert(a: Array) -> Array:
        values = a.view(seen)
        if result == "f64" and mode == "rn":
            x = values.astype(np.float64)
        elif result == "f32" and mode == "rn":
            x = values.astype(np.float32)
        else:
            x = _odd64(values)
            if result == "f64":
                x = _directed64(values, mode)
        return encoded(x, result, mode, clamp=clamp)

    return convert


def _parts(values: Array) -> tuple[Array, Array]:
    """An integer as two float64 that add up to it exactly."""
    if values.dtype.itemsize < 8:
        return values.astype(np.float64), np.zeros(1)
    half = values.dtype.type(32)
    high = (values >> half).astype(np.float64) * 2.0**32
    return high, (values & values.dtype.type(0xFFFFFFFF)).astype(np.float64)


def _odd64(values: Array) -> Array:
    """Integers as float64 rounded to odd."""
    return odd(*two_sum(*_parts(values)))


def _directed64(values: Array, mode: str) -> Array:
    """Integers as float64 rounded in a directed mode."""
    total, lost = two_sum(*_parts(values))
    if mode == "rz":
        away = np.where(total > 0, lost < 0, lost > 0)
    else:
        away = lost < 0 if mode == "rm" else lost > 0
    toward = {"rz": np.zeros(1), "rm": np.full(1, -np.inf), "rp": np.full(1, np.inf)}[mode]
    return np.where(away, np.nextafter(total, toward), total)


def _float_to_integer(form: Form, result: str, source: str) -> Convert | Invalid:
    """Rounded, then clamped to the range of the result; NaN is 0 or, at 64 bits, 1 << 63."""
    mode = form.one_of(*TO_INTEGER)
    if not mode:
        return Invalid(f"cvt.{result}.{source} needs .rni, .rzi, .rmi or .rpi")
    limits, stored, seen = np.iinfo(_seen(result)), STORAGE[WIDTHS[result]], _seen(result)
    wide = source == "f64" or WIDTHS[result] == 64
    nan = 1 << (WIDTHS[result] - 1) if wide else 0
    signed = -nan if result.startswith("s") else nan

    def convert(a: Array) -> Array:
        x = numbers(a, source)
        if form.has("ftz"):
            x = flushed32(x)
        x = integral(x, mode)
        if WIDTHS[result] < 64:
            return _clamped_integers(x.astype(np.float64), seen, signed)
        x = x.astype(np.float64) if x.dtype != np.float64 else x
        # 2**63 and 2**64 are floats, the largest integers below them are not.
        above = x >= float(limits.max)
        inside = np.where(above | (x <= float(limits.min)) | (x != x), 0.0, x)
        whole = inside.astype(seen)
        whole = np.where(above, seen.type(limits.max), whole)
        whole = np.where(x <= float(limits.min), seen.type(limits.min), whole)
        return np.where(x != x, stored.type(nan), whole.view(stored))

    return convert


def _clamped_integers(x: Array, seen: np.dtype[Any], nan: int) -> Array:
    """Whole float64 numbers as integers of at most 32 bits, NaN as given, as stored bits."""
    limits = np.iinfo(seen)
    clamped = np.clip(x, limits.min, limits.max)
    if np.isnan(np.maximum.reduce(clamped)):
        clamped = np.where(np.isnan(clamped), float(nan), clamped)
    return clamped.astype(seen).view(STORAGE[8 * seen.itemsize])


def _between_floats(form: Form, result: str, source: str) -> Convert | Invalid:
    whole, mode = form.one_of(*TO_INTEGER), form.one_of(*TO_FLOAT)
    narrows = result == "tf32" or FORMATS[result].precision < FORMATS[source].precision
    if narrows and not mode and (result, source) != ("bf16", "f16"):
        return Invalid(f"cvt.{result}.{source} needs a rounding mode")
    flush = form.has("ftz")
    clamp, relu, finite = form.has("sat"), form.has("relu"), form.has("satfinite")
    copies = result == source and not (whole or flush or clamp or relu or finite)
    if copies:
        return lambda a: a

    def convert(a: Array) -> Array:
        x = numbers(a, source)
        if flush and source == "f32":
            x = flushed32(x)
        if whole:
            x = integral(x, whole)
        if relu:
            x = rectified(x)
        if result == "f64":
            x = x.astype(np.float64)
        elif result == "f32":
            x = narrowed32(x, mode) if source == "f64" else x
            x = flushed32(x) if flush else x
        return encoded(x, result, mode or "rn", clamp=clamp, finite=finite)

    return convert


def rectified(x: Array) -> Array:
    """Values with negative ones made 0; NaN stays."""
    return np.where(x < 0, x.dtype.type(0), x)


def encoded(
    x: Array, type_: str, mode: str = "rn", *, clamp: bool = False, finite: bool = False
) -> Array:
    """Float32 or float64 values (exact or odd) as stored bits of a floating type."""
    if clamp:
        x = np.minimum(np.where(x > 0, x, x.dtype.type(0)), x.dtype.type(1))
    if type_ == "f64":
        return canonical64(x)
    if type_ == "f32":
        return canonical32(x if x.dtype == np.float32 else narrowed32(x, mode))
    if type_ == "f16" and mode == "rn" and not finite and x.dtype == np.float32:
        return _f16(x)
    if type_ == "f16" and mode == "rn" and not finite:
        half = x.astype(np.float16)
        bits = half.view(np.uint16)
        return np.where(np.isnan(half), np.uint16(0x7FFF), bits)
    if type_ == "bf16" and mode == "rn" and not finite and x.dtype == np.float32:
        return _bf16(x)
    return quantised(x.astype(np.float64), FORMATS[type_], mode, finite=finite)


def _f16(x: Array) -> Array:
    """Float32 values as f16, ties to even."""
    bits = x.view(np.uint32)
    size = bits & np.uint32(0x7FFFFFFF)
    # Rebiased exponents in place, the rounding carry may run into them.
    half = (size + np.uint32(0xC8000FFF) + ((size >> np.uint32(13)) & ONE)) >> np.uint32(13)
    small = size < np.uint32(0x38800000)
    if small.any():
        # Below the normal range the unit is 2**-24, that of float32 values around one half.
        shifted = (size.view(np.float32) + np.float32(0.5)).view(np.uint32)
        half = np.where(small, shifted - np.uint32(0x3F000000), half)
    large = size >= np.uint32(0x47800000)
    if large.any():
        beyond = np.where(size > np.uint32(0x7F800000), np.uint32(0x7FFF), np.uint32(0x7C00))
        half = np.where(large, beyond, half)
    sign = (bits >> np.uint32(16)) & np.uint32(0x8000)
    sign = np.where(size > np.uint32(0x7F800000), np.uint32(0), sign) if large.any() else sign
    return (half | sign).astype(np.uint16)


def _bf16(x: Array) -> Array:
    """Float32 values as bf16, ties to even."""
    bits = x.view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    half = (rounded >> np.uint32(16)).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FFF), half)


INTEGERS = "u8 u16 u32 u64 s8 s16 s32 s64"
FLAGS = "rni rzi rmi rpi rn rna rz rm rp ftz sat relu satfinite"
RULES: Mapping[str, tuple[Rule, ...]] = {
    "cvt": (
        rule(
            f"{INTEGERS} f16 bf16 f32 f64 tf32",
            FLAGS,
            _cvt,
            2,
            others=f"{INTEGERS} f16 bf16 f32 f64",
        ),
    )
}
