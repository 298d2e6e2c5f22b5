"""JSON as models write it: with comments, trailing commas, single quotes, prose around it.

Reading never raises: what cannot be read is left out. Numbers that are not finite are dropped,
because no record of ours may hold one.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

_DECODER = json.JSONDecoder(strict=False)
_PIECE = re.compile(
    r"""(?P<escape>\\.)"""
    r"""|(?P<string>"(?:\\.|[^"\\]){0,2000}")"""
    r"""|(?P<single>'(?:\\.|[^'\\\n]){0,2000}')"""
    r"""|(?P<comment>//[^\n]*|/\*.{0,400}?\*/|\#[^\n]*)"""
    r"""|(?P<comma>,(?=\s*[}\]]))"""
    r"""|(?P<word>\b(?:True|False|None|NaN|undefined)\b)""",
    re.DOTALL | re.VERBOSE,
)
_WORDS = {"True": "true", "False": "false"}
_DEEPEST = 64
_MOST_STARTS = 200
_MENDABLE = 60_000


def documents(text: str) -> list[Any]:
    """Every JSON object or list in `text`, outermost ones, in order."""
    found: list[Any] = []
    position = 0
    for _ in range(_MOST_STARTS):
        start = _next_bracket(text, position)
        if start < 0:
            break
        value, end = _decode(text, start)
        if value is None:
            position = start + 1
            continue
        found.append(value)
        position = end
    return found


def readings(text: str) -> list[list[Any]]:
    """The documents of `text` as it stands and as mended, the better reading first.

    A document that only mending makes whole would otherwise be read as its innermost pieces.
    """
    as_it_stands = documents(text)
    start = _next_bracket(text, 0)
    if start < 0 or _decode(text, start)[0] is not None:
        return [as_it_stands]
    return [documents(mended(text)), as_it_stands]


def document(text: str) -> Any:
    """The first JSON object or list in `text`, mended where needed; None where there is none."""
    return next((found[0] for found in readings(text) if found), None)


def objects(text: str) -> list[dict[str, Any]]:
    """The objects that are whole in a list which was cut off, innermost wrapper ignored."""
    start = text.find("[")
    body = text[start + 1 :] if start >= 0 else text
    return [value for value in documents(mended(body)) if isinstance(value, dict)]


def mended(text: str) -> str:
    """`text` with comments and trailing commas gone, quotes and words as JSON has them.

    Lengths are bounded, so that no text makes the matching quadratic in its size.
    """
    return _PIECE.sub(_mend, text[:_MENDABLE])


def _mend(piece: re.Match[str]) -> str:
    if piece["string"] is not None or piece["escape"] is not None:
        return piece[0]
    if piece["single"] is not None:
        inner = piece["single"][1:-1].replace("\\'", "'")
        return json.dumps(inner)
    if piece["word"] is not None:
        return _WORDS.get(piece["word"], "null")
    return " "


def _next_bracket(text: str, position: int) -> int:
    places = [p for p in (text.find("{", position), text.find("[", position)) if p >= 0]
    return min(places, default=-1)


def _decode(text: str, start: int) -> tuple[Any, int]:
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None, start
    return (value, end) if value else (None, start)


def plain(value: Any, depth: int = 0) -> Any:
    """`value` without non-finite numbers (None instead) and without what nests too deep."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 1 << 63:
        return None
    if depth > _DEEPEST:
        return None
    if isinstance(value, dict):
        return {str(key): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item, depth + 1) for item in value]
    return value


def number(value: Any) -> float | None:
    """A finite number from a number or from text such as "1.3x", "20%", "~0.2"; else None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value) if abs(value) < 1e300 else None
    if not isinstance(value, str):
        return None
    match = re.match(
        r"\s*[~+<>=]*\s*(-?\d{1,15}(?:\.\d{1,15})?(?:[eE][-+]?\d{1,2})?)\s*(%|x)?", value
    )
    if match is None:
        return None
    found = float(match[1])
    if match[2] == "%":
        return found / 100
    return found


def whole(value: Any) -> int | None:
    """A whole number from a number or text; else None."""
    found = number(value)
    return None if found is None or abs(found) > 1 << 53 else int(found)
