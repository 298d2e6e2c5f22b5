"""Fused multiply-add with one rounding, in float32 and float64."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from ptxsearch.emulator.formats import TINY32, canonical32
from ptxsearch.emulator.operation import Array
from ptxsearch.emulator.rounding import (
    in_blocks,
    narrowed32,
    odd,
    odd_sum,
    toward,
    two_product,
    two_sum,
)

HALF = np.uint64(1 << 28)
LEAST, MOST = 1e-280, 1e290
BELOW = np.uint64((1 << 29) - 1)


def fma32(a: Array, b: Array, c: Array) -> Array:
    """`a * b + c` of float32 arrays as stored bits, rounded once to nearest even.

    The product is exact in float64 and the sum nearly is: rounding it again to float32 can only
    go wrong where the float64 lies exactly halfway between two float32 values, or where the
    float32 result is subnormal. Those few lanes are summed again with rounding to odd.
    """
    total = _accumulated(a.astype(np.float64), b, np.multiply)
    total = _accumulated(total, c, np.add)
    result = total.astype(np.float32)
    below = total.view(np.uint64)
    below &= BELOW
    doubtful = below == HALF
    size = np.abs(result)
    # False for NaN too: one reduction finds the lanes to mend and the lanes to make canonical.
    ordinary = np.minimum.reduce(size) >= TINY32
    if not ordinary:
        # `total` is gone; exact zeros are many and need no mending.
        doubtful |= (size < TINY32) & (a.astype(np.float64) * b + c != 0)
    if doubtful.any():
        _mend(result, doubtful, (a, b, c))
    return result.view(np.uint32) if ordinary else canonical32(result)


def _accumulated(total: Array, x: Array, function: np.ufunc) -> Array:
    """The function of both in the memory of `total` where the lengths allow it."""
    fits = len(total) >= len(x)
    combined: Array = function(total, x, out=total) if fits else function(total, x)
    return combined


def _mend(result: Array, lanes: Array, sources: tuple[Array, ...]) -> None:
    """Puts the correctly rounded sums into the given lanes of `result`."""
    a, b, c = (np.broadcast_to(x, lanes.shape)[lanes].astype(np.float64) for x in sources)
    result[lanes] = odd_sum(a * b, c).astype(np.float32)


def fma32_directed(a: Array, b: Array, c: Array, mode: str) -> Array:
    """`a * b + c` of float32 arrays rounded once in a mode."""
    product = a.astype(np.float64) * b
    addend = c.astype(np.float64)
    return signed_zero(narrowed32(odd_sum(product, addend), mode), product, addend, mode)


def signed_zero(result: Array, a: Array, b: Array, mode: str) -> Array:
    """The sum `result` of a and b with an exact zero made -0 where rounding down asks for it."""
    if mode != "rm":
        return result
    exact = (result == 0) & (np.signbit(a) | np.signbit(b)) & (a == -b)
    return np.where(exact, result.dtype.type(-0.0), result)


def fma64(a: Array, b: Array, c: Array, mode: str = "rn") -> Array:
    """`a * b + c` of float64 arrays, rounded once."""
    return in_blocks(lambda x, y, z: _fma64(x, y, z, mode), a, b, c)


def _fma64(a: Array, b: Array, c: Array, mode: str) -> Array:
    """Boldo and Melquiond's algorithm: the exact result as two parts, the lower one to odd.

    Lanes whose exponents come near overflow or underflow are done in rational arithmetic.
    """
    a, b, c = np.broadcast_arrays(a, b, c)
    high, low = two_product(a, b)
    upper, upper_low = two_sum(c, low)
    total, total_low = two_sum(high, upper)
    small, small_low = two_sum(total_low, upper_low)
    rest = odd(small, small_low)
    result: Array = total + rest
    if mode != "rn":
        lost = two_sum(total, rest)[1]
        lost = np.where(lost != 0, lost, np.where(small == rest, small_low, small - rest))
        result = toward(result, lost < 0, lost > 0, mode)
    sizes = [np.abs(x) for x in (a, b, c, high)]
    # False for NaN as well. Every bit of a product above LEAST lies above the subnormals.
    if max(map(np.maximum.reduce, sizes)) < MOST and np.minimum.reduce(sizes[3]) > LEAST:
        return signed_zero(result, high, c, mode)
    special = (a == 0) | (b == 0) | ~(np.isfinite(a) & np.isfinite(b) & np.isfinite(c))
    safe = np.logical_and.reduce([size < MOST for size in sizes]) & (sizes[3] > LEAST)
    result = np.where(special, a * b + c, result)
    hard = ~(safe | special)
    if hard.any():
        result[hard] = [
            _rational(*lane, mode) for lane in zip(a[hard], b[hard], c[hard], strict=True)
        ]
    return signed_zero(result, high, c, mode)


def _rational(a: float, b: float, c: float, mode: str) -> float:
    """`a * b + c` of finite numbers by exact fractions."""
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    return rounded(exact, mode) if exact else float(a * b + c)


def rounded(exact: Fraction, mode: str) -> float:
    """A fraction that is not zero as a float64 in a rounding mode."""
    size = abs(exact)
    exponent = max(size.numerator.bit_length() - size.denominator.bit_length() - 1, -1023)
    while size >= Fraction(2) ** (exponent + 1):
        exponent += 1
    unit = Fraction(2) ** (max(exponent, -1022) - 52)
    below, rest = divmod(size, unit)
    away = {
        "rn": rest * 2 > unit or (rest * 2 == unit and below % 2 == 1),
        "rz": False,
        "rm": rest > 0 and exact < 0,
        "rp": rest > 0 and exact > 0,
    }[mode]
    value = (below + away) * unit
    if value >= Fraction(2) ** 1024:
        inward = mode == "rz" or mode == ("rm" if exact > 0 else "rp")
        size_float = float(np.finfo(np.float64).max) if inward else float("inf")
    else:
        size_float = float(value)
    return -size_float if exact < 0 else size_float
