"""Floating arithmetic of the emulator against exact rational rounding."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from ptxsearch.emulator.arithmetic import Array
from tests.arithmetic_oracle import (
    NAN,
    WORD,
    apply,
    fused,
    number,
    operation,
    rounded,
    samples,
    stored,
)

MODES = ("rn", "rz", "rm", "rp")
COUNT = 2000


def expected(a: Array, b: Array, c: Array, *, type_: str, mode: str) -> Array:
    """The exact fused result of each lane as stored bits."""
    lanes = zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
    values = [fused(*(number(x, type_) for x in lane), type_=type_, mode=mode) for lane in lanes]
    return np.array([stored(value, type_) for value in values], WORD[type_])


def same(got: Array, want: Array) -> None:
    """Fails with the first lanes that differ; f64 NaNs, which keep payloads, are all alike."""
    differs = got != want
    if got.dtype == np.uint64:
        differs &= ~(np.isnan(got.view(np.float64)) & np.isnan(want.view(np.float64)))
    bad = np.flatnonzero(differs)
    assert not len(bad), [(int(i), hex(got[i]), hex(want[i])) for i in bad[:5]]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_fma_is_rounded_once(type_: str, mode: str) -> None:
    """`fma` equals the exact product plus addend rounded once, in every mode."""
    a, b, c = (samples(type_, COUNT, seed) for seed in (1, 2, 3))
    same(apply(f"fma.{mode}.{type_}", a, b, c), expected(a, b, c, type_=type_, mode=mode))


@pytest.mark.parametrize("type_", ["f16", "bf16"])
def test_half_fma_is_rounded_once(type_: str) -> None:
    """`fma` of 16-bit floats equals the exact result rounded to nearest even."""
    a, b, c = (samples(type_, COUNT, seed) for seed in (4, 5, 6))
    same(apply(f"fma.rn.{type_}", a, b, c), expected(a, b, c, type_=type_, mode="rn"))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_sums_and_products(type_: str, mode: str) -> None:
    """`add`, `sub` and mul equal the exact result rounded in the mode."""
    a, b = samples(type_, COUNT, 7), samples(type_, COUNT, 8)
    one = np.full_like(a, stored(1.0, type_))
    same(apply(f"add.{mode}.{type_}", a, b), expected(a, one, b, type_=type_, mode=mode))
    top = a.dtype.type(1 << (8 * a.dtype.itemsize - 1))
    same(apply(f"sub.{mode}.{type_}", a, b), expected(a, one, b ^ top, type_=type_, mode=mode))
    zero = (a ^ b) & top
    want = expected(a, b, zero, type_=type_, mode=mode)
    same(apply(f"mul.{mode}.{type_}", a, b), want)


@pytest.mark.parametrize("type_", ["f16", "bf16"])
def test_half_sums_and_products(type_: str) -> None:
    """`add`, `sub` and mul of 16-bit floats equal the exact result rounded to nearest even."""
    a, b = samples(type_, COUNT, 9), samples(type_, COUNT, 10)
    one, top = np.full_like(a, stored(1.0, type_)), np.uint16(0x8000)
    same(apply(f"add.{type_}", a, b), expected(a, one, b, type_=type_, mode="rn"))
    same(apply(f"sub.{type_}", a, b), expected(a, one, b ^ top, type_=type_, mode="rn"))
    same(apply(f"mul.{type_}", a, b), expected(a, b, (a ^ b) & top, type_=type_, mode="rn"))


def test_fma32_at_ties() -> None:
    """A product halfway between two f32 goes the way of an addend far too small for float64."""
    rng = np.random.default_rng(11)
    a = ((rng.integers(2048, 4096, COUNT) | 1).astype(np.float32)).view(np.uint32)
    b = ((rng.integers(4096, 8192, COUNT) | 1).astype(np.float32)).view(np.uint32)
    sign = rng.choice([-1.0, 1.0], COUNT)
    c = (sign * 2.0 ** rng.integers(-126, -30, COUNT)).astype(np.float32).view(np.uint32)
    same(apply("fma.rn.f32", a, b, c), expected(a, b, c, type_="f32", mode="rn"))


def test_fma32_below_the_normal_range() -> None:
    """A subnormal sum halfway between two values goes the way of a much smaller product."""
    steps = np.arange(1, 200, dtype=np.float64)
    c = (steps * 2.0**-149).astype(np.float32)
    a = np.full(steps.shape, 2.0**-75 * (1 + 2.0**-20), np.float32)
    b = np.full(steps.shape, 2.0**-75 * (1 - 2.0**-22), np.float32)
    bits = [x.view(np.uint32) for x in (a, b, c)]
    same(apply("fma.rn.f32", *bits), expected(*bits, type_="f32", mode="rn"))


@pytest.mark.parametrize("mode", MODES)
def test_fma64_with_cancellation(mode: str) -> None:
    """`fma` of f64 keeps the low half of the product when the addend cancels the upper half."""
    rng = np.random.default_rng(12)
    a, b = rng.standard_normal(COUNT), rng.standard_normal(COUNT)
    c = -(a * b) * (1 + rng.choice([0, 2.0**-52, -(2.0**-40)], COUNT))
    bits = [x.view(np.uint64) for x in (a, b, c)]
    same(apply(f"fma.{mode}.f64", *bits), expected(*bits, type_="f64", mode=mode))


def test_fma64_at_the_ends_of_the_range() -> None:
    """`fma` of f64 is exact where products overflow, underflow or meet subnormal addends."""
    rng = np.random.default_rng(13)
    a = np.ldexp(1 + rng.random(COUNT), rng.integers(-1070, 1023, COUNT))
    b = np.ldexp(1 + rng.random(COUNT), rng.integers(-600, 500, COUNT))
    c = np.ldexp(1 + rng.random(COUNT), rng.integers(-1070, 1023, COUNT))
    c[::3] = -c[::3]
    bits = [x.view(np.uint64) for x in (a, b, c)]
    same(apply("fma.rn.f64", *bits), expected(*bits, type_="f64", mode="rn"))


def test_flush_to_zero() -> None:
    """.ftz replaces subnormal sources and results by zeros of their sign."""
    a = np.array([1, 0x80000001, 0x00800000, 0x80800000], np.uint32)
    b = np.array([0x00800000, 0x00800000, 0x3F000000, 0x3F000000], np.uint32)
    assert apply("add.ftz.f32", a, b)[:2].tolist() == [0x00800000, 0x00800000]
    assert apply("mul.ftz.f32", a, b).tolist() == [0, 0x80000000, 0, 0x80000000]
    assert apply("mul.f32", a, b)[2:].tolist() == [0x00400000, 0x80400000]
    assert apply("abs.ftz.f32", a).tolist() == [0, 0, 0x00800000, 0x00800000]


def test_saturation() -> None:
    """.sat clamps to [0, 1] and makes NaN +0."""
    a = np.array([-1.0, 0.25, 3.0, np.nan, np.inf, -np.inf], np.float32).view(np.uint32)
    got = apply("add.sat.f32", a, np.zeros(1, np.uint32)).view(np.float32)
    assert got.tolist() == [0.0, 0.25, 1.0, 0.0, 1.0, 0.0]


def test_made_nans_are_canonical() -> None:
    """NaNs made by arithmetic have the bits the hardware gives, copies keep their payload."""
    nan = np.array([0x7FC12345, 0xFFC00001], np.uint32)
    one = np.array([0x3F800000], np.uint32)
    assert apply("add.f32", nan, one).tolist() == [NAN["f32"]] * 2
    assert apply("fma.rn.f32", nan, one, one).tolist() == [NAN["f32"]] * 2
    assert apply("neg.f32", nan).tolist() == [0xFFC12345, 0x7FC00001]
    assert apply("abs.f32", nan).tolist() == [0x7FC12345, 0x7FC00001]
    assert apply("copysign.f32", nan[1:], one).tolist() == [0xBF800000]


def test_f64_nans_are_quiet_and_inherited() -> None:
    """f64 NaNs keep their payload, quieted; those made of none have the sign set."""
    infinity, payload = 0x7FF << 52, 0x7FF0 << 48 | 0x1234
    a = np.array([infinity, payload, 0], np.uint64)
    b = np.array([infinity | 1 << 63, 0, payload], np.uint64)
    quiet = payload | 1 << 51
    assert apply("add.f64", a, b).tolist() == [0xFFF8 << 48, quiet, quiet]
    assert apply("fma.rn.f64", a, b, b).tolist() == [infinity | 1 << 63, quiet, quiet]
    assert apply("sqrt.rn.f64", b[:1]).tolist() == [0xFFF8 << 48]
    both = np.array([quiet], np.uint64), np.array([quiet + 1], np.uint64)
    assert apply("min.f64", *both).tolist() == [quiet + 1]


@pytest.mark.parametrize("type_", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("opcode", ["min", "max"])
def test_extremes(opcode: str, type_: str) -> None:
    """`min` and `max` ignore a single NaN and order -0 below +0; with .NaN they propagate it."""
    a, b = samples(type_, COUNT, 14), samples(type_, COUNT, 15)
    pairs = [
        (number(x, type_), number(y, type_)) for x, y in zip(a.tolist(), b.tolist(), strict=True)
    ]
    choose = min if opcode == "min" else max

    def pick(x: float, y: float, nan: bool) -> float:
        if math.isnan(x) or math.isnan(y):
            both = math.isnan(x) and math.isnan(y)
            return math.nan if nan or both else (y if math.isnan(x) else x)
        return choose((x, y), key=lambda v: (v, math.copysign(1, v)))

    want = [stored(pick(x, y, False), type_) for x, y in pairs]
    same(apply(f"{opcode}.{type_}", a, b), np.array(want, WORD[type_]))
    if type_ != "f64":
        want = [stored(pick(x, y, True), type_) for x, y in pairs]
        same(apply(f"{opcode}.NaN.{type_}", a, b), np.array(want, WORD[type_]))


def test_extreme_of_sizes_with_joined_signs() -> None:
    """.xorsign.abs gives the smaller size with the product of the signs."""
    a = np.array([-3.0, 2.0, -2.0], np.float32).view(np.uint32)
    b = np.array([1.0, -5.0, -7.0], np.float32).view(np.uint32)
    got = apply("min.xorsign.abs.f32", a, b).view(np.float32)
    assert got.tolist() == [-1.0, -2.0, 2.0]


def test_pairs_work_lane_by_lane() -> None:
    """Packed forms give for each half what the single form gives, also with a uniform source."""
    rng = np.random.default_rng(16)
    words = [rng.integers(0, 1 << 32, 500, dtype=np.uint32) for _ in range(3)]
    words[1] = words[1][:1]
    for type_, opcode in (("f16", "fma.rn"), ("bf16", "fma.rn.relu"), ("f16", "fma.rn.relu")):
        halves = [word.view(np.uint16) for word in words]
        halves[1] = np.tile(halves[1], 500)
        want = apply(f"{opcode}.{type_}", *halves).view(np.uint32)
        same(apply(f"{opcode}.{type_}x2", *words), want)


def test_relu_clamps_negative_results() -> None:
    """.relu turns negative results into +0 and keeps the canonical NaN."""
    a = np.array([-2.0, 3.0, np.nan], np.float16).view(np.uint16)
    one, zero = np.array([0x3C00], np.uint16), np.array([0], np.uint16)
    assert apply("fma.rn.relu.f16", a, one, zero).tolist() == [0, 0x4200, 0x7FFF]


def test_two_singles_in_a_word() -> None:
    """f32x2 forms work on both 32-bit halves."""
    rng = np.random.default_rng(17)
    a, b, c = (rng.standard_normal(400).astype(np.float32) for _ in range(3))
    exact = a.astype(np.float64) * b + c
    got = apply("fma.rn.f32x2", *(x.view(np.uint64) for x in (a, b, c))).view(np.float32)
    assert np.allclose(got, exact, rtol=2**-23, atol=0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_quotients_and_roots_are_rounded(type_: str, mode: str) -> None:
    """`div` and `rcp` with a mode equal the exact quotient rounded in it."""
    a, b = samples(type_, 800, 18), samples(type_, 800, 19)
    x = [number(v, type_) for v in a.tolist()]
    y = [number(v, type_) for v in b.tolist()]
    got = apply(f"div.{mode}.{type_}", a, b).tolist()
    inverse = apply(f"rcp.{mode}.{type_}", b).tolist()
    for p, q, quotient, reciprocal in zip(x, y, got, inverse, strict=True):
        if math.isfinite(p) and p and math.isfinite(q) and q:
            exact = Fraction(p) / Fraction(q)
            assert quotient == stored(rounded(exact, type_, mode), type_), (p, q)
            exact = 1 / Fraction(q)
            assert reciprocal == stored(rounded(exact, type_, mode), type_), q


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_roots_lie_on_the_side_of_their_mode(type_: str, mode: str) -> None:
    """The square of a root and of its neighbours enclose the source as the mode demands."""
    a = samples(type_, 800, 20)
    values = [number(v, type_) for v in a.tolist()]
    for value, bits in zip(values, apply(f"sqrt.{mode}.{type_}", a).tolist(), strict=True):
        if not (math.isfinite(value) and value > 0):
            continue
        exact, root = Fraction(value), Fraction(number(bits, type_))
        below, above = (Fraction(number(bits + step, type_)) for step in (-1, 1))
        if mode == "rn":
            assert ((root + below) / 2) ** 2 <= exact <= ((root + above) / 2) ** 2
        elif mode == "rp":
            assert below**2 < exact <= root**2
        else:
            assert root**2 <= exact < above**2


def test_counts_of_operations() -> None:
    """Each form reports its operations under the profiler's names, packed ones twice."""
    assert operation("fma.rn.f32", 3).flops == {"fp32_fma": 1}
    assert operation("sub.f64", 2).flops == {"fp64_add": 1}
    assert operation("fma.rn.f16x2", 3).flops == {"fp16_fma": 2}
    assert operation("mul.bf16", 2).flops == {"fp16_mul": 1}
    assert not operation("max.f32", 2).flops
