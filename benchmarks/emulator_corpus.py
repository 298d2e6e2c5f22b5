"""The emulator against a folder of recorded kernels: outputs, faults and counters as a table.

A case folder holds `kernel.ptx`, `case.json`, `recorded.npz` (outputs of the hardware by
RUN.LAUNCH.BUFFER) and, where it could be profiled, `counters.json`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ptxsearch.emulator import Fault
from ptxsearch.emulator.case import CaseLaunch, case_launches

LOAD_STORE = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op"
THREADS = "smsp__sass_thread_inst_executed_op"
COUNTERS = {
    "global_load_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "global_store_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "global_load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "global_store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "global_load_bytes": "smsp__sass_data_bytes_mem_global_op_ld.sum",
    "global_store_bytes": "smsp__sass_data_bytes_mem_global_op_st.sum",
    "local_load_requests": "l1tex__t_requests_pipe_lsu_mem_local_op_ld.sum",
    "local_load_sectors": "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum",
    "local_store_sectors": "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum",
    "shared_load_requests": "smsp__sass_inst_executed_op_shared_ld.sum",
    "shared_store_requests": "smsp__sass_inst_executed_op_shared_st.sum",
    "shared_load_wavefronts": f"{LOAD_STORE}_ld.sum",
    "shared_store_wavefronts": f"{LOAD_STORE}_st.sum",
    "shared_load_bytes": "smsp__sass_data_bytes_mem_shared_op_ld.sum",
    "shared_store_bytes": "smsp__sass_data_bytes_mem_shared_op_st.sum",
    "async_copy_requests": "smsp__sass_inst_executed_op_ldgsts.sum",
    "async_copy_bytes": "smsp__sass_data_bytes_mem_global_op_ldgsts.sum",
    "async_copy_sectors": "smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts.sum",
    "fp32_add": f"{THREADS}_fadd_pred_on.sum",
    "fp32_mul": f"{THREADS}_fmul_pred_on.sum",
    "fp32_fma": f"{THREADS}_ffma_pred_on.sum",
    "fp64_add": f"{THREADS}_dadd_pred_on.sum",
    "fp64_mul": f"{THREADS}_dmul_pred_on.sum",
    "fp64_fma": f"{THREADS}_dfma_pred_on.sum",
}
WAVEFRONTS, IDEAL = "memory_l1_wavefronts_shared", "memory_l1_wavefronts_shared_ideal"
NOT_A_FAULT = (None, "cheat", "wrong_output", "non_deterministic_output")


@dataclass
class Table:
    """The sums over all cases."""

    tally: Counter[str] = field(default_factory=Counter)
    errors: dict[str, list[float]] = field(default_factory=dict)

    def show(self) -> Iterator[str]:
        """The lines of the table."""
        yield ", ".join(f"{name} {count}" for name, count in self.tally.items())
        yield f"{'counter':26s} {'launches':>8s} {'equal':>6s} {'within 2 %':>10s}"
        for name, errors in self.errors.items():
            equal = sum(error == 0 for error in errors)
            near = sum(error <= 0.02 for error in errors)
            yield f"{name:26s} {len(errors):8d} {equal:6d} {near:10d}"


def agrees(got: Any, want: Any, rule: dict[str, Any]) -> bool:
    """Whether an output equals the recorded one under the case's rule."""
    if rule["kind"] == "multiset":
        return np.array_equal(np.sort(got, axis=None), np.sort(want, axis=None))
    if rule["kind"] == "masked":
        mask = got.dtype.type(rule["mask"])
        return np.array_equal(got & mask, want & mask)
    floating = got.dtype.kind == "f"
    nan = np.isnan(got) & np.isnan(want) if floating else np.zeros(got.shape, np.bool_)
    same = got == want
    if rule["kind"] == "bits":
        size = got.dtype.itemsize
        same = got.view(f"u{size}") == want.view(f"u{size}")
    elif rule["kind"] == "close":
        with np.errstate(all="ignore"):
            limit = rule.get("atol", 0) + rule.get("rtol", 0) * np.abs(want.astype(float))
            same |= np.abs(got.astype(float) - want) <= limit
    return bool((same | nan).all())


