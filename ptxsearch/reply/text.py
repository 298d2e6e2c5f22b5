"""The pieces of a model's answer: fenced blocks, reasoning cut away."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ptxsearch.record import Record

LONGEST = 400_000
_THINK = re.compile(r"<(think|thinking|reasoning)>.*?(</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"^[ \t>]{0,8}(`{3,}|~{3,})[ \t]*([A-Za-z0-9_+#.-]*)[^\n`]*$", re.MULTILINE)


@dataclass(frozen=True)
class Malformed(Record):
    """Why an answer cannot be used, in words its author can act on; `excerpt` shows the place."""

    reason: str
    excerpt: str = ""


@dataclass(frozen=True)
class Fence:
    """One fenced block: the language its opening names (lower case), its text, whether it ends."""

    language: str
    text: str
    closed: bool


def visible(text: str) -> str:
    """The answer without reasoning blocks, carriage returns and NUL bytes."""
    plain = text.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", "")
    return _THINK.sub("", plain) if "<" in plain else plain


def fences(text: str) -> tuple[Fence, ...]:
    """The fenced blocks in order; the last one may lack its end."""
    found: list[Fence] = []
    opening: re.Match[str] | None = None
    for mark in _FENCE.finditer(text):
        if opening is None:
            opening = mark
        elif mark[1][0] == opening[1][0] and len(mark[1]) >= len(opening[1]) and not mark[2]:
            found.append(_fence(opening, text[opening.end() : mark.start()], closed=True))
            opening = None
    if opening is not None:
        found.append(_fence(opening, text[opening.end() :], closed=False))
    return tuple(found)


def _fence(opening: re.Match[str], text: str, *, closed: bool) -> Fence:
    return Fence(opening[2].lower(), text.strip("\n"), closed)


def excerpt(text: str, limit: int = 200) -> str:
    """The beginning of `text` on one line."""
    line = " ".join(text[: 4 * limit].split())
    return line if len(line) <= limit else line[: limit - 3] + "..."
