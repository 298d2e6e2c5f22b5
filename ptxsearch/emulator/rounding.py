"""Correct rounding from float64: round to odd, the directed modes, and narrow formats.

A float64 rounded to odd (truncated, with the last bit set where anything was lost) rounds to any
format of at most 51 bits as the exact value would (Boldo and Melquiond, IEEE Trans. Comput. 2008).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ptxsearch.emulator.formats import Format
from ptxsearch.emulator.operation import STORAGE, Array

BLOCK = 16384
"""Elements that long chains of operations treat at a time."""

DIRECTED = ("rz", "rm", "rp")


def in_blocks(function: Callable[..., Array], *sources: Array) -> Array:
    """The function of long arrays, block by block so that what it makes stays in cache."""
    size = max(len(source) for source in sources)
    if size <= BLOCK:
        return function(*sources)
    pieces = [slice(start, start + BLOCK) for start in range(0, size, BLOCK)]
    return np.concatenate(
        [function(*[x if len(x) < size else x[at] for x in sources]) for at in pieces]
    )


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """`a + b` in the precision of both and what it lost (Knuth)."""
    total = a + b
    rest = total - a
    return total, (a - (total - rest)) + (b - rest)


def two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """`a * b` in float64 and what it lost (Dekker); exact far from overflow and underflow."""
    splitter = 134217729.0
    product = a * b
    large = splitter * a
    a_high = large - (large - a)
    a_low = a - a_high
    large = splitter * b
    b_high = large - (large - b)
    b_low = b - b_high
    rest = a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)
    return product, rest


def odd(total: Array, lost: Array) -> Array:
    """The nearest `total` (float32 or float64) turned to odd, given the sign of what it lost."""
    integer: type[Any] = np.int32 if total.dtype == np.float32 else np.int64
    bits = total.view(integer)
    inexact = (lost != 0) & ((bits & integer(1)) == 0)
    if not inexact.any():
        return total
    # Away from zero the bits grow, toward zero they shrink; infinities stay.
    step = np.where((lost < 0) == np.signbit(total), integer(1), integer(-1))
    moved: Array = bits + step * (inexact & np.isfinite(total))
    return moved.view(total.dtype)


def odd_sum(a: Array, b: Array) -> Array:
    """`a + b` in the precision of both, rounded to odd."""
    total, lost = two_sum(a, b)
    return odd(total, lost)


def toward(nearest: Array, over: Array, under: Array, mode: str) -> Array:
    """The directed result, from the nearest one and where that lies above or below the exact one.

    `nearest` is float32 or float64; a zero that is not exact becomes the least subnormal.
    """
    unsigned = STORAGE[8 * nearest.dtype.itemsize].type
    top = unsigned(1 << (8 * nearest.dtype.itemsize - 1))
    bits = nearest.view(unsigned)
    negative = (bits & top) != 0
    if mode == "rz":
        moved: Array = np.where(np.where(negative, under, over), bits - unsigned(1), bits)
        return moved.view(nearest.dtype)
    move = over if mode == "rm" else under
    shrinks = negative != (mode == "rm")
    stepped = np.where(shrinks, bits - unsigned(1), bits + unsigned(1))
    least = (top | unsigned(1)) if mode == "rm" else unsigned(1)
    stepped = np.where(nearest == 0, least, stepped)
    moved = np.where(move, stepped, bits)
    return moved.view(nearest.dtype)


def narrowed32(x: Array, mode: str) -> Array:
    """Float64 values (exact or rounded to odd) as float32 in a rounding mode."""
    nearest = x.astype(np.float32)
    if mode not in DIRECTED:
        return nearest
    back = nearest.astype(np.float64)
    return toward(nearest, back > x, back < x, mode)


def integral(x: Array, mode: str) -> Array:
    """Values rounded to integers: rn ties to even, ra ties away, rz, rm, rp."""
    match mode[:2]:
        case "rz":
            return np.trunc(x)
        case "rm":
            return np.floor(x)
        case "rp":
            return np.ceil(x)
        case _:
            return np.rint(x)


def quantised(x: Array, format_: Format, mode: str, *, finite: bool = False) -> Array:
    """Float64 values (exact or odd) as the codes of a format, in its container's integers.

    mode: rn, rna (ties away), rz, rm, rp. With `finite` what overflows, infinities included,
    becomes the largest finite value; without it, infinity, or NaN in a format without one.
    """
    return in_blocks(lambda part: _quantised(part, format_, mode, finite), x)


def _quantised(x: Array, format_: Format, mode: str, finite: bool) -> Array:
    bits = x.view(np.uint64)
    negative = x.view(np.int64) < 0
    size = np.abs(x)
    raw = ((bits >> np.uint64(52)) & np.uint64(0x7FF)).astype(np.int64) - 1023
    exponent = np.maximum(raw + format_.bias, 1)
    scale = format_.bias + format_.precision - 1 - exponent
    # Scaling by a power of two is exact: the quotient is a count of units in the last place.
    units = _rounded(np.ldexp(size, scale), negative, mode)
    code = ((exponent - 1) << (format_.precision - 1)) + np.where(
        np.isfinite(units), units, 0
    ).astype(np.int64)
    code = _bounded(code, np.isinf(x), negative, format_, mode=mode, finite=finite)
    nan = format_.nan if format_.nan is not None else format_.largest
    code = np.where(negative, code | (format_.sign >> format_.dropped), code)
    code = np.where(np.isnan(x), nan, code) << format_.dropped
    if format_.dropped:
        code = np.where(np.isnan(x), 0x7FFFFFFF, code)
    return code.astype(STORAGE[max(8, format_.width)])


def _rounded(units: Array, negative: Array, mode: str) -> Array:
    """Non-negative counts rounded to integers in the mode for the sign they carry."""
    if mode == "rna":
        whole = np.floor(units)
        return whole + (units - whole >= 0.5)
    if mode == "rm":
        return np.where(negative, np.ceil(units), np.floor(units))
    if mode == "rp":
        return np.where(negative, np.floor(units), np.ceil(units))
    return np.floor(units) if mode == "rz" else np.rint(units)


def _bounded(
    code: Array, infinite: Array, negative: Array, format_: Format, *, mode: str, finite: bool
) -> Array:
    """Codes with overflow made infinite, NaN or the largest value as the mode demands."""
    over = code > format_.largest
    if finite or (format_.infinity is None and format_.nan is None):
        return np.where(over | infinite, format_.largest, code)
    beyond = format_.infinity if format_.infinity is not None else format_.largest + 1
    stays = {"rz": np.ones(1, np.bool_), "rm": ~negative, "rp": negative}.get(
        mode, np.zeros(1, np.bool_)
    )
    code = np.where(over, np.where(stays, format_.largest, beyond), code)
    return np.where(infinite, beyond, code)
