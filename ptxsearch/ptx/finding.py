"""What a lint rule reports."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason to refuse a module: `line` is its place in the PTX, 0 where it has none.

    `message` says what was wrong, what was got, what is allowed and what to do.
    """

    rule: str
    line: int
    message: str

    def __str__(self) -> str:
        place = f"line {self.line}: " if self.line else ""
        return f"{place}{self.message} [{self.rule}]"
