"""Runs every kernel of a recorded corpus on the emulator and prints what agrees and what not."""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from pathlib import Path

import numpy as np

from ptxsearch.emulator.case import case_launches

TIER_3 = {
    "bulk_copy_mbarrier",
    "cluster_dsmem_sum",
    "mbarrier_pingpong",
    "ptx_mbarrier_state",
    "mma_bf16_ldmatrix",
    "mma_f16_trans",
    "wgmma_bf16",
    "wmma_bf16",
    "wmma_f16_colmajor",
}

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
    "shared_load_wavefronts": "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "shared_store_wavefronts": "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "shared_load_bytes": "smsp__sass_data_bytes_mem_shared_op_ld.sum",
    "shared_store_bytes": "smsp__sass_data_bytes_mem_shared_op_st.sum",
    "async_copy_requests": "smsp__sass_inst_executed_op_ldgsts.sum",
    "async_copy_bytes": "smsp__sass_data_bytes_mem_global_op_ldgsts.sum",
    "async_copy_sectors": "smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts.sum",
    "fp32_add": "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum",
    "fp32_mul": "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum",
    "fp32_fma": "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
    "fp64_add": "smsp__sass_thread_inst_executed_op_dadd_pred_on.sum",
    "fp64_mul": "smsp__sass_thread_inst_executed_op_dmul_pred_on.sum",
    "fp64_fma": "smsp__sass_thread_inst_executed_op_dfma_pred_on.sum",
}


def agrees(got, want, rule):
    kind = rule["kind"]
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        return False
    if kind == "multiset":
        return bool(np.array_equal(np.sort(got, axis=None), np.sort(want, axis=None)))
    if kind == "masked":
        mask = got.dtype.type(rule["mask"])
        return bool(np.array_equal(got & mask, want & mask))
    both_nan = (
        np.isnan(got) & np.isnan(want) if got.dtype.kind == "f" else np.zeros(got.shape, bool)
    )
    if kind == "bits":
        size = got.dtype.itemsize
        return bool(((got.view(f"u{size}") == want.view(f"u{size}")) | both_nan).all())
    if kind == "close":
        with np.errstate(all="ignore"):
            near = np.abs(got.astype(float) - want) <= rule.get("atol", 0) + rule.get(
                "rtol", 0
            ) * np.abs(want.astype(float))
        return bool((near | both_nan | (got == want)).all())
    return bool(((got == want) | both_nan).all())


def hidden(case, folder):
    recorded = np.load(folder / "recorded.npz")
    return {
        item["name"]: recorded[f"{run['id']}.only.{item['of']}"]
        for run in case["runs"]
        for item in run.get("hidden", ())
        if item.get("holds") == "reference"
    }


def compare(name, case, folder, launches, reference, verbose):
    recorded = np.load(folder / "recorded.npz")
    problems, compared = [], 0
    states = json.loads((folder / "recorded.json").read_text())
    for launch in launches:
        if launch.report.status != "ok":
            continue
        expected = None
        for buffer, rule in case.get("tolerance", {}).items():
            key = f"{launch.run}.{launch.launch}.{buffer}"
            wants = [("recorded", recorded[key])] if key in recorded else []
            if not wants:
                continue
            compared += 1
            if not any(agrees(launch.buffers[buffer], want, rule) for _, want in wants):
                got, want = launch.buffers[buffer].ravel(), wants[0][1].ravel()
                bad = np.flatnonzero(got != want)[:3]
                problems.append(
                    f"{key} differs at {bad.tolist()}: {got[bad].tolist()} for {want[bad].tolist()}"
                )
        del expected
    del states, name, reference, verbose
    return compared, problems


