"""The stamps of one array of memory: storage, granules, and what was never written."""

from __future__ import annotations

from collections import deque

import numpy as np

from ptxsearch.emulator.notes import Conflict, Note, refined
from ptxsearch.emulator.operation import Array
from ptxsearch.emulator.ordering import SEQUENCE_SHIFT
from ptxsearch.emulator.where import List, Where

WRITES_KEPT = 64
"""Notes of writes that are kept to tell the line of the other side of a race."""


class Stamps:
    """The stamps of an array of `size` bytes, kept for each `granule` bytes.

    A `private` array belongs to single blocks (shared memory). `in_flight` counts asynchronous
    writes to it. `unused` marks, over the bytes of one block, those that no variable covers.
    `same_value` tells that unordered threads stored one value to one word.
    """

    def __init__(
        self, size: int, granule: int = 4, *, private: bool = False, unused: Array | None = None
    ) -> None:
        self.size = size
        self.granule = granule
        self.private = private
        self.unused = unused
        self.full = False
        self.tested = -1
        self.in_flight = 0
        self.flushed = 0
        self.writers: Array | None = None
        self.readers: Array | None = None
        self.pending: list[Note] = []
        self.history: list[Note] = []
        self.written: deque[Note] = deque(maxlen=WRITES_KEPT)
        self.weight = 0
        self.complete = True
        self.last_write = 0
        self.same_value = False

    def refine(self, granule: int) -> None:
        """Go over to smaller granules, as an access narrower than the present ones demands."""
        factor = self.granule // granule
        length = -(-self.size // granule)
        for name in ("writers", "readers"):
            old = getattr(self, name)
            if old is not None:
                setattr(self, name, np.repeat(old, factor)[:length])
        self.pending = [refined(note, factor) for note in self.pending]
        self.written = deque((refined(note, factor) for note in self.written), WRITES_KEPT)
        self.history = [refined(note, factor) for note in self.history]
        self.granule = granule

    def _rows(self, array: Array, granules: int) -> Array:
        if granules == 1:
            return array
        return array[: array.size // granules * granules].reshape(-1, granules)

    def granules(self, size: int) -> int:
        """How many granules an access of `size` bytes covers, after refining where needed."""
        if size < self.granule:
            self.refine(size)
        return size // self.granule

    def _empty(self) -> Array:
        return np.zeros(-(-self.size // self.granule), np.int64)

    def _no_writers(self) -> Array:
        """Stamps before the first write; bytes that belong to nobody count as written."""
        writers = self._empty()
        if self.unused is not None:
            gaps = self.unused[:: self.granule]
            writers.reshape(-1, gaps.size)[:, gaps] = 1 << SEQUENCE_SHIFT
        return writers

    def forget(self) -> None:
        """Drop noted reads that a barrier of every thread has put into the past."""
        self.pending.clear()
        self.history.clear()
        self.weight = 0
        self.complete = True

    def _line_of(self, conflict: Conflict) -> int | None:
        """The line of the write that left the stamp of a conflict, where still known."""
        for note in reversed(self.written):
            at = np.flatnonzero(note.where.indices() == conflict.word // note.granules)
            if at.size:
                wide = np.broadcast_to(note.stamps, (max(int(at[-1]) + 1, note.lanes.size),))
                if conflict.stamp in wide[at]:
                    return note.line
        return None

    def unwritten(self, where: Where, size: int) -> Array | None:
        """Which bytes each lane reads that nothing has written; None where all are written."""
        if self.full:
            return None
        granules = self.granules(size)
        if self.writers is None:
            self.writers = self._no_writers()
        if self.tested != self.last_write:
            self.tested = self.last_write
            self.full = bool(self.writers.all())
            if self.full:
                return None
        bad = where.get(self._rows(self.writers, granules)) == 0
        return np.repeat(bad.reshape(-1, granules), self.granule, axis=1) if bad.any() else None

    def landed(self, elements: Array, size: int, stamps: Array, lanes: Array, line: int) -> None:
        """An asynchronous write of elements of `size` bytes has arrived, for its issuers."""
        granules = self.granules(size)
        if self.writers is not None:
            rows = self._rows(self.writers, granules)
            rows[elements] = stamps if granules == 1 else stamps[:, None]
        self.last_write = int(stamps.max()) >> SEQUENCE_SHIFT
        base = int(stamps[0] - lanes[0])
        self.written.append(Note(List(elements), granules, lanes, line, base, 0))

    def unwrite(self, elements: Array, size: int, undefined: Array) -> None:
        """Take bytes (a row for each element of `size` bytes) as never written."""
        self.granules(1)
        if self.writers is not None:
            whole = self.writers.size // size * size
            rows = self.writers[:whole].reshape(-1, size)
            rows[elements] = np.where(undefined, 0, rows[elements])
        self.full, self.tested = False, -1

    def read_bytes(self) -> Array:
        """A bool for each byte telling whether a thread read it."""
        mark = np.zeros(-(-self.size // self.granule), np.bool_)
        if self.readers is not None:
            mark |= self.readers != 0
        for note in self.pending:
            note.where.put(self._rows(mark, note.granules), True)
        return np.repeat(mark, self.granule)[: self.size]

    def written_bytes(self) -> Array:
        """A bool for each byte telling whether a thread wrote it."""
        if self.writers is None:
            return np.zeros(self.size, np.bool_)
        return np.repeat(self.writers != 0, self.granule)[: self.size]
