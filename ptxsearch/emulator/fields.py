"""Bit fields: extraction, insertion, masks, the n-th set bit, and permutation of bytes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ptxsearch.emulator.binary import shift_left, shift_right
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

ONE = np.uint32(1)


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


def _permuted(a: Array, b: Array, selector: int) -> Array:
    """The bytes of a and b that one selector picks for all lanes."""
    result = a & np.uint32(0)
    for byte in range(4):
        nibble = selector >> (4 * byte) & 15
        word, at = (b if nibble & 4 else a), 8 * (nibble & 3)
        if nibble & 8:
            sign = (word >> np.uint32(at + 7)) & ONE
            picked = sign * np.uint32(255)
        else:
            picked = (word >> np.uint32(at)) & np.uint32(255)
        result = result | (picked << np.uint32(8 * byte))
    return result


def _prmt(form: Form) -> Decoded:
    mode = form.one_of(*PRMT_MODES)

    def generic(a: Array, b: Array, selector: Array) -> tuple[Array, ...]:
        if len(selector) == 1:
            return (_permuted(a, b, int(selector[0])),)
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


RULES: Mapping[str, tuple[Rule, ...]] = {
    "bfe": (rule("u32 u64 s32 s64", "", _bfe),),
    "bfi": (rule("b32 b64", "", _bfi),),
    "szext": (rule("u32 s32", "clamp wrap", _szext),),
    "bmsk": (rule("b32", "clamp wrap", _bmsk),),
    "fns": (rule("b32", "", _fns),),
    "prmt": (rule("b32", " ".join(PRMT_MODES), _prmt),),
}
