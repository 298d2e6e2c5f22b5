"""From the address operand of an instruction to places in memory, with the checks on the way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ptxsearch.emulator.frame import Frame
from ptxsearch.emulator.lanes import Active
from ptxsearch.emulator.memory import WINDOWS, Allocation, window_of
from ptxsearch.emulator.operation import Array
from ptxsearch.emulator.pattern import Pattern
from ptxsearch.emulator.where import Where
from ptxsearch.ptx.syntax import Instruction

if TYPE_CHECKING:
    from ptxsearch.emulator.machine import Chunk

OWN_SPACES = ("shared", "local")


@dataclass(frozen=True, slots=True)
class Piece:
    """Lanes of one instruction whose addresses lie in one allocation.

    `rows` are their positions among the instruction's lanes (None: all of them).
    """

    rows: Array | None
    active: Active | None
    allocation: Allocation
    where: Where
    pattern: Pattern
    offset: int
    space: str

    @property
    def lanes(self) -> int:
        """How many lanes it has."""
        return self.pattern.lanes


class Target:
    """The address operand of an instruction: a register slot, an offset, a space, a size.

    `counted` is False for parameters of calls: machine code keeps them in registers.
    """

    __slots__ = ("counted", "instruction", "last", "offset", "size", "slot", "space", "write")

    def __init__(
        self,
        slot: int,
        offset: int,
        space: str,
        *,
        size: int,
        instruction: Instruction,
        write: bool,
    ) -> None:
        self.slot = slot
        self.offset = offset
        self.space = space
        self.size = size
        self.instruction = instruction
        self.write = write
        self.last: Allocation | None = None
        self.counted = True

    def pieces(self, frame: Frame, active: Active | None) -> Iterator[Piece]:
        """The places that the active lanes address, after bounds and alignment checks."""
        pattern = frame.pattern(self.slot, active)
        if pattern.hi >> 31 == 1 and pattern.source.dtype.itemsize == 4:
            wrapped = pattern.source.view(np.int32).astype(np.int64)
            pattern = Pattern(wrapped, active, frame.chunk.lanes)
        if not pattern.aligned(self.size, self.offset):
            self._misaligned(frame, pattern)
        if self.space in OWN_SPACES:
            yield self._own(frame, pattern, self.space, self.offset, None)
        elif self.space in ("", "param"):
            yield from self._generic(frame, pattern)
        else:
            yield from self._global(frame, pattern, None)

    def _generic(self, frame: Frame, pattern: Pattern) -> Iterator[Piece]:
        low = window_of(pattern.lo + self.offset)
        if low == window_of(pattern.hi + self.offset):
            if low in OWN_SPACES:
                yield self._own(frame, pattern, low, self.offset - WINDOWS[low], None)
            else:
                yield from self._global(frame, pattern, None)
            return
        address = np.broadcast_to(pattern.address, (pattern.lanes,)) + self.offset
        names = np.array([window_of(value) for value in address.tolist()])
        for space in np.unique(names):
            rows = np.flatnonzero(names == space)
            part = _part(frame.chunk, pattern, rows)
            if space in OWN_SPACES:
                yield self._own(frame, part, space, self.offset - WINDOWS[space], rows)
            else:
                yield from self._global(frame, part, rows)

    def _global(self, frame: Frame, pattern: Pattern, rows: Array | None) -> Iterator[Piece]:
        lo, hi = pattern.lo + self.offset, pattern.hi + self.offset + self.size
        found = self.last
        if found is None or lo < found.base or hi > found.end:
            found = frame.chunk.launch.memory.find(lo)
            self.last = found if found is not None and found.space != "param" else None
        if found is not None and hi <= found.end:
            where = pattern.place(self.size, self.offset, found.base, None)
            yield Piece(rows, pattern.active, found, where, pattern, self.offset, found.space)
            return
        yield from self._scattered(frame, pattern, rows)

    def _scattered(self, frame: Frame, pattern: Pattern, rows: Array | None) -> Iterator[Piece]:
        """Lanes that address several allocations, or memory that is nobody's."""
        memory = frame.chunk.launch.memory
        address = np.broadcast_to(pattern.address, (pattern.lanes,)) + self.offset
        left = np.ones(pattern.lanes, np.bool_)
        parts: list[tuple[Allocation, Array]] = []
        while left.any():
            first = int(left.argmax())
            found = memory.find(int(address[first]))
            if found is None:
                break
            inside = left & (address >= found.base) & (address + self.size <= found.end)
            if not inside[first]:
                break
            parts.append((found, np.flatnonzero(inside)))
            left &= ~inside
        if left.any():
            self._outside(frame, pattern, address, left)
        for found, inner in parts:
            part = _part(frame.chunk, pattern, inner)
            part.aligned(self.size, self.offset)
            where = part.place(self.size, self.offset, found.base, None)
            outer = inner if rows is None else rows[inner]
            yield Piece(outer, part.active, found, where, part, self.offset, found.space)

    def _outside(self, frame: Frame, pattern: Pattern, address: Array, left: Array) -> None:
        launch, lanes = frame.chunk.launch, frame.chunk.numbers(pattern.active)
        bad = np.zeros(left.size, np.bool_)
        for at in np.flatnonzero(left).tolist():
            found = launch.memory.find(int(address[at]))
            bad[at] = found is None or int(address[at]) + self.size > found.end
        first = int(bad.argmax())
        near = launch.nearest(frame, self, int(address[first]))
        launch.out_of_bounds(
            frame.chunk,
            self,
            lane=int(lanes[first]),
            address=int(address[first]),
            near=near,
            count=int(np.count_nonzero(bad)),
        )

    def _own(
        self, frame: Frame, pattern: Pattern, space: str, offset: int, rows: Array | None
    ) -> Piece:
        """The place of addresses in the block's shared or the thread's local memory."""
        chunk = frame.chunk
        if space == "shared":
            allocation, lane_rows = chunk.shared, chunk.shared_rows
            fits = chunk.launch.shared_object(pattern.lo + offset, self.size)
            ok = fits is not None and pattern.hi + offset + self.size <= fits.start + fits.size
        else:
            allocation, lane_rows = chunk.local, chunk.local_rows
            inside = local_object(frame, pattern.lo + offset, self.size)
            ok = inside is not None and pattern.hi + offset + self.size <= inside[1]
        if not ok:
            self._check_own(frame, pattern, space, offset)
        stride = chunk.local_stride if space == "local" else chunk.launch.shared_stride
        where = pattern.place(self.size, offset, 0, lane_rows, stride)
        return Piece(rows, pattern.active, allocation, where, pattern, offset, space)

    def _check_own(self, frame: Frame, pattern: Pattern, space: str, offset: int) -> None:
        chunk = frame.chunk
        address = np.broadcast_to(pattern.address, (pattern.lanes,)) + offset
        distinct, inverse = np.unique(address, return_inverse=True)
        if space == "shared":
            good = [chunk.launch.shared_object(a, self.size) is not None for a in distinct.tolist()]
        else:
            good = [local_object(frame, a, self.size) is not None for a in distinct.tolist()]
        bad = ~np.array(good)[inverse.reshape(-1)]
        if not bad.any():
            return
        first = int(bad.argmax())
        lanes = chunk.numbers(pattern.active)
        near = chunk.launch.nearest_own(frame, space, int(address[first]))
        chunk.launch.out_of_bounds(
            chunk,
            self,
            lane=int(lanes[first]),
            address=int(address[first]),
            near=near,
            count=int(np.count_nonzero(bad)),
            space=space,
        )

    def _misaligned(self, frame: Frame, pattern: Pattern) -> None:
        address = np.broadcast_to(pattern.address, (pattern.lanes,)) + self.offset
        bad = (address & (self.size - 1)) != 0
        first = int(bad.argmax())
        lanes = frame.chunk.numbers(pattern.active)
        frame.chunk.launch.misaligned(
            frame,
            self,
            lane=int(lanes[first]),
            address=int(address[first]),
            count=int(np.count_nonzero(bad)),
        )


def _part(chunk: Chunk, pattern: Pattern, rows: Array) -> Pattern:
    """The pattern of some of a pattern's lanes."""
    lanes = chunk.numbers(pattern.active)[rows]
    active = None if lanes.size == chunk.lanes else Active(lanes, chunk.lanes)
    return Pattern(pattern.source, active, chunk.lanes)


def local_object(frame: Frame | None, address: int, size: int) -> tuple[int, int, str] | None:
    """Start, end and name of the local variable of the call chain that holds the bytes."""
    while frame is not None:
        at = address - frame.local_base
        for place in frame.code.places.values():
            if place.start <= at and at + size <= place.start + place.size:
                start = place.start + frame.local_base
                return start, start + place.size, place.name
        frame = frame.parent
    return None
