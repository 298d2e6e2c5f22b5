"""The winning kernel as files that run without ptxsearch: source, cubin, launches, loaders."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ptxsearch.errors import UsageError
from ptxsearch.evaluation import Evaluation
from ptxsearch.expression import evaluate
from ptxsearch.kernel import ELEMENT_BYTES, Kernel
from ptxsearch.param import Param
from ptxsearch.tasks import Task

LOADERS = Path(__file__).resolve().parent / "loaders"
_CTYPES = {
    "f8": "c_double", "f4": "c_float", "i8": "c_int64", "i4": "c_int32",
    "i2": "c_int16", "i1": "c_int8", "u8": "c_uint64", "u4": "c_uint32", "u2": "c_uint16",
    "u1": "c_uint8",
}  # fmt: skip


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
    each for cuda-python, CuPy and torch, unless launches need clusters or tensor maps. Raises
    UsageError where it cannot be written.
    """
    files: dict[str, bytes] = {
        f"kernel.{'ptx' if kernel.language == 'ptx' else 'cu'}": kernel.source.encode(),
        "kernel.json": _json(_declared(kernel)),
        "launch.json": _json(document),
        "evaluation.json": _json(evaluation.to_dict()),
    }
    if cubin:
        files["kernel.cubin"] = cubin
    if cubin and not _unloadable(document):
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
    """For each workload its sizes, arrays, scalars, scratch and launches as plain numbers.

    `numpy` is an array's or a scalar's type code, `ctype` names a scalar's type in ctypes; types
    that numpy lacks are given as unsigned integers of their width. Whole numbers among a launch's
    `args` may be passed as 64-bit integers: a narrower parameter takes the low bytes.
    """
    workloads = {}
    for workload in task.workloads:
        sizes = dict(workload.sizes)
        arrays = [param for param in task.params if param.role != "scalar"]
        scalars = [param for param in task.params if param.role == "scalar"]
        workloads[workload.name] = {
            "sizes": sizes,
            "arrays": [
                {"name": p.name, "role": p.role, **_array(p.dtype, p.extents(sizes))}
                for p in arrays
            ],
            "scalars": [{"name": p.name, **_scalar(p, sizes)} for p in scalars],
            "scratch": [
                {"name": name, **_scratch(kernel, name, shape)}
                for name, shape in kernel.scratch_shapes(sizes).items()
            ],
            "launches": [
                {k: v for k, v in launch.to_dict().items() if k != "schema"}
                for launch in kernel.bind(sizes, task.names)
            ],
        }
    return {"schema": 2, "task": task.name, "values": dict(kernel.values), "workloads": workloads}


def _array(dtype: str, shape: Sequence[int]) -> dict[str, Any]:
    return {"dtype": dtype, "numpy": _numpy(dtype), "shape": list(shape)}


def _scratch(kernel: Kernel, name: str, shape: Sequence[int]) -> dict[str, Any]:
    found = next(buffer for buffer in kernel.scratch if buffer.name == name)
    size = math.prod(shape) * ELEMENT_BYTES[found.dtype]
    return {**_array(found.dtype, shape), "bytes": size, "init": found.init}


def _scalar(param: Param, sizes: Mapping[str, int]) -> dict[str, Any]:
    value = param.numpy_dtype.type(evaluate(param.init or "0", sizes))
    code = _numpy(param.dtype).replace("f2", "u2")
    return {
        "dtype": param.dtype,
        "numpy": code,
        "ctype": _CTYPES[code],
        "value": np.asarray(value).view(code).item(),
    }


def _numpy(dtype: str) -> str:
    """A code that numpy knows without further packages."""
    kind = {"f": "f", "s": "i"}.get(dtype.rstrip("0123456789"), "u")
    return f"{kind}{ELEMENT_BYTES[dtype]}"


def _unloadable(document: Mapping[str, Any]) -> bool:
    """Whether a launch needs what the loaders lack: clusters or tensor maps."""
    for work in document.get("workloads", {}).values():
        known = {p["name"] for key in ("arrays", "scalars", "scratch") for p in work[key]}
        for launch in work["launches"]:
            if list(launch["cluster"]) != [1, 1, 1]:
                return True
            if any(isinstance(a, str) and a not in known for a in launch["args"]):
                return True
    return False


def _declared(kernel: Kernel) -> dict[str, Any]:
    data = replace(kernel, source="").to_dict()
    return {k: v for k, v in data.items() if k not in ("source", "language", "schema")}


def _json(document: Any) -> bytes:
    return (json.dumps(document, indent=1, allow_nan=False) + "\n").encode()
