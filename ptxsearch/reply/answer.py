"""A kernel in the form of an IMPLEMENT answer: what models are shown is what they shall write."""

from __future__ import annotations

import json
import re
from typing import Any

from ptxsearch.kernel import Kernel, Launch


def fenced(text: str, tag: str) -> str:
    """`text` in a fence that nothing inside it can close."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{tag}\n{text.rstrip()}\n{fence}"


def written(kernel: Kernel) -> str:
    """The kernel and its launch JSON, each in its fence."""
    return f"{fenced(kernel.source, kernel.language)}\n\n{fenced(launch_json(kernel), 'json')}"


def launch_json(kernel: Kernel) -> str:
    """The launch JSON of a kernel, one launch a line, the values in use first."""
    space = kernel.space
    parameters: dict[str, list[Any]] = {}
    for name, value in kernel.values.items():
        choices = space.params.get(name, (value,)) if space is not None else (value,)
        parameters[name] = [value, *(choice for choice in choices if choice != value)]
    sections: dict[str, Any] = {
        "launches": [_launch(launch) for launch in kernel.launches],
        "parameters": parameters,
        "restrictions": list(space.restrictions) if space is not None else [],
    }
    if space is not None and space.derived:
        sections["derived"] = dict(space.derived)
    if kernel.scratch:
        sections["scratch"] = [
            {"name": s.name, "dtype": s.dtype, "shape": list(s.shape), "init": s.init}
            for s in kernel.scratch
        ]
    if kernel.tensor_maps:
        sections["tensor_maps"] = [
            {
                "name": t.name, "buffer": t.buffer, "dtype": t.dtype, "dims": list(t.dims),
                "strides": list(t.strides), "box": list(t.box), "swizzle": t.swizzle,
            }
            for t in kernel.tensor_maps
        ]  # fmt: skip
    lines = [f"{json.dumps(name)}: {_layout(value)}" for name, value in sections.items()]
    return "{" + ",\n ".join(lines) + "}"


def _layout(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[" + ",\n  ".join(json.dumps(item) for item in value) + "]"
    return json.dumps(value)


def _launch(launch: Launch) -> dict[str, Any]:
    item: dict[str, Any] = {
        "entry": launch.entry,
        "args": list(launch.args),
        "grid": _short(launch.grid),
        "block": _short(launch.block),
    }
    if launch.cluster != ("1", "1", "1"):
        item["cluster"] = _short(launch.cluster)
    if launch.shared_bytes != "0":
        item["shared_bytes"] = launch.shared_bytes
    return item


def _short(extent: tuple[str, str, str]) -> list[str]:
    kept = list(extent)
    while len(kept) > 1 and kept[-1] == "1":
        kept.pop()
    return kept
