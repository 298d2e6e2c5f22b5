"""What each gate says of a folder of recorded kernels, honest and faulty.

`python benchmarks/corpus_verdicts.py FOLDER DEVICE OUT.json` runs every case through lint and a
device ("cuda" or "emulated"); on a GPU kernels that pass although they should not are handed to
compute-sanitizer. `... summary A.json B.json` prints the confusion matrix of the gates together.
A case is a folder with case.json and kernel.ptx, as described in the corpus's README. A module is
loaded afresh for each launch, so what a second launch would do in the same one is not judged here.
"""

from __future__ import annotations

import importlib.util
import json
import struct
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ptxsearch.emulator.device import EmulatedDevice
from ptxsearch.evaluation import Array, Built, Failure, Inputs
from ptxsearch.gpu import CudaDevice
from ptxsearch.kernel import Kernel, Launch
from ptxsearch.protocols import Device
from ptxsearch.ptx import SyntaxFault, lint, parse, sanitise
from ptxsearch.tasks import Workload
from ptxsearch.toolchain import CompileFailure, build

RUNS = 3
EVIDENCE = ("wgmma_bf16", "mma_bf16_ldmatrix", "wmma_bf16", "bulk_copy_mbarrier", "matmul_cpasync")
SPECIAL = ("MMA", "UBLKCP", "UTMA", "LDSM", "LDGSTS", "SYNCS")
FILL = 0xCD  # what the reference leaves where a kernel writes nothing
_FIELDS = {"s8": "b", "u8": "B", "s16": "h", "u16": "H", "s32": "i", "u32": "I", "s64": "q",
           "u64": "Q", "f32": "f", "f64": "d"}  # fmt: skip


def module(path: Path) -> Any:
    """A Python file of the corpus as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = made
    spec.loader.exec_module(made)
    return made


def packed(argument: dict[str, Any]) -> np.generic:
    """A struct argument's bytes as one opaque scalar."""
    raw = b"".join(
        bytes(value) if kind == "pad" else struct.pack("<" + _FIELDS[kind], value)
        for kind, value in argument["fields"]
    )
    return np.void(raw)


def inputs_of(run: dict[str, Any], corpus: Any, data: Any) -> tuple[Inputs, dict[str, Any]]:
    """The inputs of one run, and the argument values by name for the reference."""
    values: dict[str, Any] = {}
    roles: dict[str, str] = {}
    plain: dict[str, Any] = {}
    for argument in run["args"]:
        name = argument["name"]
        if argument["kind"] == "buffer":
            array = data.make(argument["init"], argument["dtype"], argument["shape"])
            plain[name] = array
            if argument.get("param", True):
                values[name] = np.ascontiguousarray(array)
                roles[name] = {"scratch": "inout"}.get(argument["role"], argument["role"])
        elif argument["kind"] == "struct":
            values[name], roles[name] = packed(argument), "scalar"
            fields = [value for kind, value in argument["fields"] if kind != "pad"]
            plain[name] = fields
        else:
            values[name] = data.DTYPES[argument["dtype"]](argument["value"])
            roles[name], plain[name] = "scalar", argument["value"]
    return Inputs(values, roles, {}, label=run["id"]), plain


def equal(got: Array, want: Array, rule: dict[str, Any]) -> bool:
    """Whether an output is right by the case's rule."""
    want = np.asarray(want, got.dtype).reshape(got.shape)
    untouched = want.reshape(-1).view(np.uint8).reshape(-1, want.itemsize) == FILL
    got = np.where(untouched.all(axis=1).reshape(want.shape), want, got)
    kind = rule["kind"]
    if kind == "multiset":
        return bool(np.array_equal(np.sort(got.ravel()), np.sort(want.ravel())))
    if kind == "masked":
        return bool(np.array_equal(got & rule["mask"], want & rule["mask"]))
    nan = np.zeros(got.shape, bool)
    if got.dtype.kind == "f":
        nan = np.isnan(got) & np.isnan(want)
    if kind == "close":
        with np.errstate(invalid="ignore"):
            error = np.abs(got.astype(float) - want.astype(float))
            near = error <= rule["atol"] + rule["rtol"] * np.abs(want.astype(float))
        return bool(np.all(near | nan))
    if kind == "bits":
        width = f"u{got.dtype.itemsize}"
        return bool(np.all((got.view(width) == want.view(width)) | nan))
    return bool(np.all((got == want) | nan))


def settled(got: Array, want: dict[str, Array], name: str) -> Array:
    """An output with what the kernel need not write set to zero: our junk differs by run."""
    if name not in want:
        return got
    expected = np.asarray(want[name], got.dtype)
    bytes_of = expected.reshape(-1).view(np.uint8).reshape(-1, expected.itemsize)
    untouched = (bytes_of == FILL).all(axis=1).reshape(got.shape)
    return np.where(untouched, np.zeros_like(got), got)


def judge(device: Device, built: Built, run: Inputs, want: Any, rules: Any) -> tuple[str, str]:
    """Status and message of one case's run on a device: three runs on different junk."""
    where = Workload(run.label, {})
    first: dict[str, bytes] = {}
    for _ in range(RUNS if device.source == "measured" else 1):
        left = device.run(built, where, run, timeout=4.0)
        if isinstance(left, Failure):
            return left.status, left.message[:300]
        if left.inputs_changed:
            return "WRONG", f"wrote its input {', '.join(left.inputs_changed)}"
        for name, rule in rules.items():
            if want is not None and name in want and not equal(left.arrays[name], want[name], rule):
                return "WRONG", f"{name} differs from the reference {'; '.join(left.notes)}"
        raw = {
            name: settled(left.arrays[name], want, name).tobytes()
            for name, rule in rules.items()
            if rule["kind"] != "multiset"
        }
        if first and first != raw:
            return "WRONG", "outputs differ between runs"
        first = raw
    return "OK", ""


