"""What is ordered before what: barrier counts for the common case, clocks for the rest.

Every synchronising event of a launch gets the next number of one sequence. An access is stamped
with the number that was current; it is ordered before a thread's present if the thread has seen
an event with a higher number that covered it:

* a barrier of the whole block (a number for each block),
* a barrier of some warps (a matrix of warps by warps for each block),
* a warp synchronisation (a matrix of lanes by lanes for each warp),
* a chain of a fence, atomics on one word and a read of it (ledgers of words, seen by the few
  threads that take part in one).
"""

from __future__ import annotations

import numpy as np

from ptxsearch.emulator.clock import Clock, Ledger, Views, knows, merged
from ptxsearch.emulator.operation import Array

TID_MASK = (1 << 30) - 1
STRONG = 1 << 30
ASYNC = 1 << 31
LOW_MASK = (1 << 32) - 1
SEQUENCE_SHIFT = 32
MULTI = 1 << 62
SEVERAL_BLOCKS = 1 << 61
BLOCK_SCOPE = 1 << 60
SEQUENCE_MASK = (1 << 28) - 1


class Sequence:
    """The counter of a launch's synchronising events."""

    def __init__(self) -> None:
        self.now = 1

    def next(self) -> int:
        """The number of a new event."""
        self.now += 1
        return self.now


