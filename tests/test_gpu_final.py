"""The certificate of finalists: choice and report apart, evidence, comparison."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from ptxsearch.evaluation import Built, Failure, Timing
from ptxsearch.expectation import standard_sets
from ptxsearch.gpu.device import CudaDevice, Settings
from ptxsearch.gpu.final import PROCESSES, Certificate, certify_task, differences
from ptxsearch.inputs import make_inputs
from ptxsearch.kernel import Kernel, Launch
from ptxsearch.param import Param
from ptxsearch.tasks import Task, Workload
from tests.fake_driver import INSTRUMENTS, cubin

LAUNCH = Launch("k", ("x", "y", "n"), ("8",), ("128",))


def kernel() -> Kernel:
    """The launch of every fake kernel here."""
    return Kernel("", "cuda", (LAUNCH,))


def built(do: str = "double", seconds: float = 1e-4, **more: float) -> Built:
    """A fake kernel."""
    return Built(cubin(do, seconds=seconds, **more), "", kernel(), {})


def twice() -> Task:
    """Y = 2 x, exactly."""
    return Task(
        name="twice",
        level=1,
        description="y = 2 x",
        params=(
            Param("x", "in", "f32", ("n",)),
            Param("y", "out", "f32", ("n",)),
            Param("n", "scalar", "s32", init="n"),
        ),
        workloads=(Workload("small", {"n": 64}), Workload("full", {"n": 500}, timed=True)),
        reference=lambda x, n: {"y": 2 * np.asarray(x, np.float64)},
        baseline=kernel(),
        scale={"y": "exact"},
    )


@pytest.fixture(scope="module")
def device() -> Iterator[CudaDevice]:
    """A device on the fake driver."""
    made = CudaDevice(driver="tests.fake_driver:FakeDriver", instruments=INSTRUMENTS,
                      settings=Settings(explain=False))  # fmt: skip
    yield made
    made.close()


def test_fastest_finalist_wins_and_its_gain_is_reported(device: CudaDevice) -> None:
    """Of three finalists the one at 80 us is certified as 1.25 times the baseline's 100 us."""
    finalists = [built(seconds=9e-5), built(seconds=8e-5), built(seconds=9.5e-5)]
    before = device.restarts
    made = certify_task(device, twice(), finalists, built(seconds=1e-4))
    assert not isinstance(made, Failure), made
    found = made["full"]
    assert found.winner == 1
    assert found.timing.median == pytest.approx(8e-5, rel=1e-6)
    assert found.speedup == pytest.approx(1.25, rel=1e-6)
    assert found.launches >= 1000
    assert len(found.processes) == PROCESSES
    assert device.restarts - before >= PROCESSES
    assert found.problems == ()


def test_choice_and_report_use_different_rounds(device: CudaDevice) -> None:
    """The best of eight equal noisy kernels is reported without the luck that chose it."""
    finalists = [built(noise=0.03) for _ in range(8)]
    made = certify_task(device, twice(), finalists, built(noise=0.03))
    assert not isinstance(made, Failure), made
    assert made["full"].speedup == pytest.approx(1.0, abs=0.01)


def test_timed_on_fresh_inputs_alone(device: CudaDevice) -> None:
    """Sets that a search left on the device are neither timed nor audited."""
    task = twice()
    for seed in range(6):
        for workload in task.workloads:
            old = make_inputs(task, workload, seed=seed)
            device.run(built(), workload, old, timeout=5.0)
            device.time([built()], workload, 4)
    made = certify_task(device, task, [built()], built(), seed=77)
    assert not isinstance(made, Failure), made
    assert made["full"].faults == ()
    labels = {held.inputs.label for held in device._sets(built(), task.timed[0])}
    assert len(labels) >= 4
    assert all(label.rpartition(" ")[2].startswith("77") for label in labels)


def test_one_winner_over_all_timed_workloads(device: CudaDevice) -> None:
    """Every workload's certificate is of the same kernel: the fastest by the geometric mean."""
    task = replace(
        twice(),
        workloads=(
            Workload("small", {"n": 64}),
            Workload("half", {"n": 300}, timed=True),
            Workload("full", {"n": 500}, timed=True),
        ),
    )
    finalists = [built(seconds=9e-5), built(seconds=8e-5)]
    made = certify_task(device, task, finalists, built(seconds=1e-4))
    assert not isinstance(made, Failure), made
    assert {name: c.winner for name, c in made.items()} == {"half": 1, "full": 1}
    assert {name: c.workload for name, c in made.items()} == {"half": "half", "full": "full"}


def test_wrong_finalist_is_a_failure(device: CudaDevice) -> None:
    """A finalist that writes nothing on fresh inputs gets no certificate."""
    failed = certify_task(device, twice(), [built("skip")], built())
    assert isinstance(failed, Failure)
    assert failed.status == "WRONG"
    assert "wrong on fresh inputs" in failed.message
    assert failed.fault is not None
    assert failed.fault.object.startswith("builts[0]")


def test_winner_is_checked_on_every_fresh_set(device: CudaDevice) -> None:
    """The fastest kernel, wrong on the last set of the timed size alone, is refused."""
    task = twice()
    full = task.timed[0]
    seed, distribution = standard_sets(task, full, seed=3)[-1]
    x = make_inputs(task, full, seed=seed, distribution=distribution).values["x"]
    sly = built("skip", seconds=5e-5, only=float(np.asarray(x)[0]))
    failed = certify_task(device, task, [built(), sly], built(), seed=3)
    assert isinstance(failed, Failure)
    assert failed.fault is not None
    assert failed.fault.object.startswith("builts[1]")
    assert failed.status == "WRONG"


def certificate(**changes: object) -> Certificate:
    """A certificate with some fields changed."""
    timing = Timing(1e-4, 1e-4, 1.1e-4, 100)
    fields: dict[str, object] = {
        "device": "NVIDIA H200", "driver": 13000, "toolchain": "ptxas 13.0.88", "cubin": "ab",
        "workload": "full", "winner": 0, "timing": timing, "baseline": timing,
        "interval": (1e-4, 1e-4), "speedup": 2.0, "speedup_interval": (1.9, 2.1),
        "processes": (1e-4,), "launches": 1000, "findings": {"memcheck": 0},
    }  # fmt: skip
    return Certificate(**{**fields, **changes})  # type: ignore[arg-type]


def test_certificates_that_agree_say_nothing() -> None:
    """A time that moved by 1 % is agreement."""
    moved = Timing(1.01e-4, 1e-4, 1.1e-4, 100)
    assert differences(certificate(), certificate(timing=moved)) == []


def test_certificates_that_differ_name_what_does() -> None:
    """Device, time and findings that changed are each one sentence."""
    now = certificate(
        device="NVIDIA H100", timing=Timing(2e-4, 2e-4, 2e-4, 100), findings={"memcheck": 3}
    )
    said = differences(certificate(), now)
    assert len(said) == 3
    assert said[0] == "device was NVIDIA H200, is NVIDIA H100"
    assert "+100.0 %" in said[1]
    assert said[2] == "memcheck found 0, finds 3"


def test_certificate_survives_json() -> None:
    """A certificate written and read is the same."""
    assert Certificate.from_dict(certificate().to_dict()) == certificate()
