"""The GPU device around a fake driver: verdicts, restarts, memory, rounds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ptxsearch.errors import DeviceError, UsageError
from ptxsearch.evaluation import Built, Failure, Inputs, Outputs
from ptxsearch.gpu.device import CudaDevice, Settings
from ptxsearch.kernel import Kernel, Launch, Scratch
from ptxsearch.protocols import AuditedDevice, Device
from ptxsearch.tasks import Workload
from tests.fake_driver import INSTRUMENTS, cubin

FAKE = "tests.fake_driver:FakeDriver"
N = 1000
WORKLOAD = Workload("small", {"n": N})


def built(
    do: str, *, block: str = "128", scratch: tuple[Scratch, ...] = (), **more: object
) -> Built:
    """A compiled fake kernel with arguments x, y, n."""
    launch = Launch("k", ("x", "y", "n"), ("8",), (block,))
    kernel = Kernel("", "cuda", (launch,), scratch=scratch)
    return Built(cubin(do, **more), "", kernel, {})


def inputs(seed: int = 0, n: int = N) -> Inputs:
    """One set: x random, y to be written."""
    x = np.random.default_rng(seed).standard_normal(n).astype(np.float32)
    values = {"x": x, "y": np.empty(n, np.float32)}
    return Inputs(values, {"x": "in", "y": "out"}, {"n": n}, label=f"seed {seed}")


@pytest.fixture(scope="module")
def shared() -> Iterator[CudaDevice]:
    """A device that several tests use."""
    device = CudaDevice(driver=FAKE, instruments=INSTRUMENTS)
    yield device
    device.close()


def test_device_satisfies_the_protocols(shared: CudaDevice) -> None:
    """A CudaDevice is a Device that audits."""
    assert isinstance(shared, Device)
    assert isinstance(shared, AuditedDevice)
    assert shared.name == "Fake GPU"


def test_run_returns_what_the_kernel_wrote(shared: CudaDevice) -> None:
    """Outputs hold the kernel's results and its seconds."""
    data = inputs()
    left = shared.run(built("double"), WORKLOAD, data, timeout=1.0)
    assert isinstance(left, Outputs)
    np.testing.assert_array_equal(left.arrays["y"], 2 * np.asarray(data.values["x"]))
    assert left.inputs_changed == ()
    assert left.notes == ()
    assert left.seconds == pytest.approx(1e-4)


def test_unwritten_output_holds_junk_and_a_note(shared: CudaDevice) -> None:
    """A kernel that writes nothing leaves no old answer behind, and the note says so."""
    shared.run(built("double"), WORKLOAD, inputs(), timeout=1.0)
    left = shared.run(built("skip"), WORKLOAD, inputs(), timeout=1.0)
    assert isinstance(left, Outputs)
    assert left.notes == (f"{N} of {N} 4-byte words of y were never written",)
    assert np.count_nonzero(left.arrays["y"] == 2 * np.asarray(inputs().values["x"])) == 0


def test_write_past_the_end_is_guard_written(shared: CudaDevice) -> None:
    """A store beyond a buffer is a fault that names the buffer and the distance."""
    failed = shared.run(built("past the end"), WORKLOAD, inputs(), timeout=1.0)
    assert isinstance(failed, Failure)
    assert failed.fault is not None
    assert failed.fault.kind == "guard_written"
    assert failed.fault.object == "y"
    assert "12 bytes past its end" in failed.message
    assert failed.status == "CRASHED"


def test_changed_input_is_reported(shared: CudaDevice) -> None:
    """A store into an input shows, and the next run sees the clean input again."""
    data = inputs(5)
    left = shared.run(built("write input"), WORKLOAD, data, timeout=1.0)
    assert isinstance(left, Outputs)
    assert left.inputs_changed == ("x",)
    again = shared.run(built("double"), WORKLOAD, data, timeout=1.0)
    assert isinstance(again, Outputs)
    np.testing.assert_array_equal(again.arrays["y"], 2 * np.asarray(data.values["x"]))


