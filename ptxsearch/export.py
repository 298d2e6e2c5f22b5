"""The winning kernel as files that run without ptxsearch: source, cubin, launches, loaders."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ptxsearch.errors import UsageError
from ptxsearch.evaluation import Evaluation
from ptxsearch.kernel import Kernel
from ptxsearch.tasks import Task

LOADERS = Path(__file__).resolve().parent / "loaders"


def write_kernel(
    folder: str | os.PathLike[str],
    kernel: Kernel,
    *,
    evaluation: Evaluation,
    cubin: bytes,
    document: Mapping[str, Any],
) -> list[Path]:
    """Write the files of a kernel into `folder` and return their paths.

    kernel.cu or .ptx, kernel.json (read back by `ptxsearch evaluate`), kernel.cubin where there is
    one, launch.json with every launch evaluated for each workload, the verdict, and a short loader
    each for cuda-python, CuPy and torch. Raises UsageError where it cannot be written.
    """
    files: dict[str, bytes] = {
        f"kernel.{'ptx' if kernel.language == 'ptx' else 'cu'}": kernel.source.encode(),
        "kernel.json": _json(_declared(kernel)),
        "launch.json": _json(document),
        "evaluation.json": _json(evaluation.to_dict()),
    }
    if cubin:
        files["kernel.cubin"] = cubin
        files |= {loader.name: loader.read_bytes() for loader in sorted(LOADERS.glob("*.py"))}
    return [write_file(Path(folder) / name, content) for name, content in files.items()]


def write_file(path: Path, content: bytes) -> Path:
    """Write one file, its folder made where missing. Raises UsageError where it cannot be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written ({error.strerror})", "choose a folder you may write to"
        ) from error
    return path


def launch_document(kernel: Kernel, task: Task) -> dict[str, Any]:
    """Parameters, and for each workload its sizes, scratch and launches as plain numbers."""
    workloads = {}
    for workload in task.workloads:
        workloads[workload.name] = {
            "sizes": dict(workload.sizes),
            "params": [
                {
                    "name": param.name,
                    "role": param.role,
                    "dtype": param.dtype,
                    "shape": list(param.extents(workload.sizes)),
                }
                for param in task.params
            ],
            "scratch": {
                name: {"shape": list(shape), **_scratch(kernel, name)}
                for name, shape in kernel.scratch_shapes(workload.sizes).items()
            },
            "launches": [
                {k: v for k, v in launch.to_dict().items() if k != "schema"}
                for launch in kernel.bind(workload.sizes, task.names)
            ],
        }
    return {"schema": 1, "task": task.name, "values": dict(kernel.values), "workloads": workloads}


def _scratch(kernel: Kernel, name: str) -> Mapping[str, str]:
    found = next(buffer for buffer in kernel.scratch if buffer.name == name)
    return {"dtype": found.dtype, "init": found.init}


def _declared(kernel: Kernel) -> dict[str, Any]:
    data = replace(kernel, source="").to_dict()
    return {k: v for k, v in data.items() if k not in ("source", "language", "schema")}


def _json(document: Any) -> bytes:
    return (json.dumps(document, indent=1, allow_nan=False) + "\n").encode()
