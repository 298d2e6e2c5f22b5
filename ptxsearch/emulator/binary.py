"""Bit operations: logic, shifts, fields, counts, permutations and masks."""

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

ONE = np.uint32(1)


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


def _lop3(form: Form) -> Decoded:
    """Any function of three bits; the fourth source is its truth table.

    With .or or .and the result also meets a predicate: d|p, a, b, c, table, q.
    """
    table = form.sources[3] if len(form.sources) > 3 else None
    if not isinstance(table, Integer) or not 0 <= table.value <= 255:
        return Invalid("lop3 needs an immediate truth table from 0 to 255 as its fourth source")
    terms = [index for index in range(8) if table.value >> index & 1]

    def combined(a: Array, b: Array, c: Array) -> Array:
        result = np.zeros(1, np.uint32)
        for index in terms:
            x = a if index & 4 else ~a
            y = b if index & 2 else ~b
            z = c if index & 1 else ~c
            result = result | (x & y & z)
        return result | ((a ^ a) | (b ^ b) | (c ^ c)) if not terms else result

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


def _bfe(form: Form) -> Decoded:
    """A field from a position and a length (low 8 bits of each), sign filled for s types."""
    width, signed = WIDTHS[form.type], form.type.startswith("s")
    kind = STORAGE[width].type

    def run(a: Array, position: Array, length: Array) -> tuple[Array, ...]:
        at = (position & np.uint32(255)).astype(np.int64)
        count = (length & np.uint32(255)).astype(np.int64)
        mask = _low_mask(count, kind)
        field = shift_right(a, at.astype(np.uint32)) & mask
        if signed:
            top = np.minimum(at + count - 1, width - 1).clip(0).astype(kind)
            negative = ((a >> top) & kind(1)).astype(np.bool_) & (count > 0)
            # Bits past the end of the word are copies of the sign too.
            have = np.clip(width - at, 0, count)
            field = field | np.where(negative, ~_low_mask(have, kind), kind(0))
        return (field,)

    return Operation((form.type, "u32", "u32"), (form.type,), run)


def _low_mask(count: Array, kind: type[np.unsignedinteger]) -> Array:
    """Words whose `count` (0 and more) low bits are set."""
    width = 8 * np.dtype(kind).itemsize
    inside = np.clip(count, 0, width - 1).astype(kind)
    return np.where(count >= width, ~kind(0), (kind(1) << inside) - kind(1))


def _bfi(form: Form) -> Decoded:
    """The low bits of the first source put into the second at a position."""
    kind = STORAGE[WIDTHS[form.type]].type

    def run(a: Array, b: Array, position: Array, length: Array) -> tuple[Array, ...]:
        at = position & np.uint32(255)
        mask = shift_left(_low_mask((length & np.uint32(255)).astype(np.int64), kind), at)
        return ((b & ~mask) | (shift_left(a, at) & mask),)

    return Operation((form.type, form.type, "u32", "u32"), (form.type,), run)


def _szext(form: Form) -> Decoded:
    """The low b bits of a extended by sign or zero; b above 31 keeps or wraps."""
    wrap, signed = form.has("wrap"), form.type == "s32"
    if wrap == form.has("clamp"):
        return Invalid("szext needs one of .clamp .wrap")

    def run(a: Array, b: Array) -> tuple[Array, ...]:
        count = (b & np.uint32(31)) if wrap else np.minimum(b, np.uint32(32))
        mask = _low_mask(count.astype(np.int64), np.uint32)
        top = np.where(count > 0, count, ONE) - ONE
        negative = signed & ((a >> top) & ONE).astype(np.bool_) & (count > 0)
        return ((a & mask) | np.where(negative, ~mask, np.uint32(0)),)

    return Operation((form.type, "u32"), (form.type,), run)


def _bmsk(form: Form) -> Decoded:
    """A mask of b bits from position a."""
    wrap = form.has("wrap")
    if wrap == form.has("clamp"):
        return Invalid("bmsk needs one of .clamp .wrap")

    def run(a: Array, b: Array) -> tuple[Array, ...]:
        at = (a & np.uint32(31)) if wrap else np.minimum(a, np.uint32(32))
        count = (b & np.uint32(31)) if wrap else np.minimum(b, np.uint32(32))
        return (np.left_shift(_low_mask(count.astype(np.int64), np.uint32), at),)

    return Operation(("b32", "b32"), ("b32",), run)


