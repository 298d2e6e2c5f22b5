"""First real results: `python benchmarks/level1_results.py OUT.json [--trials 40] [--seconds 100]`.

For each level-1 task on the GPU at full size: `optimize` with menu and tuner, the final examination
included; the best kernel's time against the baseline's and against torch (eager and compiled) in
the same run on the same clock, and its share of what the memory or the arithmetic attains.
Accumulating buffers are initialised outside the clock for all.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ptxsearch.api import optimize
from ptxsearch.budget import Budget
from ptxsearch.gpu import CudaDevice
from ptxsearch.inputs import make_inputs
from ptxsearch.policy import Policy
from ptxsearch.taskfile import load_task
from ptxsearch.trial import Trial

TASKS = ("transpose", "sum", "matmul", "saxpy", "softmax", "histogram")
WORKERS = 4


def search(name: str, trials: int, seconds: float) -> dict[str, Any]:
    """A whole run; the row of its result."""
    task = load_task(name)
    device = CudaDevice()
    started = time.perf_counter()
    heard: list[tuple[float, Trial]] = []
    result = optimize(
        task,
        device=device,
        policy=Policy(stop_within=0.0),
        budget=Budget(trials=trials, wall_seconds=seconds),
        workers=WORKERS,
        on_trial=lambda trial: heard.append((time.perf_counter() - started, trial)),
    )
    device.close()
    row: dict[str, Any] = {
        "task": name,
        "seconds": time.perf_counter() - started,
        "search_seconds": heard[-1][0],
        "trials": len(result.trials),
        "statuses": Counter(trial.evaluation.status for trial in result.trials),
        "messages": sorted({t.evaluation.message[:200] for t in result.trials} - {""}),
        "races": [t.evaluation.evidence.get("race") for t in result.trials if t.evaluation.ok],
        "cost": _costs(result.trials),
        "curve": [
            [round(at, 2), trial.evaluation.status, 1e6 * trial.evaluation.seconds]
            for at, trial in heard
            if trial.evaluation.times
        ],
        "reason": result.reason,
    }
    if result.best is None or result.baseline is None:
        return row
    best = result.best.evaluation
    attainable = 1e6 * float(best.evidence["attainable_seconds"])
    return row | {
        "baseline_us": 1e6 * result.baseline.seconds,
        "best_us": 1e6 * best.seconds,
        "attainable_us": attainable,
        "share": attainable / (1e6 * best.seconds),
        "values": dict(result.best.kernel.values),
        "final": best.evidence.get("final"),
        "refused": best.evidence.get("refused"),
    }


def _costs(trials: Any) -> dict[str, float]:
    """Mean seconds a trial spent in each stage."""
    stages: Counter[str] = Counter()
    for trial in trials:
        stages.update(trial.evaluation.cost)
    return {stage: round(spent / len(trials), 3) for stage, spent in stages.items()}


def torch_call(name: str) -> Callable[..., Any]:
    """The same work in torch, eager."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    calls: dict[str, Callable[..., Any]] = {
        "transpose": lambda x, **_: x.t().contiguous(),
        "sum": lambda x, **_: torch.sum(x),
        "matmul": lambda a, b, **_: a @ b,
        "saxpy": lambda x, y, a, **_: torch.add(y, x, alpha=a),
        "softmax": lambda x, **_: torch.softmax(x, dim=1),
        "histogram": lambda x, **_: torch.bincount(x, minlength=256),
    }
    return calls[name.split("/")[-1]]


def peers(name: str) -> dict[str, float]:
    """Median microseconds of torch eager and compiled after a read flush, over two input sets."""
    import torch

    task = load_task(name)
    workload = task.timed[0]
    sets = []
    for seed in (1, 2):
        inputs = make_inputs(task, workload, seed=seed)
        sets.append(
            {
                key: torch.from_numpy(np.array(value)).cuda() if np.ndim(value) else value.item()
                for key, value in inputs.values.items()
                if inputs.roles[key] != "out"
            }
        )
    call = torch_call(name)
    found = {"torch_us": _time(call, sets)}
    if not name.endswith("histogram"):
        found["torch_compile_us"] = _time(torch.compile(call), sets)
    return found


def _time(call: Callable[..., Any], sets: list[dict[str, Any]]) -> float:
    import torch

    clean = torch.ones(64 << 20, dtype=torch.float32, device="cuda")
    for arguments in sets * 3:
        call(**arguments)
    samples = []
    for number in range(40):
        clean.sum()
        torch.cuda._sleep(60_000)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call(**sets[number % 2])
        end.record()
        end.synchronize()
        samples.append(1e3 * start.elapsed_time(end))
    return float(np.median(samples[4:]))


def main() -> None:
    """Search every task, time torch on it, and write one row each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=100, help="of search for each task")
    parser.add_argument("--tasks", default=",".join(TASKS))
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for short in options.tasks.split(","):
        row = search(f"level1/{short}", options.trials, options.seconds)
        rows.append(row)
        options.out.write_text(json.dumps(rows, indent=1))
        try:
            row |= peers(f"level1/{short}")
        except (ImportError, RuntimeError) as error:
            row["torch"] = str(error)
        options.out.write_text(json.dumps(rows, indent=1))
        shown = ("trials", "seconds", "baseline_us", "best_us", "attainable_us", "share",
                 "torch_us", "torch_compile_us", "torch", "statuses", "cost", "reason")  # fmt: skip
        print(short, {key: row[key] for key in shown if key in row}, flush=True)


if __name__ == "__main__":
    main()
