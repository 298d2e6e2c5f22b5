"""Kinds of launches on hardware: tensor maps, clusters, sequences with scratch."""

from __future__ import annotations

import numpy as np
import pytest

from ptxsearch.evaluation import Outputs
from ptxsearch.gpu import CudaDevice
from ptxsearch.kernel import Kernel, Launch, Scratch, TensorMap
from ptxsearch.toolchain import CompileFailure, build
from tests.gpu.kernels import FOLDER, inputs, workload

pytestmark = pytest.mark.gpu
N = 1 << 16
KERNELS = {
    "tensor_map": Kernel(
        (FOLDER / "tensor_map.cu").read_text(),
        "cuda",
        (Launch("k", ("map", "y", "n"), ("n // 256",), ("256",)),),
        tensor_maps=(TensorMap("map", "x", "f32", ("32", "n // 32"), ("128",), ("32", "8")),),
    ),
    "cluster_pair": Kernel(
        (FOLDER / "cluster_pair.cu").read_text(),
        "cuda",
        (Launch("k", ("x", "y", "n"), ("n // 256",), ("256",), ("2",)),),
    ),
    "two_launches": Kernel(
        (FOLDER / "two_launches.cu").read_text(),
        "cuda",
        (
            Launch("first", ("x", "held", "ticket", "n"), ("n // 256",), ("256",)),
            Launch("second", ("held", "ticket", "y", "n", "n // 256"), ("n // 256",), ("256",)),
        ),
        scratch=(Scratch("held", "f32", ("n",)), Scratch("ticket", "u32", ("1",), "zeros")),
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_launches(gpu: CudaDevice, name: str) -> None:
    """Each kind gives twice its input, once and again while it is timed."""
    made = build(KERNELS[name], gpu.arch)
    assert not isinstance(made, CompileFailure), made.message
    data = inputs(N, 1)
    left = gpu.run(made, workload(N), data, timeout=5.0)
    assert isinstance(left, Outputs), left
    np.testing.assert_array_equal(left.arrays["y"], 2 * np.asarray(data.values["x"]))
    gpu.audit()
    samples = gpu.time([made, made], workload(N), 5)
    assert isinstance(samples, np.ndarray), samples
    audits = gpu.audit()
    assert {side for side, _, _ in audits} == {0, 1}
    for _, timed, after in audits:
        np.testing.assert_array_equal(after.arrays["y"], 2 * np.asarray(timed.values["x"]))


def test_warm_and_stress(gpu: CudaDevice) -> None:
    """A sequence of two launches replays from a graph and survives a thousand launches."""
    made = build(KERNELS["cluster_pair"], gpu.arch)
    assert not isinstance(made, CompileFailure)
    data = inputs(N, 1)
    gpu.run(made, workload(N), data, timeout=5.0)
    warm = gpu.warm(made, workload(N), replays=5)
    assert isinstance(warm, list)
    assert all(1e-6 < seconds < 1e-3 for seconds in warm)
    found = gpu.stress(made, workload(N), 1000)
    np.testing.assert_array_equal(found["left"].arrays["y"], 2 * np.asarray(data.values["x"]))
