"""Input data: reproducible, within its domain, distributed as named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ptxsearch.errors import TaskError
from ptxsearch.inputs import DISTRIBUTIONS, distributions, make_inputs
from ptxsearch.kernel import Kernel, Launch
from ptxsearch.param import Param
from ptxsearch.tasks import Task, Workload


def task_of(*params: Param, sizes: dict[str, int]) -> Task:
    """A task whose only purpose is to have inputs made."""
    return Task(
        name="inputs",
        level=1,
        description="",
        params=(*params, Param("out", "out", "f32", ("1",))),
        workloads=(Workload("w", sizes),),
        reference=lambda: np.zeros(1),
        baseline=Kernel("", "cuda", (Launch("k", (), "1", "1"),)),
    )


def made(param: Param, *, sizes: dict[str, int], distribution: str, seed: int = 1) -> np.ndarray:
    """The array that `param` gets."""
    task = task_of(param, sizes=sizes)
    inputs = make_inputs(task, task.workloads[0], seed=seed, distribution=distribution)
    return np.asarray(inputs.values[param.name])


def test_equal_seeds_give_equal_data_and_other_seeds_other_data() -> None:
    """A set is a function of seed and distribution alone."""
    param = Param("x", "in", "f32", ("n",))
    first = made(param, sizes={"n": 1000}, distribution="normal", seed=5)
    again = made(param, sizes={"n": 1000}, distribution="normal", seed=5)
    other = made(param, sizes={"n": 1000}, distribution="normal", seed=6)
    assert np.array_equal(first, again)
    assert np.mean(first == other) < 0.01


def test_a_parameter_keeps_its_data_when_another_is_added() -> None:
    """Streams are keyed by parameter, not by order."""
    x, y = Param("x", "in", "f32", ("n",)), Param("y", "in", "f32", ("n",))
    alone, both = task_of(x, sizes={"n": 64}), task_of(y, x, sizes={"n": 64})
    one = make_inputs(alone, alone.workloads[0], seed=3).values["x"]
    two = make_inputs(both, both.workloads[0], seed=3).values
    assert np.array_equal(one, two["x"])
    assert not np.array_equal(two["x"], two["y"])


@pytest.mark.parametrize(
    ("name", "mean", "deviation"),
    [("normal", 0.0, 1.0), ("shifted", 5.0, 10.0), ("small", 0.0, 1e-4), ("large", 0.0, 50.0)],
)
def test_a_distribution_has_its_moments(name: str, mean: float, deviation: float) -> None:
    """Mean and deviation are those of the name, within five standard errors."""
    n = 40_000
    values = made(Param("x", "in", "f32", ("n",)), sizes={"n": n}, distribution=name)
    wide = values.astype(np.float64)
    assert abs(wide.mean() - mean) < 5 * deviation / np.sqrt(n)
    assert abs(wide.std() / deviation - 1) < 5 / np.sqrt(2 * n)


def test_normal_data_uses_the_whole_mantissa() -> None:
    """Each of the low eight fraction bits is set in about half of the values."""
    values = made(Param("x", "in", "f32", ("n",)), sizes={"n": 20_000}, distribution="normal")
    bits = values.view(np.uint32)
    shares = [float(np.mean(bits >> k & 1)) for k in range(8)]
    assert all(abs(share - 0.5) < 0.03 for share in shares)


def test_heavy_tails_exceed_what_a_normal_distribution_would_give() -> None:
    """The largest of 20,000 values is far beyond ten deviations of their middle half."""
    values = made(Param("x", "in", "f32", ("n",)), sizes={"n": 20_000}, distribution="heavy")
    quartile = float(np.quantile(np.abs(values), 0.5))
    assert np.abs(values).max() > 50 * quartile
    assert np.isfinite(values).all()


@pytest.mark.parametrize("name", sorted(DISTRIBUTIONS))
@pytest.mark.parametrize(
    ("dtype", "domain", "low", "high"),
    [("s32", "index(m)", 0, 36), ("u8", "bytes", 0, 255), ("u8", "any", 0, 255)],
)
def test_whole_numbers_stay_in_their_domain(
    name: str, dtype: str, domain: str, low: int, high: int
) -> None:
    """No distribution leaves the range that a kernel may index with."""
    param = Param("x", "in", dtype, ("n",), domain=domain)
    values = made(param, sizes={"n": 5000, "m": 37}, distribution=name).astype(np.int64)
    assert low <= values.min()
    assert values.max() <= high


def test_sorted_and_positive_domains_hold() -> None:
    """Sorted inputs never fall, positive ones are above zero."""
    rising = made(
        Param("x", "in", "f32", ("n",), domain="sorted"), sizes={"n": 999}, distribution="heavy"
    )
    above = made(
        Param("x", "in", "f32", ("n",), domain="positive"), sizes={"n": 999}, distribution="ties"
    )
    assert (np.diff(rising) >= 0).all()
    assert (above > 0).all()


@pytest.mark.parametrize("name", ["uniform", "skewed", "normal"])
def test_row_pointers_run_from_zero_to_the_number_of_entries(name: str) -> None:
    """A csr array never falls, starts at 0 and ends at its bound."""
    param = Param("p", "in", "s32", ("rows + 1",), domain="csr(nnz)")
    values = made(param, sizes={"rows": 50, "nnz": 700}, distribution=name)
    assert values.shape == (51,)
    assert values[0] == 0
    assert values[-1] == 700
    assert (np.diff(values) >= 0).all()


def test_scalars_and_initialised_buffers_follow_their_expressions() -> None:
    """A scalar is its expression of sizes, an inout with init is filled with it."""
    task = task_of(
        Param("n", "scalar", "s32", init="2 * n + 1"),
        Param("acc", "inout", "f32", ("n",), init="0.5"),
        sizes={"n": 4},
    )
    values = make_inputs(task, task.workloads[0], seed=0).values
    assert values["n"] == np.int32(9)
    assert np.asarray(values["acc"]).tolist() == [0.5] * 4


def test_a_scalar_that_does_not_fit_is_refused() -> None:
    """A size beyond the scalar's type is the task's mistake, not a silent wrap."""
    task = task_of(Param("n", "scalar", "s16", init="n"), sizes={"n": 40_000})
    with pytest.raises(TaskError, match="outside s16"):
        make_inputs(task, task.workloads[0], seed=0)


def test_input_arrays_cannot_be_written() -> None:
    """A reference that changes its inputs fails instead of agreeing with a kernel that does."""
    values = made(Param("x", "in", "f32", ("n",)), sizes={"n": 8}, distribution="normal")
    with pytest.raises(ValueError, match="read-only"):
        values[0] = 1


@pytest.mark.parametrize("dtype", ["f16", "bf16", "e4m3", "e5m2"])
def test_narrow_floats_are_finite(dtype: str) -> None:
    """Heavy tails are cut to what the narrow type holds."""
    values = made(Param("x", "in", dtype, ("n",)), sizes={"n": 5000}, distribution="heavy")
    assert np.isfinite(values.astype(np.float32)).all()


def test_unknown_distributions_are_refused_with_the_known_ones() -> None:
    """A misspelt distribution names what exists."""
    task = replace(
        task_of(Param("x", "in", "f32", ("n",)), sizes={"n": 4}), distributions=("gauss",)
    )
    with pytest.raises(TaskError, match="normal"):
        distributions(task)
