"""Which sectors of each buffer a sample of blocks reads: what caches and DRAM must deliver."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ptxsearch.emulator.operation import Array

if TYPE_CHECKING:
    from ptxsearch.emulator.address import Piece

_BLOCK_SHIFT = 44
_COMPACT = 1 << 20


class Touched(NamedTuple):
    """Distinct 32-byte sectors of one buffer: summed over the blocks, and of all together."""

    by_block: int
    together: int


class Footprint:
    """Collects the sectors that blocks of `width` lanes read."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._keys: dict[str, list[Array]] = {}
        self._held = 0

    def add(self, piece: Piece) -> None:
        """Note the global loads of one instruction."""
        address = piece.pattern.address + piece.offset
        active = piece.pattern.active
        lanes = np.arange(piece.pattern.lanes) if active is None else active.index
        blocks = lanes // self.width
        if address.size == 1:
            blocks = np.unique(blocks)
        keys = np.unique((blocks.astype(np.int64) << _BLOCK_SHIFT) + (address >> 5 & _MASK))
        self._keys.setdefault(piece.allocation.name, []).append(keys)
        self._held += keys.size
        if self._held > _COMPACT:
            self._compact()

    def touched(self) -> dict[str, Touched]:
        """The sectors by buffer name."""
        self._compact()
        return {
            name: Touched(keys[0].size, int(np.unique(keys[0] & _MASK).size))
            for name, keys in self._keys.items()
        }

    def _compact(self) -> None:
        self._keys = {n: [np.unique(np.concatenate(keys))] for n, keys in self._keys.items()}
        self._held = sum(keys[0].size for keys in self._keys.values())


_MASK = (1 << _BLOCK_SHIFT) - 1
