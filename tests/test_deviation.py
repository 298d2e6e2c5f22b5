"""Deviations against the rule written out for one element at a time."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from ptxsearch.deviation import Rounding, deviation
from ptxsearch.param import FLOATS, Param, limits

SPECIAL = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-45, 3.4e38, -3.4e38, 1e39, -1e300)


def ratio(got: float, want: float, scale: float, rtol: float) -> float:
    """The rule of docs/evaluation.md for 32-bit floats."""
    largest, tiny = 3.4028234663852886e38, 1.1754943508222875e-38
    if abs(want) > largest * (1 + 2.0**-25):
        want = math.copysign(math.inf, want)
    if got == want or (math.isnan(got) and math.isnan(want)):
        return 0.0
    if not (math.isfinite(got) and math.isfinite(want)):
        return math.inf
    excess = abs(got - want) - rtol * abs(want) - tiny
    if excess <= 0:
        return 0.0
    return excess / scale if scale else math.inf


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("size", [1, 7, (1 << 16) + 3])
@pytest.mark.parametrize("rtol", [0.0, 2.0**-23])
def test_every_element_by_the_rule(seed: int, size: int, rtol: float) -> None:
    """Worst ratio and positions are those of a loop over the elements, odd values anywhere."""
    rng = np.random.default_rng(seed)
    want = rng.standard_normal(size)
    got = (want * (1 + 1e-6 * rng.standard_normal(size))).astype(np.float32)
    scale = np.abs(rng.standard_normal(size))
    for _ in range(seed):
        want[rng.integers(size)] = SPECIAL[rng.integers(len(SPECIAL))]
        got[rng.integers(size)] = np.float32(
            np.clip(SPECIAL[rng.integers(len(SPECIAL))], -3e38, 3e38)
        )
        both = rng.integers(size)
        got[both] = want[both] = SPECIAL[rng.integers(3)]
        scale[rng.integers(size)] = 0.0
    limit = 1e-6
    ratios = [
        ratio(float(g), float(w), float(s), rtol) for g, w, s in zip(got, want, scale, strict=True)
    ]
    rounding = Rounding.of(np.dtype(np.float32), rtol=rtol)
    found = deviation(got, want, scale, rounding=rounding, limit=limit)
    assert found.worst == pytest.approx(max(ratios), rel=1e-12)
    assert found.over.tolist() == [i for i, r in enumerate(ratios) if r > limit]
    assert deviation(got, want, scale, rounding=rounding).worst == found.worst


@pytest.mark.parametrize("value", [math.nan, math.inf, 2.0])
def test_one_bad_element_of_millions_is_found(value: float) -> None:
    """On several threads too the one wrong element is found, wherever it lies."""
    size = 5_000_001
    want = np.ones(size)
    for place in (0, 2_097_151, 2_097_152, size - 1):
        got = want.astype(np.float32)
        got[place] = value
        rounding = Rounding.of(np.dtype(np.float32), rtol=0.0)
        found = deviation(got, want, np.ones(1), rounding=rounding, limit=1e-3)
        assert found.over.tolist() == [place]
        assert found.worst == (pytest.approx(1.0) if value == 2.0 else math.inf)


def test_scales_broadcast_along_rows() -> None:
    """A scale for each row applies to every element of the row."""
    want = np.zeros((3, 4))
    got = np.full((3, 4), 1.0, np.float32)
    scale = np.array([[1.0], [10.0], [100.0]])
    rounding = Rounding.of(np.dtype(np.float32), rtol=0.0)
    found = deviation(got, want, scale, rounding=rounding, limit=0.05)
    assert found.over.tolist() == list(range(8))


def test_half_types_overflow_to_infinity() -> None:
    """What bfloat16 cannot hold is expected as infinity, and its largest number is then wrong."""
    kind = np.dtype(ml_dtypes.bfloat16)
    rounding = Rounding.of(kind, rtol=0.0)
    want, scale = np.array([1e39]), np.ones(1)
    right, wrong = np.array([math.inf]).astype(kind), np.array([3.38e38]).astype(kind)
    assert deviation(right, want, scale, rounding=rounding).worst == 0.0
    assert deviation(wrong, want, scale, rounding=rounding).worst == math.inf


@pytest.mark.parametrize("dtype", sorted(FLOATS))
def test_every_float_type_has_a_rounding(dtype: str) -> None:
    """The largest value is one of the type, the smallest normal one a power of two below it."""
    kind = Param("x", "out", dtype, ("1",)).numpy_dtype
    rounding = Rounding.of(kind, rtol=0.0)
    largest = float(np.asarray(limits(kind).max).astype(kind))
    assert 0 < math.log2(largest) - math.log2(rounding.least) < 2100
    assert largest <= rounding.top < largest * (1 + 0.2)
    assert math.frexp(rounding.least)[0] == 0.5