@pytest.mark.parametrize(
    ("do", "kind", "status"),
    [
        ("code 700", "launch_failure", "CRASHED"),
        ("code 716", "misaligned_access", "CRASHED"),
        ("code 719", "trap", "CRASHED"),
        ("code 715", "illegal_instruction", "CRASHED"),
        ("hang", "timeout", "TIMEOUT"),
        ("die", "machine", "INFRA"),
        ("code 214", "machine", "INFRA"),
    ],
)
def test_fault_is_a_status_and_the_next_kernel_runs(do: str, kind: str, status: str) -> None:
    """Whatever one kernel does to the process, it has its status and the next one is judged."""
    device = CudaDevice(driver=FAKE, instruments=INSTRUMENTS)
    failed = device.run(built(do), WORKLOAD, inputs(), timeout=0.2)
    assert isinstance(failed, Failure)
    assert failed.fault is not None
    assert (failed.fault.kind, failed.status) == (kind, status)
    left = device.run(built("double"), WORKLOAD, inputs(), timeout=1.0)
    assert isinstance(left, Outputs)
    device.close()


def test_killed_worker_is_replaced(shared: CudaDevice) -> None:
    """A worker killed from outside costs a restart, not a verdict."""
    shared.run(built("double"), WORKLOAD, inputs(), timeout=1.0)
    before = shared.restarts
    os.kill(shared._runner._child.process.pid, signal.SIGKILL)
    left = shared.run(built("double"), WORKLOAD, inputs(), timeout=1.0)
    assert isinstance(left, Outputs)
    assert shared.restarts == before + 1


