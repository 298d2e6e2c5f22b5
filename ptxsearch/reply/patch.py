"""Search/replace edits of a long parent, applied only where each place is unmistakable."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from ptxsearch.reply.text import Malformed

MOST_EDITS = 60
_MARK = re.compile(r"[ \t]*(?:(<{5,9})[ \t]*SEARCH\b|(={5,9})[ \t]*$|(>{5,9})[ \t]*REPLACE\b)")


@dataclass(frozen=True)
class Replacement:
    """One edit: the lines that stand in the parent and those that take their place."""

    old: tuple[str, ...]
    new: tuple[str, ...]


def replacements(text: str) -> tuple[Replacement, ...]:
    """The search/replace edits in `text`, in order."""
    found: list[Replacement] = []
    parts: dict[str, list[str]] = {}
    part = ""
    for line in text.split("\n") if "SEARCH" in text else ():
        mark = _MARK.match(line)
        if mark is None:
            if part:
                parts[part].append(line)
        elif mark[1]:
            part, parts = "old", {"old": [], "new": []}
        elif mark[2] and part == "old":
            part = "new"
        elif mark[3] and part == "new":
            found.append(Replacement(_lines(parts["old"]), _lines(parts["new"])))
            part = ""
    return tuple(found[:MOST_EDITS])


def apply(source: str, edits: tuple[Replacement, ...]) -> str | Malformed:
    """`source` with every edit made in order; indentation may differ, nothing else."""
    lines = source.split("\n")
    for number, edit in enumerate(edits, 1):
        place = _place(lines, edit.old)
        if isinstance(place, str):
            return Malformed(f"edit {number}: {place}", "\n".join(edit.old[:6]))
        lines[place : place + len(edit.old)] = edit.new
    return "\n".join(lines)


def _lines(given: list[str]) -> tuple[str, ...]:
    lines = list(given)
    while lines and not lines[-1].strip():
        lines.pop()
    while lines and not lines[0].strip():
        lines.pop(0)
    return tuple(lines)


def _place(lines: list[str], old: tuple[str, ...]) -> int | str:
    if not old:
        return "its SEARCH part is empty; quote the lines to replace"
    for key in (str.rstrip, str.strip):
        wanted = [key(line) for line in old]
        have = [key(line) for line in lines]
        places = [i for i in range(len(have)) if have[i : i + len(wanted)] == wanted]
        if len(places) == 1:
            return places[0]
        if len(places) > 1:
            return f"its SEARCH part stands {len(places)} times; quote more lines around it"
    near = difflib.get_close_matches(
        old[0].strip(), [line.strip() for line in lines[:2000]], n=1, cutoff=0.6
    )
    hint = f"; the nearest line is `{near[0]}`" if near else ""
    return f"its SEARCH part does not stand in the kernel{hint}; quote the lines exactly"
