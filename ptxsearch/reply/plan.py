"""PLAN answers: ideas as records, whatever small liberties the model took with the format."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ptxsearch.kernel import Idea, ProposalKind, Value
from ptxsearch.reply import loose
from ptxsearch.reply.text import LONGEST, Malformed, excerpt, fences, visible

MOST_IDEAS = 16
_KINDS: Mapping[str, ProposalKind] = {
    "draft": "draft", "new": "draft", "rewrite": "draft", "cross": "cross", "combine": "cross",
    "merge": "cross", "crossover": "cross",
}  # fmt: skip

_TELLING = ("strategy", "mechanism", "description", "p_correct", "p50", "gain", "log_speedup")

_TEXT = {"type": "string"}
_NUMBER = {"type": "number"}
_IDEA_FIELDS: dict[str, Any] = {
    "kind": {"type": "string", "enum": ["edit", "draft", "cross"]},
    "strategy": _TEXT,
    "title": _TEXT,
    "mechanism": _TEXT,
    "limiter": _TEXT,
    "p_correct": _NUMBER,
    "p10": _NUMBER,
    "p50": _NUMBER,
    "p90": _NUMBER,
    "parameters": {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"name": _TEXT, "value": _NUMBER},
            "required": ["name", "value"],
            "additionalProperties": False,
        },
    },
    "registers": {"type": "integer"},
    "shared_bytes": {"type": "integer"},
    "risk": _TEXT,
}
PLAN_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "ideas": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": _IDEA_FIELDS,
                "required": list(_IDEA_FIELDS),
                "additionalProperties": False,
            },
        }
    },
    "required": ["ideas"],
    "additionalProperties": False,
}


def parse_plan(text: str) -> tuple[Idea, ...] | Malformed:
    """The ideas of a PLAN answer in its order, at most 16; never raises."""
    if len(text) > LONGEST:
        return Malformed(f"the answer has {len(text)} characters; write at most {LONGEST}")
    shown = visible(text)
    found = _first_with_ideas(shown)
    ideas = tuple(idea for item in found if (idea := _idea(item)) is not None)
    if not ideas:
        return Malformed(
            'no JSON object {"ideas": [...]} with at least one titled idea was found; '
            "answer with that object alone",
            excerpt(shown),
        )
    return ideas[:MOST_IDEAS]


def _first_with_ideas(text: str) -> list[Mapping[str, Any]]:
    candidates = [fence.text for fence in fences(text)] + [text]
    for candidate in candidates:
        for reading in loose.readings(candidate):
            for value in reading:
                items = _items(loose.plain(value))
                if any(map(_is_idea, items)):
                    return items
    for candidate in candidates:
        items = [loose.plain(item) for item in loose.objects(candidate)]
        if any(map(_is_idea, items)):
            return items
    return []


def _is_idea(item: Mapping[str, Any]) -> bool:
    # A parameter or a launch has a name too: an idea says more.
    return bool(_title(item)) and any(key in item for key in _TELLING)


def _items(value: Any) -> list[Mapping[str, Any]]:
    if isinstance(value, dict):
        for key in ("ideas", "plan", "proposals", "candidates", "optimizations"):
            if isinstance(value.get(key), list):
                return _items(value[key])
        return [value]
    if isinstance(value, list):
        return [item for item in value if isinstance(item, dict)]
    return []


def _title(item: Mapping[str, Any]) -> str:
    for key in ("title", "name", "idea", "summary"):
        if isinstance(item.get(key), str) and item[key].strip():
            return excerpt(item[key], 120)
    return ""


def _words(item: Mapping[str, Any], *keys: str, limit: int = 600) -> str:
    for key in keys:
        if isinstance(item.get(key), str):
            return excerpt(item[key], limit)
    return ""


def _idea(item: Mapping[str, Any]) -> Idea | None:
    title = _title(item)
    if not title:
        return None
    probability = loose.number(item.get("p_correct"))
    return Idea(
        title=title,
        strategy=_slug(_words(item, "strategy", "strategy_tag", "tag", limit=60)) or _slug(title),
        kind=_KINDS.get(str(item.get("kind", "")).strip().lower(), "edit"),
        mechanism=_words(item, "mechanism", "description", "why", "rationale"),
        limiter=_words(item, "limiter", "target_limiter", "bottleneck", limit=80),
        p_correct=0.5 if probability is None else min(1.0, max(0.0, probability)),
        gain=_gain(item),
        parameters=_parameters(item.get("parameters")),
        registers=_positive(item.get("registers", item.get("estimated_registers"))),
        shared_bytes=_positive(item.get("shared_bytes", item.get("estimated_shared_bytes"))),
        risk=_words(item, "risk", "risks", limit=300),
    )


def _slug(text: str) -> str:
    return "-".join(re.findall(r"[a-z0-9]+", text.lower()))[:40].strip("-")


def _gain(item: Mapping[str, Any]) -> tuple[float, float, float]:
    nested = item.get("gain", item.get("log_speedup"))
    source = nested if isinstance(nested, Mapping) else item
    values = [source.get(key) for key in ("p10", "p50", "p90")]
    if isinstance(nested, list) and len(nested) == 3:
        values = nested
    numbers = [loose.number(value) for value in values]
    middle = next((n for n in (numbers[1], numbers[2], numbers[0]) if n is not None), 0.0)
    low, mid, high = sorted(
        min(7.0, max(-7.0, middle if number is None else number)) for number in numbers
    )
    return (low, mid, high)


def _parameters(value: Any) -> dict[str, Value]:
    pairs: list[tuple[Any, Any]] = []
    if isinstance(value, Mapping):
        pairs = list(value.items())
    elif isinstance(value, list):
        pairs = [(v.get("name"), v.get("value")) for v in value if isinstance(v, Mapping)]
    found: dict[str, Value] = {}
    for name, chosen in pairs[:32]:
        first = chosen[0] if isinstance(chosen, list) and chosen else chosen
        if isinstance(name, str) and name.isidentifier() and isinstance(first, int | float | str):
            found[name] = first if not isinstance(first, str) else excerpt(first, 60)
    return found


def _positive(value: Any) -> int | None:
    found = loose.whole(value)
    return found if found is not None and found >= 0 else None
