"""Conversions of the emulator against tables of every value of the narrow formats."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from ptxsearch.emulator.arithmetic import Array
from tests.arithmetic_oracle import NAN, apply, number, rounded, samples, stored

DTYPES = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "e2m3": np.dtype(ml_dtypes.float6_e2m3fn),
    "e3m2": np.dtype(ml_dtypes.float6_e3m2fn),
    "e2m1": np.dtype(ml_dtypes.float4_e2m1fn),
}
LARGEST = {
    "f16": 0x7BFF,
    "bf16": 0x7F7F,
    "e4m3": 0x7E,
    "e5m2": 0x7B,
    "e2m3": 0x1F,
    "e3m2": 0x1F,
    "e2m1": 0x7,
}
SIGN = {"f16": 15, "bf16": 15, "e4m3": 7, "e5m2": 7, "e2m3": 5, "e3m2": 5, "e2m1": 3}
INFINITY = {"f16": 0x7C00, "bf16": 0x7F80}


def values(type_: str) -> Array:
    """The finite non-negative values of a format in order of their codes, as float64."""
    codes = np.arange(LARGEST[type_] + 1)
    raw = codes.astype(np.uint16 if DTYPES[type_].itemsize == 2 else np.uint8)
    table: Array = raw.view(DTYPES[type_]).astype(np.float64)
    return table


def probes(type_: str) -> Array:
    """Every value of a format, every midpoint and the float32 beside each, with both signs."""
    table = values(type_)
    middle = (table[1:] + table[:-1]) / 2
    past = [table[-1] * 2, table[-1] + (table[-1] - table[-2]) / 2, np.inf]
    with np.errstate(all="ignore"):
        points = np.concatenate([table, middle, past]).astype(np.float32)
        points = np.concatenate(
            [points, np.nextafter(points, np.float32(0)), np.nextafter(points, np.float32(np.inf))]
        )
    return np.concatenate([points, -points])


def expected(x: Array, type_: str, mode: str, *, finite: bool = False) -> Array:
    """Codes of float values by a search in the table of the format."""
    table, size = values(type_), np.abs(x.astype(np.float64))
    below = np.clip(np.searchsorted(table, size, side="right") - 1, 0, None)
    step = table[-1] - table[-2]
    upper = np.append(table[1:], table[-1] + step)[below]
    lower = table[below]
    middle, exact = (lower + upper) / 2, size == lower
    away = {
        "rn": (size > middle) | ((size == middle) & (below % 2 == 1)),
        "rna": size >= middle,
        "rz": np.zeros(size.shape, bool),
        "rm": (x < 0) & ~exact,
        "rp": (x > 0) & ~exact,
    }[mode]
    code = below + away
    over, largest = code > LARGEST[type_], LARGEST[type_]
    code = np.where(over | np.isinf(x), largest if finite else INFINITY.get(type_, 0), code)
    signed: Array = code | (np.signbit(x).astype(np.int64) << SIGN[type_])
    return signed


@pytest.mark.parametrize("mode", ["rn", "rz"])
@pytest.mark.parametrize("type_", ["f16", "bf16"])
def test_f32_to_half(type_: str, mode: str) -> None:
    """Every value of a half format, every tie and their neighbours convert exactly."""
    x = probes(type_)
    got = apply(f"cvt.{mode}.{type_}.f32", x.view(np.uint32))
    assert (got == expected(x, type_, mode)).all()
    got = apply(f"cvt.{mode}.satfinite.{type_}.f32", x.view(np.uint32))
    assert (got == expected(x, type_, mode, finite=True)).all()


@pytest.mark.parametrize("mode", ["rm", "rp"])
def test_f64_to_f16_directed(mode: str) -> None:
    """Directed conversions of f64 to f16 round to the side they name."""
    x = probes("f16").astype(np.float64) * (1 + 2.0**-50)
    x = x[np.isfinite(x)]
    x = x[np.abs(x) <= 65504]
    got = apply(f"cvt.{mode}.f16.f64", x.view(np.uint64))
    assert (got == expected(x, "f16", mode)).all()


@pytest.mark.parametrize("type_", ["e4m3", "e5m2", "e2m3", "e3m2", "e2m1"])
def test_f32_to_narrow_pairs(type_: str) -> None:
    """Pairs of narrow floats saturate and put the first source in the upper part."""
    x = probes(type_)
    got = apply(
        f"cvt.rn.satfinite.{type_}x2.f32", x.view(np.uint32), x[::-1].copy().view(np.uint32)
    )
    want = expected(x, type_, "rn", finite=True)
    shift = 4 if type_ == "e2m1" else 8
    assert (got == (want << shift | want[::-1])).all()


@pytest.mark.parametrize("type_", ["e4m3", "e5m2"])
def test_f16_pairs_to_narrow_pairs(type_: str) -> None:
    """Every f16 converts to the code ml_dtypes gives, saturating at the largest value."""
    halves = np.arange(1 << 16, dtype=np.uint16)
    x = halves.view(np.float16).astype(np.float32)
    got = apply(f"cvt.rn.satfinite.{type_}x2.f16x2", halves.view(np.uint32)).view(np.uint8)
    good = ~np.isnan(x)
    assert (got[good] == expected(x[good], type_, "rn", finite=True)).all()
    assert (got[~good] == 0x7F).all()


@pytest.mark.parametrize("type_", ["e4m3", "e5m2", "e2m3", "e3m2", "e2m1"])
def test_narrow_pairs_to_f16(type_: str) -> None:
    """Every code of a narrow format has the value ml_dtypes gives it."""
    top = 1 << (SIGN[type_] + 1)
    codes = np.arange(top, dtype=np.uint8)
    if type_ == "e2m1":
        got = apply("cvt.rn.f16x2.e2m1x2", codes | codes << np.uint8(4)).view(np.uint16)[::2]
    else:
        got = apply(f"cvt.rn.f16x2.{type_}x2", codes.view(np.uint16)).view(np.uint16)
    want = codes.view(DTYPES[type_]).astype(np.float32)
    bits = want.astype(np.float16).view(np.uint16)
    assert (got == np.where(np.isnan(want), np.uint16(0x7FFF), bits)).all()


def test_scale_factors() -> None:
    """ue8m0 holds powers of two: rp goes up, rz goes down, NaN is 255."""
    x = np.array([1.0, 1.5, 2.0, -4.0, 0.0, 2.0**-130, 3e38, np.nan, np.inf], np.float32)
    b = np.zeros(1, np.uint32)
    up = apply("cvt.rp.satfinite.ue8m0x2.f32", x.view(np.uint32), b) >> np.uint16(8)
    down = apply("cvt.rz.satfinite.ue8m0x2.f32", x.view(np.uint32), b) >> np.uint16(8)
    assert up.tolist() == [127, 128, 128, 129, 0, 0, 254, 255, 254]
    assert down.tolist() == [127, 127, 128, 129, 0, 0, 254, 255, 254]
    back = apply("cvt.rn.bf16x2.ue8m0x2", np.array([0xFF80], np.uint16))
    assert back.view(np.uint16).tolist() == [0x4000, 0x7FFF]


def test_tf32() -> None:
    """tf32 keeps ten fraction bits: rna rounds ties away, rn to even."""
    x = np.array([0x3F801000, 0x3F800FFF, 0xBF803000, 0x7F800000, 0x3F802000], np.uint32)
    away = apply("cvt.rna.tf32.f32", x).tolist()
    assert away == [0x3F802000, 0x3F800000, 0xBF804000, 0x7F800000, 0x3F802000]
    even = apply("cvt.rn.tf32.f32", x).tolist()
    assert even == [0x3F800000, 0x3F800000, 0xBF804000, 0x7F800000, 0x3F802000]


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_f64_to_f32(mode: str) -> None:
    """cvt.f32.f64 equals exact rounding in every mode, overflow and subnormals included."""
    a = samples("f64", 1500, 1)
    rng = np.random.default_rng(2)
    wide = np.ldexp(rng.standard_normal(1500), rng.integers(-155, 132, 1500)).view(np.uint64)
    a = np.concatenate([a, wide])
    got = apply(f"cvt.{mode}.f32.f64", a).tolist()
    for bits, result in zip(a.tolist(), got, strict=True):
        x = number(bits, "f64")
        if math.isfinite(x) and x:
            assert result == stored(rounded(Fraction(x), "f32", mode), "f32"), x
        else:
            assert result == (NAN["f32"] if math.isnan(x) else stored(x, "f32"))


@pytest.mark.parametrize("type_", ["f16", "bf16"])
def test_half_to_wider(type_: str) -> None:
    """Every half value widens exactly; NaNs become canonical."""
    bits = np.arange(1 << 16, dtype=np.uint16)
    want = bits.view(DTYPES[type_]).astype(np.float32)
    got = apply(f"cvt.f32.{type_}", bits)
    assert (got == np.where(np.isnan(want), np.uint32(0x7FFFFFFF), want.view(np.uint32))).all()


INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")


def limits(type_: str) -> tuple[int, int]:
    """The least and the largest value of an integer type."""
    bits = int(type_[1:])
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if type_[0] == "s" else (0, (1 << bits) - 1)


@pytest.mark.parametrize("source", ["f16", "f32", "f64"])
@pytest.mark.parametrize("type_", INTEGERS)
def test_float_to_integer(type_: str, source: str) -> None:
    """Every integer rounding clamps to the range of the result; NaN follows the manual."""
    low, high = limits(type_)
    bits = int(type_[1:])
    a = samples(source, 500, 3)
    rng = np.random.default_rng(4)
    kind = {"f16": np.float16, "f32": np.float32, "f64": np.float64}[source]
    with np.errstate(all="ignore"):
        more = (rng.integers(-600, 600, 400) / 2).astype(kind)
        ends = np.array([high, low, float(high) + 1, float(low) - 1]).astype(kind)
    a = np.concatenate([a, more.view(a.dtype), ends.view(a.dtype)])
    functions: dict[str, Callable[[float], int]] = {
        "rni": round,
        "rzi": math.trunc,
        "rmi": math.floor,
        "rpi": math.ceil,
    }
    nan = 1 << (bits - 1) if source == "f64" or bits == 64 else 0
    for mode, function in functions.items():
        got = apply(f"cvt.{mode}.{type_}.{source}", a).tolist()
        for word, result in zip(a.tolist(), got, strict=True):
            x = number(word, source)
            if math.isnan(x):
                want = nan
            elif math.isinf(x):
                want = high if x > 0 else low
            else:
                want = max(low, min(high, function(x)))
            assert result == want & ((1 << bits) - 1), (mode, x)


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("target", ["f16", "f32", "f64"])
@pytest.mark.parametrize("type_", ["u8", "s16", "s32", "u32", "s64", "u64"])
def test_integer_to_float(type_: str, target: str, mode: str) -> None:
    """Integers of every width convert with one rounding."""
    bits = int(type_[1:])
    rng = np.random.default_rng(5)
    a = rng.integers(0, (1 << bits) - 1, 600, dtype=np.uint64, endpoint=True)
    a >>= rng.integers(0, bits, 600).astype(np.uint64)
    halfway = (np.uint64(1) << np.uint64(min(bits - 1, 54))) + np.arange(-4, 5).astype(np.uint64)
    a = np.concatenate([a, halfway]).astype(f"u{bits // 8}")
    got = apply(f"cvt.{mode}.{target}.{type_}", a).tolist()
    for word, result in zip(a.tolist(), got, strict=True):
        x = word - (1 << bits) if type_[0] == "s" and word >> (bits - 1) else word
        want = rounded(Fraction(x), target, mode) if x else 0.0
        assert result == stored(want, target), x


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("type_", INTEGERS)
def test_between_integers(type_: str, source: str) -> None:
    """Integers are cut or extended by the sign of the source; .sat clamps."""
    bits, wide = int(source[1:]), int(type_[1:])
    rng = np.random.default_rng(6)
    a = rng.integers(0, (1 << bits) - 1, 300, dtype=np.uint64, endpoint=True)
    ends = np.array([0, 1, (1 << bits) - 1, 1 << (bits - 1)], np.uint64)
    a = np.concatenate([a, ends]).astype(f"u{bits // 8}")
    low, high = limits(type_)
    cut, clamped = (apply(f"cvt.{s}{type_}.{source}", a).tolist() for s in ("", "sat."))
    for word, plain, sat in zip(a.tolist(), cut, clamped, strict=True):
        x = word - (1 << bits) if source[0] == "s" and word >> (bits - 1) else word
        assert plain == x & ((1 << wide) - 1)
        assert sat == max(low, min(high, x)) & ((1 << wide) - 1)


def test_rounding_to_integral_floats() -> None:
    """cvt.rXi between equal float types rounds to an integral value, .sat to [0, 1]."""
    x = np.array([-1.5, -0.5, 0.5, 1.5, 2.5, 0.25, np.nan], np.float32)
    bits = x.view(np.uint32)
    assert apply("cvt.rni.f32.f32", bits)[:6].view(np.float32).tolist() == [-2, -0.0, 0, 2, 2, 0]
    assert apply("cvt.rpi.f32.f32", bits)[:6].view(np.float32).tolist() == [-1, -0.0, 1, 2, 3, 1]
    assert apply("cvt.sat.f32.f32", bits).view(np.float32).tolist() == [0, 0, 0.5, 1, 1, 0.25, 0]


def test_packed_integers() -> None:
    """cvt.pack clamps two integers and pushes them below the bits of the third source."""
    a, b = np.array([300, -300, 7], np.int32), np.array([-1, 5, 9], np.int32)
    c = np.array([0xABCD1234] * 3, np.uint32)
    words = a.view(np.uint32), b.view(np.uint32)
    assert apply("cvt.pack.sat.u16.s32", *words).tolist() == [0x012C0000, 5, 0x00070009]
    assert apply("cvt.pack.sat.s16.s32", *words).tolist() == [0x012CFFFF, 0xFED40005, 0x00070009]
    got = apply("cvt.pack.sat.s8.s32.b32", *words, c).tolist()
    assert got == [0x12347FFF, 0x12348005, 0x12340709]
    got = apply("cvt.pack.sat.u4.s32.b32", *words, c).tolist()
    assert got == [0xCD1234F0, 0xCD123405, 0xCD123479]


@pytest.mark.parametrize("type_", ["f16", "bf16"])
def test_f32_pairs_to_half_pairs(type_: str) -> None:
    """The first source becomes the upper half; .relu removes negative values."""
    a = np.array([1.0, -2.0, 0.1], np.float32)
    b = np.array([0.5, 7000.0, -0.0], np.float32)
    upper, lower = (x.astype(DTYPES[type_]).view(np.uint16).astype(np.uint32) for x in (a, b))
    words = a.view(np.uint32), b.view(np.uint32)
    assert (apply(f"cvt.rn.{type_}x2.f32", *words) == (upper << np.uint32(16) | lower)).all()
    got = apply(f"cvt.rn.relu.{type_}x2.f32", *words) >> np.uint32(16)
    assert got.tolist() == [int(upper[0]), 0, int(upper[2])]
