"""Several GPUs as one device: threads keep to their own, nothing of one is told to another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ptxsearch.evaluation import Built, Inputs, Outputs
from ptxsearch.gpu import CudaDevice, CudaDevices
from ptxsearch.gpu.device import Settings
from ptxsearch.kernel import Kernel, Launch
from ptxsearch.protocols import AuditedDevice, BatchDevice, GuardedDevice
from ptxsearch.tasks import Workload
from tests.fake_driver import INSTRUMENTS, cubin

N = 64
SIZE = Workload("small", {"n": N})
KERNEL = Kernel("", "cuda", (Launch("k", ("x", "y", "n"), ("8",), ("128",)),))


def gpu(index: int) -> CudaDevice:
    """A GPU of the fake driver."""
    return CudaDevice(
        index,
        driver="tests.fake_driver:FakeDriver",
        instruments=INSTRUMENTS,
        settings=Settings(explain=False),
    )


@pytest.fixture(scope="module")
def pair() -> Iterator[CudaDevices]:
    """Two equal GPUs."""
    made = CudaDevices([gpu(0), gpu(1)])
    yield made
    made.close()


def inputs(seed: int) -> Inputs:
    """Normal x."""
    x = np.random.default_rng(seed).standard_normal(N, np.float32)
    values = {"x": x, "y": np.empty(N, np.float32), "n": np.int32(N)}
    return Inputs(values, {"x": "in", "y": "out", "n": "scalar"}, {"n": N}, f"normal {seed}")


def each(count: int, work: Callable[[int], Any]) -> list[Any]:
    """What `work` gives in `count` threads that are alive together."""
    together = threading.Barrier(count)

    def start(number: int) -> Any:
        together.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(start, range(count)))


def test_it_is_every_kind_of_device_that_a_gpu_is(pair: CudaDevices) -> None:
    """The pipeline finds the same optional methods."""
    for kind in (BatchDevice, AuditedDevice, GuardedDevice):
        assert isinstance(pair, kind)


def test_threads_are_dealt_out_and_stay(pair: CudaDevices) -> None:
    """Four threads, two GPUs: two threads each, the same one every time."""
    seen = each(4, lambda _: (id(pair.mine), id(pair.mine)))
    assert all(first == again for first, again in seen)
    homes = [first for first, _ in seen]
    assert sorted(map(homes.count, set(homes))) == [2, 2]


def test_both_compute_and_time(pair: CudaDevices) -> None:
    """Each GPU runs and times what its thread gives it, against numpy."""

    def work(number: int) -> tuple[Any, Any]:
        data = inputs(number)
        built = Built(cubin("double", seconds=1e-4 * (1 + number)), "", KERNEL, {})
        left = pair.run(built, SIZE, data, timeout=5.0)
        assert isinstance(left, Outputs)
        np.testing.assert_array_equal(left.arrays["y"], 2 * np.asarray(data.values["x"]))
        return pair.mine, pair.time([built], SIZE, 3)

    (one, fast), (other, slow) = each(2, work)
    assert one is not other
    assert np.median(slow) == pytest.approx(2 * np.median(fast))


def test_audits_belong_to_the_thread_that_timed() -> None:
    """On one GPU a thread never hears of what another thread's kernel left."""
    device = gpu(0)
    data = inputs(9)
    kinds = ("double", "skip")
    builts = [Built(cubin(do), "", KERNEL, {}) for do in kinds]
    device.run(builts[0], SIZE, data, timeout=5.0)

    def work(number: int) -> list[bool]:
        for _ in range(4):
            device.time([builts[number]], SIZE, 3)
        right = 2 * np.asarray(data.values["x"])
        return [bool(np.array_equal(left.arrays["y"], right)) for _, _, left in device.audit()]

    honest, lazy = each(2, work)
    device.close()
    assert honest
    assert all(honest)
    assert lazy
    assert not any(lazy)


def test_another_model_is_left_out() -> None:
    """A GPU with another name is closed and not used."""
    first, other = gpu(0), gpu(1)
    other.name = "Other GPU"
    made = CudaDevices([first, other])
    assert made.gpus == (first,)
    made.close()


def test_program_of_one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """ "cuda" is one device where one GPU is visible, all of them where there are more."""
    from ptxsearch import config

    made: list[int] = []

    def fake(index: int = 0) -> Any:
        made.append(index)
        return replace(SIZE, name=f"gpu {index}")

    monkeypatch.setattr(config, "CudaDevice", fake)
    monkeypatch.setattr(config, "CudaDevices", lambda gpus: gpus)
    monkeypatch.setattr(config, "devices", lambda: 1)
    config._named_device("cuda", None)
    monkeypatch.setattr(config, "devices", lambda: 3)
    config._named_device("cuda", None)
    config._named_device("cuda:2", None)
    assert made == [0, 0, 1, 2, 2]
