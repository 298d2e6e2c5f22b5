"""Memory that two processes see: an anonymous shared file, sent as a descriptor.

Results are downloaded straight into arrays that lie in it, so that a gigabyte reaches the other
process without being copied again, and each of its pages is made once.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ptxsearch.evaluation import Array

__all__ = ["LEAST", "Arena", "mapped"]

LEAST = 4096
_WRITE = 1 << 30
_MOST_READY = 1 << 29
_POPULATED = mmap.MAP_SHARED | mmap.MAP_POPULATE


class Arena:
    """A memfd that grows page by page. Arrays stay valid after `close`."""

    def __init__(self) -> None:
        self._descriptor = -1
        self._size = 0
        self._ready: mmap.mmap | None = None
        self._offsets: dict[int, int] = {}

    @property
    def used(self) -> int:
        """Bytes that were taken of the file."""
        return self._size

    def prepare(self, size: int) -> None:
        """Make the pages of the first `size` bytes, half a gigabyte at most, before they are used.

        Making pages takes longer than a device needs to fill them; call it while nobody waits.
        """
        size = min(size, _MOST_READY)
        if size and not self._size:
            os.ftruncate(self.descriptor, size)
            self._ready = mmap.mmap(self.descriptor, size, flags=_POPULATED)

    @property
    def descriptor(self) -> int:
        """The file to send."""
        if self._descriptor < 0:
            self._descriptor = os.memfd_create("ptxsearch", os.MFD_CLOEXEC)
        return self._descriptor

    def array(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """An array of zeros in the file; one of less than `LEAST` bytes lies elsewhere."""
        size = prod(shape) * dtype.itemsize
        if size < LEAST:
            return np.zeros(shape, dtype)
        offset = self._grow(size)
        if self._ready is not None and self._size <= len(self._ready):
            pages, start = self._ready, offset
        else:
            pages = mmap.mmap(self.descriptor, size, flags=_POPULATED, offset=offset)
            start = 0
        array: Array = np.ndarray(tuple(shape), dtype, buffer=pages, offset=start)
        self._offsets[array.ctypes.data] = offset
        return array

    def put(self, buffer: memoryview) -> int:
        """The offset of a flat buffer of bytes in the file; one made elsewhere is copied in."""
        address = np.frombuffer(buffer, np.uint8).ctypes.data
        if address in self._offsets:
            return self._offsets[address]
        offset = self._grow(buffer.nbytes)
        done = 0
        while done < buffer.nbytes:
            piece = buffer[done : done + _WRITE]
            done += os.pwrite(self.descriptor, piece, offset + done)
        return offset

    def close(self) -> None:
        """Close this side's descriptor."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _grow(self, size: int) -> int:
        """The page where `size` more bytes begin."""
        offset = self._size
        self._size += -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        if self._ready is None or self._size > len(self._ready):
            os.ftruncate(self.descriptor, self._size)
        return offset


def mapped(descriptor: int, places: Sequence[tuple[int, int]]) -> list[memoryview]:
    """The buffers at (offset, bytes) of a file, copy-on-write: the receiver may write to them."""
    total = max(offset + size for offset, size in places)
    view = memoryview(mmap.mmap(descriptor, total, mmap.MAP_PRIVATE))
    return [view[offset : offset + size] for offset, size in places]
