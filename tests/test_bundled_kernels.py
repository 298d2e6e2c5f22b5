"""Kernels of the bundled tasks on the emulator: baselines, spaces, labelled wrong ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ptxsearch.emulator.device import EmulatedDevice
from ptxsearch.errors import TaskError
from ptxsearch.inputs import make_inputs
from ptxsearch.kernel import Kernel, Launch
from ptxsearch.pipeline import Pipeline
from ptxsearch.taskfile import bundled, load_task
from ptxsearch.tasklint import disagreement
from ptxsearch.tasks import Task
from ptxsearch.toolchain import build

WRONG = [(name, wrong.name) for name in bundled() for wrong in load_task(name).wrong]
SLOW = {("level1/softmax", "one_thread")}


@pytest.fixture(scope="module")
def pipeline() -> Pipeline:
    """One pipeline for all, so that references are computed once."""
    return Pipeline(EmulatedDevice("sm_90"))


def untimed(name: str) -> Task:
    """A bundled task without the workloads that only a GPU can hold."""
    task = load_task(name)
    return replace(task, workloads=tuple(w for w in task.workloads if not w.timed))


@pytest.mark.parametrize("name", bundled())
def test_the_baseline_is_right_with_room_to_its_tolerance(pipeline: Pipeline, name: str) -> None:
    """It passes on all sizes and distributions, at most at a third of the tolerance."""
    task = untimed(name)
    found = pipeline.evaluate(task, task.baseline)
    assert found.ok, found.message
    assert max(found.evidence["error_over_tolerance"].values()) < 1 / 3


@pytest.mark.parametrize("name", bundled())
def test_configurations_drawn_from_the_space_are_right(pipeline: Pipeline, name: str) -> None:
    """Whatever a tuner picks computes the same."""
    task = untimed(name)
    space = task.baseline.space
    assert space is not None
    for row in space.sample(np.random.default_rng(7), 2):
        values = space.values(row)
        found = pipeline.evaluate(task, task.baseline.with_values(**values))
        assert found.ok, f"{values}: {found.message}"


@pytest.mark.parametrize(
    ("name", "wrong"),
    [pytest.param(*w, marks=[pytest.mark.slow] if w in SLOW else []) for w in WRONG],
)
def test_a_wrong_kernel_gets_its_label(pipeline: Pipeline, name: str, wrong: str) -> None:
    """Its status and, where it is only slow, its counter are those of the label."""
    task = untimed(name)
    label = next(candidate for candidate in task.wrong if candidate.name == wrong)
    found = pipeline.evaluate(task, label.kernel)
    assert disagreement(label, found) == ""


def test_transpose_leaves_room_above_its_naive_start() -> None:
    """At full size a padded tile of shared memory is modelled at least twice as fast."""
    task = load_task("level1/transpose")
    full = task.workload("full")
    device = EmulatedDevice("sm_90")
    device.prepare(task, full, make_inputs(task, full, seed=0))
    tiled = task.baseline.with_values(TX=32, TY=8, ITEMS=4, VEC=1, TILED=1, PAD=1)
    builts = [build(kernel, "sm_90") for kernel in (task.baseline, tiled)]
    times = device.time(builts, full, 1)  # type: ignore[arg-type]
    assert isinstance(times, np.ndarray)
    assert times[0, 0] > 2 * times[0, 1]


SQUARES = """
extern "C" __global__ void squares(const float* x, float* out, float* total, int n) {
  const int i = blockIdx.x * 64 + threadIdx.x;
  if (i >= n) return;
  out[i] = x[i] * x[i] + 1.0f;
  total[i] += out[i];
}
"""


def squares(source: str) -> Kernel:
    """A kernel on 500 floats that updates one array and fills another."""
    return Kernel(source, "cuda", (Launch("squares", ("x", "out", "total", "n"), ("8",), ("64",)),))


def test_a_kernel_that_is_its_own_reference_judges_others(pipeline: Pipeline) -> None:
    """What the baseline computes passes, anything else is wrong."""
    example = np.zeros(500, dtype=np.float32)
    task = Task.from_kernel(
        squares(SQUARES),
        inputs={"x": example, "out": example, "total": example, "n": 500},
        outputs=["out"],
        updates=["total"],
    )
    assert pipeline.evaluate(task, task.baseline).ok
    same = squares(SQUARES.replace("x[i] * x[i] + 1.0f", "1.0f + x[i] * x[i]"))
    assert pipeline.evaluate(task, same).ok
    other = squares(SQUARES.replace("1.0f", "2.0f"))
    assert pipeline.evaluate(task, other).status == "WRONG"


def test_a_baseline_that_fails_cannot_be_a_reference(pipeline: Pipeline) -> None:
    """The error names the task's kernel and what happened to it."""
    example = np.zeros(500, dtype=np.float32)
    task = Task.from_kernel(
        squares(SQUARES.replace("i >= n", "i > n + 9")),
        inputs={"x": example, "out": example, "total": example, "n": 500},
        outputs=["out"],
        updates=["total"],
    )
    with pytest.raises(TaskError, match=r"baseline of 'squares'.*outside every object"):
        pipeline.evaluate(task, squares(SQUARES))
