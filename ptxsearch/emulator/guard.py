"""A step that executes only where its guard holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ptxsearch.emulator.code import Registers, Step
from ptxsearch.emulator.frame import Frame
from ptxsearch.emulator.lanes import Active, Selection
from ptxsearch.ptx.syntax import Guard

if TYPE_CHECKING:
    pass


def guarded(step: Step, guard: Guard, slot: int) -> Step:
    """The step executed only where its guard holds."""
    negated, fast, masked = guard.negated, step.fast, step.masked
    tally, sides = step.tally, Selection()

    def run_masked(registers: Registers, active: Active | None) -> None:
        held = registers[slot]
        frame: Frame = registers[0]
        lanes = frame.chunk.lanes
        if held.size == 1:
            if bool(held[0]) == negated:
                return
            part = active
        else:
            on = held if active is None else held[active.index]
            count = int(np.count_nonzero(on))
            if count in (0, on.size):
                if (count == 0) != negated:
                    return
                part = active
            else:
                part = sides.split(~on if negated else on, active, lanes)[0]
        if tally:
            frame.chunk.launch.counters.amount(tally, lanes if part is None else part.count)
        if part is None:
            fast(registers)
        else:
            masked(registers, part)

    return Step(
        step.instruction,
        lambda registers: run_masked(registers, None),
        run_masked,
        sources=step.sources,
        targets=step.targets,
        critical=(*step.critical, slot),
    )
