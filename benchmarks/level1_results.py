"""First real results: `python benchmarks/level1_results.py OUT.json [--trials 24] [--seconds 400]`.

For each level-1 task on the GPU at full size: a search with menu and tuner, judged by processes
that share the card's lock; the best kernel's time against the baseline's and against torch (eager
and compiled) on the same clock in the same run, and its share of what the memory or the arithmetic
attains. Accumulating buffers are initialised outside the clock for all.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ptxsearch.budget import Budget
from ptxsearch.evaluation import Evaluation
from ptxsearch.gpu import CudaDevice
from ptxsearch.inputs import make_inputs
from ptxsearch.kernel import Kernel, Proposal
from ptxsearch.menu import Menu
from ptxsearch.pipeline import Pipeline
from ptxsearch.policy import Policy
from ptxsearch.search import Search
from ptxsearch.taskfile import load_task

TASKS = ("transpose", "sum", "matmul", "saxpy", "softmax", "histogram")
PROCESSES = 5
_pipelines: dict[str, Pipeline] = {}


def judge(name: str, kernel: Kernel, rival: Kernel | None) -> Evaluation:
    """One verdict in a worker process, which keeps its pipeline."""
    if name not in _pipelines:
        for old in _pipelines.values():
            old.device.close()  # type: ignore[attr-defined]
        _pipelines.clear()
        _pipelines[name] = Pipeline(CudaDevice())
    task = load_task(name)
    return _pipelines[name].evaluate(task, kernel, baseline=task.baseline, rival=rival)


def search(name: str, trials: int, pool: ProcessPoolExecutor, until: float) -> dict[str, Any]:
    """A whole run; the row of its result."""
    task = load_task(name)
    policy = Policy(window=PROCESSES, stop_within=0.0)
    run = Search(task, proposers=[Menu()], policy=policy, budget=Budget(trials=trials))
    flying: dict[Future[Evaluation], Proposal] = {}
    started = time.perf_counter()
    while True:
        if time.perf_counter() < until:
            for proposal in run.ask(PROCESSES - len(flying)):
                assert proposal.kernel is not None
                flying[pool.submit(judge, name, proposal.kernel, run.rival)] = proposal
        if not flying:
            break
        done, _ = wait(flying, return_when=FIRST_COMPLETED)
        run.tell([(flying.pop(f).id, f.result()) for f in done])
    run.stop("budget", "time spent")
    result = run.result()
    assert result.best is not None
    assert result.baseline is not None
    messages = {trial.evaluation.message[:200] for trial in result.trials}
    best = result.best.evaluation
    statuses = [trial.evaluation.status for trial in result.trials]
    return {
        "task": name,
        "seconds": time.perf_counter() - started,
        "trials": len(result.trials),
        "statuses": {status: statuses.count(status) for status in sorted(set(statuses))},
        "baseline_us": 1e6 * result.baseline.seconds,
        "best_us": 1e6 * best.seconds,
        "versus_baseline": best.evidence.get("versus_baseline"),
        "values": dict(result.best.kernel.values),
        "edits": [n.edit.strategy for n in run.view.lineage(run.view[result.best.trial.node])],
        "attainable_us": 1e6 * float(best.evidence["attainable_seconds"]),
        "messages": sorted(messages - {""}),
        "races": [t.evaluation.evidence.get("race") for t in result.trials if t.evaluation.ok],
    }  # fmt: skip


def torch_call(name: str) -> Callable[..., Any]:
    """The same work in torch, eager."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    return {
        "transpose": lambda x, **_: x.t().contiguous(),
        "sum": lambda x, **_: torch.sum(x),
        "matmul": lambda a, b, **_: a @ b,
        "saxpy": lambda x, y, a, **_: torch.add(y, x, alpha=a),
        "softmax": lambda x, **_: torch.softmax(x, dim=1),
        "histogram": lambda x, **_: torch.bincount(x, minlength=256),
    }[name.split("/")[-1]]


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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=400)
    parser.add_argument("--tasks", default=",".join(TASKS))
    options = parser.parse_args()
    names = options.tasks.split(",")
    deadline = time.perf_counter() + options.seconds
    rows = []
    with ProcessPoolExecutor(PROCESSES, get_context("spawn")) as pool:
        for number, short in enumerate(names):
            left = deadline - time.perf_counter()
            until = time.perf_counter() + left / (len(names) - number)
            row = search(f"level1/{short}", options.trials, pool, until)
            rows.append(row)
            options.out.write_text(json.dumps(rows, indent=1))
            print(
                f"{short:10} {row['trials']:3} trials {row['seconds']:6.1f} s  "
                f"{row['baseline_us']:8.1f} -> {row['best_us']:8.1f} us  "
                f"attainable {row['attainable_us']:.1f}  {row['statuses']}",
                flush=True,
            )
    for row, short in zip(rows, names, strict=True):
        try:
            row |= peers(f"level1/{short}")
        except ImportError as error:
            row["torch"] = str(error)
        options.out.write_text(json.dumps(rows, indent=1))
        print(short, {k: v for k, v in row.items() if k.startswith("torch")}, flush=True)


if __name__ == "__main__":
    main()
