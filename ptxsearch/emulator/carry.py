"""Extended precision: add, sub and mad that read or write the carry flag."""

from __future__ import annotations

from collections.abc import Mapping

from ptxsearch.emulator.integer import multiply_high
from ptxsearch.emulator.operation import Array, Decoded, Form, Invalid, Operation, Rule, rule


def _sum(a: Array, b: Array, carry: Array | None) -> tuple[Array, Array]:
    """`a + b + carry` and the carry out of it."""
    total = a + b
    out = total < a
    if carry is not None:
        more = total + carry.astype(total.dtype)
        out = out | (more < total)
        total = more
    return total, out


def _difference(a: Array, b: Array, borrow: Array | None) -> tuple[Array, Array]:
    """`a - b - borrow` and the borrow out of it."""
    total = a - b
    out = a < b
    if borrow is not None:
        less = total - borrow.astype(total.dtype)
        out = out | (less > total)
        total = less
    return total, out


def _build(form: Form) -> Decoded:
    """add.cc, addc, sub.cc, subc: the flag means a borrow where it follows a subtraction."""
    reads, writes = form.opcode.endswith("c"), form.has("cc")
    function = _sum if form.opcode.startswith("add") else _difference

    def run(a: Array, b: Array, carry: Array | None = None) -> tuple[Array, ...]:
        result, out = function(a, b, carry)
        return (result, out) if writes else (result,)

    return Operation((form.type, form.type), (form.type,), run, reads, writes)


def _build_mad(form: Form) -> Decoded:
    """mad.cc and madc: the carry is that of the final addition."""
    if form.has("hi") == form.has("lo"):
        return Invalid(f"{form.opcode} needs one of .hi .lo")
    type_, high = form.type, form.has("hi")
    reads, writes = form.opcode == "madc", form.has("cc")

    def run(a: Array, b: Array, c: Array, carry: Array | None = None) -> tuple[Array, ...]:
        product = multiply_high(a, b, type_) if high else a * b
        result, out = _sum(product, c, carry)
        return (result, out) if writes else (result,)

    return Operation((type_, type_, type_), (type_,), run, reads, writes)


TYPES = "u32 s32 u64 s64"

RULES: Mapping[str, tuple[Rule, ...]] = {
    "add": (rule(TYPES, "cc", _build),),
    "sub": (rule(TYPES, "cc", _build),),
    "addc": (rule(TYPES, "cc", _build),),
    "subc": (rule(TYPES, "cc", _build),),
    "mad": (rule(TYPES, "cc hi lo", _build_mad),),
    "madc": (rule(TYPES, "cc hi lo", _build_mad),),
}
