"""Memory that two processes see: an anonymous shared file, sent as a descriptor.

Results are downloaded straight into arrays that lie in it, so that a gigabyte reaches the other
process without being copied again. Making pages takes longer than a device needs to fill them, so
a large file is used again (`Files`) once the other process has told that nobody looks at it any
more; small ones are not worth a descriptor.
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

__all__ = ["LEAST", "Arena", "Files", "mapped"]

LEAST = 4096
REUSED_BYTES = 4 << 20
SPARE_BYTES = 1 << 30
MOST_FILES = 64
_TIMES_LARGER = 4
_WRITE = 1 << 30


class File:
    """A memfd with its pages mapped as far as `pages` goes; `number` is 0 unless it is lent."""

    def __init__(self) -> None:
        self.number = 0
        self.descriptor = os.memfd_create("ptxsearch", os.MFD_CLOEXEC)
        self.length = 0
        self.pages: mmap.mmap | None = None

    def grow(self, length: int) -> None:
        """Make the file at least `length` bytes long."""
        if length > self.length:
            os.ftruncate(self.descriptor, length)
            self.length = length

    def map(self) -> None:
        """Map all of it."""
        if self.length and (self.pages is None or len(self.pages) < self.length):
            self.pages = _populated(self.descriptor, self.length, 0)

    def close(self) -> None:
        """Close this side's descriptor; what is mapped stays."""
        os.close(self.descriptor)


class Files:
    """Large files: those that were sent, until the receiver is done with them, and spare ones.

    At most `MOST_FILES` are sent at a time and as many spare, which take at most `SPARE_BYTES`;
    others are made, sent and forgotten.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._sent: dict[int, File] = {}
        self._spare: list[File] = []

    def take(self, size: int) -> File:
        """The smallest spare file for `size` bytes and more, none far too large, or a new one."""
        fitting = [f for f in self._spare if size <= f.length <= _TIMES_LARGER * size]
        if not fitting or size < REUSED_BYTES:
            return File()
        best = min(fitting, key=lambda file: file.length)
        self._spare.remove(best)
        best.map()
        return best

    def lend(self, file: File) -> None:
        """Number a file that is about to be sent, if it is to come back."""
        if file.length >= REUSED_BYTES and len(self._sent) < MOST_FILES:
            file.number = next(self._numbers)
            self._sent[file.number] = file

    def released(self, numbers: Iterable[int]) -> None:
        """Nobody looks at these any more."""
        for number in numbers:
            file = self._sent.pop(number)
            file.number = 0
            full = len(self._spare) >= MOST_FILES
            if full or sum(f.length for f in self._spare) + file.length > SPARE_BYTES:
                file.close()
                continue
            self._spare.append(file)


class Arena:
    """The arrays of one message in one file, of `files` where one is worth using again.

    Arrays stay valid after `close`.
    """

    def __init__(self, files: Files | None = None) -> None:
        self._files = files
        self._file: File | None = None
        self._used = 0
        self._offsets: dict[int, int] = {}

    @property
    def descriptor(self) -> int:
        """The file to send."""
        return self._opened(0).descriptor

    def array(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """An array in the file, its contents anything; one below `LEAST` bytes lies elsewhere."""
        size = prod(shape) * dtype.itemsize
        if size < LEAST:
            return np.zeros(shape, dtype)
        file, offset = self._opened(size), self._take(size)
        if file.pages is not None and self._used <= len(file.pages):
            pages, start = file.pages, offset
        else:
            pages, start = _populated(file.descriptor, size, offset), 0
        array: Array = np.ndarray(tuple(shape), dtype, buffer=pages, offset=start)
        self._offsets[array.ctypes.data] = offset
        return array

    def put(self, buffer: memoryview) -> int:
        """The offset of a flat buffer of bytes in the file; one made elsewhere is copied in."""
        address = np.frombuffer(buffer, np.uint8).ctypes.data
        if address in self._offsets:
            return self._offsets[address]
        file, offset = self._opened(buffer.nbytes), self._take(buffer.nbytes)
        done = 0
        while done < buffer.nbytes:
            piece = buffer[done : done + _WRITE]
            done += os.pwrite(file.descriptor, piece, offset + done)
        return offset

    def lend(self) -> int:
        """The number under which the receiver releases the file; 0 where it need not."""
        if self._files is None or self._file is None:
            return 0
        self._files.lend(self._file)
        return self._file.number

    def close(self) -> None:
        """Close this side's descriptor, unless the file was lent."""
        if self._file is not None and not self._file.number:
            self._file.close()
        self._file = None

    def _opened(self, size: int) -> File:
        if self._file is None:
            self._file = File() if self._files is None else self._files.take(size)
        return self._file

    def _take(self, size: int) -> int:
        """The page where `size` more bytes begin."""
        offset = self._used
        self._used += -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        self._opened(size).grow(self._used)
        return offset


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
