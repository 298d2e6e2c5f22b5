"""Task lint: tasks that prove nothing are refused, the bundled ones are not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ptxsearch.evaluation import Array, Counters, Evaluation
from ptxsearch.inputs import distributions
from ptxsearch.kernel import Kernel, Launch
from ptxsearch.param import Param
from ptxsearch.taskfile import bundled, load_task
from ptxsearch.tasklint import disagreement, lint
from ptxsearch.tasks import Calibration, Task, Workload, Wrong

KERNEL = Kernel("", "cuda", (Launch("k", ("x", "out"), "1", "1"),))


def vector(reference: Any, **changes: Any) -> Task:
    """A task from a vector to a vector."""
    fields: dict[str, Any] = {
        "name": "vector",
        "level": 1,
        "description": "",
        "params": (Param("x", "in", "f32", ("n",)), Param("out", "out", "f32", ("n",))),
        "workloads": (Workload("w", {"n": 256}),),
        "reference": reference,
        "baseline": KERNEL,
        "tolerance": {"out": 1e-6},
    }
    return Task(**(fields | changes))


def rules(task: Task) -> set[str]:
    """The rules that refuse a task."""
    return {complaint.rule for complaint in lint(task) if complaint.severity == "error"}


@pytest.mark.parametrize("name", bundled())
def test_bundled_tasks_have_no_complaints(name: str) -> None:
    """Every bundled task can judge, and is calibrated."""
    assert lint(load_task(name)) == ()


def squares(x: Array, n: int) -> Array:
    """A healthy reference."""
    return np.square(x.astype(np.float64)) + x


def test_a_healthy_task_in_code_is_accepted() -> None:
    """Nothing is wrong with squares."""
    assert rules(vector(squares)) == set()


@pytest.mark.parametrize(
    ("reference", "rule"),
    [
        (lambda x, n: np.full(n, 1.0), "fake"),
        (lambda x, n: np.zeros(n), "dependence"),
        (lambda x, n: x.astype(np.float64), "fake"),
        (lambda x, n: np.full(n, x[:1].sum() * 0 + 3.5), "dependence"),
        (lambda x, n: np.full(n, float(x.sum())), "fake"),
    ],
    ids=["ones", "zeros", "copy", "constant", "all equal"],
)
def test_a_task_that_fakes_pass_is_refused(reference: Any, rule: str) -> None:
    """Constants, copies and means must fail somewhere."""
    assert rule in rules(vector(reference))


def test_a_loose_tolerance_lets_zeros_pass() -> None:
    """An absolute tolerance above the data is no test."""
    found = lint(vector(squares, tolerance={"out": 1e3}))
    assert any("the constant 0 passes" in complaint.message for complaint in found)


def test_an_input_that_does_not_matter_is_found() -> None:
    """Every input must show in some output."""
    task = vector(
        lambda x, z, n: squares(x, n),
        params=(
            Param("x", "in", "f32", ("n",)),
            Param("z", "in", "f32", ("n",)),
            Param("out", "out", "f32", ("n",)),
        ),
    )
    found = [c for c in lint(task) if c.rule == "dependence"]
    assert len(found) == 1
    assert "input z" in found[0].message


def test_a_float_task_needs_a_zero_mean_full_mantissa_distribution() -> None:
    """Small integers and shifted data alone hide lowered precision."""
    assert "distribution" in rules(vector(squares, distributions=("shifted", "ties", "uniform")))


@pytest.mark.parametrize("with_variant", [False, True])
def test_a_task_without_calibration_cannot_tell_precision(with_variant: bool) -> None:
    """Neither a stated tolerance nor a calibration: refused once, with every step of the remedy."""
    variant = (lambda arithmetic, x, n: arithmetic.load(x)) if with_variant else None
    task = vector(squares, tolerance={}, variant=variant)
    found = [c for c in lint(task) if c.rule in ("calibration", "separable")]
    assert [c.severity for c in found] == ["error"]
    message = found[0].message
    assert ("write variant(arithmetic" in message) is not with_variant
    assert "lint PATH --calibrate" in message
    assert "`tolerance: {out: 1e-6}`" in message


def test_a_calibration_that_tells_nothing_is_refused() -> None:
    """Lowered precision as good as honest on every zero-mean distribution."""
    task = vector(squares, tolerance={})
    blind = Calibration(1e-7, 2e-7, 4e-7, False)
    entries = {
        f"out {workload.name} {name}": blind
        for workload in task.workloads
        for name in distributions(task)
    }
    assert "separable" in rules(replace(task, calibration=entries))


def test_the_baseline_and_the_labelled_kernels_are_run() -> None:
    """A baseline that fails and a label that does not hold are errors."""
    wrong = Wrong("lazy", KERNEL, "WRONG", "does nothing")
    task = vector(squares, wrong=(wrong,))
    ok, bad = Evaluation("OK", "quick"), Evaluation("WRONG", "smoke", "x")
    assert "wrong" in {c.rule for c in lint(task, evaluate=lambda t, k: ok)}
    assert "baseline" in {c.rule for c in lint(task, evaluate=lambda t, k: bad)}


@pytest.mark.parametrize(
    ("found", "agrees"),
    [
        (Evaluation("OK", "quick", counters={"w": Counters(bank_conflicts=5000.0)}), True),
        (Evaluation("OK", "quick", counters={"w": Counters(bank_conflicts=10.0)}), False),
        (Evaluation("OK", "quick"), False),
        (Evaluation("WRONG", "smoke"), False),
        (Evaluation("UNSUPPORTED", "smoke"), True),
    ],
)
def test_a_slow_kernel_shows_by_its_counter(found: Evaluation, agrees: bool) -> None:
    """The counter of a correct but slow kernel must reach its label's number."""
    label = Wrong("slow", KERNEL, "OK", "slow", counter="bank_conflicts", at_least=1000)
    assert (disagreement(label, found) == "") is agrees


def test_a_task_judged_by_its_baseline_is_warned_of() -> None:
    """Without a reference the baseline's mistakes pass, and lint says so."""
    task = replace(vector(squares), reference=None)
    assert any(c.rule == "reference" and c.severity == "warning" for c in lint(task))
