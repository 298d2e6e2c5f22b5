"""What compilers and drivers agree on here: `python benchmarks/cross_checks.py OUT.json [CUBINS]`.

Times the matmul template from ptxas, from nvJitLink and compiled from PTX by the driver, side by
side on the same buffers, with registers as the driver reports them. CUBINS is a folder of
double_it_VERSION.cubin files from other ptxas versions: each is loaded and must compute.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ptxsearch.evaluation import Built, Outputs
from ptxsearch.gpu import CudaDevice
from ptxsearch.inputs import make_inputs
from ptxsearch.taskfile import load_task
from ptxsearch.toolchain import CompileFailure, build
from tests.gpu.kernels import built, inputs, workload

VALUES = {"BX": 16, "BY": 16, "TM": 4, "TN": 4, "TILED": 1, "BK": 16, "PAD": 1, "UNROLL": 4}


def linked(ptx: str, arch: str) -> bytes | None:
    """The cubin nvJitLink makes of PTX; None where the library is missing."""
    try:
        from cuda.bindings import nvjitlink
    except (ImportError, RuntimeError):
        return None
    handle = nvjitlink.create(1, [f"-arch={arch}"])
    data = ptx.encode() + b"\0"
    nvjitlink.add_data(handle, nvjitlink.InputType.PTX, data, len(data), "kernel")
    nvjitlink.complete(handle)
    cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
    nvjitlink.get_linked_cubin(handle, cubin)
    return bytes(cubin)


def compilers(device: CudaDevice) -> dict[str, Any]:
    """Microseconds of one kernel by compiler, in the same rounds."""
    task = load_task("level1/matmul")
    made = build(task.baseline.with_values(**VALUES), device.arch)
    assert not isinstance(made, CompileFailure), made.message
    sides: dict[str, Built] = {
        "ptxas": made,
        "driver": replace(made, cubin=made.ptx.encode() + b"\0"),
    }
    try:
        other = linked(made.ptx, device.arch)
    except RuntimeError as error:
        other = None
        print("nvJitLink:", error)
    if other is not None:
        sides["nvJitLink"] = replace(made, cubin=other)
    where = task.timed[0]
    for seed in range(4):
        for side in sides.values():
            left = device.run(side, where, make_inputs(task, where, seed=seed), timeout=5.0)
            assert isinstance(left, Outputs), left
    samples = device.time(list(sides.values()), where, 40)
    assert isinstance(samples, np.ndarray), samples
    medians = np.median(samples, axis=0)
    return {name: round(1e6 * float(t), 2) for name, t in zip(sides, medians, strict=True)}


def loads(device: CudaDevice, folder: Path) -> dict[str, str]:
    """Whether a cubin of each other version loads and computes."""
    found = {}
    ours = built("double_it", device.arch)
    data = inputs(1 << 20, 1)
    for path in sorted(folder.glob("double_it_*.cubin")):
        left = device.run(
            replace(ours, cubin=path.read_bytes()), workload(1 << 20), data, timeout=5.0
        )
        right = isinstance(left, Outputs) and np.array_equal(
            left.arrays["y"], 2 * np.asarray(data.values["x"])
        )
        found[path.stem] = "computes" if right else str(left)
    return found


def main(arguments: list[str]) -> None:
    device = CudaDevice()
    found: dict[str, Any] = {"us": compilers(device)}
    if len(arguments) > 1:
        found["cubins"] = loads(device, Path(arguments[1]))
    print(found)
    Path(arguments[0]).write_text(json.dumps(found))
    device.close()


if __name__ == "__main__":
    main(sys.argv[1:])
