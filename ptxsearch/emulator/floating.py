"""Floating add, sub, mul, fma, min, max, abs, neg and copysign of f32 and f64."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ptxsearch.emulator.formats import canonical32, canonical64, flushed32
from ptxsearch.emulator.fused import fma32, fma32_directed, fma64, signed_zero
from ptxsearch.emulator.operation import (
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
from ptxsearch.emulator.rounding import narrowed32, odd_sum, toward, two_sum

Function = Callable[..., Array]
MODES = ("rn", "rz", "rm", "rp")
COUNTED = {"add": "add", "sub": "add", "mul": "mul", "fma": "fma", "mad": "fma"}


def saturated(x: Array) -> Array:
    """Values clamped to [0, 1], NaN becoming +0."""
    zero = x.dtype.type(0)
    clamped: Array = np.minimum(np.where(x > 0, x, zero), x.dtype.type(1))
    return clamped


def single(form: Form, function: Function, count: int) -> Operation:
    """An f32 operation of `count` sources with the form's .ftz and .sat around `function`."""
    flush, clamp = form.has("ftz"), form.has("sat")

    def plain(*sources: Array) -> tuple[Array, ...]:
        return (canonical32(function(*[bits.view(np.float32) for bits in sources])),)

    def dressed(*sources: Array) -> tuple[Array, ...]:
        values = [bits.view(np.float32) for bits in sources]
        if flush:
            values = [flushed32(value) for value in values]
        result = function(*values)
        if flush:
            result = flushed32(result)
        return (canonical32(saturated(result) if clamp else result),)

    run = dressed if flush or clamp else plain
    return Operation(("f32",) * count, ("f32",), run, flops=counts(form, "fp32"))


def double(form: Form, function: Function, count: int) -> Operation:
    """An f64 operation of `count` sources around `function`."""

    def run(*sources: Array) -> tuple[Array, ...]:
        values = [bits.view(np.float64) for bits in sources]
        return (canonical64(function(*values), *values),)

    return Operation(("f64",) * count, ("f64",), run, flops=counts(form, "fp64"))


def counts(form: Form, precision: str, lanes: int = 1) -> Mapping[str, int]:
    """What the instruction adds to the counts of floating operations."""
    kind = COUNTED.get(form.opcode)
    return {f"{precision}_{kind}": lanes} if kind else {}


def _add32(mode: str) -> Function:
    if mode == "rn":
        return np.add

    def function(a: Array, b: Array) -> Array:
        x, y = a.astype(np.float64), b.astype(np.float64)
        return signed_zero(narrowed32(odd_sum(x, y), mode), x, y, mode)

    return function


def _sub32(mode: str) -> Function:
    if mode == "rn":
        return np.subtract
    add = _add32(mode)
    return lambda a, b: add(a, -b)


def _mul32(mode: str) -> Function:
    if mode == "rn":
        return np.multiply
    # The product of two float32 is exact in float64.
    return lambda a, b: narrowed32(a.astype(np.float64) * b, mode)


def _fma32(mode: str) -> Function:
    if mode == "rn":
        return lambda a, b, c: fma32(a, b, c).view(np.float32)
    return lambda a, b, c: fma32_directed(a, b, c, mode)


def _add64(mode: str) -> Function:
    if mode == "rn":
        return np.add

    def function(a: Array, b: Array) -> Array:
        nearest, lost = two_sum(a, b)
        # At the very end of the range the error-free sum may overflow on its way.
        lost = np.where(np.isnan(lost), two_sum(a * 0.5, b * 0.5)[1], lost)
        over = (lost < 0) | (np.isposinf(nearest) & np.isfinite(a) & np.isfinite(b))
        under = (lost > 0) | (np.isneginf(nearest) & np.isfinite(a) & np.isfinite(b))
        return signed_zero(toward(nearest, over, under, mode), a, b, mode)

    return function


def _sub64(mode: str) -> Function:
    if mode == "rn":
        return np.subtract
    add = _add64(mode)
    return lambda a, b: add(a, -b)


def _mul64(mode: str) -> Function:
    if mode == "rn":
        return np.multiply

    def function(a: Array, b: Array) -> Array:
        zero = np.where(np.signbit(a) ^ np.signbit(b), -0.0, 0.0)
        result = fma64(a, b, zero, mode)
        return np.where((a == 0) | (b == 0), a * b, result)

    return function


def _plain_fma(a: Array, b: Array, c: Array) -> tuple[Array, ...]:
    return (fma32(a.view(np.float32), b.view(np.float32), c.view(np.float32)),)


def _fma64(mode: str) -> Function:
    return lambda a, b, c: fma64(a, b, c, mode)


SINGLE: Mapping[str, tuple[Callable[[str], Function], int]] = {
    "add": (_add32, 2),
    "sub": (_sub32, 2),
    "mul": (_mul32, 2),
    "fma": (_fma32, 3),
    "mad": (_fma32, 3),
}
DOUBLE: Mapping[str, tuple[Callable[[str], Function], int]] = {
    "add": (_add64, 2),
    "sub": (_sub64, 2),
    "mul": (_mul64, 2),
    "fma": (_fma64, 3),
    "mad": (_fma64, 3),
}


