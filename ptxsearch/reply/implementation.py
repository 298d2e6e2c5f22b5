"""IMPLEMENT answers: one fenced kernel and one JSON fence, as a Kernel record."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from ptxsearch import expression
from ptxsearch.errors import PtxsearchError
from ptxsearch.kernel import Kernel, Launch, Value
from ptxsearch.reply import launch as launch_json
from ptxsearch.reply import loose, patch, source
from ptxsearch.reply.text import LONGEST, Fence, Malformed, excerpt, fences, visible
from ptxsearch.space import Space

Languages = Literal["cuda", "ptx", "both"]
_KEYS = ("launches", "launch", "parameters", "scratch", "tensor_maps", "restrictions")


def parse_implementation(
    text: str, parent: Kernel, language: Languages, *, arch: str = "sm_90"
) -> Kernel | Malformed:
    """The kernel of an IMPLEMENT answer; what it leaves out is the parent's. Never raises."""
    if len(text) > LONGEST:
        return Malformed(f"the answer has {len(text)} characters; write at most {LONGEST}")
    shown = visible(text)
    blocks = fences(shown)
    declared = _declared(blocks, shown)
    code = _code(blocks, shown, parent, declared)
    if isinstance(code, Malformed):
        return code
    refused = _refused(code, language)
    if refused:
        return refused
    try:
        return _kernel(source.mend(code, arch=arch), parent, declared)
    except launch_json.NotALaunch as error:
        return Malformed(f"the JSON is unusable: {error}")
    except PtxsearchError as error:
        return Malformed(f"the JSON is unusable: {error}")


def _declared(blocks: Sequence[Fence], text: str) -> Mapping[str, Any]:
    """The launch JSON: the last fenced object with one of our keys, or one in the open."""
    for block in reversed(blocks):
        if source.entries(block.text):
            continue
        found = loose.plain(loose.document(block.text))
        if isinstance(found, list) and found and _is_launch(found[0]):
            return {"launches": found}
        if isinstance(found, dict):
            if any(key in found for key in _KEYS):
                return found
            if _is_launch(found):
                return {"launches": [found]}
    last = blocks[-1].text if blocks else ""
    after = text.rpartition(last)[2] if last else text
    for found in (one for reading in loose.readings(after) for one in reversed(reading)):
        clean = loose.plain(found)
        if isinstance(clean, dict) and any(key in clean for key in _KEYS):
            return clean
    return {}


def _is_launch(value: Any) -> bool:
    return isinstance(value, dict) and "entry" in value and "grid" in value


def _code(
    blocks: Sequence[Fence], text: str, parent: Kernel, declared: Mapping[str, Any]
) -> str | Malformed:
    edits = patch.replacements(text)
    if edits:
        if parent.language == "ptx":
            return Malformed("PTX was edited by search/replace; write the whole PTX module")
        return patch.apply(parent.source, edits)
    launched = re.findall(r"\w+", str(declared.get("launches", "")))
    block = source.kernel_fence(blocks, launched)
    if block is not None:
        if not block.closed and block.text.count("{") != block.text.count("}"):
            return Malformed("the kernel is cut off before its end; write it whole and shorter")
        return block.text
    for key in ("code", "source", "kernel"):
        inner = declared.get(key)
        if isinstance(inner, str) and source.entries(inner):
            return inner
    if not blocks and (bare := source.bare_code(text)):
        return bare
    return Malformed(
        "no fenced block defines a kernel (`__global__` or `.entry`); "
        "give the kernel in one fence and the launch JSON in another",
        excerpt(text),
    )


def _refused(code: str, language: Languages) -> Malformed | None:
    written = "ptx" if source.is_ptx(code) else "cuda"
    if language != "both" and written != language:
        wanted = {"cuda": "CUDA C++", "ptx": "PTX"}
        return Malformed(f"the kernel is {wanted[written]}; this run takes {wanted[language]} only")
    left_out = source.elided(code)
    if left_out:
        return Malformed("code is left out; write every line of the kernel", left_out[:200])
    return None