class Ordering:
    """The happens-before relation as the threads of one chunk of blocks see it.

    Threads are numbered over the launch: `first` is the number of lane 0, `width` the lanes of a
    block.
    """

    def __init__(self, sequence: Sequence, first: int, blocks: int, width: int) -> None:
        self.sequence = sequence
        self.first = first
        self.width = width
        self.blocks = blocks
        self.block_seen = np.zeros(blocks, np.int64)
        self.oldest = 0
        self.warp_seen: Array | None = None
        self.lane_seen: Array | None = None
        self.warps_seen: Array | None = None
        self.block_views: dict[int, Views] = {}
        self.thread_views: dict[int, Views] = {}
        self.published: dict[int, Clock] = {}

    @property
    def simple(self) -> bool:
        """Whether nothing but barriers of whole blocks has ordered anything so far."""
        clocks = self.block_views or self.thread_views
        return not clocks and self.warp_seen is None and self.warps_seen is None

    def barrier(self, rows: Array | None) -> None:
        """Order everything that the threads of the block rows did (all rows for None)."""
        now = self.sequence.next()
        if rows is None:
            self.block_seen[:] = now
            self.oldest = now
        else:
            self.block_seen[rows] = now
            self.oldest = int(self.block_seen.min())
        if self.thread_views:
            self._join_clocks(rows)

    def _join_clocks(self, rows: Array | None) -> None:
        wanted = None if rows is None else set(rows.tolist())
        for lane in list(self.thread_views):
            row = lane // self.width
            if wanted is None or row in wanted:
                mine = self.thread_views.pop(lane)
                self.block_views[row] = merged(self.block_views.get(row, {}), mine)

    def partial_barrier(self, row: int, arrived: list[int], waiting: list[int]) -> None:
        """Order what the warps `arrived` did before the present of the warps `waiting`."""
        now = self.sequence.next()
        warps = self.width // 32
        if self.warps_seen is None:
            self.warps_seen = np.zeros((self.blocks, warps, warps), np.int64)
        seen = self.warps_seen[row]
        joined = seen[arrived].max(axis=0)
        joined[arrived] = now
        for warp in waiting:
            seen[warp] = np.maximum(seen[warp], joined)
        if self.thread_views:
            self._share(self._lanes(row, arrived), self._lanes(row, waiting))

    def _lanes(self, row: int, warps: list[int]) -> list[int]:
        return [row * self.width + warp * 32 + lane for warp in warps for lane in range(32)]

    def _share(self, givers: list[int], takers: list[int]) -> None:
        given: Views = {}
        for lane in givers:
            given = merged(given, self.thread_views.get(lane, {}))
        if given:
            for lane in takers:
                self.thread_views[lane] = merged(self._own(lane), given)

    def warp_sync(self, warps: Array, masks: Array) -> None:
        """Order the lanes of `masks` (bool, one row of 32 for each warp) among themselves."""
        now = self.sequence.next()
        total = self.blocks * self.width // 32
        if self.warp_seen is None:
            self.warp_seen = np.zeros(total, np.int64)
        full = masks.all(axis=1)
        if bool(full.all()):
            self.warp_seen[warps] = now
        else:
            if self.lane_seen is None:
                self.lane_seen = np.zeros((total, 32, 32), np.int64)
            seen = self.lane_seen[warps]
            joined = np.where(masks[:, :, None], seen, 0).max(axis=1)
            joined = np.where(masks, now, joined)
            update = np.where(masks[:, :, None], np.maximum(seen, joined[:, None, :]), seen)
            self.lane_seen[warps] = update
        if self.thread_views:
            for warp, mask in zip(warps.tolist(), masks, strict=True):
                lanes = [warp * 32 + int(lane) for lane in np.flatnonzero(mask)]
                self._share(lanes, lanes)

    def _own(self, lane: int) -> Views:
        """What the thread learned through fences and atomics."""
        return self.thread_views.get(lane) or self.block_views.get(lane // self.width) or {}

    def publish(self, lane: int) -> None:
        """Note that a fence made everything the thread knows visible to others."""
        self.published[lane] = self.knowledge(lane)

    def knowledge(self, lane: int) -> Clock:
        """Everything ordered before the thread's present, its own accesses included."""
        row = lane // self.width
        block = self.first // self.width + row
        threads: dict[int, int] = {}
        first = self.first + row * self.width
        warp = (lane % self.width) // 32
        if self.warps_seen is not None:
            for other, seen in enumerate(self.warps_seen[row, warp].tolist()):
                if seen:
                    for peer in range(32):
                        _note(threads, first + other * 32 + peer, seen)
        base = lane // 32 * 32
        if self.warp_seen is not None and self.warp_seen[lane // 32]:
            for peer in range(32):
                _note(threads, self.first + base + peer, int(self.warp_seen[lane // 32]))
        if self.lane_seen is not None:
            for peer, seen in enumerate(self.lane_seen[lane // 32, lane % 32].tolist()):
                if seen:
                    _note(threads, self.first + base + peer, seen)
        _note(threads, self.first + lane, self.sequence.next())
        return Clock({block: int(self.block_seen[row])}, threads, self._own(lane))

    def learn(self, lane: int, ledger: Ledger, version: int) -> None:
        """Note that the thread synchronised with a word whose ledger was at a version."""
        mine = self._own(lane)
        if mine.get(ledger, 0) < version:
            self.thread_views[lane] = {**mine, ledger: version}

    def ordered(self, stamps: Array, lanes: Array) -> Array:
        """Whether each stamped access (not by the lane itself) lies in the past of each lane."""
        thread = (stamps & TID_MASK) - 1 - self.first
        sequence = (stamps >> SEQUENCE_SHIFT) & SEQUENCE_MASK
        row = lanes // self.width
        inside = thread // self.width == row
        past: Array = inside & (sequence < self.block_seen[row])
        local = np.where(inside, thread, lanes)
        if self.warps_seen is not None:
            mine, theirs = lanes % self.width // 32, local % self.width // 32
            past |= inside & (sequence < self.warps_seen[row, mine, theirs])
        if self.warp_seen is not None:
            same = inside & (local // 32 == lanes // 32)
            past |= same & (sequence < self.warp_seen[lanes // 32])
            if self.lane_seen is not None:
                past |= same & (sequence < self.lane_seen[lanes // 32, lanes % 32, local % 32])
        if self.block_views or self.thread_views:
            self._by_clock(past, thread + self.first, sequence, lanes)
        return past

    def _by_clock(self, past: Array, thread: Array, sequence: Array, lanes: Array) -> None:
        """Settle by ledgers what barriers left open: whole blocks first, then single threads."""
        if not self.thread_views:
            self._by_block(past, thread, sequence, lanes)
        for at in np.flatnonzero(~past).tolist():
            views = self._own(int(lanes[at]))
            if views:
                number = int(thread[at])
                past[at] = knows(views, number // self.width, number, int(sequence[at]))

    def _by_block(self, past: Array, thread: Array, sequence: Array, lanes: Array) -> None:
        """One question for all accesses of a block that a block asks about."""
        open_ = np.flatnonzero(~past)
        rows, blocks = lanes[open_] // self.width, thread[open_] // self.width
        kinds, which = np.unique(rows << 32 | blocks & 0xFFFFFFFF, return_inverse=True)
        newest = np.zeros(kinds.size, np.int64)
        np.maximum.at(newest, which.reshape(-1), sequence[open_])
        known = [
            knows(self.block_views.get(row, {}), block, -1, upto)
            for row, block, upto in zip(
                (kinds >> 32).tolist(), (kinds & 0xFFFFFFFF).tolist(), newest.tolist(), strict=True
            )
        ]
        past[open_] = np.array(known, np.bool_)[which.reshape(-1)]


def _note(threads: dict[int, int], thread: int, seen: int) -> None:
    if threads.get(thread, -1) < seen:
        threads[thread] = seen
