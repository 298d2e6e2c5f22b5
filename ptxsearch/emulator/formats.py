"""Binary floating formats: their fields, views of stored bits as numbers, flushing, NaNs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ptxsearch.emulator.operation import Array

TINY32 = np.float32(2.0**-126)


@dataclass(frozen=True)
class Format:
    """A binary format: `code` below means its bits without the sign.

    `precision` counts the hidden bit; `largest` is the code of the largest finite value,
    `infinity` that of infinity (None: there is none), `nan` the code NaNs become (None: there
    is none). `dropped` low bits of the container are zero (tf32 in 32 bits).
    """

    width: int
    precision: int
    bias: int
    largest: int
    infinity: int | None
    nan: int | None
    dropped: int = 0

    @property
    def sign(self) -> int:
        """The bit that holds the sign."""
        return 1 << (self.width - 1)

    @property
    def smallest_normal(self) -> float:
        """The smallest positive normal value."""
        return float(2.0 ** (1 - self.bias))


FORMATS: Mapping[str, Format] = {
    "f64": Format(64, 53, 1023, (0x7FF << 52) - 1, 0x7FF << 52, 0x7FF8 << 48),
    "f32": Format(32, 24, 127, 0x7F7FFFFF, 0x7F800000, 0x7FFFFFFF),
    "tf32": Format(32, 11, 127, 0x3FBFF, 0x3FC00, 0x3FFFF, dropped=13),
    "f16": Format(16, 11, 15, 0x7BFF, 0x7C00, 0x7FFF),
    "bf16": Format(16, 8, 127, 0x7F7F, 0x7F80, 0x7FFF),
    "e4m3": Format(8, 4, 7, 0x7E, None, 0x7F),
    "e5m2": Format(8, 3, 15, 0x7B, 0x7C, 0x7F),
    "e2m3": Format(6, 4, 1, 0x1F, None, None),
    "e3m2": Format(6, 3, 3, 0x1F, None, None),
    "e2m1": Format(4, 2, 1, 0x7, None, None),
}


F16_VALUES = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
"""The value of every f16: looking it up is faster than converting it."""


def numbers(bits: Array, type_: str) -> Array:
    """Stored bits as numpy floats of the same values: f16 and bf16 become float32."""
    if type_ == "f32":
        return bits.view(np.float32)
    if type_ == "f64":
        return bits.view(np.float64)
    if type_ == "f16":
        return F16_VALUES.take(bits)
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def flushed32(x: Array) -> Array:
    """Float32 values with subnormal ones replaced by zeros of their sign."""
    small = np.abs(x) < TINY32
    if not small.any():
        return x
    return np.where(small, x * np.float32(0), x)


def flushed(x: Array, type_: str) -> Array:
    """Values with those below the smallest normal of a format replaced by signed zeros."""
    small = np.abs(x) < x.dtype.type(FORMATS[type_].smallest_normal)
    return np.where(small, x * x.dtype.type(0), x)


def canonical32(x: Array) -> Array:
    """Float32 results as stored bits, every NaN as the one the hardware makes."""
    bits = x.view(np.uint32)
    if np.isnan(np.maximum.reduce(x)):
        return np.where(np.isnan(x), np.uint32(0x7FFFFFFF), bits)
    return bits


def canonical64(x: Array, *sources: Array) -> Array:
    """Float64 results as stored bits, their NaNs quiet.

    A NaN made of none is the one ptxas's own sequences make; one made of a NaN keeps its payload.
    """
    bits = x.view(np.uint64)
    if not np.isnan(np.maximum.reduce(x)):
        return bits
    nan = np.isnan(x)
    inherited = _any_nan(sources) if sources else nan
    quiet = np.where(nan, bits | np.uint64(1 << 51), bits)
    return np.where(nan & ~inherited, np.uint64(0xFFF8 << 48), quiet)


def _any_nan(sources: tuple[Array, ...]) -> Array:
    found = np.isnan(sources[0])
    for source in sources[1:]:
        found = found | np.isnan(source)
    return found
