"""Undefined bytes followed through registers until something depends on them.

Copying undefined bytes is no fault; a branch, an address or a value that leaves the block is. A
mark is an int64 for each lane: bits 0-7 tell which bytes of the register are undefined, the rest
is 1 + the number of the `Origin` they came from.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from ptxsearch.emulator.code import Step
from ptxsearch.emulator.definedness import ORIGIN, results
from ptxsearch.emulator.halt import TaintStarted
from ptxsearch.emulator.lanes import Active
from ptxsearch.emulator.operation import Array

if TYPE_CHECKING:
    from ptxsearch.emulator.frame import Frame


def undefine_registers(frame: Frame) -> None:
    """Mark the registers of a new frame that some path reads before it writes them."""
    launch = frame.chunk.launch
    if not launch.checks:
        return
    for slot, name in frame.code.uncertain:
        number = launch.register_origin(frame, name)
        full = (1 << frame.code.widths.get(slot, 1)) - 1
        frame.taint[slot] = np.full(frame.chunk.lanes, number * ORIGIN + full, np.int64)


def run_tainted(frame: Frame, steps: Sequence[Step], active: Active | None) -> None:
    """Run steps while some registers hold undefined bits."""
    for step in steps:
        follow(frame, step, active)


def follow(frame: Frame, step: Step, active: Active | None) -> None:
    """Run one step: report undefined bits that decide something, pass on the others."""
    taint = frame.taint
    if not taint:
        with suppress(TaintStarted):
            step.masked(frame.registers, active)
        return
    check(frame, step, active)
    lanes = _executing(frame, step, active)
    marks: list[Array] | None = None
    if any(slot in taint for slot in step.sources) and step.targets:
        marks = results(frame, step)
    for slot in step.targets:
        clear(taint, slot, lanes)
    with suppress(TaintStarted):
        step.masked(frame.registers, active)
    if marks is not None:
        for slot, mark_ in zip(step.targets, marks, strict=False):
            if slot >= 0:
                mark(frame, slot, mark_, lanes)


def check(frame: Frame, step: Step, active: Active | None) -> None:
    """Report the critical sources of a step that are undefined in an active lane."""
    taint = frame.taint
    critical = [slot for slot in step.critical if slot in taint]
    if not critical:
        return
    lanes = _executing(frame, step, active)
    for slot in critical:
        _report(frame, slot, step, active if slot == _guard_slot(frame, step) else lanes)


def _guard_slot(frame: Frame, step: Step) -> int:
    guard = step.instruction.guard
    return frame.code.slots[guard.register.name] if guard is not None else -1


def _report(frame: Frame, slot: int, step: Step, lanes: Active | None) -> None:
    """Report undefined bits of a register that are used, then take them as defined."""
    found = frame.taint.get(slot)
    if found is None:
        return
    where = np.flatnonzero(found if lanes is None else np.where(lanes.mask, found, 0))
    if where.size:
        frame.chunk.launch.uninitialised(frame, step.instruction, found // ORIGIN, where)
        frame.taint.pop(slot, None)


def _executing(frame: Frame, step: Step, active: Active | None) -> Active | None:
    """The lanes of `active` whose guard lets the step execute."""
    guard = step.instruction.guard
    if guard is None:
        return active
    held = frame.registers[frame.code.slots[guard.register.name]]
    if held is None:
        return active
    on = held != guard.negated
    lanes = frame.chunk.lanes
    mask = np.broadcast_to(on, (lanes,))
    if active is not None:
        mask = mask & active.mask
    return Active(np.flatnonzero(mask), lanes)


def clear(taint: dict[int, Array], slot: int, lanes: Active | None) -> None:
    """Take a register as defined in the lanes."""
    found = taint.get(slot)
    if found is None:
        return
    if lanes is None:
        del taint[slot]
        return
    left = found.copy()
    left[lanes.index] = 0
    if left.any():
        taint[slot] = left
    else:
        del taint[slot]


def mark(frame: Frame, slot: int, marks: Array, lanes: Active | None) -> None:
    """Give a register the marks (one for each lane of the chunk) in the lanes."""
    wide = np.broadcast_to(marks, (frame.chunk.lanes,))
    if lanes is not None:
        old = frame.taint.get(slot)
        fresh = np.zeros(frame.chunk.lanes, np.int64) if old is None else old.copy()
        fresh[lanes.index] = wide[lanes.index]
        wide = fresh
    if wide.any():
        frame.taint[slot] = wide
    else:
        frame.taint.pop(slot, None)
