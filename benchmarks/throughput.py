"""Kernels judged per GPU minute: ours, Kernel Tuner, and an evaluation as KernelBench does it.

`python benchmarks/throughput.py OUT.json [COUNT]` draws COUNT configurations of the matmul task's
template and gives the same ones to each: to our whole pipeline (emulator gate, every workload and
distribution, race against the baseline), to Kernel Tuner with one answer check, and three of them
to nvcc with five checks and a hundred timed launches. Peers that are not installed are left out.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ptxsearch.gpu import CudaDevice
from ptxsearch.pipeline import Pipeline
from ptxsearch.taskfile import load_task
from ptxsearch.tasks import Task

N = 1024
PROCESSES = 10
INCUMBENT = {"BX": 16, "BY": 16, "TM": 4, "TN": 4, "TILED": 1, "BK": 16, "PAD": 1, "UNROLL": 4}
WRAPPER = """
extern "C" void go(float* a, float* b, float* c, int m, int n, int k, int gx, int gy) {
  matmul<<<dim3(gx, gy), dim3(BX, BY)>>>(a, b, c, m, n, k);
}
"""


def ours(task: Task, chosen: list[dict[str, Any]]) -> dict[str, Any]:
    """Every gate and the race against a fair incumbent, by processes that share the GPU's lock.

    Each process has compiled, checked and timed the incumbent before the clock starts.
    """
    with ProcessPoolExecutor(PROCESSES, get_context("spawn")) as pool:
        ready = [pool.submit(_judge, task.name, INCUMBENT, None) for _ in range(2 * PROCESSES)]
        for item in ready:
            item.result()
        started = time.perf_counter()
        jobs = [pool.submit(_judge, task.name, values, INCUMBENT) for values in chosen]
        rows = [job.result() for job in jobs]
        seconds = time.perf_counter() - started
    stages: dict[str, float] = {}
    for row in rows:
        for stage, cost in row["cost"].items():
            stages[stage] = stages.get(stage, 0.0) + cost / len(rows)
    return {
        "kernels": len(chosen),
        "seconds": seconds,
        "per minute": 60 * len(chosen) / seconds,
        "statuses": Counter(row["status"] for row in rows),
        "us": [row["us"] for row in rows],
        "GPU seconds": sum(row["worked"] for row in rows),
        "seconds by stage and kernel": {k: round(v, 4) for k, v in stages.items()},
    }


_PIPELINES: dict[str, tuple[CudaDevice, Pipeline, Task]] = {}


def _judge(name: str, values: dict[str, Any], rival: dict[str, Any] | None) -> dict[str, Any]:
    """One verdict in a process of the pool, which keeps its device and its references."""
    if name not in _PIPELINES:
        device = CudaDevice()
        _PIPELINES[name] = device, Pipeline(device), load_task(name)
    device, pipeline, task = _PIPELINES[name]
    before = device.busy
    verdict = pipeline.evaluate(
        task,
        task.baseline.with_values(**values),
        baseline=None,
        rival=None if rival is None else task.baseline.with_values(**rival),
    )
    return {
        "status": verdict.status,
        "us": verdict.times["full"].median * 1e6 if "full" in verdict.times else None,
        "cost": dict(verdict.cost),
        "worked": device.busy - before,
    }


def kernel_tuner(task: Task, chosen: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Kernel Tuner on the same configurations, its answer check on, its defaults otherwise."""
    try:
        from kernel_tuner import tune_kernel
    except ImportError:
        return None
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((N, N)).astype(np.float32) for _ in range(2))
    answer = (a.astype(np.float64) @ b).astype(np.float32)
    names = list(chosen[0])
    keys = {tuple(values[name] for name in names) for values in chosen}
    space = task.baseline.space
    assert space is not None
    size = np.int32(N)

    def allowed(values: dict[str, Any]) -> bool:
        return tuple(values[name] for name in names) in keys

    started = time.perf_counter()
    results, _ = tune_kernel(
        "matmul",
        task.baseline.source,
        (N, N),
        [a, b, np.zeros((N, N), np.float32), size, size, size],
        {name: sorted({values[name] for values in chosen}) for name in names},
        restrictions=allowed,
        grid_div_x=["BX*TN"],
        grid_div_y=["BY*TM"],
        block_size_names=["BX", "BY"],
        answer=[None, None, answer, None, None, None],
        atol=1e-2,
        lang="CUPY",
        quiet=True,
    )
    seconds = time.perf_counter() - started
    good = [r for r in results if isinstance(r["time"], float)]
    return {
        "kernels": len(results),
        "seconds": seconds,
        "per minute": 60 * len(results) / seconds,
        "valid": len(good),
        "best us": min(1e3 * r["time"] for r in good),
    }


def kernelbench_style(task: Task, chosen: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Nvcc makes a library, five random inputs are compared with torch, 100 launches are timed."""
    try:
        import torch
    except ImportError:
        return None
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        for number, values in enumerate(chosen):
            _nvcc_and_time(torch, task, values, Path(folder) / f"k{number}")
    seconds = time.perf_counter() - started
    return {
        "kernels": len(chosen),
        "seconds": seconds,
        "per minute": 60 * len(chosen) / seconds,
    }


def _nvcc_and_time(torch: Any, task: Task, values: dict[str, Any], path: Path) -> float:
    # Outside NVRTC the pragma does not see macros.
    source = task.baseline.source.replace("unroll UNROLL", f"unroll {values['UNROLL']}")
    path.with_suffix(".cu").write_text(source + WRAPPER)
    defines = [f"-D{name}={value}" for name, value in values.items()]
    subprocess.run(
        ["nvcc", "-O3", "-arch=sm_90", "-shared", "-Xcompiler", "-fPIC", *defines, "-o",
         str(path.with_suffix(".so")), str(path.with_suffix(".cu"))],
        check=True,
        capture_output=True,
    )  # fmt: skip
    library = ctypes.CDLL(str(path.with_suffix(".so")))
    grid = (-(-N // (values["BX"] * values["TN"])), -(-N // (values["BY"] * values["TM"])))

    def go(a: Any, b: Any, c: Any) -> None:
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (a, b, c)]
        library.go(*pointers, N, N, N, *grid)

    for _ in range(5):
        a, b = torch.randn(N, N, device="cuda"), torch.randn(N, N, device="cuda")
        c = torch.empty(N, N, device="cuda")
        go(a, b, c)
        torch.cuda.synchronize()
        assert torch.allclose(c, a @ b, atol=1e-2, rtol=1e-2)
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(100)]
    stream = torch.cuda.default_stream()
    for start, end in events:
        start.record(stream)
        go(a, b, c)
        end.record(stream)
    torch.cuda.synchronize()
    return float(np.mean([start.elapsed_time(end) for start, end in events]))


def main(arguments: list[str]) -> None:
    count = int(arguments[1]) if len(arguments) > 1 else 40
    task = load_task("level1/matmul")
    space = task.baseline.space
    assert space is not None
    rows = space.sample(np.random.Generator(np.random.Philox(11)), count)
    chosen = [space.values(row) for row in rows]
    found: dict[str, Any] = {"configurations": chosen}
    parts = {
        "ours": lambda: ours(task, chosen),
        "Kernel Tuner": lambda: kernel_tuner(task, chosen),
        "KernelBench style": lambda: kernelbench_style(task, chosen[:3]),
    }
    for name, part in parts.items():
        found[name] = part()
        print(name, found[name], flush=True)
        Path(arguments[0]).write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
