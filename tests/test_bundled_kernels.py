"""Kernels of the bundled tasks on the emulator: baselines, spaces, labelled wrong ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ptxsearch.emulator.device import EmulatedDevice
from ptxsearch.inputs import make_inputs
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
    for row in space.sample(np.random.default_rng(7), 4):
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
