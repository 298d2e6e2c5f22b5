"""The addresses of one instruction: their range, their place, and what the memory makes of them.

A pattern is computed once for a register's value and serves every access through that register:
an immediate offset shifts a place and leaves sectors and bank conflicts as they were.
"""

from __future__ import annotations

import numpy as np

from ptxsearch.emulator.lanes import Active
from ptxsearch.emulator.operation import Array
from ptxsearch.emulator.where import Where, place

SECTOR = 32
BANK_BYTES = 4
BANKS = 32


class Pattern:
    """The values of an address register over the active lanes."""

    __slots__ = ("_cache", "_misfit", "_places", "active", "address", "hi", "lanes", "lo", "source")

    def __init__(self, source: Array, active: Active | None, lanes: int) -> None:
        self.source = source
        self.active = active
        self.lanes = lanes if active is None else active.count
        picked = source if active is None or source.size == 1 else source[active.index]
        self.address: Array = (
            picked.view(np.int64) if picked.dtype.itemsize == 8 else picked.astype(np.int64)
        )
        self.lo = int(self.address.min())
        self.hi = int(self.address.max())
        self._misfit = -1
        self._places: dict[tuple[int, int, int], Where] = {}
        self._cache: dict[tuple[str, int], int] = {}

    def serves(self, source: Array, active: Active | None, lanes: int) -> bool:
        """Whether the pattern is that of this register value, or an equal one, and these lanes."""
        if self.active is not active or (active is None and self.lanes != lanes):
            return False
        return self.source is source or self._adopt(source)

    def _adopt(self, source: Array) -> bool:
        """Take over another register value if it is equal; whether it is."""
        mine = self.source
        if mine.size != source.size or mine.dtype != source.dtype:
            return False
        if mine[0] != source[0] or mine[-1] != source[-1] or not np.array_equal(mine, source):
            return False
        self.source = source
        return True

    def aligned(self, size: int, offset: int) -> bool:
        """Whether every address + offset is a multiple of `size`."""
        if self._misfit < 0:
            self._misfit = int(np.bitwise_or.reduce(self.address & 31))
        if offset % size == 0:
            return self._misfit & (size - 1) == 0
        return not bool(((self.address + offset) & (size - 1)).any())

    def place(
        self, size: int, offset: int, base: int, rows: Array | None, stride: int = 0
    ) -> Where:
        """Where address + offset - base (+ the row of each lane) lies, in elements of `size`.

        `stride` is what `rows` was made from: rows of one stride are equal.
        """
        if offset % size or not self.aligned(size, 0):
            return place(self._flat(rows) + (offset - base), self.lanes, size)
        key = (size, base, stride)
        found = self._places.get(key)
        if found is None:
            flat = self._flat(rows)
            found = place(flat - base if base else flat, self.lanes, size)
            self._places[key] = found
        return found.shifted(offset // size) if offset else found

    def _flat(self, rows: Array | None) -> Array:
        if rows is None:
            return self.address
        picked = rows if self.active is None else rows[self.active.index]
        return self.address + picked

    @property
    def warps(self) -> int:
        """How many warps take part."""
        return self.lanes // 32 if self.active is None else self.active.warps

    def sectors(self, offset: int) -> int:
        """Distinct 32-byte sectors, summed over the warps."""
        key = ("sectors", offset % SECTOR)
        found = self._cache.get(key)
        if found is None:
            found = self._sectors(offset % SECTOR)
            self._cache[key] = found
        return found

    def lines(self, offset: int) -> int:
        """Distinct 128-byte lines, summed over the warps."""
        return self._units(7, offset % 128)

    def distinct(self, size: int) -> int:
        """Distinct elements of `size` bytes, summed over the warps."""
        key = ("distinct", size)
        found = self._cache.get(key)
        if found is None:
            found = self._units(size.bit_length() - 1, 0)
            self._cache[key] = found
        return found

    def _sectors(self, offset: int) -> int:
        return self._units(5, offset)

    def _units(self, shift: int, offset: int) -> int:
        """Distinct units of 2**shift bytes, summed over the warps."""
        if self.address.size == 1 or self.lo == self.hi:
            return self.warps
        sector = (self.address + offset) >> shift
        if self.active is None:
            return _distinct(sector.reshape(-1, 32))
        keys = ((self.active.index >> 5) << 44) + (sector - (self.lo >> shift))
        return _distinct(keys[None, :])

    def local_sectors(self, size: int, offset: int) -> int:
        """Sectors of local memory, where the words of a warp's lanes lie side by side."""
        words = max(size // 4, 1)
        if self.address.size == 1:
            warps = self.warps
            lanes = self.lanes if self.active is None else self.active.count
            return words * max(-(-lanes // 8), warps)
        lane = np.arange(self.lanes) if self.active is None else self.active.index
        word = (self.address + offset) >> 2
        keys = ((lane >> 5) << 40) + (word << 2) + ((lane & 31) >> 3)
        return words * int(np.unique(keys).size)

    def wavefronts(self, size: int) -> int:
        """Passes that shared memory needs for accesses of `size` bytes, over all warps."""
        key = ("wavefronts", size)
        found = self._cache.get(key)
        if found is None:
            found = self._wavefronts(max(size, BANK_BYTES))
            self._cache[key] = found
        return found

    def phases(self, size: int) -> int:
        """Passes that remain where no two lanes meet in a bank."""
        width = BANKS * BANK_BYTES // max(size, BANK_BYTES)
        if self.active is None:
            return self.lanes // width
        if width == 32:
            return self.active.warps
        group = self.active.index // width
        return int(np.count_nonzero(group[1:] != group[:-1])) + 1

    def _wavefronts(self, size: int) -> int:
        if self.address.size == 1:
            return self.phases(size)
        width = BANKS * BANK_BYTES // size
        unit = self.address >> (size.bit_length() - 1)
        if self.active is None:
            rows = unit.reshape(-1, width)
            relative = rows - rows[:, :1]
            if bool((relative == relative[0]).all()):
                return rows.shape[0] * _degree(relative[:1], np.zeros(width, np.int64), width)
            owner = np.repeat(np.arange(rows.shape[0]), width)
        else:
            group = self.active.index // width
            owner = np.concatenate(([0], np.cumsum(group[1:] != group[:-1])))
        return _degree(unit, owner, width)


def _distinct(rows: Array) -> int:
    """Distinct values, summed over the rows."""
    steps = rows[:, 1:] - rows[:, :-1]
    if steps.size and int(steps.min()) < 0:
        rows = np.sort(rows, axis=1)
        steps = rows[:, 1:] - rows[:, :-1]
    return int(rows.shape[0]) + int(np.count_nonzero(steps))


def _degree(unit: Array, owner: Array, banks: int) -> int:
    """For each owner the largest number of distinct units in one bank, summed."""
    keys = np.sort((owner << 44) + (unit.reshape(-1) & ((1 << 44) - 1)))
    fresh = np.concatenate(([True], keys[1:] != keys[:-1]))
    keys = keys[fresh]
    groups = int(owner[-1]) + 1
    counts = np.bincount((keys >> 44) * banks + keys % banks, minlength=groups * banks)
    return int(counts.reshape(groups, banks).max(axis=1).sum())
