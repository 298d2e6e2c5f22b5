"""Record what NVIDIA's tools say of the small kernels: `python benchmarks/record_tools.py FOLDER`.

Writes ncu reports with their CSV forms for the honest kernels, compute-sanitizer's text for the
faulty ones and the device's own failures as JSON. They become test data for parsers and feedback.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ptxsearch.evaluation import Failure
from ptxsearch.gpu import CudaDevice, case, ncu, sanitizer, tool
from ptxsearch.gpu.metrics import METRICS
from ptxsearch.gpu.sequence import program
from tests.gpu.kernels import GOOD, SLOW, built, inputs, workload

N = 1 << 20
SMALL = 5000
FAULTY = (
    "illegal_address", "misaligned", "trap", "stack_overflow", "past_the_end", "writes_input",
    "shared_race", "uninitialised", "barrier_half", "unwritten_tail",
)  # fmt: skip


def profiles(folder: Path, arch: str) -> None:
    """Reports, raw and details pages, and how each run ended."""
    ended = {}
    path = tool.find("ncu")
    assert path is not None, "ncu is missing"
    for name in GOOD + SLOW:
        data = inputs(N, 1)
        report = folder / f"{name}.ncu-rep"
        found = ncu.collect(program(built(name, arch), data), data, keep=report)
        ended[name] = {
            "outcome": found.outcome, "message": found.message, "missing": found.missing,
            "seconds": round(found.seconds, 2), "advice": found.advice,
            "counters": found.counters.to_dict(),
        }  # fmt: skip
        for page in ("raw", "details"):
            ran = tool.run([path, "--import", str(report), "--csv", "--page", page], timeout=60)
            (folder / f"{name}.{page}.csv").write_text(ran.text)
        print(name, found.outcome, f"{found.seconds:.1f} s", flush=True)
    (folder / "profiles.json").write_text(json.dumps(ended, indent=1))


def failures_of_ncu(folder: Path, arch: str) -> None:
    """What ncu writes when a metric is unknown, no kernel matches, or the program fails."""
    path = tool.find("ncu")
    assert path is not None
    texts = {}
    data = inputs(SMALL, 1)
    made = program(built("double_it", arch), data)
    with tempfile.TemporaryDirectory() as name:
        case.save(Path(name), made, data)
        run = case.command(Path(name))
        report = Path(name) / "r.ncu-rep"
        tries = {
            "unknown metric": ncu.command(
                path, report, ["k"], metrics=["no__such.sum", *METRICS[:2]]
            ),
            "no kernel": ncu.command(path, report, ["other"], metrics=METRICS[:2]),
            "program fails": [*ncu.command(path, report, ["k"], metrics=METRICS[:2])],
        }
        for what, head in tries.items():
            tail = run if what != "program fails" else [sys.executable, "-c", "raise SystemExit(5)"]
            ran = tool.run([*head, *tail], timeout=60)
            texts[what] = {"code": ran.code, "text": ran.text[-4000:]}
    query = subprocess.run(
        [path, "--query-metrics", "--chip", "gh100"], capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    base = {line.split()[0] for line in query.stdout.splitlines() if "__" in line}
    texts["not in --query-metrics"] = sorted(
        {metric for metric in METRICS if metric.split(".")[0] not in base}
    )
    texts["query lines"] = len(query.stdout.splitlines())
    (folder / "ncu_failures.json").write_text(json.dumps(texts, indent=1))


def findings(folder: Path, device: CudaDevice) -> None:
    """The four tools' text on each faulty kernel, and the device's failure."""
    texts, failures = {}, {}
    data = inputs(SMALL, 1)
    for name in FAULTY:
        kernel = built(name, device.arch)
        made = program(kernel, data)
        tools = sanitizer.TOOLS if name not in ("trap", "stack_overflow") else ("memcheck",)
        for which, found in sanitizer.examine(made, data, tools=tools).items():
            texts[f"{name} {which}"] = {"outcome": found.outcome, "text": found.text[:6000]}
            print(name, which, found.outcome, found.count, [f.kind for f in found.faults[:2]])
        left = device.run(kernel, workload(SMALL), data, timeout=2.0)
        if isinstance(left, Failure) and left.fault is not None:
            failures[name] = left.fault.to_dict()
        else:
            failures[name] = {"changed": left.inputs_changed, "notes": left.notes}
        print(name, failures[name], flush=True)
    (folder / "sanitizer.json").write_text(json.dumps(texts, indent=1))
    (folder / "failures.json").write_text(json.dumps(failures, indent=1))


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    device = CudaDevice()
    profiles(folder, device.arch)
    failures_of_ncu(folder, device.arch)
    findings(folder, device)
    device.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
