"""Kernels on disk: `my.cu` or `my.ptx`, with `my.json` beside it for launches and values.

The JSON holds the fields of a `Kernel` without its source: launches, values, space, scratch,
tensor_maps. Without it the launches of a kernel that is `like` it are taken, such as the task's
baseline.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from ptxsearch.errors import KernelError, PtxsearchError
from ptxsearch.kernel import Kernel, Language

LARGEST = 1 << 20
_LANGUAGES: dict[str, Language] = {".cu": "cuda", ".ptx": "ptx"}
_FIELDS = ("launches", "values", "space", "scratch", "tensor_maps")


def read_kernel(path: str | Path, *, like: Kernel | None = None) -> Kernel:
    """The kernel in `path` with the launches of its JSON, or of `like` where it has none.

    Raises KernelError for a file that cannot be source, and for a JSON that is none.
    """
    file = Path(path)
    source, language = read_source(file)
    beside = file.with_suffix(".json")
    if beside.is_file():
        return _described(beside, source, language)
    if like is None:
        raise KernelError(
            f"{file} has no {beside.name} beside it", 'write {"launches": [...]} there'
        )
    values = like.values if like.language == language else {}
    return replace(like, source=source, language=language, values=values, space=None)


def read_source(file: Path) -> tuple[str, Language]:
    """The text of a `.cu` or `.ptx` file and its language. Raises KernelError as `read_kernel`."""
    language = _LANGUAGES.get(file.suffix)
    if language is None:
        raise KernelError(
            f"{file} is neither PTX nor CUDA C++ by its name", "name it *.ptx or *.cu"
        )
    try:
        size = file.stat().st_size
        if size > LARGEST:
            raise KernelError(f"{file} has {size} bytes, more than {LARGEST}", "give one kernel")
        source = file.read_bytes().decode("utf-8")
    except OSError as error:
        raise KernelError(f"{file} cannot be read ({error.strerror})", "check the path") from error
    except UnicodeDecodeError as error:
        raise KernelError(
            f"{file} is not text (byte {error.start})", "give PTX or CUDA C++ source, no cubin"
        ) from error
    if "\0" in source or not source.strip():
        what = "empty" if not source.strip() else "binary"
        raise KernelError(f"{file} is {what}", "give PTX or CUDA C++ source")
    return source, language


def _described(beside: Path, source: str, language: Language) -> Kernel:
    try:
        data: Any = json.loads(beside.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise KernelError(f"{beside} is not JSON ({error})", "mend it or remove it") from error
    if not isinstance(data, dict) or set(data) - {*_FIELDS, "schema"}:
        raise KernelError(f"{beside} has other keys than it may", f"use {', '.join(_FIELDS)}")
    given = {key: value for key, value in data.items() if value is not None}
    for launch in given.get("launches") or []:
        _spread(launch)
    try:
        kernel = Kernel.from_dict({"values": {}, **given, "source": source, "language": language})
        return kernel if kernel.space is None else kernel.with_values(**kernel.values)
    except PtxsearchError as error:
        raise KernelError(f"{beside}: {error.message}", error.remedy) from error


def _spread(launch: Any) -> None:
    """Let people write one number or text where three texts are stored."""
    if isinstance(launch, dict):
        for name in ("grid", "block", "cluster"):
            if name in launch:
                given = launch[name]
                parts = list(given) if isinstance(given, list) else [given]
                launch[name] = [*map(str, parts), *["1"] * (3 - len(parts))]
        launch["args"] = [str(arg) for arg in launch.get("args") or []]
        if "shared_bytes" in launch:
            launch["shared_bytes"] = str(launch["shared_bytes"])