def _kernel(code: str, parent: Kernel, declared: Mapping[str, Any]) -> Kernel:
    language: Literal["cuda", "ptx"] = "ptx" if source.is_ptx(code) else "cuda"
    launches = _launches(code, parent, declared)
    scratch = launch_json.scratch(declared["scratch"]) if "scratch" in declared else parent.scratch
    maps = (
        launch_json.tensor_maps(declared["tensor_maps"])
        if "tensor_maps" in declared
        else parent.tensor_maps
    )
    used = source.identifiers(code) | _placeholders(code) | _names(launches)
    values, space = _space(parent, declared, used)
    kernel = Kernel(
        source=code,
        language=language,
        launches=launches,
        values=values,
        space=space,
        scratch=scratch,
        tensor_maps=maps,
    )
    if space is not None and not space.is_legal({name: values[name] for name in space.params}):
        raise launch_json.NotALaunch(
            f"the first values {dict(values)} break a restriction; list a legal value first"
        )
    return kernel


def _placeholders(code: str) -> frozenset[str]:
    return frozenset(re.findall(r"\$\{(\w+)\}", code))


def _names(launches: Sequence[Launch]) -> frozenset[str]:
    texts = [
        text
        for one in launches
        for text in (*one.grid, *one.block, *one.cluster, one.shared_bytes, *one.args)
    ]
    return frozenset().union(*(expression.parse(text).names for text in texts))


def _launches(code: str, parent: Kernel, declared: Mapping[str, Any]) -> tuple[Launch, ...]:
    defined = source.entries(code)
    given = declared.get("launches", declared.get("launch"))
    found = launch_json.launches(given) if given is not None else parent.launches
    unknown = sorted({one.entry for one in found} - set(defined))
    if unknown and len({one.entry for one in found}) == len(defined) == 1:
        return tuple(replace(one, entry=defined[0]) for one in found)
    if unknown and given is None:
        raise launch_json.NotALaunch(
            f"no launches are given and the kernel defines {', '.join(defined)} "
            f"instead of {', '.join(unknown)}; declare the launches"
        )
    if unknown:
        raise launch_json.NotALaunch(
            f"the launches name {', '.join(unknown)}, which the code does not define; "
            f"it defines {', '.join(defined)}"
        )
    return found


def _space(
    parent: Kernel, declared: Mapping[str, Any], used: frozenset[str]
) -> tuple[dict[str, Value], Space | None]:
    """Declared parameters, and those of the parent that the new code still uses."""
    given = launch_json.parameters(declared.get("parameters"))
    params = {name: choices for name, (_, choices) in given.items()}
    values: dict[str, Value] = {name: first for name, (first, _) in given.items()}
    # With the same parameters a parent's rules still hold; new ones come with their own.
    old = parent.space
    for name, value in parent.values.items():
        if name in used and name not in values:
            values[name] = value
            if old is not None and name in old.params:
                params[name] = old.params[name]
    if not params:
        return values, None
    inherited = _inherited(parent.space, params)
    stated = _stated(declared, params, inherited.derived)
    chosen = {name: values[name] for name in params}
    # What the model states binds it; what it did not mention holds only while it can.
    for space in (_merged(stated, inherited, declared), stated):
        if space.is_legal(chosen):
            return values, space
    return values, stated


def _stated(
    declared: Mapping[str, Any],
    params: Mapping[str, tuple[Value, ...]],
    inherited: Mapping[str, str],
) -> Space:
    derived = dict(inherited)
    named = declared.get("derived")
    for name, text in named.items() if isinstance(named, Mapping) else ():
        written = launch_json.as_expression(text, whole=False)
        known = set(params) | (set(derived) - {name})
        if name not in params and expression.parse(written).names <= known:
            derived[name] = written
    items = declared.get("restrictions") or []
    texts = [
        launch_json.as_expression(item, whole=False)
        for item in (items if isinstance(items, list) else [items])
    ]
    return Space(params, tuple(text for text in texts if text), derived)


def _inherited(old: Space | None, params: Mapping[str, tuple[Value, ...]]) -> Space:
    """The parent's derived quantities, restrictions and conditions that still make sense."""
    if old is None:
        return Space(params)
    known: dict[str, str] = {}
    for name, text in old.derived.items():
        if name not in params and expression.parse(text).names <= set(params) | set(known):
            known[name] = text
    names = set(params) | set(known)
    return Space(
        params,
        tuple(text for text in old.restrictions if expression.parse(text).names <= names),
        known,
        {
            name: text
            for name, text in old.conditions.items()
            if name in params and expression.parse(text).names <= names - {name}
        },
    )


def _merged(stated: Space, inherited: Space, declared: Mapping[str, Any]) -> Space:
    silent = declared.get("restrictions") is None
    return Space(
        stated.params,
        inherited.restrictions if silent else stated.restrictions,
        stated.derived,
        inherited.conditions,
    )
