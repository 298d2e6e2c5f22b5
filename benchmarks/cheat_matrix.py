"""The verdicts of the whole pipeline on kernels that cheat and on honest ones that look odd.

`python benchmarks/cheat_matrix.py DEVICE OUT.json [PROCESSES [SECONDS [PREFIX]]]`, DEVICE being
cuda or emulated; names that begin with PREFIX alone. The kernels and the statuses allowed for each
are those of tests/cheats.py; tasks are judged without the full size, and softmax with fewer rows,
which changes no verdict (save for the cheats that lie there) and costs most of the time.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ptxsearch.emulator.device import EmulatedDevice
from ptxsearch.gpu import CudaDevice
from ptxsearch.pipeline import Pipeline
from ptxsearch.taskfile import load_task
from tests.cheats import cheats

NEED_FULL = ("skip_full", "full_")
FEWER_ROWS = {"wide": {"rows": 512, "cols": 8192}, "tall": {"rows": 4096, "cols": 1024}}
_PIPELINES: dict[str, Pipeline] = {}


def judge(name: str, device: str) -> dict[str, Any]:
    """One row: the verdict on the labelled kernel `name`."""
    if device not in _PIPELINES:
        _PIPELINES[device] = Pipeline(CudaDevice() if device == "cuda" else EmulatedDevice())
    cheat = next(item for item in cheats() if item.name == name)
    task = load_task(cheat.task)
    if not name.startswith(NEED_FULL):
        kept = [w for w in task.workloads if w.name != "full"]
        fewer = [replace(w, sizes=FEWER_ROWS.get(w.name, w.sizes)) for w in kept]
        task = replace(task, workloads=tuple(fewer))
    started = time.perf_counter()
    verdict = _PIPELINES[device].evaluate(task, cheat.kernel, baseline=task.baseline)
    return {
        "name": name,
        "row": cheat.row,
        "honest": cheat.honest,
        "allowed": sorted(cheat.statuses),
        "status": verdict.status,
        "stage": verdict.stage,
        "message": verdict.message[:160],
        "seconds": round(time.perf_counter() - started, 3),
    }


def main(device: str, out: Path, processes: int, limit: float, prefix: str) -> None:
    pool = ProcessPoolExecutor(processes, get_context("spawn"))
    names = [cheat.name for cheat in cheats() if cheat.name.startswith(prefix)]
    jobs = {pool.submit(judge, name, device): name for name in names}
    rows = []
    try:
        for job in as_completed(jobs, timeout=limit):
            row = job.result()
            rows.append(row)
            print(row["name"], row["status"], row["stage"], f"{row['seconds']} s", flush=True)
    except TimeoutError:
        late = sorted(set(jobs.values()) - {row["name"] for row in rows})
        print(f"no verdict within {limit:.0f} s: {', '.join(late)}")
    out.write_text(json.dumps({"device": device, "rows": rows}, indent=1))
    report(rows)
    for process in list(pool._processes.values()):
        process.kill()
    pool.shutdown(wait=False, cancel_futures=True)


def report(rows: list[dict[str, Any]]) -> None:
    """The confusion matrix, and every verdict that its label does not allow."""
    for row in rows:
        if row["status"] not in row["allowed"]:
            place = f"{row['status']} at {row['stage']}"
            print(f"{row['name']}: {place}, allowed {row['allowed']}: {row['message']}")
    table = Counter(("honest" if r["honest"] else "cheat", r["status"]) for r in rows)
    for (kind, status), count in sorted(table.items()):
        print(f"{kind:7} {status:14} {count}")
    right = sum(row["status"] in row["allowed"] for row in rows)
    print(f"{right} of {len(rows)} as allowed")


if __name__ == "__main__":
    device, out, *rest = sys.argv[1:]
    processes, limit, prefix = [*rest, *("4", "600", "")[len(rest) :]]
    main(device, Path(out), int(processes), float(limit), prefix)
