"""Approximate functions of the emulator within the bounds the PTX ISA states."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from ptxsearch.emulator.arithmetic import Array
from tests.arithmetic_oracle import apply, number

NAN = 0x7FFFFFFF
INF = 0x7F800000


def spread(seed: int, low: float, high: float, count: int = 4000) -> Array:
    """Positive f32 values whose exponents cover a range evenly."""
    rng = np.random.default_rng(seed)
    return (2.0 ** rng.uniform(low, high, count)).astype(np.float32)


def exact(function: Callable[[float], float], x: Array) -> Array:
    """A function of Python floats over an array."""
    return np.array([function(value) for value in x.astype(np.float64).tolist()])


BOUNDS: list[tuple[str, Callable[[float], float], float, float, float]] = [
    ("rcp.approx.ftz.f32", lambda v: 1 / v, -125, 125, 2.0**-23),
    ("sqrt.approx.f32", math.sqrt, -120, 126, 2.0**-23),
    ("rsqrt.approx.f32", lambda v: 1 / math.sqrt(v), -120, 126, 2.0**-22.9),
    ("tanh.approx.f32", math.tanh, -20, 5, 2.0**-11),
]


@pytest.mark.parametrize(("name", "function", "low", "high", "bound"), BOUNDS)
def test_relative_bounds(
    name: str, function: Callable[[float], float], low: float, high: float, bound: float
) -> None:
    """Relative errors stay within the stated bound over the range of exponents."""
    x = spread(1, low, high)
    got = apply(name, x.view(np.uint32)).view(np.float32).astype(np.float64)
    want = exact(function, x)
    assert np.max(np.abs(got - want) / want) <= bound


def test_exponential() -> None:
    """ex2 is within 2 units in the last place over the whole range."""
    x = np.random.default_rng(2).uniform(-125, 127, 4000).astype(np.float32)
    got = apply("ex2.approx.ftz.f32", x.view(np.uint32)).view(np.float32).astype(np.float64)
    want = 2.0 ** x.astype(np.float64)
    assert np.max(np.abs(got - want) / want) <= 2 * 2.0**-23


def test_logarithm() -> None:
    """lg2 has an absolute error of 2**-22 near one and that relative error elsewhere."""
    near = np.random.default_rng(3).uniform(0.5, 2, 4000).astype(np.float32)
    got = apply("lg2.approx.f32", near.view(np.uint32)).view(np.float32).astype(np.float64)
    assert np.max(np.abs(got - exact(math.log2, near))) <= 2.0**-22
    far = np.concatenate([spread(4, -148, -1.01), spread(5, 1.01, 127)])
    got = apply("lg2.approx.f32", far.view(np.uint32)).view(np.float32).astype(np.float64)
    want = exact(math.log2, far)
    assert np.max(np.abs(got / want - 1)) <= 2.0**-22


def test_circular_functions() -> None:
    """Sin and cos have an absolute error of at most 2**-20.5 within pi of zero."""
    x = np.random.default_rng(6).uniform(-math.pi, math.pi, 4000).astype(np.float32)
    for name, function in (("sin", math.sin), ("cos", math.cos)):
        got = apply(f"{name}.approx.f32", x.view(np.uint32)).view(np.float32).astype(np.float64)
        assert np.max(np.abs(got - exact(function, x))) <= 2.0**-20.5


ZERO, LEAST, ONE = 0x00000000, 0x00000001, 0x3F800000
SIGN = 0x80000000


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("rcp.approx.ftz.f32", {ZERO: INF, SIGN: INF | SIGN, LEAST: INF, INF: 0, NAN: NAN}),
        ("rsqrt.approx.ftz.f32", {ZERO: INF, SIGN: INF | SIGN, LEAST: INF, ONE | SIGN: NAN}),
        ("sqrt.approx.ftz.f32", {ZERO: 0, SIGN: SIGN, LEAST: 0, ONE | SIGN: NAN, INF: INF}),
        ("lg2.approx.ftz.f32", {ZERO: INF | SIGN, LEAST: INF | SIGN, ONE | SIGN: NAN, INF: INF}),
        ("ex2.approx.ftz.f32", {ZERO: ONE, SIGN: ONE, INF: INF, INF | SIGN: 0, LEAST: ONE}),
        ("sin.approx.ftz.f32", {ZERO: 0, SIGN: SIGN, LEAST: 0, INF: NAN, NAN: NAN}),
        ("cos.approx.ftz.f32", {ZERO: ONE, INF: NAN, LEAST | SIGN: ONE}),
        ("tanh.approx.f32", {ZERO: 0, SIGN: SIGN, INF: ONE, INF | SIGN: ONE | SIGN, NAN: NAN}),
    ],
)
def test_special_values(name: str, table: dict[int, int]) -> None:
    """Zeros, infinities, subnormals, negatives and NaN give what the manual's tables say."""
    got = apply(name, np.array(list(table), np.uint32)).tolist()
    assert got == list(table.values())