def examine(device: Device, built: Built, label: str) -> dict[str, int]:
    """compute-sanitizer's counts by tool, where the device is a GPU."""
    if not isinstance(device, CudaDevice):
        return {}
    found = device.examine(built, Workload(label, {}))
    return {name: item.count if item.outcome == "ok" else -1 for name, item in found.items()}


def opcodes(device: CudaDevice) -> dict[str, float]:
    """Executed matrix and bulk-copy instructions of the last profile."""
    profile = device.last_profile
    assert profile is not None
    found = {"tensor": profile.counters.tensor_instructions or 0.0}
    for launch in profile.launches:
        for name, count in launch.items():
            if name.startswith("opcode ") and any(part in name for part in SPECIAL):
                found[name] = count
    return found


def run_case(folder: Path, device: Device, reference: Any, data: Any) -> list[dict[str, Any]]:
    """One row for each run of a case."""
    case = json.loads((folder / "case.json").read_text())
    rows = []
    source = sanitise((folder / "kernel.ptx").read_text())
    for run in case["runs"]:
        inputs, plain = inputs_of(run, case, data)
        launch = Launch(
            case["entry"], tuple(inputs.values), run["grid"], run["block"],
            run.get("cluster", "1"), str(run["dynamic_smem"]),
        )  # fmt: skip
        kernel = Kernel(source, "ptx", (launch,))
        expected = run.get("expect", case["verdict"]["expect"])
        row = {"case": case["name"], "run": run["id"], "expect": expected,
               "fault": case["verdict"].get("fault", "")}  # fmt: skip
        rows.append(row)
        if case.get("globals"):
            row["status"], row["message"] = "UNSUPPORTED", "the host fills a module variable"
            continue
        built = build(kernel, device.arch)
        if isinstance(built, CompileFailure):
            row["status"], row["message"] = "COMPILE_ERROR", built.message[:200]
            continue
        parsed = parse(source)
        assert not isinstance(parsed, SyntaxFault)
        findings = lint(
            parsed, kernel.bind({}, frozenset(inputs.values)), arch=device.arch, allow=frozenset(),
            sizes={n: int(v.nbytes) if inputs.roles[n] == "scalar" else 8
                   for n, v in inputs.values.items()},
        )  # fmt: skip
        row["lint"] = "; ".join(str(f) for f in findings)[:200]
        with np.errstate(all="ignore"):
            want = getattr(reference, case["reference"])(plain)
        row["status"], row["message"] = judge(device, built, inputs, want, case["tolerance"])
        if case["name"] in EVIDENCE and isinstance(device, CudaDevice):
            device.profile(built, Workload(run["id"], {}))
            row["opcodes"] = opcodes(device)
        if row["status"] == "OK" and expected != "pass":
            row["sanitizer"] = examine(device, built, run["id"])
    return rows


def summary(paths: list[str]) -> None:
    """The confusion matrix of lint and every device that was run, and what slips through."""
    merged: dict[tuple[str, str], dict[str, Any]] = {}
    for path in paths:
        recorded = json.loads(Path(path).read_text())
        for row in recorded["rows"]:
            entry = merged.setdefault(
                (row["case"], row["run"]), {"expect": row["expect"], "by": {}}
            )
            entry["fault"] = row["fault"]
            entry["by"][recorded["device"]] = row["status"]
            if row.get("lint"):
                entry["by"]["lint"] = "REJECTED"
            if any(count > 0 for count in row.get("sanitizer", {}).values()):
                entry["by"]["compute-sanitizer"] = "found"
    table: dict[tuple[str, str], int] = {}
    for (case, run), entry in sorted(merged.items()):
        refused = [by for by, s in entry["by"].items() if s not in ("OK", "UNSUPPORTED")]
        verdict = "refused" if refused else "passed"
        table[entry["expect"], verdict] = table.get((entry["expect"], verdict), 0) + 1
        if (entry["expect"] == "pass") == bool(refused):
            print(f"{case} {run}: expected {entry['expect']} ({entry['fault']}), {entry['by']}")
    for (expected, verdict), count in sorted(table.items()):
        print(f"expected {expected:7} {verdict:8} {count}")


def main(arguments: list[str]) -> None:
    if arguments[0] == "summary":
        summary(arguments[1:])
        return
    folder, out = Path(arguments[0]), Path(arguments[2])
    data = module(folder / "inputs.py")
    reference = module(folder / "reference.py")
    device: Device = CudaDevice() if arguments[1] == "cuda" else EmulatedDevice()
    rows = []
    started = time.perf_counter()
    for path in sorted(folder.glob(f"{arguments[3] if len(arguments) > 3 else '*'}/case.json")):
        rows += run_case(path.parent, device, reference, data)
    seconds = time.perf_counter() - started
    out.write_text(json.dumps({"device": device.name, "seconds": seconds, "rows": rows}, indent=1))
    print(f"{len(rows)} runs in {seconds:.1f} s on {device.name}")
    summary([str(out)])


if __name__ == "__main__":
    main(sys.argv[1:])
