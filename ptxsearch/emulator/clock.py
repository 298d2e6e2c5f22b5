"""What a thread knows of others through words of memory.

A word keeps a `Ledger` of all that was ever published through it. Whoever synchronises with the
word remembers only the ledger and its length at that time; it is read when somebody asks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

Views = Mapping["Ledger", int]
"""Ledgers, each up to a version."""


@dataclass(frozen=True, slots=True)
class Clock:
    """What one thread publishes: event numbers of its block and of threads, and its views."""

    blocks: Mapping[int, int]
    threads: Mapping[int, int]
    views: Views


@dataclass(slots=True, eq=False)
class Ledger:
    """What was published through a word, in order; entry n belongs to version n and above."""

    version: int = 0
    blocks: dict[int, tuple[list[int], list[int]]] = field(default_factory=dict)
    threads: dict[int, tuple[list[int], list[int]]] = field(default_factory=dict)
    links: list[tuple[int, Ledger, int]] = field(default_factory=list)

    def add(self, clock: Clock) -> None:
        """Publish what a clock knows."""
        self.version += 1
        for mine, theirs in ((self.blocks, clock.blocks), (self.threads, clock.threads)):
            for key, sequence in theirs.items():
                versions, sequences = mine.setdefault(key, ([], []))
                if not sequences or sequences[-1] < sequence:
                    versions.append(self.version)
                    sequences.append(sequence)
        for ledger, version in clock.views.items():
            if ledger is not self:
                self.links.append((self.version, ledger, version))


def _seen(table: dict[int, tuple[list[int], list[int]]], key: int, version: int) -> int:
    """The highest event number of a key in a table as it was at a version."""
    found = table.get(key)
    if found is None:
        return -1
    at = bisect_right(found[0], version) - 1
    return found[1][at] if at >= 0 else -1


def knows(views: Views, block: int, thread: int, sequence: int) -> bool:
    """Whether an access by `thread` of `block` stamped `sequence` lies in the past of the views."""
    work = list(views.items())
    done: dict[Ledger, int] = {}
    while work:
        ledger, version = work.pop()
        before = done.get(ledger, 0)
        if before >= version:
            continue
        done[ledger] = version
        if _seen(ledger.blocks, block, version) > sequence:
            return True
        if _seen(ledger.threads, thread, version) > sequence:
            return True
        for at, other, upto in ledger.links:
            if at > version:
                break
            if at > before:
                work.append((other, upto))
    return False


def merged(one: Views, other: Views) -> Views:
    """The views of both."""
    out = dict(one)
    for ledger, version in other.items():
        if out.get(ledger, 0) < version:
            out[ledger] = version
    return out
