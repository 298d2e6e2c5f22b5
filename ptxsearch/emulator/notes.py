"""Accesses as the race detector notes them, and what follows from two stamps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ptxsearch.emulator.operation import Array
from ptxsearch.emulator.ordering import (
    BLOCK_SCOPE,
    MULTI,
    SEQUENCE_MASK,
    SEQUENCE_SHIFT,
    SEVERAL_BLOCKS,
    STRONG,
    TID_MASK,
    Ordering,
)
from ptxsearch.emulator.where import Where


@dataclass(frozen=True, slots=True)
class Note:
    """An access by many lanes: where, in elements of `granules` granules, by whom and when."""

    where: Where
    granules: int
    lanes: Array
    line: int
    base: int
    flags: int

    @property
    def stamps(self) -> Array:
        """The stamp of each lane."""
        return (self.lanes + self.base) | self.flags if self.flags else self.lanes + self.base


def base_stamp(order: Ordering) -> int:
    """What makes a lane's number its stamp now."""
    return (order.sequence.now << SEQUENCE_SHIFT) + order.first + 1


@dataclass(frozen=True, slots=True)
class Values:
    """What a store writes (a row for each lane, or one for all) and how to see what is there."""

    new: Array
    current: Callable[[], Array]

    def changed(self) -> Array:
        """Whether each lane stores something else than what is there."""
        differs = self.current() != self.new
        return np.asarray(differs if differs.ndim == 1 else differs.any(axis=1))

    def differ(self, rows: Array, others: Array) -> Array:
        """Whether the lanes `rows` store something else than the lanes `others`."""
        if self.new.shape[0] == 1:
            return np.zeros(rows.size, np.bool_)
        differs = self.new[rows] != self.new[others]
        return np.asarray(differs if differs.ndim == 1 else differs.any(axis=1))


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two accesses that nothing orders: the present one by `lane`, the other from its stamp.

    `word` is the granule; `other` and `access` name the kinds of the two, the earlier first.
    """

    lane: int
    word: int
    stamp: int
    access: tuple[str, str]
    count: int
    line: int | None = None


def refined(note: Note, factor: int) -> Note:
    """The note in granules smaller by a factor."""
    return replace(note, granules=note.granules * factor)


def both_strong(old: Array, stamps: Array, order: Ordering) -> Array:
    """Whether both accesses are strong and the scope of each covers the other's thread."""
    both = (old & stamps & STRONG) != 0
    narrow = ((old | stamps) & BLOCK_SCOPE) != 0
    if both.any() and narrow.any():
        block = ((old & TID_MASK) - 1) // order.width
        mine = ((stamps & TID_MASK) - 1) // order.width
        both = both & (~narrow | (block == mine))
    return np.asarray(both)


def merged_stamps(old: Array, stamps: Array, order: Ordering) -> Array:
    """The reader stamps after further reads: the newest, marked where others still count."""
    other = (old != 0) & (((old & TID_MASK) != (stamps & TID_MASK)) | ((old & MULTI) != 0))
    if not other.any():
        return stamps
    first, width = order.first, order.width
    row = ((old & TID_MASK) - 1 - first) // width
    mine = ((stamps & TID_MASK) - 1 - first) // width
    inside = (row >= 0) & (row < order.blocks) & (row == mine)
    sequence = (old >> SEQUENCE_SHIFT) & SEQUENCE_MASK
    seen = order.block_seen[np.where(inside, row, 0)]
    past = inside & (sequence < seen) & ((old & SEVERAL_BLOCKS) == 0)
    spread = np.where(row == mine, old & SEVERAL_BLOCKS, SEVERAL_BLOCKS)
    flags = np.where(other & ~past, MULTI | spread | (old & BLOCK_SCOPE), 0)
    weak = other & ~past & ((old & STRONG) == 0)
    return np.asarray(np.where(weak, (stamps & ~STRONG) | flags, stamps | flags))
