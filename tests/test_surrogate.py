"""The Gaussian process: against dense linear algebra, and what its shape learns."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import rankdata

from ptxsearch.surrogate import (
    FIT_POINTS,
    NOISE,
    Array,
    Process,
    Sample,
    Shape,
    fit,
    log_improvement,
    noises,
    ranks,
    targets,
    thinned,
)

SHAPE = Shape((0.4, np.inf, 1.0), theta=2.0)


def kernel(a: Array, b: Array) -> Array:
    """SHAPE's kernel written out: the columns 0 and 2, lengths 0.4 and 1, theta 2."""
    result = np.ones((len(a), len(b)))
    for column, length in ((0, 0.4), (2, 1.0)):
        distance = np.abs(a[:, column][:, None] - b[:, column][None, :])
        result *= (1 + 2.0 * np.exp(-distance / length)) / 3.0
    return result


def dense(x: Array, y: Array, at: Array) -> tuple[Array, Array]:
    """Posterior with a constant mean by generalised least squares, all matrices inverted."""
    inverse = np.linalg.inv(kernel(x, x) + NOISE * np.eye(len(x)))
    ones = np.ones(len(x))
    mean = ones @ inverse @ y / (ones @ inverse @ ones)
    variance = (y - mean) @ inverse @ (y - mean) / (len(y) - 1)
    cross = kernel(at, x)
    left = 1 - np.einsum("ij,jk,ik->i", cross, inverse, cross)
    return mean + cross @ inverse @ (y - mean), np.sqrt(variance * left)


def points(n: int, seed: int = 0) -> tuple[Array, Array]:
    """Random points in the unit cube and values that vary with two of three columns."""
    rng = np.random.default_rng(seed)
    x = rng.random((n, 3)).round(1)
    return x, np.sin(5 * x[:, 0]) + x[:, 2] ** 2 + 0.1 * rng.normal(size=n)


def process(candidates: Array) -> Process:
    """A process of SHAPE over candidates, with a constant mean."""
    basis = np.ones((len(candidates), 1))
    return Process(SHAPE, candidates=candidates.astype(np.float32), basis=basis, capacity=64)


def test_posterior_is_that_of_dense_algebra() -> None:
    """Points added one by one and in blocks give the textbook's mean and deviation."""
    x, y = points(40)
    at, _ = points(25, seed=1)
    grown = process(at)
    for start, stop in ((0, 10), (10, 11), (11, 12), (12, 30), (30, 40)):
        count = stop - start
        grown.add(x[start:stop], np.ones((count, 1)), np.full(count, NOISE))
    mean, deviation = grown.posterior(y)
    expected_mean, expected_deviation = dense(x, y, at)
    np.testing.assert_allclose(mean, expected_mean, atol=2e-3)
    np.testing.assert_allclose(deviation, expected_deviation, rtol=0.02, atol=2e-3)


def test_shrunk_is_the_variance_after_measuring() -> None:
    """What pending points leave of the variance is what it is once they are added."""
    x, y = points(30)
    at, _ = points(25, seed=1)
    before, after = process(at), process(at)
    before.add(x[:25], np.ones((25, 1)), np.full(25, NOISE))
    after.add(x, np.ones((30, 1)), np.full(30, NOISE))
    _, whole = after.posterior(y)
    _, expected = dense(x, y, at)
    left = before.shrunk(x[25:], NOISE)
    ratio = left / np.square(whole / whole.max())
    np.testing.assert_allclose(ratio, ratio[0], rtol=0.02)
    np.testing.assert_allclose(whole, expected, rtol=0.02, atol=2e-3)


def sampled(n: int, columns: int, seed: int) -> Sample:
    """Values that only the first column decides."""
    rng = np.random.default_rng(seed)
    x = rng.random((n, columns))
    y = np.sin(6 * x[:, 0]) + 0.02 * rng.normal(size=n)
    return Sample(x, y, np.ones((n, 1)), np.full(n, NOISE))


