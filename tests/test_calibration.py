"""Calibrated tolerances accept honest arithmetic and refuse lowered precision, on unseen data."""

from __future__ import annotations

import json
import math
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from scipy.special import softmax

from ptxsearch.calibration import DOWNGRADES, HONEST, Arithmetic, calibrate, separate, store
from ptxsearch.correctness import check
from ptxsearch.errors import TaskError
from ptxsearch.evaluation import Array
from ptxsearch.expectation import References
from ptxsearch.kernel import Kernel, Launch
from ptxsearch.param import Param
from ptxsearch.taskfile import load_task
from ptxsearch.tasks import Calibration, Task, Workload

SEED = 123_456


@pytest.mark.parametrize(("kind", "dtype"), [("bf16", ml_dtypes.bfloat16), ("f16", np.float16)])
def test_inputs_are_rounded_as_numpy_rounds(kind: str, dtype: type) -> None:
    """Rounding to nearest even agrees with numpy's and ml_dtypes' conversions."""
    values = np.random.default_rng(0).standard_normal(20_000).astype(np.float32)
    got = Arithmetic("x", inputs=kind).load(values)  # type: ignore[arg-type]
    assert np.array_equal(got, values.astype(dtype).astype(np.float32))


def test_tf32_keeps_ten_fraction_bits() -> None:
    """The rounded value is a multiple of 2^-10 of its power of two, at most half of one away."""
    values = np.random.default_rng(1).standard_normal(20_000).astype(np.float32)
    got = Arithmetic("x", inputs="tf32").load(values).astype(np.float64)
    unit = 2.0 ** (np.floor(np.log2(np.abs(values))) - 10)
    assert np.all(np.abs(got - values) <= unit / 2)
    assert np.all(np.mod(got / unit, 1) == 0)


def test_a_chain_adds_one_term_after_the_other() -> None:
    """One chain over everything is a plain loop in float32."""
    values = np.random.default_rng(2).standard_normal(500).astype(np.float32)
    total = np.float32(0)
    for value in values:
        total = np.float32(total + value)
    assert Arithmetic("x", chain=500).sum(values) == total


def test_separate_products_are_rounded_before_they_are_added() -> None:
    """Without fusion a dot product is a loop of rounded products and rounded sums."""
    rng = np.random.default_rng(3)
    a = rng.standard_normal((3, 40)).astype(np.float32)
    b = rng.standard_normal((40, 5)).astype(np.float32)
    total = np.zeros((3, 5), dtype=np.float32)
    for k in range(40):
        total = total + a[:, k : k + 1] * b[k]
    assert np.array_equal(Arithmetic("x", chain=64, fused=False).dot(a, b), total)


@pytest.mark.parametrize("arithmetic", HONEST, ids=lambda a: a.name)
def test_every_order_gives_whole_numbers_exactly(arithmetic: Arithmetic) -> None:
    """No term is lost or counted twice, whatever the length."""
    rng = np.random.default_rng(4)
    for n in (1, 7, 8, 513, 5000):
        values = rng.integers(-50, 50, n).astype(np.float32)
        assert arithmetic.sum(values) == values.astype(np.int64).sum()
    a = rng.integers(-9, 9, (6, 77)).astype(np.float32)
    b = rng.integers(-9, 9, (77, 4)).astype(np.float32)
    assert np.array_equal(arithmetic.dot(a, b), (a.astype(int) @ b.astype(int)))


def test_the_tolerance_is_the_geometric_mean_where_separable() -> None:
    """sqrt(H L) from L = 8 H on, 4 H below, and never less than an ulp where H is 0."""
    eps = 2.0**-23
    clear = separate(1e-7, 1e-4, eps=eps)
    assert clear.separable
    assert clear.tolerance == pytest.approx(math.sqrt(1e-11))
    assert separate(1e-7, 8e-7, eps=eps).separable
    close = separate(1e-7, 7.9e-7, eps=eps)
    assert not close.separable
    assert close.tolerance == pytest.approx(4e-7)
    assert separate(0.0, 0.0, eps=eps).tolerance == pytest.approx(eps)
    assert separate(1e-7, math.inf, eps=eps).tolerance < 1e-3


