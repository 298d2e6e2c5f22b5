"""Compilers' messages made fit for an author: scrubbed, bounded, with the lines they speak of."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

LOG_LIMIT = 4096
_LINE_LIMIT = 400
_AT = re.compile(
    r"(?:kernel\.cu\((?P<cuda>\d+)\)|kernel\.ptx, line (?P<ptx>\d+)).*?"
    r"(?P<level>error|fatal|warning)[^:\n]*:\s*(?P<text>[^\n]*)"
)
_PATH = re.compile(r"(?<![\w/.*)\]])/(?:[\w.+@~-]+/)+(?=[\w.+-])")


def scrub(log: str, folders: Iterable[Path | str] = ()) -> str:
    """The log without folders of this machine, long lines and whole length cut."""
    for folder in folders:
        log = log.replace(f"{folder}/", "").replace(str(folder), "")
    log = _PATH.sub("", log)
    lines = [
        line if len(line) <= _LINE_LIMIT else f"{line[:_LINE_LIMIT]} [{len(line)} characters]"
        for line in log.replace("\x00", "").splitlines()
    ]
    text = "\n".join(lines).strip()
    if len(text) <= LOG_LIMIT:
        return text
    return f"{text[:LOG_LIMIT]}\n[cut: {len(text)} characters in all]"


def warnings(log: str) -> tuple[str, ...]:
    """The distinct warnings of a scrubbed log, in order."""
    found = [line.strip() for line in log.splitlines() if re.search(r"\bwarning\b", line)]
    return tuple(dict.fromkeys(found))


def errors(log: str) -> list[tuple[int, str]]:
    """(line number, message) of every error that a scrubbed log places in the source."""
    return [
        (int(match["cuda"] or match["ptx"]), match["text"].strip())
        for match in _AT.finditer(log)
        if match["level"] != "warning"
    ]


def excerpt(
    source: str, found: list[tuple[int, str]], *, most: int = 5, around: int = 2
) -> tuple[str, ...]:
    """The source lines of the first `most` errors with `around` neighbours; `>` marks errors."""
    lines = source.splitlines()
    messages: dict[int, str] = {}
    for number, text in found:
        if len(messages) < most:
            messages.setdefault(number, text)
    shown: dict[int, str] = {}
    for number in sorted(messages):
        for near in range(max(1, number - around), min(len(lines), number + around) + 1):
            shown.setdefault(near, lines[near - 1][:_LINE_LIMIT])
    result: list[str] = []
    previous = 0
    for number in sorted(shown):
        if previous and number != previous + 1:
            result.append("  ...")
        mark = ">" if number in messages else " "
        result.append(f"{mark} {number:5} | {shown[number]}")
        if number in messages:
            result.append(f"        ^ {messages[number]}")
        previous = number
    return tuple(result)


def first_message(log: str) -> str:
    """The first error of a log in one line, else its first line."""
    for number, text in errors(log):
        return f"line {number}: {text}"
    for line in log.splitlines():
        match = re.search(r"(?:error|fatal)\s*:\s*(.*)", line)
        if match:
            return match[1].strip()
    return log.splitlines()[0].strip() if log.strip() else "no message"