@pytest.mark.parametrize("seed", range(3))
def test_columns_that_decide_nothing_drop_out(seed: int) -> None:
    """A fit with a price on columns keeps the one that decides and drops the others."""
    sample = sampled(60, 5, seed)
    shape = fit(sample, start=Shape((1.0,) * 5), costs=np.ones(5))
    assert np.isfinite(shape.lengths[0])
    assert sum(np.isfinite(shape.lengths[1:])) <= 1


def test_fit_reaches_a_likelihood_above_its_start() -> None:
    """The fitted shape explains held-out values better than the shape it started from."""
    sample, held_out = sampled(60, 5, 0), sampled(200, 5, 7)
    start = Shape((1.0,) * 5)
    errors = []
    for shape in (start, fit(sample, start=start, costs=np.ones(5))):
        model = Process(
            shape,
            candidates=held_out.x.astype(np.float32),
            basis=held_out.basis,
            capacity=60,
        )
        model.add(sample.x, sample.basis, sample.noise)
        errors.append(float(np.mean((model.posterior(sample.y)[0] - held_out.y) ** 2)))
    assert errors[1] < 0.5 * errors[0]


def test_thinning_keeps_the_best() -> None:
    """A long sample keeps its better half of FIT_POINTS and is bounded."""
    y = np.random.default_rng(0).normal(size=500)
    kept = thinned(y)
    assert len(kept) <= FIT_POINTS
    assert set(np.argsort(y)[: FIT_POINTS // 2]) <= set(kept)
    assert thinned(y[:50]).tolist() == list(range(50))


@pytest.mark.parametrize("count", [1, 2, 50, 1000])
def test_ranks_are_those_of_scipy(count: int) -> None:
    """Equal values share the mean of their ranks."""
    values = np.random.default_rng(count).integers(0, count // 2 + 1, count).astype(float)
    assert np.array_equal(ranks(values), rankdata(values))


def test_targets_are_normal_scores() -> None:
    """Times become normal scores of their ranks, a failure the 75 % quantile of them."""
    seconds = np.array([3.0, np.nan, 1.0, 2.0, 4.0])
    quartiles = [-1.1503493803760079, -0.3186393639643752, 0.3186393639643752, 1.1503493803760079]
    y = targets(seconds)
    np.testing.assert_allclose(y[[2, 3, 0, 4]], quartiles, rtol=1e-12)
    assert y[1] == pytest.approx(np.quantile(quartiles, 0.75))


@pytest.mark.parametrize("z", [2.0, 0.0, -3.0, -5.9, -6.1, -12.0, -25.0])
def test_log_improvement_is_the_integral(z: float) -> None:
    """The log expected improvement is that of numerical integration, far into the tail."""
    sd, best = 0.7, -1.0
    mean = best - z * sd
    scale = min(z, 0.0) ** 2 / 2
    area, _ = quad(lambda u: (z - u) * math.exp(scale - u * u / 2), z - 40, z, limit=400)
    expected = math.log(sd * area / math.sqrt(2 * math.pi)) - scale
    found = log_improvement(np.array([mean]), np.array([sd]), best=best)[0]
    assert found == pytest.approx(expected, abs=0.1 if z < -6 else 1e-6)


def test_noise_counts_against_the_spread() -> None:
    """A deviation of 10 % weighs less where times span e-fold than where they span a tenth."""
    told = np.array([0.1, 0.0, 0.0])
    wide = noises(np.array([1.0, math.e, math.e**2]), told)
    narrow = noises(np.array([1.0, 1.05, 1.1]), told)
    spread = np.std([0.0, 1.0, 2.0])
    assert wide[0] == pytest.approx(NOISE + (0.1 / spread) ** 2)
    assert narrow[0] > 10 * wide[0]
    assert wide[1] == pytest.approx(NOISE)
