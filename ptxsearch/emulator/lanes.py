"""The set of lanes that execute an instruction together."""

from __future__ import annotations

import numpy as np

from ptxsearch.emulator.operation import Array


class Active:
    """Some, not all, lanes of a chunk: their sorted numbers and what follows from them."""

    __slots__ = ("_mask", "_union", "_warps", "count", "dense", "index", "lanes")

    def __init__(self, index: Array, lanes: int) -> None:
        self.index = index
        self.lanes = lanes
        self.count = index.size
        self.dense = self.count * 4 > lanes
        self._mask: Array | None = None
        self._warps = -1
        self._union: tuple[Active, Active | None] | None = None

    @property
    def mask(self) -> Array:
        """A bool for each lane of the chunk."""
        if self._mask is None:
            self._mask = np.zeros(self.lanes, np.bool_)
            self._mask[self.index] = True
        return self._mask

    @property
    def warps(self) -> int:
        """How many warps have a lane in the set."""
        if self._warps < 0:
            warp = self.index >> 5
            self._warps = int(np.count_nonzero(warp[1:] != warp[:-1])) + 1 if self.count else 0
        return self._warps


def merged(one: Active, other: Active) -> Active | None:
    """The lanes of both, None where that is every lane."""
    if one.count + other.count == one.lanes:
        return None
    known = one._union
    if known is not None and known[0] is other:
        return known[1]
    mask = one.mask.copy()
    mask[other.index] = True
    union = Active(np.flatnonzero(mask), one.lanes)
    one._union = (other, union)
    return union


class Selection:
    """Parts active lanes in two; the same question again gets the same objects.

    Equal blocks ask equal questions chunk after chunk, and whatever was found out about a set of
    lanes serves as long as the set is the same object.
    """

    __slots__ = ("_active", "_lanes", "_on", "_sides")

    def __init__(self) -> None:
        self._lanes = -1
        self._active: Active | None = None
        self._on: Array | None = None
        self._sides: tuple[Active | None, Active | None] = (None, None)

    def split(
        self, on: Array, active: Active | None, lanes: int
    ) -> tuple[Active | None, Active | None]:
        """The active lanes where `on` (one value for each of them) holds, and the others."""
        if (
            lanes == self._lanes
            and active is self._active
            and self._on is not None
            and np.array_equal(on, self._on)
        ):
            return self._sides
        yes, no = np.flatnonzero(on), np.flatnonzero(~on)
        if active is not None:
            yes, no = active.index[yes], active.index[no]
        self._lanes, self._active, self._on = lanes, active, on
        self._sides = (Active(yes, lanes), Active(no, lanes))
        return self._sides


def chosen(value: Array, active: Active | None) -> Array:
    """The active lanes of a register; a uniform one stays of length 1."""
    return value if active is None or value.size == 1 else value[active.index]


def assigned(old: Array | None, new: Array, active: Active | None, lanes: int) -> Array:
    """The register after `new` (one value a lane of `active`, or one for all) was written.

    Other lanes of a register that held nothing hold anything: no path reads them unwritten, or
    the register would have been given zeros at the start of its frame.
    """
    if active is None:
        return new
    if old is None:
        fresh = np.empty((lanes, *new.shape[1:]), new.dtype)
    elif old.shape[0] == 1:
        fresh = np.empty((lanes, *old.shape[1:]), new.dtype)
        fresh[:] = old
    else:
        fresh = old.copy()
    fresh[active.index] = new
    return fresh


def blended(old: Array | None, new: Array, active: Active, lanes: int) -> Array:
    """As `assigned`, where `new` has a value for every lane of the chunk."""
    if old is None:
        fresh = np.empty((lanes, *new.shape[1:]), new.dtype)
    elif old.shape[0] == 1:
        fresh = np.empty((lanes, *old.shape[1:]), new.dtype)
        fresh[:] = old
    else:
        fresh = old.copy()
    mask = active.mask if new.ndim == 1 else active.mask[:, None]
    np.copyto(fresh, new, where=mask)
    return fresh


def expanded(value: Array, lanes: int) -> Array:
    """The register with one entry for each lane."""
    if value.shape[0] == lanes:
        return value
    return np.broadcast_to(value, (lanes, *value.shape[1:]))