def counter_errors(folder, launches):
    path = folder / "counters.json"
    if not path.exists():
        return []
    runs = json.loads(path.read_text())["runs"]
    out = []
    for launch in launches:
        values = runs.get(launch.run, {}).get(launch.launch, {})
        if not values or launch.report.status != "ok":
            continue
        differed = values.get("differed", {})
        for ours, theirs in COUNTERS.items():
            want = values["values"].get(theirs)
            got = getattr(launch.report.counters, ours)
            if want is None or theirs in differed:
                continue
            out.append((ours, f"{launch.run}.{launch.launch}", got, want))
        conflicts = values["values"].get("memory_l1_wavefronts_shared")
        if conflicts is not None:
            want = conflicts - values["values"]["memory_l1_wavefronts_shared_ideal"]
            out.append(
                (
                    "bank_conflicts",
                    f"{launch.run}.{launch.launch}",
                    launch.report.counters.bank_conflicts,
                    want,
                )
            )
    return out


def expected_faults(case):
    verdict = case["verdict"]
    wanted = {"data_race": {"data_race", "uninitialised_read"}}
    fault = verdict.get("fault")
    if verdict["expect"] != "reject" or fault in (None, "cheat", "wrong_output"):
        return None
    accepted = wanted.get(fault, {fault}) if "cpasync" in case["name"] else {fault}
    return accepted


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args()
    tally = dict.fromkeys(
        ("ran", "unsupported", "mismatched", "found", "missed", "false", "crashed"), 0
    )
    counters: dict[str, list[float]] = {}
    for folder in sorted(options.corpus.iterdir()):
        if not (folder / "case.json").exists() or (
            options.names and folder.name not in options.names
        ):
            continue
        case = json.loads((folder / "case.json").read_text())
        began = time.process_time()
        try:
            launches = case_launches(
                (folder / "kernel.ptx").read_text(), case, hidden(case, folder)
            )
        except Exception:
            tally["crashed"] += 1
            print(f"{folder.name}: CRASHED {traceback.format_exc().splitlines()[-1]}")
            if options.verbose:
                traceback.print_exc()
            continue
        spent = (time.process_time() - began) * 1e3
        statuses = [launch.report.status for launch in launches]
        if "unsupported" in statuses:
            tally["unsupported"] += 1
            report = next(x.report for x in launches if x.report.unsupported)
            mark = "" if folder.name in TIER_3 else "  <-- in scope"
            print(f"{folder.name}: unsupported {report.unsupported}{mark}")
            continue
        if "invalid" in statuses:
            tally["crashed"] += 1
            report = next(x.report for x in launches if x.report.status == "invalid")
            print(f"{folder.name}: INVALID {report.message}")
            continue
        tally["ran"] += 1
        compared, problems = compare(folder.name, case, folder, launches, None, options.verbose)
        wanted = expected_faults(case)
        faults = [fault for launch in launches for fault in launch.report.faults]
        kinds = {fault.kind for fault in faults}
        note = ""
        if wanted is not None:
            good = bool(kinds & wanted)
            tally["found" if good else "missed"] += 1
            note = "found" if good else f"MISSED {wanted}"
            problems = []
        elif faults:
            cheat = case["verdict"].get("fault") == "cheat"
            tally["false"] += not cheat
            note = "reported on a cheat" if cheat else "FALSE REPORT"
        if problems:
            tally["mismatched"] += 1
        if problems or note or options.verbose:
            print(f"{folder.name}: {note} {spent:.0f} ms, {compared} outputs")
            for problem in problems:
                print("    ", problem)
            for fault in faults[:4]:
                where = f"block {fault.block} thread {fault.thread} {fault.space} {fault.object}"
                print("    ", fault, "|", where, fault.offset, fault.count)
        if not faults:
            for ours, key, got, want in counter_errors(folder, launches):
                counters.setdefault(ours, []).append(
                    0.0 if got == want else abs(got - want) / max(want, 1)
                )
                if options.verbose and got != want:
                    print(f"      {key} {ours}: {got} for {want}")
    print(tally)
    for name, errors in counters.items():
        exact = sum(error == 0 for error in errors)
        near = sum(error <= 0.02 for error in errors)
        print(f"{name:26s} exact {exact:3d} within 2 % {near:3d} of {len(errors):3d}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
