"""Memory that two processes see: an anonymous shared file, sent as a descriptor.

Results are downloaded straight into arrays that lie in it, so that a gigabyte reaches the other
process without being copied again. Making pages takes longer than a device needs to fill them, so
an arena is used again (`Arenas`) once the other process has told that nobody looks at it any more.
"""

from __future__ import annotations

import itertools
import mmap
import os
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np

from ptxsearch.evaluation import Array

__all__ = ["LEAST", "Arena", "Arenas", "mapped"]

LEAST = 4096
SPARE_BYTES = 1 << 30
_WRITE = 1 << 30


class Arena:
    """A memfd that grows page by page. Arrays stay valid after `close`."""

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self._descriptor = -1
        self._length = self._used = 0
        self._pages: mmap.mmap | None = None
        self._offsets: dict[int, int] = {}

    @property
    def descriptor(self) -> int:
        """The file to send."""
        if self._descriptor < 0:
            self._descriptor = os.memfd_create("ptxsearch", os.MFD_CLOEXEC)
        return self._descriptor

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        return self._length

    def array(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """An array in the file, its contents anything; one below `LEAST` bytes lies elsewhere."""
        size = prod(shape) * dtype.itemsize
        if size < LEAST:
            return np.zeros(shape, dtype)
        offset = self._take(size)
        if self._pages is not None and self._used <= len(self._pages):
            pages, start = self._pages, offset
        else:
            pages, start = _populated(self.descriptor, size, offset), 0
        array: Array = np.ndarray(tuple(shape), dtype, buffer=pages, offset=start)
        self._offsets[array.ctypes.data] = offset
        return array

    def put(self, buffer: memoryview) -> int:
        """The offset of a flat buffer of bytes in the file; one made elsewhere is copied in."""
        address = np.frombuffer(buffer, np.uint8).ctypes.data
        if address in self._offsets:
            return self._offsets[address]
        offset = self._take(buffer.nbytes)
        done = 0
        while done < buffer.nbytes:
            piece = buffer[done : done + _WRITE]
            done += os.pwrite(self.descriptor, piece, offset + done)
        return offset

    def reset(self) -> None:
        """Forget the arrays, whose pages are used again from now on."""
        self._used = 0
        self._offsets.clear()
        if self._length and (self._pages is None or len(self._pages) < self._length):
            self._pages = _populated(self.descriptor, self._length, 0)

    def close(self) -> None:
        """Close this side's descriptor."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _take(self, size: int) -> int:
        """The page where `size` more bytes begin."""
        offset = self._used
        self._used += -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        if self._used > self._length:
            self._length = self._used
            os.ftruncate(self.descriptor, self._length)
        return offset


class Arenas:
    """Arenas by number: those that were sent, until the receiver is done with them, and spare ones.

    Spare ones take at most `SPARE_BYTES`.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._sent: dict[int, Arena] = {}
        self._spare: list[Arena] = []

    def take(self) -> Arena:
        """A spare arena, or a new one."""
        return self._spare.pop() if self._spare else Arena(next(self._numbers))

    def sent(self, arena: Arena) -> None:
        """Keep an arena that the other process looks at now."""
        self._sent[arena.number] = arena

    def released(self, numbers: Iterable[int]) -> None:
        """Nobody looks at these any more."""
        for number in numbers:
            self.spare(self._sent.pop(number))

    def spare(self, arena: Arena) -> None:
        """Keep an arena that nobody uses, unless there are enough."""
        if sum(other.nbytes for other in self._spare) + arena.nbytes > SPARE_BYTES:
            arena.close()
            return
        arena.reset()
        self._spare.append(arena)


def _populated(descriptor: int, size: int, offset: int) -> mmap.mmap:
    flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
    return mmap.mmap(descriptor, size, flags=flags, offset=offset)


def mapped(
    descriptor: int, places: Sequence[tuple[int, int]]
) -> tuple[mmap.mmap, list[memoryview]]:
    """The pages of a file and the buffers at (offset, bytes) in them.

    They are copy-on-write: the receiver may write to them. They live as long as any of the buffers.
    """
    total = max(offset + size for offset, size in places)
    pages = mmap.mmap(descriptor, total, mmap.MAP_PRIVATE)
    view = memoryview(pages)
    return pages, [view[offset : offset + size] for offset, size in places]