def _build(form: Form) -> Decoded:
    """add, sub, mul, fma and mad; without a mode they round to nearest even."""
    mode = form.one_of(*MODES)
    if not mode and form.opcode in ("fma", "mad"):
        return Invalid(f"{form.opcode}.{form.type} needs a rounding mode: .rn .rz .rm .rp")
    if form.type == "f32":
        if form.flags == ("rn",) and form.opcode in ("fma", "mad"):
            return Operation(("f32",) * 3, ("f32",), _plain_fma, flops=counts(form, "fp32"))
        make, count = SINGLE[form.opcode]
        return single(form, make(mode or "rn"), count)
    make, count = DOUBLE[form.opcode]
    return double(form, make(mode or "rn"), count)


def _packed32(form: Form) -> Decoded:
    """add, sub, mul and fma of two f32 in 64 bits."""
    make, count = SINGLE[form.opcode]
    inner = single(form, make(form.one_of(*MODES) or "rn"), count)

    def run(*sources: Array) -> tuple[Array, ...]:
        size = max(len(bits) for bits in sources)
        halves = [np.broadcast_to(bits, size).copy().view(np.uint32) for bits in sources]
        return (np.ascontiguousarray(inner.run(*halves)[0]).view(np.uint64),)

    return Operation(("f32x2",) * count, ("f32x2",), run, flops=counts(form, "fp32", 2))


def extreme(values: list[Array], largest: bool, nan: bool) -> Array:
    """The least or largest of each lane: NaNs lose unless `nan`, and -0 is below +0."""
    choose = (np.maximum if nan else np.fmax) if largest else (np.minimum if nan else np.fmin)
    result = values[0]
    for value in values[1:]:
        before, result = result, choose(result, value)
        if (result == 0).any():
            zero = (before == 0) & (value == 0)
            kept = np.signbit(before) & np.signbit(value)
            either = np.signbit(before) | np.signbit(value)
            negative = kept if largest else either
            signed = np.where(negative, result.dtype.type(-0.0), result.dtype.type(0))
            result = np.where(zero, signed, result)
    return result


def _extreme64(function: Function) -> Function:
    """The function with NaN from the last source where it is NaN, as ptxas's sequence has it."""

    def chosen(*values: Array) -> Array:
        result = function(*values)
        return np.where(np.isnan(result), values[-1], result)

    return chosen


def _extreme(form: Form) -> Decoded:
    largest, nan, count = form.opcode == "max", form.has("NaN"), len(form.sources)
    if count not in (2, 3):
        return Invalid(f"{form.opcode} takes 2 or 3 sources, got {count}")

    def function(*values: Array) -> Array:
        return extreme(list(values), largest, nan)

    def folded(*values: Array) -> Array:
        sign = np.signbit(values[0])
        for value in values[1:]:
            sign = sign ^ np.signbit(value)
        size = extreme([np.abs(value) for value in values], largest, nan)
        return np.where(sign, -size, size)

    if form.type == "f64":
        return double(form, _extreme64(function), count)
    return single(form, folded if form.has("xorsign") else function, count)


def _sign(form: Form) -> Decoded:
    """`abs` and `neg` work on the sign bit alone, so NaN payloads stay."""
    kind = STORAGE[WIDTHS[form.type]].type
    top = kind(1 << (WIDTHS[form.type] - 1))
    absolute, flush = form.opcode == "abs", form.has("ftz")

    def run(a: Array) -> tuple[Array, ...]:
        bits = flushed32(a.view(np.float32)).view(np.uint32) if flush else a
        return (bits & ~top if absolute else bits ^ top,)

    return Operation((form.type,), (form.type,), run)


def _copysign(form: Form) -> Decoded:
    """The sign of the first source on the size of the second."""
    kind = STORAGE[WIDTHS[form.type]].type
    top = kind(1 << (WIDTHS[form.type] - 1))

    def run(a: Array, b: Array) -> tuple[Array, ...]:
        return ((a & top) | (b & ~top),)

    return Operation((form.type, form.type), (form.type,), run)


ROUNDED = "rn rz rm rp"
RULES: Mapping[str, tuple[Rule, ...]] = {
    **{
        opcode: (
            rule("f32", f"{ROUNDED} ftz sat", _build),
            rule("f64", ROUNDED, _build),
            rule("f32x2", f"{ROUNDED} ftz", _packed32),
        )
        for opcode in ("add", "sub", "mul", "fma")
    },
    "mad": (rule("f32", f"{ROUNDED} ftz sat", _build), rule("f64", ROUNDED, _build)),
    "min": (rule("f32", "ftz NaN xorsign abs", _extreme), rule("f64", "", _extreme)),
    "max": (rule("f32", "ftz NaN xorsign abs", _extreme), rule("f64", "", _extreme)),
    "abs": (rule("f32", "ftz", _sign), rule("f64", "", _sign)),
    "neg": (rule("f32", "ftz", _sign), rule("f64", "", _sign)),
    "copysign": (rule("f32 f64", "", _copysign),),
}