def mismatches(
    case: dict[str, Any], launches: Sequence[CaseLaunch], recorded: Any
) -> Iterator[str]:
    """The outputs of clean launches that differ from the recorded ones."""
    for launch in launches:
        for buffer, rule in case.get("tolerance", {}).items():
            key = f"{launch.run}.{launch.launch}.{buffer}"
            known = launch.report.ok and key in recorded
            if known and not agrees(launch.buffers[buffer], recorded[key], rule):
                yield key


def counter_errors(folder: Path, launches: Sequence[CaseLaunch]) -> Iterator[tuple[str, float]]:
    """Relative errors of the counters of clean launches that repeat on the hardware."""
    path = folder / "counters.json"
    runs = json.loads(path.read_text())["runs"] if path.exists() else {}
    for launch in launches:
        found = runs.get(launch.run, {}).get(launch.launch)
        if found is None or not launch.report.ok:
            continue
        values = {k: v for k, v in found["values"].items() if k not in found.get("differed", {})}
        wanted = {ours: values[theirs] for ours, theirs in COUNTERS.items() if theirs in values}
        if WAVEFRONTS in values and IDEAL in values:
            wanted["bank_conflicts"] = values[WAVEFRONTS] - values[IDEAL]
        for name, want in wanted.items():
            got = getattr(launch.report.counters, name)
            yield name, abs(got - want) / max(want, 1) if got != want else 0.0


def judged(case: dict[str, Any], faults: Sequence[Fault]) -> str:
    """Whether the faults reported are those that the case names."""
    verdict = case["verdict"]
    kinds = {fault.kind for fault in faults}
    if verdict.get("fault") in NOT_A_FAULT:
        return "false" if kinds and verdict.get("fault") != "cheat" else ""
    return "found" if verdict["fault"] in kinds else "missed"


def run(folder: Path, table: Table) -> Iterator[str]:
    """Run one case into the table; lines about what deserves a look."""
    case = json.loads((folder / "case.json").read_text())
    recorded = np.load(folder / "recorded.npz")
    hidden = {
        item["name"]: recorded[f"{one['id']}.only.{item['of']}"]
        for one in case["runs"]
        for item in one.get("hidden", ())
    }
    began = time.process_time()
    launches = case_launches((folder / "kernel.ptx").read_text(), case, hidden)
    table.tally["CPU ms"] += round((time.process_time() - began) * 1e3)
    bad = [item.report for item in launches if item.report.status in ("unsupported", "invalid")]
    if bad:
        table.tally[bad[0].status] += 1
        yield f"{folder.name}: {bad[0].status}: {bad[0].message}"
        return
    table.tally["run"] += 1
    faults = [fault for launch in launches for fault in launch.report.faults]
    verdict = judged(case, faults)
    if verdict:
        table.tally[verdict] += 1
        yield f"{folder.name}: {verdict}: {faults[0] if faults else 'nothing reported'}"
    differing = list(mismatches(case, launches, recorded)) if verdict != "found" else []
    if differing:
        table.tally["mismatched"] += 1
        yield f"{folder.name}: differs in {', '.join(differing)}"
    if not faults:
        for name, error in counter_errors(folder, launches):
            table.errors.setdefault(name, []).append(error)


def main() -> int:
    """Print the table of a folder of cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("names", nargs="*", help="only these cases")
    options = parser.parse_args()
    table = Table()
    for name in ("run", "unsupported", "invalid", "mismatched", "found", "missed", "false"):
        table.tally[name] = 0
    for path in sorted(options.corpus.glob("*/case.json")):
        if not options.names or path.parent.name in options.names:
            for line in run(path.parent, table):
                print(line[:200])
    print("\n".join(table.show()))
    return 1 if table.tally["mismatched"] + table.tally["missed"] + table.tally["false"] else 0


if __name__ == "__main__":
    sys.exit(main())
