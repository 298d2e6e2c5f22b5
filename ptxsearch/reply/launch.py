"""The JSON of an IMPLEMENT answer: launches, scratch, tensor maps, parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ptxsearch.errors import KernelError
from ptxsearch.kernel import Launch, Scratch, TensorMap, Value
from ptxsearch.reply import loose

MOST_VALUES = 64
_DTYPES = {
    "float": "f32", "float32": "f32", "double": "f64", "float64": "f64", "half": "f16",
    "float16": "f16", "__half": "f16", "bfloat16": "bf16", "int": "s32", "int32": "s32",
    "uint": "u32", "unsigned": "u32", "unsigned int": "u32", "uint32": "u32", "int64": "s64",
    "long long": "s64", "uint64": "u64", "char": "s8", "int8": "s8", "uint8": "u8",
    "unsigned char": "u8", "i32": "s32", "i64": "s64", "i8": "s8", "i16": "s16",
}  # fmt: skip
_BYTES = {"float": 4, "double": 8, "int": 4, "unsigned": 4, "unsigned int": 4, "half": 2,
          "__half": 2, "float2": 8, "float4": 16, "int4": 16, "uint4": 16, "char": 1,
          "long long": 8, "uint32_t": 4, "uint64_t": 8}  # fmt: skip


class NotALaunch(ValueError):
    """What is wrong with the JSON, in words its author can act on."""


def as_expression(value: Any, *, whole: bool = True) -> str:
    """A size or restriction as our language writes it, from how C or Python would.

    `whole` turns division into whole-number division, as it is in C.
    """
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int | float):
        return str(int(value)) if float(value).is_integer() else str(value)
    if not isinstance(value, str) or len(value) > 2000:
        raise NotALaunch(f"{str(value)[:80]!r} is not an expression; write arithmetic as text")
    text = " ".join(value.split())
    text = re.sub(r"sizeof\s*\(\s*([\w ]+?)\s*\)", _size_of, text)
    text = re.sub(r"\((?:int|unsigned|unsigned int|size_t|long long|float)\)\s*", "", text)
    text = re.sub(r"\b(\d+)(?:[uU][lL]{0,2}|[lL]{1,2}[uU]?)\b", r"\1", text)
    text = text.replace("&&", " and ").replace("||", " or ")
    text = re.sub(r"!(?!=)", " not ", text)
    text = re.sub(r"\b(?:math|std)\s*(?:\.|::)\s*", "", text)
    text = re.sub(r"\b(?:cdiv|div_up|divup|ceildiv)\s*\(", "ceil_div(", text)
    text = re.sub(r"\bceil\s*\(\s*([\w *+-]+?)\s*/+\s*([\w]+)\s*\)", r"ceil_div(\1, \2)", text)
    if whole:
        text = re.sub(r"(?<!/)/(?!/)", "//", text)
    return " ".join(text.split())


def _size_of(match: re.Match[str]) -> str:
    size = _BYTES.get(match[1])
    if size is None:
        raise NotALaunch(f"sizeof({match[1]}) is not known here; write the number of bytes")
    return str(size)


def extent(value: Any) -> tuple[str, ...]:
    """One to three expressions from a number, text, list or {"x": ...}."""
    if isinstance(value, Mapping):
        value = [value.get(axis, 1) for axis in "xyz"]
    if isinstance(value, str):
        value = _split(re.sub(r"^\s*dim3\b", "", value))
    if not isinstance(value, list):
        value = [value]
    if not 1 <= len(value) <= 3:
        raise NotALaunch(f"an extent has {len(value)} parts; give one to three")
    return tuple(as_expression(part) for part in value)


def _split(text: str) -> list[str]:
    body = text.strip()
    if body[:1] in "([" and body[-1:] in ")]" and "," in body and _encloses(body):
        body = body[1:-1]
    parts, depth, start = [], 0, 0
    for place, character in enumerate(body):
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            parts.append(body[start:place])
            start = place + 1
    return [part for part in [*parts, body[start:]] if part.strip()] or [body]


def _encloses(body: str) -> bool:
    depth = 0
    for place, character in enumerate(body):
        depth += (character in "([") - (character in ")]")
        if depth == 0 and place < len(body) - 1:
            return False
    return True


def launches(value: Any) -> tuple[Launch, ...]:
    """The launches of a JSON answer. Raises NotALaunch or KernelError."""
    items = [value] if isinstance(value, Mapping) else value
    if not isinstance(items, list) or not items:
        raise NotALaunch('"launches" must be a list of at least one launch')
    if len(items) > 16:
        raise NotALaunch(f"{len(items)} launches; use at most 16")
    return tuple(_launch(item) for item in items)


def _launch(item: Any) -> Launch:
    if not isinstance(item, Mapping):
        raise NotALaunch("each launch must be an object with entry, args, grid, block")
    entry = _first(item, "entry", "name", "kernel", "function")
    args = _first(item, "args", "arguments", "params")
    grid, block = _first(item, "grid", "blocks"), _first(item, "block", "threads")
    if not isinstance(entry, str) or not isinstance(args, list) or grid is None or block is None:
        raise NotALaunch("a launch lacks one of entry, args, grid, block")
    shared = _first(item, "shared_bytes", "dynamic_shared", "shared", "smem", "shared_mem")
    return Launch(
        entry=entry.strip(),
        args=tuple(_argument(arg) for arg in args),
        grid=_three(extent(grid)),
        block=_three(extent(block)),
        cluster=_three(extent(item.get("cluster") or 1)),
        shared_bytes=as_expression(0 if shared is None else shared),
    )


def _three(parts: tuple[str, ...]) -> tuple[str, str, str]:
    padded = (*parts, "1", "1")
    return (padded[0], padded[1], padded[2])


def _argument(value: Any) -> str:
    if isinstance(value, Mapping):
        value = value.get("name", value.get("value"))
    return as_expression(value.lstrip("&* ") if isinstance(value, str) else value)


def _first(item: Mapping[str, Any], *keys: str) -> Any:
    return next((item[key] for key in keys if item.get(key) is not None), None)


def dtype(value: Any) -> str:
    """Our name of an element type."""
    text = str(value).strip().lower()
    return _DTYPES.get(text, text)


def scratch(value: Any) -> tuple[Scratch, ...]:
    """The scratch buffers of a JSON answer. Raises NotALaunch or KernelError."""
    found = []
    for item in _objects(value, "scratch"):
        shape = _first(item, "shape", "size", "elements", "count")
        initial = str(item.get("init") or "undefined").lower()
        parts = shape if isinstance(shape, list) else [shape]
        found.append(
            Scratch(
                name=str(item.get("name")),
                dtype=dtype(item.get("dtype", item.get("type"))),
                shape=tuple(as_expression(part) for part in parts),
                init="zeros" if initial in ("zeros", "zero", "0") else "undefined",
            )
        )
    return tuple(found)


def tensor_maps(value: Any) -> tuple[TensorMap, ...]:
    """The tensor maps of a JSON answer. Raises NotALaunch or KernelError."""
    found = []
    for item in _objects(value, "tensor_maps"):
        swizzle = str(item.get("swizzle") or "none").lower().removesuffix("b")
        if swizzle not in ("none", "32", "64", "128"):
            raise NotALaunch(f"swizzle {swizzle!r} is not one of none, 32, 64, 128")
        dims, strides, box = (_texts(item.get(key), key) for key in ("dims", "strides", "box"))
        found.append(
            TensorMap(
                name=str(item.get("name")),
                buffer=str(item.get("buffer")),
                dtype=dtype(item.get("dtype")),
                dims=dims,
                strides=strides,
                box=box,
                swizzle=swizzle,  # type: ignore[arg-type]
            )
        )
    return tuple(found)


def _texts(value: Any, what: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise NotALaunch(f"{what} of a tensor map must be a list of expressions")
    return tuple(as_expression(part) for part in value)


def _objects(value: Any, what: str) -> list[Mapping[str, Any]]:
    items = [] if value is None else [value] if isinstance(value, Mapping) else value
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        raise NotALaunch(f'"{what}" must be a list of objects')
    if len(items) > 32:
        raise NotALaunch(f'"{what}" has {len(items)} members; use at most 32')
    return items


def parameters(value: Any) -> dict[str, tuple[Value, tuple[Value, ...]]]:
    """By name: the value to try first and all values, ascending where they are numbers."""
    if not isinstance(value, Mapping):
        if not value:
            return {}
        raise NotALaunch('"parameters" must be an object of name: [values, first choice first]')
    found = {}
    for name, item in value.items():
        chosen = None
        if isinstance(item, Mapping):
            chosen = _first(item, "value", "default")
            item = _first(item, "values", "choices", "options") or chosen
        values = list(
            dict.fromkeys(_scalar(v) for v in (item if isinstance(item, list) else [item]))
        )
        if not values or len(values) > MOST_VALUES:
            raise NotALaunch(f"parameter {name} has {len(values)} values; give 1 to {MOST_VALUES}")
        first = _scalar(chosen) if chosen is not None else values[0]
        if first not in values:
            values.append(first)
        numeric = all(isinstance(v, int | float) for v in values)
        found[name] = (first, tuple(sorted(values) if numeric else values))
    return found


def _scalar(value: Any) -> Value:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:
        return int(value)
    if isinstance(value, str) and len(value) <= 80:
        number = loose.whole(value) if re.fullmatch(r"\s*-?\d{1,15}\s*", value) else None
        return value.strip() if number is None else number
    if isinstance(value, int | float):
        return value
    raise NotALaunch("a parameter's value must be a number or short text")


__all__ = [
    "KernelError",
    "NotALaunch",
    "as_expression",
    "extent",
    "launches",
    "parameters",
    "scratch",
    "tensor_maps",
]
