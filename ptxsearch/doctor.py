"""What this machine can do for a search: each part fine, or lacking with the command that mends it.

Every probe asks the part itself, in a child with a time limit where it could hang, and none
changes anything. A part that is not needed where the emulator runs is a warning, not a fault.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ptxsearch.errors import StoreError, ToolchainError
from ptxsearch.gpu import tool
from ptxsearch.plural import plural
from ptxsearch.record import SCHEMA, Record
from ptxsearch.store import SQLiteStore, on_network_file_system
from ptxsearch.toolchain import Compiled, cache_folder, compile_kernel, driver_version
from ptxsearch.toolchain.find import Toolchain, machine_toolchain

State = Literal["ok", "warning", "missing"]
_GPU_FIELDS = "name,compute_cap,memory.used,memory.total,utilization.gpu,{},mig.mode.current"
# Drivers from 535 on have the first name, older ones the second.
_REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
# Bits of nvmlClocksEventReasons that slow a kernel down (NVML manual).
_THROTTLES = {0x4: "power cap", 0x8: "hardware slowdown", 0x20: "software thermal slowdown",
              0x40: "hardware thermal slowdown", 0x80: "power brake"}  # fmt: skip
_BUSY_PERCENT = 5
_FREE_BYTES = 2 << 30
_WHEELS = ("nvidia-cuda-nvcc", "nvidia-cuda-nvrtc", "nvidia-nvvm", "nvidia-cuda-crt",
           "nvidia-cuda-runtime", "nvidia-cuda-cccl")  # fmt: skip
_PARAMETERS = Path("/proc/driver/nvidia/params")
_KERNEL = 'extern "C" __global__ void probe(float* y) { y[threadIdx.x] = INFINITY; }'


@dataclass(frozen=True)
class Check(Record):
    """One part of the machine: its state, what was found, and what to do where it is not fine."""

    part: str
    state: State
    found: str
    remedy: str = ""


def diagnose(
    *,
    environment: Mapping[str, str] | None = None,
    store: Path | None = None,
    model: str = "",
    arch: str = "sm_90",
) -> tuple[Check, ...]:
    """The state of every part, in the order a user would mend them.

    `environment` is where the language model's address and key stand (OPENAI_BASE_URL,
    OPENAI_API_KEY) and the cache's folder; `store` is a journal to examine; `model` one to ask for.
    """
    known = environment if environment is not None else {}
    checks = [_python(), *_packages(), _driver(), *_gpus(), *_compilers(arch)]
    checks += [_profiler(), _counters(), _sanitizer(), _language_model(known, model)]
    if store is not None:
        checks.append(_store(store))
    return (*checks, *_disk(known))


def to_dict(checks: Sequence[Check]) -> dict[str, Any]:
    """The checks as one JSON object; `ok` is whether nothing is missing."""
    fields = [
        {"part": c.part, "state": c.state, "found": c.found, "remedy": c.remedy} for c in checks
    ]
    fine = all(check.state != "missing" for check in checks)
    return {"schema": SCHEMA, "ok": fine, "checks": fields}


def _python() -> Check:
    return Check("Python", "ok", ".".join(map(str, sys.version_info[:3])))


def _packages() -> list[Check]:
    """The wheels the toolchain stands on; numpy and its like would have failed the import."""
    versions = {name: _version(name) for name in (*_WHEELS, "cuda-bindings")}
    absent = [name for name, version in versions.items() if not version]
    found = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    lines = {version.rpartition(".")[0] for name in _WHEELS if (version := versions[name])}
    if absent:
        mend = f"pip install {' '.join(_requirement(name) for name in absent)}"
        return [Check("wheels", "warning", f"no {', '.join(absent)}; {found}", mend)]
    if len(lines) > 1:
        mend = f"pip install {' '.join(_requirement(name) for name in _WHEELS)}"
        return [Check("wheels", "warning", f"of several CUDA versions: {found}", mend)]
    return [Check("wheels", "ok", found)]


def _requirement(name: str) -> str:
    return "'cuda-bindings>=12.9,<14'" if name == "cuda-bindings" else f"'{name}==13.0.*'"


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _driver() -> Check:
    version = driver_version()
    if version is None:
        return Check(
            "driver", "warning", "no NVIDIA driver answers; kernels run on the emulator",
            "install an NVIDIA driver, 580 or newer, to measure on a GPU",
        )  # fmt: skip
    text = f"CUDA {version // 1000}.{version % 1000 // 10}"
    if version < 12000:
        return Check("driver", "missing", text, "install an NVIDIA driver 525 or newer")
    bindings = _version("cuda-bindings")
    if version < 13000 and bindings.partition(".")[0] == "13":
        found = f"{text}, older than cuda-bindings {bindings}"
        return Check("driver", "warning", found, "pip install '.[cu12]' in the checkout")
    return Check("driver", "ok", text)


def _gpus() -> list[Check]:
    """One check a GPU: whether it is idle, at full speed and whole."""
    program = shutil.which("nvidia-smi")
    if program is None:
        if driver_version() is None:
            return [Check("GPU", "warning", "none", "the emulated device needs none")]
        mend = "install nvidia-utils of the driver's version"
        return [Check("GPU", "warning", "nvidia-smi is missing: its load is not known", mend)]
    answer = None
    for name in _REASONS:
        query = f"--query-gpu={_GPU_FIELDS.format(name)}"
        answer = _run([program, query, "--format=csv,noheader,nounits"])
        if answer is not None and answer.returncode == 0:
            break
    if answer is None or answer.returncode:
        said = answer.stdout.strip().splitlines()[:1] if answer else ["no answer within 20 s"]
        return [Check("GPU", "warning", f"nvidia-smi failed: {' '.join(said)}", "reboot")]
    rows = [line.split(", ") for line in answer.stdout.splitlines() if line.count(",") >= 6]
    return [_gpu(number, row) for number, row in enumerate(rows)]


def _gpu(number: int, row: Sequence[str]) -> Check:
    name, capability, used, total, load, reasons, mig = (field.strip() for field in row[:7])
    found = f"{name}, compute capability {capability}, {used} of {total} MiB used"
    bits = int(reasons, 16) if re.fullmatch(r"0x[0-9a-fA-F]+", reasons) else 0
    slowed = [why for bit, why in _THROTTLES.items() if bits & bit]
    if mig == "Enabled":
        found, mend = f"{found}, MIG enabled: times are those of a slice", "nvidia-smi -mig 0"
    elif slowed:
        found, mend = f"{found}, throttled by {', '.join(slowed)}", "nvidia-smi -q -d PERFORMANCE"
    elif load.isdigit() and int(load) > _BUSY_PERCENT:
        found, mend = f"{found}, busy at {load} %", "end the programs that nvidia-smi lists"
    else:
        return Check(f"GPU {number}", "ok", found)
    return Check(f"GPU {number}", "warning", found, mend)


def _compilers(arch: str) -> list[Check]:
    found = machine_toolchain()
    checks = []
    if found.ptxas is None:
        checks.append(Check("ptxas", "missing", "not found", found.remedy))
    else:
        text = f"{found.ptxas_version}, PTX ISA {found.isa}: .version {found.isa} or lower"
        checks.append(Check("ptxas", "ok", text))
    checks.append(_nvrtc(found, arch))
    return checks


def _nvrtc(found: Toolchain, arch: str) -> Check:
    """NVRTC by what counts: whether a kernel compiles."""
    try:
        made = compile_kernel(_KERNEL, "cuda", {}, arch=arch, entries=("probe",))
    except ToolchainError as error:
        return Check("NVRTC", "missing", error.message, error.remedy)
    if isinstance(made, Compiled):
        return Check("NVRTC", "ok", f"{found.nvrtc_version}, compiles CUDA C++ for {arch}")
    return Check("NVRTC", "missing", f"a test kernel fails: {made.message}", found.remedy)


def _profiler() -> Check:
    path = tool.find("ncu")
    if path is None:
        return Check(
            "ncu", "warning", "not found; feedback uses static facts and the emulator's counters",
            "install NVIDIA Nsight Compute and put ncu on PATH",
        )  # fmt: skip
    answer = _run([path, "--version"])
    match = re.search(r"Version ([\d.]+)", answer.stdout) if answer else None
    if match is None:
        return Check("ncu", "warning", "does not run", "reinstall NVIDIA Nsight Compute")
    if not _version("ncu-report"):
        mend = "pip install '.[profile]' in the checkout"
        return Check("ncu", "warning", f"{match[1]}, its reports are read as CSV", mend)
    return Check("ncu", "ok", f"{match[1]}, reports read by ncu-report {_version('ncu-report')}")


def _counters() -> Check:
    try:
        text = _PARAMETERS.read_text(encoding="utf-8")
    except OSError:
        return Check("counters", "warning", "no driver to ask", "nothing to do without a GPU")
    restricted = re.search(r"RmProfilingAdminOnly:\s*1", text) is not None
    if restricted and os.geteuid() != 0:
        return Check(
            "counters", "missing", "reserved to the administrator (ERR_NVGPUCTRPERM)",
            "echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' | "
            "sudo tee /etc/modprobe.d/nvidia-profiling.conf, then reboot; or run as root",
        )  # fmt: skip
    who = "the administrator, who you are" if restricted else "every user"
    return Check("counters", "ok", f"open to {who}")


def _sanitizer() -> Check:
    path = tool.find("compute-sanitizer")
    answer = _run([path, "--version"]) if path else None
    match = re.search(r"Version ([\d.]+)", answer.stdout) if answer else None
    if match is None:
        return Check(
            "compute-sanitizer", "warning", "not found; crashes are reported without a source line",
            "pip install '.[sanitize]' in the checkout",
        )  # fmt: skip
    return Check("compute-sanitizer", "ok", match[1])


def _language_model(environment: Mapping[str, str], model: str) -> Check:
    key, base = environment.get("OPENAI_API_KEY", ""), environment.get("OPENAI_BASE_URL", "")
    if not key and not base:
        return Check(
            "language model", "warning", "none configured; the menu and the tuner propose",
            "set OPENAI_API_KEY, and OPENAI_BASE_URL for a server of your own",
        )  # fmt: skip
    address = (base or "https://api.openai.com/v1").rstrip("/")
    names, problem = _models(address, key)
    if problem:
        return Check("language model", "missing", f"{address}: {problem}",
                     "check OPENAI_BASE_URL, OPENAI_API_KEY and the network")  # fmt: skip
    if model and model not in names:
        known = ", ".join(sorted(names)[:5]) or "none"
        return Check("language model", "missing", f"{address} has no {model}; it has {known}",
                     "name one of the models that the server has")  # fmt: skip
    return Check("language model", "ok", f"{address} answers, {plural(len(names), 'model')}")


def _models(address: str, key: str) -> tuple[set[str], str]:
    """(the models that a server lists, what went wrong)."""
    if not address.startswith(("http://", "https://")):
        return set(), "no http address"
    request = urllib.request.Request(f"{address}/models")
    if key:
        request.add_header("Authorization", f"Bearer {key}")
    try:
        with urllib.request.urlopen(request, timeout=5) as reply:
            listed = json.loads(reply.read(1 << 20))
        return {str(entry["id"]) for entry in listed["data"]}, ""
    except urllib.error.HTTPError as error:
        error.close()
        return set(), f"answered {error.code} {error.reason}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return set(), f"did not answer as an OpenAI server ({type(error).__name__})"


def _store(path: Path) -> Check:
    try:
        with SQLiteStore(path, read_only=True) as opened:
            events = sum(1 for _ in opened.events())
    except StoreError as error:
        return Check("store", "missing", error.message, error.remedy)
    found = f"{path}: {plural(events, 'event')}, hash chain whole"
    if on_network_file_system(path):
        return Check("store", "warning", f"{found}, on a network file system",
                     "keep it on a local disk where it is slow")  # fmt: skip
    return Check("store", "ok", found)


def _disk(environment: Mapping[str, str]) -> list[Check]:
    """Room where compilers work and results are cached."""
    checks = []
    places = {"temporary": Path(tempfile.gettempdir()), "cache": cache_folder(environment)}
    for what, place in places.items():
        there = next(folder for folder in (place, *place.parents) if folder.exists())
        free = shutil.disk_usage(there).free
        found = f"{free / 1e9:.1f} GB free in {there}"
        writable = os.access(there, os.W_OK)
        if free < _FREE_BYTES or not writable:
            name = "TMPDIR" if what == "temporary" else "XDG_CACHE_HOME"
            said = found if writable else f"{found}, which cannot be written"
            checks.append(Check(f"{what} folder", "missing", said, f"set {name} to another folder"))
        else:
            checks.append(Check(f"{what} folder", "ok", found))
    return checks


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str] | None:
    """What a tool says within 20 s; None where it does not run or answer."""
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", timeout=20, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
