"""Comparison and selection: setp, set, selp, slct, testp."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ptxsearch.emulator.formats import flushed, flushed32, numbers
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
    Run,
    rule,
)
from ptxsearch.emulator.packed import joined, lanes

Compare = Callable[[Array, Array], Array]


def _unordered(compare: Compare) -> Compare:
    """True as well where a source is NaN: the complement of the opposite ordered relation."""
    return lambda a, b: ~compare(a, b)


ORDERED: Mapping[str, Compare] = {
    "eq": np.equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
INTEGER: Mapping[str, Compare] = {
    **ORDERED,
    "ne": np.not_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}
FLOAT: Mapping[str, Compare] = {
    **ORDERED,
    "ne": lambda a, b: (a < b) | (a > b),
    "equ": lambda a, b: ~((a < b) | (a > b)),
    "neu": np.not_equal,
    "ltu": _unordered(np.greater_equal),
    "leu": _unordered(np.greater),
    "gtu": _unordered(np.less_equal),
    "geu": _unordered(np.less),
    "num": lambda a, b: (a == a) & (b == b),
    "nan": lambda a, b: (a != a) | (b != b),
}
JOINS: Mapping[str, Compare] = {
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
}
FLOATS = ("f16", "bf16", "f32", "f64")


def _test(form: Form, type_: str) -> Compare | Invalid:
    """The relation the form names, on stored arrays of the type."""
    relations = FLOAT if type_ in FLOATS else INTEGER
    name = form.one_of(*relations)
    if not name or (type_.startswith("b") and type_ not in FLOATS and name not in ("eq", "ne")):
        return Invalid(f"{form.opcode} has no comparison of {type_} among {form.flags}")
    compare = relations[name]
    if type_ not in FLOATS:
        width = WIDTHS[type_]
        seen = SIGNED[width] if type_.startswith("s") else STORAGE[width]
        return lambda a, b: compare(a.view(seen), b.view(seen))
    if form.has("ftz"):
        flush = flushed32 if type_ == "f32" else lambda x: flushed(x, type_)
        return lambda a, b: compare(flush(numbers(a, type_)), flush(numbers(b, type_)))
    return lambda a, b: compare(numbers(a, type_), numbers(b, type_))


def _setp(form: Form) -> Decoded:
    type_ = form.type
    test = _test(form, type_)
    if isinstance(test, Invalid):
        return test
    compare, both = test, len(form.destinations) == 2
    join = JOINS.get(form.one_of(*JOINS))

    def plain(a: Array, b: Array) -> tuple[Array, ...]:
        first = compare(a, b)
        return (first, ~first) if both else (first,)

    results = ("pred",) * len(form.destinations)
    if join is None:
        return Operation((type_, type_), results, plain)
    meet = join

    def with_c(a: Array, b: Array, c: Array) -> tuple[Array, ...]:
        first = compare(a, b)
        return (meet(first, c), meet(~first, c)) if both else (meet(first, c),)

    return Operation((type_, type_, "pred"), results, with_c)


def _set(form: Form) -> Decoded:
    """set.CMP.dtype.stype: 1.0 for a float result, all ones for an integer."""
    result, type_ = form.types
    if type_.endswith("x2"):
        return _set_packed(form)
    if result.endswith("x2") or (form.has("ftz") and type_ not in ("f16", "f32")):
        return Invalid(f"there is no {form.opcode}.{'.'.join((*form.flags, result, type_))}")
    test = _test(form, type_)
    if isinstance(test, Invalid):
        return test
    kind = STORAGE[WIDTHS[result]].type
    true = kind(ONES[result]) if result in ONES else ~kind(0)
    join = JOINS.get(form.one_of(*JOINS))

    def run(a: Array, b: Array, *rest: Array) -> tuple[Array, ...]:
        outcome = test(a, b)
        if join is not None:
            outcome = join(outcome, rest[0])
        return (np.where(outcome, true, kind(0)),)

    more = () if join is None else ("pred",)
    return Operation((type_, type_, *more), (result,), run)


ONES: Mapping[str, int] = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}
PACKED_TRUE: Mapping[str, int] = {"f16x2": 0x3C00, "bf16x2": 0x3F80, "u32": 0xFFFF, "s32": 0xFFFF}
"""What each half of a result becomes where the comparison of its lane holds."""


def _setp_packed(form: Form) -> Decoded:
    """`p` from the lower lanes and q from the upper ones, each joined with c."""
    test, join = _test(form, form.type.removesuffix("x2")), JOINS.get(form.one_of(*JOINS))
    if isinstance(test, Invalid):
        return test

    count = len(form.destinations)

    def run(a: Array, b: Array, *rest: Array) -> tuple[Array, ...]:
        both = test(lanes(a), lanes(b))
        parts = (both[:, 0], both[:, 1])[:count]
        return parts if join is None else tuple(join(part, rest[0]) for part in parts)

    more = () if join is None else ("pred",)
    return Operation((form.type, form.type, *more), ("pred",) * count, run)


def _set_packed(form: Form) -> Decoded:
    result, type_ = form.types
    test, join = _test(form, type_.removesuffix("x2")), JOINS.get(form.one_of(*JOINS))
    if isinstance(test, Invalid):
        return test
    if result not in PACKED_TRUE or (result.endswith("x2") and result != type_):
        return Invalid(f"there is no set.{result}.{type_}")
    true = np.uint16(PACKED_TRUE[result])

    def run(a: Array, b: Array, *rest: Array) -> tuple[Array, ...]:
        outcome = test(lanes(a), lanes(b))
        if join is not None:
            outcome = join(outcome, rest[0][:, None])
        return (joined(np.where(outcome, true, np.uint16(0))),)

    more = () if join is None else ("pred",)
    return Operation((type_, type_, *more), (result,), run)


def _selp(form: Form) -> Decoded:
    def run(a: Array, b: Array, p: Array) -> tuple[Array, ...]:
        # Steadier than np.where, which slows down where the mask is irregular.
        return (((a ^ b) * p) ^ b,)

    return Operation((form.type, form.type, "pred"), (form.type,), run)


def _slct(form: Form) -> Decoded:
    """`a` where c >= 0 (-0 counts as 0, NaN selects b), else b."""
    chooser = form.types[1]

    def of_integer(a: Array, b: Array, c: Array) -> tuple[Array, ...]:
        return (np.where(c.view(np.int32) >= 0, a, b),)

    def of_float(a: Array, b: Array, c: Array) -> tuple[Array, ...]:
        value = c.view(np.float32)
        return (np.where(flushed32(value) >= 0 if form.has("ftz") else value >= 0, a, b),)

    run: Run = of_integer if chooser == "s32" else of_float
    return Operation((form.type, form.type, chooser), (form.type,), run)


def _smallest(type_: str) -> float:
    return float(np.finfo(np.float32 if type_ == "f32" else np.float64).tiny)


CLASSES: Mapping[str, Callable[[Array, float], Array]] = {
    "finite": lambda x, _: np.isfinite(x),
    "infinite": lambda x, _: np.isinf(x),
    "number": lambda x, _: x == x,
    "notanumber": lambda x, _: x != x,
    "normal": lambda x, tiny: np.isfinite(x) & (np.abs(x) >= tiny),
    "subnormal": lambda x, tiny: (np.abs(x) < tiny) & (x != 0),
}


def _testp(form: Form) -> Decoded:
    name = form.one_of(*CLASSES)
    if not name:
        return Invalid("testp needs the class to test for")
    classify, tiny, type_ = CLASSES[name], _smallest(form.type), form.type
    return Operation((type_,), ("pred",), lambda a: (classify(numbers(a, type_), tiny),))


RELATIONS = " ".join({**INTEGER, **FLOAT})
COMPARED = "b16 b32 b64 u16 u32 u64 s16 s32 s64"
SET_RESULTS = "u32 s32 f32 u16 s16 f16 bf16 f16x2 bf16x2"
WORDS = "b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64"

RULES: Mapping[str, tuple[Rule, ...]] = {
    "setp": (
        rule("f16 bf16 f32", f"{RELATIONS} and or xor ftz", _setp),
        rule("f16x2 bf16x2", f"{RELATIONS} and or xor ftz", _setp_packed),
        rule(f"{COMPARED} f64", f"{RELATIONS} and or xor", _setp),
    ),
    "set": (
        rule(
            SET_RESULTS,
            f"{RELATIONS} and or xor ftz",
            _set,
            2,
            others=f"{COMPARED} f16 bf16 f32 f64 f16x2 bf16x2",
        ),
    ),
    "selp": (rule(WORDS, "", _selp),),
    "slct": (rule(WORDS, "ftz", _slct, 2, others="s32 f32"),),
    "testp": (rule("f32 f64", " ".join(CLASSES), _testp),),
}
