"""Reciprocals, roots, quotients and transcendental functions of f32 and f64.

Approximate forms are computed to within one unit in the last place of the exact value, closer
than the bounds the PTX ISA states; the hardware's own last bits are not reproduced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from ptxsearch.emulator.floating import MODES, double, single
from ptxsearch.emulator.formats import canonical64
from ptxsearch.emulator.fused import fma64
from ptxsearch.emulator.operation import (
    Array,
    Decoded,
    Form,
    Invalid,
    Operation,
    Rule,
    rule,
)
from ptxsearch.emulator.rounding import narrowed32, toward

Function = Callable[..., Array]
UPPER = np.uint64(0xFFFFFFFF00000000)


def _reciprocal(x: Array) -> Array:
    inverse: Array = x.dtype.type(1) / x
    return inverse


def _reciprocal_root(x: Array) -> Array:
    return (1.0 / np.sqrt(x.astype(np.float64))).astype(x.dtype)


def _tangent(x: Array) -> Array:
    tangent: Array = np.tanh(x)
    return tangent


def _approximate_quotient(a: Array, b: Array) -> Array:
    """`a / b`, but 0 (NaN for infinite a) where the size of b is above 2**126."""
    beyond = np.abs(b) > np.float32(2.0**126)
    quotient: Array = a / b
    if not beyond.any():
        return quotient
    return np.where(beyond & np.isfinite(b), a * (np.float32(0) * b), quotient)


def _directed32(function: Function, mode: str) -> Function:
    """A quotient or root of float32 values in a mode.

    Those are never closer than 2**-48 of themselves to a float32 value without being equal to
    it, so the nearest float64 lies on the right side of every float32 value.
    """
    if mode == "rn":
        return function

    def directed(*values: Array) -> Array:
        return narrowed32(function(*[value.astype(np.float64) for value in values]), mode)

    return directed


def _directed64(numerator: Array, root: Array, other: Array, scale: Array, mode: str) -> Array:
    """`root`, the nearest to numerator / other (or to a square root), moved to its mode.

    The sign of numerator - root * other, over that of `scale`, tells on which side it lies.
    """
    if mode == "rn":
        return root
    finite = np.isfinite(numerator) & np.isfinite(other) & (scale != 0)
    inside = np.where(np.isfinite(root), root, np.copysign(np.finfo(np.float64).max, root))
    # Rounding up and down keeps the sign of a remainder that underflows.
    above = fma64(-inside, other, numerator, "rp") > 0
    below = fma64(-inside, other, numerator, "rm") < 0
    rest = np.where(finite, np.sign(scale) * (above.astype(np.int8) - below), 0.0)
    infinite = np.isinf(root) & finite
    over = np.where(infinite, root > 0, rest < 0)
    under = np.where(infinite, root < 0, rest > 0)
    return toward(root, over, under, mode)


def _quotient64(mode: str) -> Function:
    return lambda a, b: _directed64(a, a / b, b, b, mode)


def _reciprocal64(mode: str) -> Function:
    divide = _quotient64(mode)
    return lambda a: divide(np.ones_like(a), a)


def _root64(mode: str) -> Function:
    def function(a: Array) -> Array:
        root = np.sqrt(a)
        return _directed64(a, root, root, np.where(a > 0, 1.0, 0.0), mode)

    return function


def _gross(function: Function) -> Operation:
    """`rcp` and `rsqrt`.approx.ftz.f64, which read and give only the upper words."""

    def run(a: Array) -> tuple[Array, ...]:
        x = (a & UPPER).view(np.float64)
        result = function(_flushed64(x))
        return (canonical64(_flushed64(result), x) & UPPER,)

    return Operation(("f64",), ("f64",), run)


def _flushed64(x: Array) -> Array:
    return np.where(np.abs(x) < np.finfo(np.float64).tiny, x * 0.0, x)


EXACT32: Mapping[str, tuple[Function, int]] = {
    "rcp": (_reciprocal, 1),
    "sqrt": (np.sqrt, 1),
    "div": (np.divide, 2),
}
EXACT64: Mapping[str, tuple[Callable[[str], Function], int]] = {
    "rcp": (_reciprocal64, 1),
    "sqrt": (_root64, 1),
    "div": (_quotient64, 2),
}
APPROXIMATE: Mapping[str, tuple[Function, int]] = {
    "rcp": (_reciprocal, 1),
    "sqrt": (np.sqrt, 1),
    "rsqrt": (_reciprocal_root, 1),
    "div": (_approximate_quotient, 2),
    "sin": (np.sin, 1),
    "cos": (np.cos, 1),
    "lg2": (np.log2, 1),
    "ex2": (np.exp2, 1),
    "tanh": (_tangent, 1),
}


def _approximate(form: Form) -> Decoded:
    if not form.has("approx"):
        return Invalid(f"{form.opcode}.{form.type} needs .approx")
    function, count = APPROXIMATE[form.opcode]
    return single(form, function, count)


def _approximate64(form: Form) -> Decoded:
    if not form.has("approx"):
        return Invalid(f"{form.opcode}.f64 needs .approx or a rounding mode")
    function = APPROXIMATE[form.opcode][0]
    return _gross(function) if form.has("ftz") else double(form, function, 1)


def _full(form: Form) -> Decoded:
    return single(form, np.divide, 2)


def _exact32(form: Form) -> Decoded:
    mode = form.one_of(*MODES)
    if not mode:
        return Invalid(f"{form.opcode}.f32 needs .approx or a rounding mode")
    function, count = EXACT32[form.opcode]
    return single(form, _directed32(function, mode), count)


def _exact64(form: Form) -> Decoded:
    mode = form.one_of(*MODES)
    if not mode:
        return Invalid(f"{form.opcode}.f64 needs a rounding mode")
    make, count = EXACT64[form.opcode]
    return double(form, make(mode), count)


EXPANSIONS: Mapping[str, Mapping[str, int]] = {
    "div.rn.f32": {"fp32_fma": 5},
    "div.rn.ftz.f32": {"fp32_fma": 5},
    "div.full.f32": {"fp32_mul": 1},
    "div.full.ftz.f32": {"fp32_mul": 1},
    "div.approx.f32": {"fp32_mul": 1},
    "div.approx.ftz.f32": {"fp32_mul": 1},
    "rcp.rn.f32": {"fp32_add": 1, "fp32_fma": 2},
    "rcp.rn.ftz.f32": {"fp32_add": 1, "fp32_fma": 2},
    "rcp.approx.f32": {"fp32_mul": 2},
    "sqrt.rn.f32": {"fp32_mul": 2, "fp32_fma": 2},
    "sqrt.rn.ftz.f32": {"fp32_mul": 2, "fp32_fma": 2},
    "sin.approx.f32": {"fp32_mul": 1},
    "sin.approx.ftz.f32": {"fp32_mul": 1},
    "cos.approx.f32": {"fp32_mul": 1},
    "cos.approx.ftz.f32": {"fp32_mul": 1},
    "div.rn.f64": {"fp64_fma": 7, "fp64_mul": 1, "fp32_fma": 1},
    "rcp.rn.f64": {"fp64_fma": 5},
    "sqrt.rn.f64": {"fp64_fma": 5, "fp64_mul": 3},
    "rsqrt.approx.f64": {"fp64_fma": 3, "fp64_mul": 2},
}
"""Operations that ptxas 13.0 makes of a form for sm_90 where no source or result is extreme."""


def _counted(build: Callable[[Form], Decoded]) -> Callable[[Form], Decoded]:
    """The builder with the operations of the form's expansion counted."""

    def counted(form: Form) -> Decoded:
        decoded = build(form)
        if not isinstance(decoded, Operation):
            return decoded
        name = ".".join((form.opcode, *form.flags, form.type))
        return replace(decoded, flops=EXPANSIONS.get(name, {}))

    return counted


ROUNDED = "rn rz rm rp"
RULES: Mapping[str, tuple[Rule, ...]] = {
    **{
        opcode: (
            rule("f32", f"{ROUNDED} ftz", _counted(_exact32)),
            rule("f32", "approx ftz", _counted(_approximate)),
            rule("f64", ROUNDED, _counted(_exact64)),
        )
        for opcode in EXACT32
    },
    **{
        opcode: (rule("f32", "approx ftz", _counted(_approximate)),)
        for opcode in ("sin", "cos", "lg2", "ex2", "rsqrt")
    },
    "tanh": (rule("f32", "approx", _counted(_approximate)),),
}
RULES = {
    **RULES,
    "div": (*RULES["div"], rule("f32", "full ftz", _counted(_full))),
    "rcp": (*RULES["rcp"], rule("f64", "approx ftz", _counted(_approximate64))),
    "rsqrt": (*RULES["rsqrt"], rule("f64", "approx ftz", _counted(_approximate64))),
}
