"""What is asked of a placement after a launch sequence: guards, inputs, junk left, results.

All of it is queued behind the launches and comes back in one trip to the device. Results small
enough wait in pinned memory; larger ones are copied once everything is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ptxsearch.evaluation import Array, Fault
from ptxsearch.gpu.arena import Arena
from ptxsearch.gpu.driver import Driver
from ptxsearch.gpu.instruments import CELLS, NOTHING, Cells, Instruments
from ptxsearch.gpu.memory import InputSet, Placement

__all__ = ["SLOTS", "Found", "Inspection", "Inspector", "Slot"]

STAGE_BYTES = 20 << 20
SLOTS = 8
_ALIGN = 64


@dataclass(frozen=True)
class Found:
    """The first breach of a guard, inputs that changed, notes on what was not written, arrays.

    `digests` are those of the results, where they were asked for.
    """

    breach: Fault | None = None
    changed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    arrays: Mapping[str, Array] = field(default_factory=dict)
    digests: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Slot:
    """Events around a launch sequence and after its inspection, and the cells of the latter."""

    start: Any
    end: Any
    last: Any
    cells: Cells


@dataclass(frozen=True)
class Inspection:
    """One that is queued: `outs` were looked at for junk, `staged` arrays are on their way.

    `hashed` results have digests, `names` are to be copied.
    """

    placement: Placement
    slot: Slot
    outs: tuple[str, ...]
    hashed: tuple[str, ...]
    names: tuple[str, ...]
    staged: Mapping[str, Array]

    @property
    def whole(self) -> bool:
        """Whether nothing is left to copy, so that the placement may be used again."""
        return len(self.staged) == len(self.names)


class Inspector:
    """Queues inspections and reads what they found. `arena` is where results are put."""

    def __init__(self, driver: Driver, instruments: Instruments) -> None:
        self._driver, self._instruments = driver, instruments
        self._stage = driver.pinned(STAGE_BYTES)
        self._used = self._reading = 0
        self._slots = [
            Slot(driver.event(), driver.event(), driver.event(), cells)
            for cells in Cells.several(driver, SLOTS)
        ]
        self.arena = Arena()

    def slot(self) -> Slot:
        """One of the `SLOTS` that nothing queued uses; free again once its inspection was read."""
        return self._slots.pop()

    def spare(self, slot: Slot) -> None:
        """Take back a slot with which nothing was queued."""
        self._slots.append(slot)

    def fits(self, inputs: InputSet) -> bool:
        """Whether the results of a set can wait in pinned memory now."""
        sizes = (inputs.arrays[name].nbytes for name in inputs.written)
        return self._used + sum(map(_padded, sizes)) <= STAGE_BYTES

    def queue(
        self,
        placement: Placement,
        slot: Slot,
        *,
        pattern: int | None = None,
        results: bool = False,
        digests: bool = False,
    ) -> Inspection:
        """Queue an inspection; `pattern` is the junk that preceded the launches, if it counts.

        `results` are copied, `digests` made of them. The caller records the slot's last event.
        """
        inputs, instruments = placement.inputs, self._instruments
        outs = tuple(name for name in inputs.written if inputs.roles[name] == "out")
        outs = outs if pattern is not None else ()
        count = len(inputs.digests) + len(outs)
        # With very many buffers digests of results give way to what must be asked.
        hashed = inputs.written if digests and count + len(inputs.written) < CELLS else ()
        count += len(hashed)
        guards, *others = slot.cells.set([NOTHING] + [0] * count)
        zones = 2 * len(placement.regions)
        instruments.breach(placement.zones, zones, placement.seed, guards)
        cells = iter(others)
        for name in inputs.digests:
            region = placement.arrays[name]
            instruments.digest(region.pointer, region.size, next(cells))
        for name in outs:
            region = placement.arrays[name]
            instruments.unwritten(region.pointer, region.size, pattern or 0, next(cells))
        for name in hashed:
            region = placement.arrays[name]
            instruments.digest(region.pointer, region.size, next(cells))
        slot.cells.fetch()
        names = inputs.written if results else ()
        staged = self._staged(placement, names) if self.fits(inputs) else {}
        self._reading += 1
        return Inspection(placement, slot, outs, hashed, names, staged)

    def _staged(self, placement: Placement, names: Sequence[str]) -> dict[str, Array]:
        views = {}
        for name in names:
            region = placement.arrays[name]
            views[name] = self._stage[self._used : self._used + region.size]
            self._driver.fetch(region.pointer, views[name])
            self._used += _padded(region.size)
        return views

    def read(self, inspection: Inspection) -> Found:
        """What an inspection found, once its slot's last event is done."""
        placement, inputs = inspection.placement, inspection.placement.inputs
        known, outs, hashed = inputs.digests, inspection.outs, inspection.hashed
        guards, *others = inspection.slot.cells.read(1 + len(known) + len(outs) + len(hashed))
        now = dict(zip(known, others, strict=False))
        left = dict(zip(outs, others[len(known) :], strict=False))
        found = Found(
            breach=None if guards == NOTHING else placement.breach(guards),
            changed=tuple(name for name in known if now[name] != known[name]),
            notes=tuple(
                f"{words} of {placement.arrays[name].size // 4} 4-byte words of {name} were never"
                " written"
                for name, words in left.items()
                if words
            ),
            arrays={name: self._array(inspection, name) for name in inspection.names},
            digests=dict(zip(hashed, others[len(known) + len(outs) :], strict=True)),
        )
        self.drop(inspection)
        return found

    def drop(self, inspection: Inspection) -> None:
        """Forget an inspection that is done, so that its slot and memory are used again."""
        self.spare(inspection.slot)
        self._reading -= 1
        if not self._reading:
            self._used = 0

    def _array(self, inspection: Inspection, name: str) -> Array:
        """A result in the arena, from pinned memory or from the device."""
        like = inspection.placement.inputs.arrays[name]
        array = self.arena.array(like.shape, like.dtype)
        if name in inspection.staged:
            array.reshape(-1).view(np.uint8)[:] = inspection.staged[name]
        else:
            self._driver.download(inspection.placement.arrays[name].pointer, array)
        return array


def _padded(size: int) -> int:
    """Pinned bytes that an array takes."""
    return -(-size // _ALIGN) * _ALIGN
