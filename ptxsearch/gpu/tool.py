"""NVIDIA's command-line tools: found on PATH or where their installers put them, run in bounds."""

from __future__ import annotations

import contextlib
import glob
import importlib.util
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Ran", "find", "run"]

_PLACES = {
    "ncu": ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu"),
    "compute-sanitizer": (
        "/usr/local/cuda/bin/compute-sanitizer",
        "/usr/local/cuda/compute-sanitizer/compute-sanitizer",
    ),
}
_LOG_BYTES = 1 << 20
_ROOT = str(Path(__file__).resolve().parents[2])


@dataclass(frozen=True)
class Ran:
    """How a tool ended: exit code (None when it was late), what it wrote."""

    code: int | None
    text: str


def find(name: str) -> str | None:
    """The path of ncu or compute-sanitizer, or None."""
    if found := shutil.which(name):
        return found
    places = list(_PLACES.get(name, ()))
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        places.append(str(Path(folder) / "cu13" / "bin" / name))
    found_there = (path for place in places for path in sorted(glob.glob(place), reverse=True))
    return next((path for path in found_there if os.access(path, os.X_OK)), None)


def run(command: Sequence[str], *, timeout: float, device: str | None = None) -> Ran:
    """Run a tool in its own process group; it and its children are killed when late."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [_ROOT, os.environ.get("PYTHONPATH", "")])),
    }
    if device is not None:
        environment["CUDA_VISIBLE_DEVICES"] = device
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,
    )
    try:
        written, _ = process.communicate(timeout=timeout)
        code: int | None = process.returncode
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        written, _ = process.communicate()
        code = None
    return Ran(code, written[:_LOG_BYTES].decode(errors="replace"))