def test_subnormal_results() -> None:
    """Without .ftz subnormal sources and results are kept, with it they are zeros."""
    x = np.array([-130.0, -140.5], np.float32).view(np.uint32)
    kept = apply("ex2.approx.f32", x).view(np.float32).astype(np.float64)
    assert np.allclose(kept, [2.0**-130, 2.0**-140.5], rtol=2.0**-8, atol=0)
    assert apply("ex2.approx.ftz.f32", x).tolist() == [0, 0]


def test_approximate_quotient() -> None:
    """div.approx is within 2 units in the last place, and 0 where the divisor exceeds 2**126."""
    a, b = spread(7, -60, 60), spread(8, -60, 60)
    for form in ("approx", "full"):
        got = apply(f"div.{form}.f32", a.view(np.uint32), b.view(np.uint32)).view(np.float32)
        want = a.astype(np.float64) / b.astype(np.float64)
        assert np.max(np.abs(got / want - 1)) <= 2 * 2.0**-23
    big = np.array([2.0**127, 2.0**127, -(2.0**127)], np.float32).view(np.uint32)
    top = np.array([3.0, np.inf, 3.0], np.float32).view(np.uint32)
    assert apply("div.approx.f32", top, big).tolist() == [0, NAN, SIGN]


@pytest.mark.parametrize(("type_", "bound"), [("f16", 2.0**-9.9), ("bf16", 2.0**-7)])
@pytest.mark.parametrize("name", ["ex2", "tanh"])
def test_half_functions(name: str, type_: str, bound: float) -> None:
    """ex2 and tanh of every 16-bit value in range are within the stated relative error."""
    bits = np.arange(1 << 16, dtype=np.uint16)
    x = np.array([number(word, type_) for word in bits.tolist()])
    inside = (np.abs(x) > 2.0**-12) & (np.abs(x) < 13)
    flush = ".ftz" if (name, type_) == ("ex2", "bf16") else ""
    got = apply(f"{name}.approx{flush}.{type_}", bits[inside])
    values = np.array([number(word, type_) for word in got.tolist()])
    want = 2.0 ** x[inside] if name == "ex2" else np.tanh(x[inside])
    assert np.max(np.abs(values / want - 1)) <= bound


@pytest.mark.parametrize("name", ["rcp", "rsqrt"])
def test_gross_f64(name: str) -> None:
    """The .approx.ftz.f64 forms use and give only upper words, within 2**-20 of the value."""
    x = np.random.default_rng(9).uniform(0.001, 1000, 500)
    got = apply(f"{name}.approx.ftz.f64", x.view(np.uint64))
    want = 1 / x if name == "rcp" else 1 / np.sqrt(x)
    assert (got & np.uint64(0xFFFFFFFF) == 0).all()
    assert np.max(np.abs(got.view(np.float64) / want - 1)) <= 2.0**-19
