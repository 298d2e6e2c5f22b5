"""Races and undefined bytes looked for at every load and store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ptxsearch.emulator.address import Piece, Target
from ptxsearch.emulator.definedness import ORIGIN
from ptxsearch.emulator.frame import Frame
from ptxsearch.emulator.operation import Array
from ptxsearch.emulator.shape import Shape
from ptxsearch.emulator.taint import clear

if TYPE_CHECKING:
    pass


CHECKED = frozenset({"global", "shared"})

PADDED = 4
"""Bytes that a compiler copies in pieces where all of them are padding."""


def note_read(frame: Frame, piece: Piece, target: Target, flags: int = 0) -> Array | None:
    """Check a read for races; the undefined bytes it meets, a row for each lane, or None."""
    chunk = frame.chunk
    launch, allocation = chunk.launch, piece.allocation
    bad: Array | None = None
    if allocation.space in CHECKED:
        shadow = launch.shadow(allocation)
        lanes = chunk.numbers(piece.active)
        line = target.instruction.line
        conflict = shadow.read(piece.where, target.size, lanes, chunk.order, line, flags)
        if conflict is not None:
            launch.race(frame, target, allocation, conflict)
        if allocation.space == "shared":
            bad = shadow.unwritten(piece.where, target.size)
    if allocation.defined is not None:
        known = allocation.defined[: allocation.size // target.size * target.size]
        bad = np.asarray(~piece.where.get(known.reshape(-1, target.size)))
    if bad is None or not bad.any():
        return None
    return np.broadcast_to(bad, (piece.lanes, target.size))


def report_undefined(frame: Frame, piece: Piece, target: Target, bad: Array) -> None:
    """Report undefined bytes that an instruction uses at once."""
    number = frame.chunk.launch.load_origin(frame, piece, target)
    rows = np.flatnonzero(bad.any(axis=1))
    lanes = frame.chunk.numbers(piece.active)[rows]
    origins = np.full(frame.chunk.lanes, number, np.int64)
    frame.chunk.launch.uninitialised(frame, target.instruction, origins, lanes)


def define(piece: Piece, size: int) -> None:
    """Note that the bytes hold something from now on."""
    defined = piece.allocation.defined
    if defined is not None:
        whole = piece.allocation.size // size * size
        piece.where.put(defined[:whole].reshape(-1, size), True)


def leave_undefined(
    frame: Frame, piece: Piece, target: Target, shape: Shape, slots: Sequence[int]
) -> None:
    """Undefined bytes stored: memory becomes undefined there.

    A whole undefined element that leaves the block is a fault; what may be padding is not.
    """
    chunk, allocation = frame.chunk, piece.allocation
    lanes = chunk.numbers(piece.active)
    bad = np.zeros((lanes.size, shape.vector, shape.element), np.bool_)
    for at, slot in enumerate(slots):
        found = frame.taint.get(slot)
        if found is not None:
            mask = (found % ORIGIN)[lanes]
            bad[:, at] = (mask[:, None] >> np.arange(shape.element)) & 1 != 0
    if allocation.space == "global":
        _report_whole(frame, target, shape, slots, lanes=lanes, bad=bad)
    rows = np.flatnonzero(bad.any(axis=(1, 2)))
    if not rows.size:
        return
    flat = bad[rows].reshape(rows.size, -1)
    elements = piece.where.indices()[rows]
    if allocation.space == "shared":
        chunk.launch.shadow(allocation).unwrite(elements, target.size, flat)
        return
    if allocation.defined is None:
        allocation.defined = np.ones(allocation.size, np.bool_)
    known = allocation.defined[: allocation.size // target.size * target.size]
    known.reshape(-1, target.size)[elements] = ~flat


def _report_whole(
    frame: Frame, target: Target, shape: Shape, slots: Sequence[int], *, lanes: Array, bad: Array
) -> None:
    """Report elements that are undefined as a whole, then take them as defined in `bad`."""
    launch, whole = frame.chunk.launch, np.asarray(bad.all(axis=2))
    padding = _padding(whole, shape)
    for at, slot in enumerate(slots):
        found, wrong = frame.taint.get(slot), whole[:, at]
        if found is None or not wrong.any():
            continue
        origins = found // ORIGIN
        if padding[at] and launch.loaded(origins[lanes]):
            continue
        launch.uninitialised(frame, target.instruction, origins, lanes[wrong])
        clear(frame.taint, slot, None)
        bad[wrong, at] = False


def _padding(whole: Array, shape: Shape) -> Array:
    """Which elements of a vector store may be padding, by what is wholly undefined in each lane.

    Compilers copy structs by vectors of integers. Their padding is undefined in every lane, and
    lies beside a field or in a word of its own that is stored in pieces.
    """
    if shape.vector == 1 or shape.type[0] not in "ub":
        return np.zeros(shape.vector, np.bool_)
    everywhere = np.asarray(whole.all(axis=0))
    pieces = shape.element < PADDED >= shape.element * shape.vector
    return np.asarray(everywhere & (pieces or not everywhere.all()))
