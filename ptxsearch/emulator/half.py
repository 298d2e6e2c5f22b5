"""Arithmetic of f16 and bf16, one value or two in a word."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from ptxsearch.emulator.conversion import encoded, rectified
from ptxsearch.emulator.floating import MODES, SINGLE, counts, extreme, saturated, single
from ptxsearch.emulator.formats import TINY32, flushed, numbers
from ptxsearch.emulator.operation import Array, Decoded, Form, Invalid, Operation, Rule, rule
from ptxsearch.emulator.packed import paired
from ptxsearch.emulator.rounding import in_blocks, odd, odd_sum

Function = Callable[..., Array]


def _element(form: Form) -> str:
    return form.type.removesuffix("x2")


def _operation(form: Form, function: Function, count: int) -> Operation:
    """An operation around a function of float32 values whose result still has to be rounded.

    The float32 sum, product, quotient or maximum of two f16 or bf16 values rounds to the same
    f16 or bf16 as the exact one, but for bf16 products below the normal range.
    """
    type_ = _element(form)
    flush, clamp, relu = form.has("ftz"), form.has("sat"), form.has("relu")

    def compute(*sources: Array) -> Array:
        values = [numbers(bits, type_) for bits in sources]
        if flush:
            values = [flushed(value, type_) for value in values]
        result = function(*values)
        if clamp:
            result = saturated(result)
        if relu:
            result = rectified(result)
        bits = encoded(result, type_)
        if flush:
            bits = _flushed_bits(bits, type_)
        return bits

    def run(*sources: Array) -> tuple[Array, ...]:
        return (in_blocks(compute, *sources),)

    packed = form.type.endswith("x2")
    operation = Operation(
        (form.type,) * count,
        (form.type,),
        run,
        flops=counts(form, "fp16", 2 if packed else 1),
    )
    return replace(operation, run=paired(run)) if packed else operation


def _flushed_bits(bits: Array, type_: str) -> Array:
    """Stored values with subnormal ones replaced by zeros of their sign."""
    exponent = np.uint16(0x7C00 if type_ == "f16" else 0x7F80)
    return np.where(bits & exponent, bits, bits & np.uint16(0x8000))


def _product(a: Array, b: Array) -> Array:
    """A product that rounds like the exact one: in float64 where float32 would be subnormal."""
    product: Array = a * b
    if (np.abs(product) < TINY32).any():
        return a.astype(np.float64) * b
    return product


def _fused_f16(a: Array, b: Array, c: Array) -> Array:
    """The product, exact in float32, plus c, rounded to odd."""
    return odd_sum(a * b, c)


def _fused_bf16(a: Array, b: Array, c: Array) -> Array:
    """The product, exact in float64, plus c, rounded to odd twice."""
    total = odd_sum(a.astype(np.float64) * b, c.astype(np.float64))
    nearest = total.astype(np.float32)
    return odd(nearest, total - nearest)


FUNCTIONS: Mapping[str, tuple[Function, int]] = {
    "add": (np.add, 2),
    "sub": (np.subtract, 2),
    "mul": (_product, 2),
    "fma": (_fused_f16, 3),
}


def _build(form: Form) -> Decoded:
    function, count = FUNCTIONS[form.opcode]
    if form.opcode == "fma" and not form.has("rn"):
        return Invalid(f"fma.{form.type} needs .rn")
    if form.opcode == "fma" and _element(form) == "bf16":
        function = _fused_bf16
    return _operation(form, function, count)


def _extreme(form: Form) -> Decoded:
    largest, nan, count = form.opcode == "max", form.has("NaN"), len(form.sources)
    if count not in (2, 3):
        return Invalid(f"{form.opcode} takes 2 or 3 sources, got {count}")
    fold = form.has("xorsign")

    def function(*values: Array) -> Array:
        if not fold:
            return extreme(list(values), largest, nan)
        sign = np.signbit(values[0])
        for value in values[1:]:
            sign = sign ^ np.signbit(value)
        size = extreme([np.abs(value) for value in values], largest, nan)
        return np.where(sign, -size, size)

    return _operation(form, function, count)


def _sign(form: Form) -> Decoded:
    """`abs` and `neg` on the sign bits, after flushing where asked."""
    absolute, flush, type_ = form.opcode == "abs", form.has("ftz"), _element(form)
    top = np.uint16(0x8000)

    def run(a: Array) -> tuple[Array, ...]:
        bits = _flushed_bits(a, type_) if flush else a
        return (bits & ~top if absolute else bits ^ top,)

    packed = form.type.endswith("x2")
    return Operation((form.type,), (form.type,), paired(run) if packed else run)


def _approximate(form: Form) -> Decoded:
    if not form.has("approx"):
        return Invalid(f"{form.opcode}.{form.type} needs .approx")
    return _operation(form, np.exp2 if form.opcode == "ex2" else np.tanh, 1)


def _mixed(form: Form) -> Decoded:
    """add, sub and fma of f16 or bf16 sources with an f32 addend and result."""
    function, count = SINGLE[form.opcode]
    type_, mode = form.types[1], form.one_of(*MODES, default="rn")
    inner = single(form, function(mode), count)

    def run(*sources: Array) -> tuple[Array, ...]:
        wide = [numbers(bits, type_).view(np.uint32) for bits in sources[:-1]]
        return inner.run(*wide, sources[-1])

    return replace(inner, sources=(*(type_,) * (count - 1), "f32"), run=run)


F16, BF16 = "f16 f16x2", "bf16 bf16x2"
RULES: Mapping[str, tuple[Rule, ...]] = {
    "add": (
        rule(F16, "rn ftz sat", _build),
        rule(BF16, "rn", _build),
        rule("f32", "rn rz rm rp sat", _mixed, 2, others="f16 bf16"),
    ),
    "sub": (
        rule(F16, "rn ftz sat", _build),
        rule(BF16, "rn", _build),
        rule("f32", "rn rz rm rp sat", _mixed, 2, others="f16 bf16"),
    ),
    "mul": (rule(F16, "rn ftz sat", _build), rule(BF16, "rn", _build)),
    "fma": (
        rule(F16, "rn ftz sat", _build),
        rule(F16, "rn ftz relu", _build),
        rule(BF16, "rn relu", _build),
        rule("f32", "rn rz rm rp sat", _mixed, 2, others="f16 bf16"),
    ),
    "min": (
        rule(F16, "ftz NaN xorsign abs", _extreme),
        rule(BF16, "NaN xorsign abs", _extreme),
    ),
    "max": (
        rule(F16, "ftz NaN xorsign abs", _extreme),
        rule(BF16, "NaN xorsign abs", _extreme),
    ),
    "abs": (rule(F16, "ftz", _sign), rule(BF16, "", _sign)),
    "neg": (rule(F16, "ftz", _sign), rule(BF16, "", _sign)),
    "ex2": (rule(F16, "approx", _approximate), rule(BF16, "approx ftz", _approximate)),
    "tanh": (rule(f"{F16} {BF16}", "approx", _approximate),),
}
