"""Counts in words: `plural(1, "trial")` is "1 trial", `plural(2, "trial")` is "2 trials"."""

from __future__ import annotations

_IRREGULAR = {"launch": "launches", "retry": "retries"}


def plural(count: int, noun: str) -> str:
    """The count and its noun, thousands set apart."""
    return f"{count:,} {noun if count == 1 else _IRREGULAR.get(noun, noun + 's')}"