def _fns(form: Form) -> Decoded:
    """The position of the n-th set bit counted from a base, forward or backward."""

    def run(mask: Array, base: Array, offset: Array) -> tuple[Array, ...]:
        word, start, n = np.broadcast_arrays(mask, base, offset.view(np.int32))
        at = np.arange(32, dtype=np.int64)
        bits = (word[:, None] >> at.astype(np.uint32)) & ONE
        here = start.astype(np.int64)[:, None]
        ahead = np.cumsum(np.where(at >= here, bits, 0), axis=1)
        behind = np.cumsum(np.where(at <= here, bits, 0)[:, ::-1], axis=1)[:, ::-1]
        wanted = np.abs(n.astype(np.int64))[:, None]
        forward = (at >= here) & (ahead == wanted) & (n[:, None] > 0)
        backward = (at <= here) & (behind == wanted) & (n[:, None] < 0)
        itself = (at == here) & (n[:, None] == 0)
        found = (forward | backward | itself) & (bits == 1)
        result = np.where(found.any(axis=1), found.argmax(axis=1), 0xFFFFFFFF)
        return (result.astype(np.uint32),)

    return Operation(("b32", "b32", "s32"), ("b32",), run)


PRMT_MODES: Mapping[str, tuple[tuple[int, int, int, int], ...]] = {
    "f4e": ((0, 1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 5), (3, 4, 5, 6)),
    "b4e": ((0, 7, 6, 5), (1, 0, 7, 6), (2, 1, 0, 7), (3, 2, 1, 0)),
    "rc8": ((0, 0, 0, 0), (1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3)),
    "ecl": ((0, 1, 2, 3), (1, 1, 2, 3), (2, 2, 2, 3), (3, 3, 3, 3)),
    "ecr": ((0, 0, 0, 0), (0, 1, 1, 1), (0, 1, 2, 2), (0, 1, 2, 3)),
    "rc16": ((0, 1, 0, 1), (2, 3, 2, 3), (0, 1, 0, 1), (2, 3, 2, 3)),
}
"""For each mode and selector 0..3 the source byte of result bytes 0..3 (PTX ISA, prmt)."""


def _prmt(form: Form) -> Decoded:
    mode = form.one_of(*PRMT_MODES)

    def generic(a: Array, b: Array, selector: Array) -> tuple[Array, ...]:
        source = (b.astype(np.uint64) << np.uint64(32)) | a
        result = np.zeros(1, np.uint32)
        for byte in range(4):
            nibble = (selector >> np.uint32(4 * byte)) & np.uint32(15)
            picked = source >> ((nibble & np.uint32(7)).astype(np.uint64) * np.uint64(8))
            value = picked.astype(np.uint32) & np.uint32(255)
            sign = np.where(value >= 128, np.uint32(255), np.uint32(0))
            value = np.where(nibble >= 8, sign, value)
            result = result | (value << np.uint32(8 * byte))
        return (result,)

    if not mode:
        return Operation(("b32", "b32", "b32"), ("b32",), generic)
    table = np.array(
        [sum(b << (4 * i) for i, b in enumerate(row)) for row in PRMT_MODES[mode]], np.uint32
    )

    def run(a: Array, b: Array, selector: Array) -> tuple[Array, ...]:
        return generic(a, b, table[selector & np.uint32(3)])

    return Operation(("b32", "b32", "b32"), ("b32",), run)


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
    "bfe": (rule("u32 u64 s32 s64", "", _bfe),),
    "bfi": (rule("b32 b64", "", _bfi),),
    "szext": (rule("u32 s32", "clamp wrap", _szext),),
    "bmsk": (rule("b32", "clamp wrap", _bmsk),),
    "fns": (rule("b32", "", _fns),),
    "prmt": (rule("b32", " ".join(PRMT_MODES), _prmt),),
}
