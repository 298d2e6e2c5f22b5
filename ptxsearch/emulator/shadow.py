"""Who last wrote and read each word of an array of memory, and the races that this reveals.

A stamp is an int64: thread number + 1 in bits 0-29, `STRONG` (atomic or volatile, with
`BLOCK_SCOPE` only for its block), `ASYNC` (an asynchronous copy in flight), the event number from
bit 32, and for readers `MULTI` (others read it too) and `SEVERAL_BLOCKS`.

Reads are only noted in a list and enter the reader stamps when a write to the same array follows;
arrays that are never written cost next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ptxsearch.emulator.notes import (
    Conflict,
    Note,
    Values,
    base_stamp,
    both_strong,
    merged_stamps,
)
from ptxsearch.emulator.operation import Array
from ptxsearch.emulator.ordering import (
    ASYNC,
    MULTI,
    SEVERAL_BLOCKS,
    STRONG,
    TID_MASK,
    Ordering,
)
from ptxsearch.emulator.stamps import Stamps
from ptxsearch.emulator.where import Single, Where, apart

HISTORY_LIMIT = 1 << 22
"""Lanes of noted reads that are kept for exact questions; older ones are dropped."""

QUICK_NOTES = 64
"""Noted reads that a write is compared with one by one before the stamps are asked."""


class Shadow(Stamps):
    """Notes reads and writes of one array and finds those that nothing orders.

    In a private array what lies before the last barrier of every block needs no look at stamps.
    """

    def read(
        self,
        where: Where,
        size: int,
        lanes: Array,
        order: Ordering,
        line: int,
        flags: int = 0,
    ) -> Conflict | None:
        """Note a read by each lane; the first conflict with an earlier write, if any."""
        granules = self.granules(size)
        conflict = None
        note = Note(where, granules, lanes, line, base_stamp(order), flags)
        if self.writers is not None and self._recent(self.last_write, order):
            old = where.get(self._rows(self.writers, granules))
            conflict = self._conflict(old, note, order, "read")
            if conflict is not None:
                conflict = replace(conflict, line=self._line_of(conflict))
        self.pending.append(note)
        self.weight += lanes.size
        if self.weight > HISTORY_LIMIT:
            self.flush(order)
            self.history.clear()
            self.weight = 0
            self.complete = False
        return conflict

    def _recent(self, sequence: int, order: Ordering) -> bool:
        """Whether an event of that number may not be in the past of every thread."""
        return not self.private or self.in_flight > 0 or sequence >= order.oldest

    def _conflict(
        self,
        old: Array,
        note: Note,
        order: Ordering,
        access: str,
        changed: Callable[[], Array] | None = None,
    ) -> Conflict | None:
        """The first lane whose word carries the stamp of an unordered write by another.

        `changed` tells which lanes store something else than what is there.
        """
        stamps, lanes = note.stamps, note.lanes
        if old.ndim > 1:
            stamps = stamps[:, None]
        foreign = (old & (TID_MASK | ASYNC)) != (stamps & TID_MASK)
        foreign &= old != 0
        if not foreign.any():
            return None
        foreign &= ~both_strong(old, stamps, order)
        foreign = np.broadcast_to(foreign, (lanes.size, *foreign.shape[1:]))
        at = np.nonzero(foreign)
        if not at[0].size:
            return None
        found = np.broadcast_to(old, foreign.shape)[at]
        mine = lanes[at[0]]
        bad = ~order.ordered(found, mine) | ((found & ASYNC) != 0)
        if changed is not None and bad.any():
            differs = np.broadcast_to(changed(), lanes.shape)[at[0]]
            self.same_value |= bool((bad & ~differs).any())
            bad &= differs
        if not bad.any():
            return None
        first = int(bad.argmax())
        element = int(note.where.indices()[at[0][first]])
        word = element * note.granules + (int(at[1][first]) if len(at) > 1 else 0)
        return Conflict(
            int(mine[first]),
            word,
            int(found[first]),
            ("async write" if int(found[first]) & ASYNC else "write", access),
            int(np.unique(at[0][bad]).size),
        )

    def flush(self, order: Ordering) -> None:
        """Enter the noted reads into the reader stamps."""
        if not self.pending:
            return
        if self.readers is None:
            self.readers = self._empty()
        elif not self._recent(self.flushed, order):
            self.readers[:] = 0
        self.flushed = order.sequence.now
        for note in self.pending:
            self._enter(note, order)
        self.history += self.pending
        self.pending = []

    def _enter(self, note: Note, order: Ordering) -> None:
        readers = self._rows(self.readers, note.granules)  # type: ignore[arg-type]
        stamps = note.stamps if note.granules == 1 else note.stamps[:, None]
        old = note.where.get(readers)
        if old.any():
            stamps = merged_stamps(old, stamps, order)
        if isinstance(note.where, Single) and stamps.shape[0] > 1:
            marked = stamps[-1:] | MULTI
            note.where.put(readers, marked[0] if marked.ndim > 1 else marked)
            return
        note.where.put(readers, stamps)
        if not note.where.unique:
            back = note.where.get(readers)
            lost = (back & TID_MASK) != (stamps & TID_MASK)
            if lost.any():
                where = note.where.indices()
                rows = np.flatnonzero(lost if lost.ndim == 1 else lost.any(axis=1))
                readers[where[rows]] |= MULTI

    def write(
        self,
        where: Where,
        size: int,
        lanes: Array,
        order: Ordering,
        line: int,
        values: Values,
        flags: int = 0,
    ) -> Conflict | None:
        """Note a write by each lane; the first conflict with an earlier access, if any.

        Two writes of one value are no conflict; `values` is asked only where two meet.
        """
        granules = self.granules(size)
        note = Note(where, granules, lanes, line, base_stamp(order), flags)
        stamps = note.stamps
        conflict = None
        if self.pending and not self._harmless(note):
            self.flush(order)
        if self.readers is not None and self._recent(self.flushed, order):
            conflict = self._after_reads(where, granules, stamps, lanes, order)
        fresh = self.writers is None
        if fresh:
            self.writers = self._no_writers()
        writers = self._rows(self.writers, granules)  # type: ignore[arg-type]
        if not fresh and conflict is None and self._recent(self.last_write, order):
            old = where.get(writers)
            if old.any():
                conflict = self._conflict(old, note, order, "write", values.changed)
        where.put(writers, stamps if granules == 1 else stamps[:, None])
        if not where.unique and lanes.size > 1 and conflict is None:
            conflict = self._meeting(note, writers, stamps, order, values)
        self.last_write = order.sequence.now
        if conflict is not None:
            conflict = replace(conflict, line=conflict.line or self._line_of(conflict))
        self.written.append(note)
        return conflict

    def _harmless(self, write: Note) -> bool:
        """Whether the noted reads are plainly those of the same threads or of other words."""
        if len(self.pending) > QUICK_NOTES:
            return False
        where, granules = write.where, write.granules
        for note in self.pending:
            same = note.lanes is write.lanes and (note.base ^ write.base) & TID_MASK == 0
            same = same and note.granules == granules and where.unique and note.where == where
            if not same and not apart(note.where, note.granules, where, granules):
                return False
        return True

    def _meeting(
        self, note: Note, writers: Array, stamps: Array, order: Ordering, values: Values
    ) -> Conflict | None:
        """Two lanes that store different values to one word in this very instruction."""
        where, granules, lanes, line = note.where, note.granules, note.lanes, note.line
        back = where.get(writers)
        if back.ndim > 1:
            back = back[:, 0]
        lost = (back & TID_MASK) != (stamps & TID_MASK)
        if not lost.any() or bool(stamps[0] & STRONG):
            return None
        rows = np.flatnonzero(lost)
        winner = np.broadcast_to(back, lanes.shape)[rows]
        winners = np.searchsorted(lanes, (winner & TID_MASK) - 1 - order.first)
        bad = values.differ(rows, winners)
        if not bad.all():
            self.same_value = True
        if not bad.any():
            return None
        first = int(bad.argmax())
        word = int(where.indices()[rows[first]]) * granules
        kinds = ("write", "write")
        count = int(np.count_nonzero(bad))
        lane = int(lanes[rows[first]])
        return Conflict(lane, word, int(winner[first]), kinds, count, line)

    def _after_reads(
        self, where: Where, granules: int, stamps: Array, lanes: Array, order: Ordering
    ) -> Conflict | None:
        old = where.get(self._rows(self.readers, granules))  # type: ignore[arg-type]
        mine = stamps if granules == 1 else stamps[:, None]
        foreign = (old & TID_MASK) != (mine & TID_MASK)
        foreign |= (old & MULTI) != 0
        foreign &= old != 0
        if not foreign.any():
            return None
        foreign &= ~both_strong(old, mine, order)
        foreign = np.broadcast_to(foreign, (lanes.size, *foreign.shape[1:]))
        at = np.nonzero(foreign)
        if not at[0].size:
            return None
        found = np.broadcast_to(old, foreign.shape)[at]
        suspect = ~order.ordered(found, lanes[at[0]])
        suspect |= (found & SEVERAL_BLOCKS) != 0
        if not suspect.any():
            return None
        rows = at[0][suspect]
        words = where.indices()[rows] * granules
        if len(at) > 1:
            words = words + at[1][suspect]
        if not self.complete:
            return self._by_stamp(words, lanes[rows], stamps[rows], found[suspect], order)
        return self._exact(words, lanes[rows], stamps[rows], order)

    @staticmethod
    def _by_stamp(
        words: Array, lanes: Array, stamps: Array, found: Array, order: Ordering
    ) -> Conflict | None:
        """The first of the suspects where notes were dropped and the newest reader is certain.

        What only barriers order is certain. Else the newest reader must be another thread that
        is not ordered, and a mark of several readers may hide that it was strong.
        """
        at = 0
        if not order.simple:
            sure = (found & TID_MASK) != (stamps & TID_MASK)
            sure &= ((found & MULTI) == 0) | ((stamps & STRONG) == 0)
            sure &= ~order.ordered(found, lanes)
            if not sure.any():
                return None
            at = int(sure.argmax())
        kinds = ("read", "write")
        return Conflict(int(lanes[at]), int(words[at]), int(found[at]), kinds, lanes.size)

    def _exact(self, words: Array, lanes: Array, stamps: Array, order: Ordering) -> Conflict | None:
        """The first noted read of one of the words that is not ordered before its writer."""
        limit = -(-self.size // self.granule)
        owner = np.full(limit, -1, np.int64)
        owner[words] = np.arange(words.size)
        for note in reversed(self.history):
            index = note.where.indices()
            for part in range(note.granules):
                hit = owner[index * note.granules + part]
                rows = np.flatnonzero(hit >= 0)
                if not rows.size:
                    continue
                read = np.broadcast_to(note.stamps, index.shape)[rows]
                writer = hit[rows]
                same = (read & TID_MASK) == (stamps[writer] & TID_MASK)
                same |= both_strong(read, stamps[writer], order)
                bad = ~same & ~order.ordered(read, lanes[writer])
                if bad.any():
                    at = int(bad.argmax())
                    return Conflict(
                        int(lanes[writer[at]]),
                        int(words[writer[at]]),
                        int(read[at]),
                        ("read", "write"),
                        int(np.unique(writer[bad]).size),
                        note.line,
                    )
        return None