def test_worker_ends_with_its_parent() -> None:
    """A parent killed while a kernel hangs leaves no process behind."""
    program = (
        "from tests.test_gpu_device import *\n"
        "device = CudaDevice(driver=FAKE, instruments=INSTRUMENTS)\n"
        "print(device._runner._child.process.pid, flush=True)\n"
        "device.run(built('hang'), WORKLOAD, inputs(), timeout=60.0)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    time.sleep(1.0)
    assert Path(f"/proc/{worker}").exists()
    parent.kill()
    parent.communicate()
    deadline = time.monotonic() + 10.0
    while Path(f"/proc/{worker}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{worker}").exists()


def test_worker_outlives_the_thread_that_started_it() -> None:
    """A device made in a thread that has ended still runs, in the same process."""
    made: list[CudaDevice] = []
    thread = threading.Thread(
        target=lambda: made.append(CudaDevice(driver=FAKE, instruments=INSTRUMENTS))
    )
    thread.start()
    thread.join()
    left = made[0].run(built("double"), WORKLOAD, inputs(), timeout=1.0)
    assert isinstance(left, Outputs)
    assert made[0].restarts == 0
    made[0].close()


def test_refused_launch_is_a_value_without_a_restart(shared: CudaDevice) -> None:
    """A launch that the driver refuses fails alone."""
    before = shared.restarts
    failed = shared.run(built("double", block="2048"), WORKLOAD, inputs(), timeout=1.0)
    assert isinstance(failed, Failure)
    assert failed.fault is not None
    assert failed.fault.kind == "launch_failure"
    assert shared.restarts == before


def test_parameters_that_do_not_match_are_a_value(shared: CudaDevice) -> None:
    """A launch that passes three arguments to an entry of two says so."""
    failed = shared.run(built("double", sizes=(8, 8)), WORKLOAD, inputs(), timeout=1.0)
    assert isinstance(failed, Failure)
    assert "takes 2 parameters, the launch passes 3" in failed.message


def test_scratch_beyond_the_budget_is_out_of_memory() -> None:
    """A kernel that asks for more scratch than there is fails with out_of_memory."""
    device = CudaDevice(driver=FAKE, instruments=INSTRUMENTS, settings=Settings(memory=8 << 20))
    huge = (Scratch("s", "f32", ("100000000",)),)
    failed = device.run(built("double", scratch=huge), WORKLOAD, inputs(), timeout=1.0)
    assert isinstance(failed, Failure)
    assert failed.fault is not None
    assert failed.fault.kind == "out_of_memory"
    device.close()


def test_inputs_beyond_the_budget_are_the_users_mistake() -> None:
    """A workload that does not fit is a DeviceError with the setting to raise."""
    device = CudaDevice(driver=FAKE, instruments=INSTRUMENTS, settings=Settings(memory=4096))
    with pytest.raises(DeviceError, match="memory setting"):
        device.run(built("double"), WORKLOAD, inputs(), timeout=1.0)
    device.close()


def test_time_gives_one_column_a_side(shared: CudaDevice) -> None:
    """Samples are seconds of shape (rounds, sides), each side its own duration."""
    for seed in range(4):
        shared.run(built("double"), WORKLOAD, inputs(seed), timeout=1.0)
    sides = [built("double", seconds=1e-4), built("double", seconds=3e-4)]
    samples = shared.time(sides, WORKLOAD, 7)
    assert isinstance(samples, np.ndarray)
    assert samples.shape == (7, 2)
    np.testing.assert_allclose(samples, np.tile([1e-4, 3e-4], (7, 1)), rtol=1e-6)


def test_audits_hold_outputs_of_timed_launches(shared: CudaDevice) -> None:
    """Each side's kept outputs belong to one of the sets, and are handed out once."""
    shared.audit()
    for seed in range(4):
        shared.run(built("double"), WORKLOAD, inputs(seed), timeout=1.0)
    shared.time([built("double"), built("skip")], WORKLOAD, 5)
    audits = shared.audit()
    assert {side for side, _, _ in audits} == {0, 1}
    for side, data, left in audits:
        right = np.array_equal(left.arrays["y"], 2 * np.asarray(data.values["x"]))
        assert right == (side == 0)
    assert shared.audit() == []


def test_time_of_a_kernel_that_was_never_assembled_is_a_failure(shared: CudaDevice) -> None:
    """Without a cubin there is nothing to launch, beside other kernels too."""
    shared.run(built("double"), WORKLOAD, inputs(), timeout=1.0)
    empty = replace(built("double"), cubin=b"")
    for sides in ([empty], [built("double"), empty]):
        failed = shared.time(sides, WORKLOAD, 3)
        assert isinstance(failed, Failure)
        assert failed.status == "UNSUPPORTED"
        assert "ptxas is missing" in failed.message


LARGE = 1 << 20


def test_large_outputs_that_a_check_left_are_not_read_back(shared: CudaDevice) -> None:
    """Timed launches that leave bit for bit what checks of the same kernel left say nothing."""
    shared.audit()
    kernel = built("double", seconds=2e-4)
    for seed in range(4):
        shared.run(kernel, Workload("large", {"n": LARGE}), inputs(seed, LARGE), timeout=1.0)
    assert isinstance(shared.time([kernel], Workload("large", {"n": LARGE}), 45), np.ndarray)
    assert shared.audit() == []


def test_large_outputs_of_a_kernel_that_was_not_checked_are_read_back(shared: CudaDevice) -> None:
    """What another kernel left on the same sets, or it on other sets, stands for nothing."""
    where = Workload("large", {"n": LARGE})
    shared.run(built("double"), where, inputs(0, LARGE), timeout=1.0)
    shared.audit()
    shared.time([built("double", seconds=3e-4)], where, 5)
    assert len(shared.audit()) == 1


def test_large_outputs_that_change_when_timed_are_read_back(
    shared: CudaDevice, tmp_path: Path
) -> None:
    """A kernel that leaves its work out once it was checked is found out."""
    where, file = Workload("large", {"n": LARGE}), tmp_path / "now"
    kernel = built("skip", **{"while": str(file)})
    for seed in range(4):
        shared.run(kernel, where, inputs(seed, LARGE), timeout=1.0)
    shared.audit()
    file.touch()
    shared.time([kernel], where, 45)
    audits = shared.audit()
    assert len(audits) == 3
    for _, data, left in audits:
        assert not np.array_equal(left.arrays["y"], 2 * np.asarray(data.values["x"]))


def test_repeats_follow_the_rival(shared: CudaDevice) -> None:
    """A rival of 100 us makes samples of three repeats, whatever the candidate takes."""
    shared.run(built("double"), WORKLOAD, inputs(), timeout=1.0)
    shared.time([built("double", seconds=5e-4), built("double", seconds=1e-4)], WORKLOAD, 3)
    assert shared.last_times is not None
    assert list(shared.last_times.repeats) == [3]


@pytest.mark.parametrize(
    ("do", "kind"), [("past the end", "guard_written"), ("write input", "input_written")]
)
def test_side_that_spoils_memory_is_named(shared: CudaDevice, do: str, kind: str) -> None:
    """Writes outside while being timed are blamed on the side that made them."""
    shared.run(built("double"), WORKLOAD, inputs(), timeout=1.0)
    failed = shared.time([built("double"), built(do)], WORKLOAD, 3)
    assert isinstance(failed, Failure)
    assert failed.fault is not None
    assert failed.fault.kind == kind
    assert failed.fault.object.startswith("builts[1]")


@pytest.mark.parametrize(("do", "kind"), [("hang", "timeout"), ("code 700", "launch_failure")])
def test_side_that_crashes_while_timed_is_named(do: str, kind: str) -> None:
    """A crash or a hang while being timed names its side, and the device lives on."""
    device = CudaDevice(driver=FAKE, instruments=INSTRUMENTS)
    device.run(built("double"), WORKLOAD, inputs(), timeout=1.0)
    failed = device.time([built("double"), built(do)], WORKLOAD, 3)
    assert isinstance(failed, Failure)
    assert failed.fault is not None
    assert failed.fault.kind == kind
    assert failed.fault.object == "builts[1]"
    samples = device.time([built("double")], WORKLOAD, 3)
    assert isinstance(samples, np.ndarray)
    device.close()


def test_audits_give_back_the_inputs_that_were_handed_in_last(shared: CudaDevice) -> None:
    """An equal set made anew is the one that audits name, so that callers find it."""
    shared.run(built("double"), WORKLOAD, inputs(0), timeout=1.0)
    anew = [inputs(seed) for seed in range(8)]
    for data in anew:
        shared.run(built("double"), WORKLOAD, data, timeout=1.0)
    shared.audit()
    shared.time([built("double")], WORKLOAD, 3)
    for _, data, _ in shared.audit():
        assert any(data is made for made in anew)


def test_guard_of_a_steady_kernel_passes(shared: CudaDevice) -> None:
    """A kernel with 1 % noise raced against itself comes out equal."""
    shared.run(built("double"), WORKLOAD, inputs(), timeout=1.0)
    found = shared.guard(built("double", noise=0.01, seconds=3e-4), WORKLOAD)
    assert not isinstance(found, Failure)
    assert found.ok
    assert 0.003 < found.noise < 0.05


def test_time_without_a_run_says_what_to_do(shared: CudaDevice) -> None:
    """Timing a workload that was never run is a usage error."""
    with pytest.raises(UsageError, match="call run first"):
        shared.time([built("double")], Workload("unseen", {"n": N}), 3)


def test_process_is_renewed_after_many_kernels() -> None:
    """After `recycle` different kernels the next one runs in a fresh process."""
    device = CudaDevice(driver=FAKE, instruments=INSTRUMENTS, settings=Settings(recycle=3))
    for number in range(5):
        device.run(built("double", number=number), WORKLOAD, inputs(), timeout=1.0)
    assert device.restarts == 1
    device.close()


def test_stress_reports_drift(shared: CudaDevice) -> None:
    """A steady kernel drifts by nothing over a thousand launches and leaves right outputs."""
    shared.run(built("double"), WORKLOAD, inputs(), timeout=1.0)
    found = shared.stress(built("double"), WORKLOAD, 1000)
    assert found["launches"] == 1000
    assert found["drift"] == pytest.approx(0.0, abs=1e-6)
    np.testing.assert_array_equal(found["left"].arrays["y"], 2 * np.asarray(inputs().values["x"]))


def test_a_far_slower_side_is_not_repeated_as_often(shared: CudaDevice) -> None:
    """Beside a rival of 19 us, 15 repeats a sample, a baseline of 20 ms has one."""
    kernels = [built("double", seconds=t) for t in (2.1e-5, 1.9e-5, 2e-2)]
    for kernel in kernels:
        shared.run(kernel, WORKLOAD, inputs(5), timeout=5.0)
    samples = shared.time(kernels, WORKLOAD, 10)
    assert isinstance(samples, np.ndarray)
    np.testing.assert_allclose(np.median(samples, axis=0), [2.1e-5, 1.9e-5, 2e-2], rtol=1e-6)
    assert shared.last_times is not None
    assert list(shared.last_times.repeats) == [15]
