"""The device on hardware: right outputs, every planted fault a status, times and counters."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

from ptxsearch.evaluation import Failure, Outputs
from ptxsearch.gpu import CudaDevice
from ptxsearch.inputs import make_inputs
from ptxsearch.race import guard
from ptxsearch.taskfile import load_task
from ptxsearch.toolchain import CompileFailure, build
from tests.gpu.kernels import GOOD, SLOW, built, inputs, workload

pytestmark = pytest.mark.gpu
N = 100003


@pytest.mark.parametrize("name", GOOD + SLOW)
def test_right_outputs(gpu: CudaDevice, name: str) -> None:
    """Every honest kernel gives twice its input, bit for bit, and changes nothing else."""
    data = inputs(N, 1)
    left = gpu.run(built(name, gpu.arch), workload(N), data, timeout=5.0)
    assert isinstance(left, Outputs), left
    np.testing.assert_array_equal(left.arrays["y"], 2 * np.asarray(data.values["x"]))
    assert left.inputs_changed == ()
    assert left.notes == ()


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("illegal_address", {"out_of_bounds_write", "launch_failure"}),
        ("misaligned", {"misaligned_access"}),
        ("trap", {"trap", "launch_failure"}),
        ("stack_overflow", {"out_of_bounds_write", "launch_failure", "trap"}),
        ("hang", {"timeout"}),
        ("past_the_end", {"guard_written"}),
    ],
)
def test_planted_fault(gpu: CudaDevice, name: str, kinds: set[str]) -> None:
    """A planted fault is a failure of its kind, and the next kernel runs."""
    failed = gpu.run(built(name, gpu.arch), workload(N), inputs(N, 1), timeout=2.0)
    assert isinstance(failed, Failure)
    assert failed.fault is not None
    assert failed.fault.kind in kinds, failed.fault
    data = inputs(N, 2)
    left = gpu.run(built("double_it", gpu.arch), workload(N), data, timeout=5.0)
    assert isinstance(left, Outputs), left
    np.testing.assert_array_equal(left.arrays["y"], 2 * np.asarray(data.values["x"]))


def test_changed_input_and_unwritten_output(gpu: CudaDevice) -> None:
    """Inputs that were written and outputs that were not are both told."""
    changed = gpu.run(built("writes_input", gpu.arch), workload(N), inputs(N, 1), timeout=5.0)
    assert isinstance(changed, Outputs)
    assert changed.inputs_changed == ("x",)
    short = gpu.run(built("unwritten_tail", gpu.arch), workload(N), inputs(N, 1), timeout=5.0)
    assert isinstance(short, Outputs)
    assert short.notes == (f"5 of {N} 4-byte words of y were never written",)


def test_killed_process_costs_no_verdict(gpu: CudaDevice) -> None:
    """The process killed from outside is replaced."""
    os.kill(gpu._runner._child.process.pid, signal.SIGKILL)
    left = gpu.run(built("double_it", gpu.arch), workload(N), inputs(N, 3), timeout=5.0)
    assert isinstance(left, Outputs)


@pytest.mark.parametrize("name", ["level1/sum", "level1/transpose", "level1/matmul"])
def test_baseline_of_a_task(gpu: CudaDevice, name: str) -> None:
    """Each task's baseline is right at full size and is timed."""
    task = load_task(name)
    made = build(task.baseline, gpu.arch)
    assert not isinstance(made, CompileFailure), made.message
    timed = task.timed[0]
    data = make_inputs(task, timed, seed=1)
    left = gpu.run(made, timed, data, timeout=10.0)
    assert isinstance(left, Outputs), left
    arrays = {k: v for k, v in data.values.items() if data.roles[k] == "in"}
    if name.endswith("sum"):
        want = np.sum(np.asarray(arrays["x"], np.float64))
        size = np.sum(np.abs(np.asarray(arrays["x"], np.float64)))
        assert abs(float(left.arrays["out"][0]) - want) < 1e-6 * size
    elif name.endswith("transpose"):
        np.testing.assert_array_equal(left.arrays["out"], np.asarray(arrays["x"]).T)
    else:
        a, b = (np.asarray(arrays[k], np.float64) for k in ("a", "b"))
        assert np.max(np.abs(left.arrays["c"] - a @ b) / (np.abs(a) @ np.abs(b))) < 1e-6
    samples = gpu.time([made, made], timed, 7)
    assert isinstance(samples, np.ndarray), samples
    assert samples.shape == (7, 2)
    assert np.all(samples > 1e-6)


def test_equal_kernels_race_equal(gpu: CudaDevice) -> None:
    """A kernel raced against itself passes the guard."""
    n = 1 << 24
    for seed in range(4):
        gpu.run(built("double_it", gpu.arch), workload(n), inputs(n, seed), timeout=5.0)
    same = built("double_it", gpu.arch)
    groups = [gpu.time([same, same], workload(n), 20) for _ in range(3)]
    assert all(isinstance(group, np.ndarray) for group in groups)
    found = guard([group for group in groups if isinstance(group, np.ndarray)])
    assert found.ok, found


def test_counters_from_ncu(gpu: CudaDevice) -> None:
    """The conflicts, sectors and bytes of a kernel are those its source implies."""
    n = 1 << 20
    gpu.run(built("bank_conflicts", gpu.arch), workload(n), inputs(n, 1), timeout=5.0)
    counters = gpu.profile(built("bank_conflicts", gpu.arch), workload(n))
    assert gpu.last_profile is not None
    if gpu.last_profile.outcome in ("no_ncu", "no_permission", "not_supported"):
        pytest.skip(gpu.last_profile.message)
    assert counters.global_load_bytes == 4 * n
    assert counters.global_load_sectors == n / 8
    assert counters.bank_conflicts is not None
    assert counters.bank_conflicts >= 2 * 31 * n / 32
