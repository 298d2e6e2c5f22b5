"""A whole run on hardware: search, final examination, export, loaders, verify, the guard."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import ptxsearch
from ptxsearch.config import make_evaluator
from ptxsearch.gpu import CudaDevice, CudaDevices, devices
from ptxsearch.gpu.final import Certificate
from ptxsearch.pipeline import Pipeline
from ptxsearch.trial import Result

pytestmark = pytest.mark.gpu
TASK = "level1/matmul"
LOADED = """
import sys, numpy as np
sys.path.insert(0, {folder!r})
rng = np.random.default_rng(1)
a, b = rng.standard_normal((61, 37), np.float32), rng.standard_normal((37, 83), np.float32)
{body}
want = a.astype(np.float64) @ b
assert got.shape == want.shape
assert np.max(np.abs(got - want) / (np.abs(a) @ np.abs(b))) < 1e-6
"""
BODIES = {
    "cuda.bindings": "from load_cuda_python import run\ngot = run('prime', a=a, b=b)['c']",
    "torch": (
        "import torch\nfrom load_torch import run\nc = torch.empty(61, 83, device='cuda')\n"
        "run('prime', a=torch.from_numpy(a).cuda(), b=torch.from_numpy(b).cuda(), c=c)\n"
        "got = c.cpu().numpy()"
    ),
    "cupy": (
        "import cupy\nfrom load_cupy import run\nc = cupy.empty((61, 83), cupy.float32)\n"
        "run('prime', a=cupy.asarray(a), b=cupy.asarray(b), c=c)\ngot = cupy.asnumpy(c)"
    ),
}


@pytest.fixture(scope="module")
def result(gpu: CudaDevice) -> Result:
    """A short search with the menu and the tuner."""
    task = ptxsearch.load_task(TASK)
    return ptxsearch.optimize(task, device=gpu, budget=ptxsearch.Budget(trials=8), workers=2)


def test_result_is_certified(result: Result) -> None:
    """The reported time is that of fresh processes, beside the baseline and the tools' findings."""
    assert result.best is not None
    verdict = result.best.evaluation
    assert verdict.stage == "final"
    assert verdict.source == "measured"
    found = Certificate.from_dict(verdict.evidence["final"]["full"])
    assert found.launches >= 1000
    assert len(found.processes) == 5
    assert found.speedup > 1
    assert found.faults == ()
    assert verdict.times["full"].median == pytest.approx(found.timing.median)
    assert set(found.findings) == {"memcheck", "racecheck", "initcheck", "synccheck"}


def test_first_kernel_was_preceded_by_the_guard(result: Result) -> None:
    """A kernel raced against itself before anything was judged, and came out equal."""
    guards = [
        t.evaluation.evidence["guard"] for t in result.trials if "guard" in t.evaluation.evidence
    ]
    assert len(guards) == 1
    assert guards[0]["ok"]


def test_verify_agrees(result: Result, gpu: CudaDevice, tmp_path: Path) -> None:
    """The stored result, read again, is confirmed by the same gates and a fresh certificate."""
    path = result.save(tmp_path / "result.json")
    found = ptxsearch.verify(path, device=gpu)
    assert found.ok, found.differences
    assert found.evaluation.stage == "final"
    assert any("times the baseline" in line for line in found.agreements)


@pytest.mark.parametrize("package", BODIES)
def test_exported_loader_computes(result: Result, tmp_path: Path, package: str) -> None:
    """Each loader runs the cubin in a process of its own; numpy in float64 agrees."""
    pytest.importorskip(package)
    assert result.best is not None
    result.best.export(tmp_path)
    script = LOADED.format(folder=str(tmp_path), body=BODIES[package])
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


def test_several_gpus_share_a_search() -> None:
    """Where more than one GPU is visible, "cuda" uses all of them for one tree."""
    if devices() < 2:
        pytest.skip("one GPU is visible")
    evaluator = make_evaluator("cuda")
    assert isinstance(evaluator, Pipeline)
    assert isinstance(evaluator.device, CudaDevices)
    task = ptxsearch.load_task(TASK)
    result = ptxsearch.optimize(task, device=evaluator, budget=ptxsearch.Budget(trials=12))
    busy = [gpu.busy for gpu in evaluator.device.gpus]
    evaluator.device.close()
    assert len(busy) == devices()
    assert min(busy) > 0.1
    assert {trial.evaluation.status for trial in result.trials} == {"OK"}
    assert result.best is not None
    assert result.best.evaluation.stage == "final"