def rights(name: str, values: dict[str, Array]) -> list[Array]:
    """Outputs in 32-bit arithmetic by numpy and scipy, in orders of their own."""
    if name == "level1/sum":
        x = values["x"]
        chains = np.cumsum(x[::-1].reshape(-1, 4096), axis=1)[:, -1]
        return [x.sum(keepdims=True), chains.sum()[None], x.reshape(-1, 64).sum(0).sum()[None]]
    if name == "level1/matmul":
        a, b = values["a"], values["b"]
        return [a @ b, np.einsum("ik,kj->ij", a, b), a[:, ::-1] @ b[::-1]]
    if name == "level1/saxpy":
        return [values["a_scalar"] * values["x"] + values["y"]]
    return [softmax(values["x"], axis=1)]


@pytest.mark.parametrize("name", ["level1/sum", "level1/matmul", "level1/saxpy", "level1/softmax"])
def test_bundled_tolerances_hold_on_unseen_data(name: str) -> None:
    """Independent 32-bit results pass on every distribution; 16-bit inputs fail where separable."""
    task = load_task(name)
    output = task.outputs[0].name
    references = References(task)
    missed = []
    for workload in (task.smallest, task.workload("medium")):
        for distribution in task.distributions:
            expect = references.get(workload, SEED, distribution)
            values = expect.inputs.named("in", "inout")
            if name == "level1/saxpy":
                values["a_scalar"] = np.asarray(expect.inputs.values["a"])
            for got in rights(name, values):
                assert check(task, {output: got.astype(np.float32)}, expect).passed
            if not task.calibration[f"{output} {workload.name} {distribution}"].separable:
                continue
            for dtype in (ml_dtypes.bfloat16, np.float16):
                lowered = {k: v.astype(dtype).astype(np.float32) for k, v in values.items()}
                got = rights(name, lowered)[0].astype(np.float32)
                if check(task, {output: got}, expect).passed:
                    missed.append((workload.name, distribution, dtype))
    # A sum is one number: by luck a lowered one may come out right on single sets.
    assert len(missed) <= (3 if name == "level1/sum" else 0)


def test_a_task_is_calibrated_on_every_workload_and_distribution() -> None:
    """The result is keyed by output, workload and distribution, honest below lowered errors."""
    base = load_task("level1/saxpy")
    task = Task(
        name="small", level=1, description="", params=base.params, reference=base.reference,
        workloads=(Workload("w", {"n": 300}),), baseline=base.baseline, scale=base.scale,
        magnitude=base.magnitude, variant=base.variant, distributions=("normal", "heavy"),
    )  # fmt: skip
    found = calibrate(task, sets=4)
    assert set(found) == {"y w normal", "y w heavy"}
    for value in found.values():
        assert value.separable
        assert value.honest < value.tolerance < value.downgraded


def test_exact_outputs_need_no_calibration_and_others_a_variant() -> None:
    """A task that moves data is exact; one that computes must say how."""
    assert calibrate(load_task("level1/transpose")) == {}
    task = Task(
        name="plain", level=1, description="", params=(Param("out", "out", "f32", ("1",)),),
        workloads=(Workload("w", {}),), reference=lambda: np.zeros(1),
        baseline=Kernel("", "cuda", (Launch("k", ("out",), "1", "1"),)),
    )  # fmt: skip
    with pytest.raises(TaskError, match="variant"):
        calibrate(task)


def test_a_stored_calibration_is_json_in_order(tmp_path: Path) -> None:
    """The file is sorted, four digits, readable by the record."""
    path = tmp_path / "calibration.json"
    value = Calibration(1.23456e-7, 2e-4, 5.123456e-6, True)
    store({"b w normal": value, "a w normal": value}, path)
    entries = json.loads(path.read_text())["entries"]
    assert list(entries) == ["a w normal", "b w normal"]
    assert Calibration.from_dict(entries["a w normal"]).tolerance == 5.123e-06


def test_downgrades_are_the_four_named_ones() -> None:
    """tf32, bf16, fp16 inputs and fp16 accumulation."""
    assert [(a.inputs, a.accumulator) for a in DOWNGRADES] == [
        ("tf32", "f32"), ("bf16", "f32"), ("f16", "f32"), ("f32", "f16"),
    ]  # fmt: skip
