"""A chunk of whole blocks that execute together: scheduling of its diverged lanes.

The lanes at the lowest instruction of the deepest call go first, so that lanes which parted meet
again at the next label. Lanes that wait at a barrier are parked; lanes that spin let the others
go first.
"""

from __future__ import annotations

from operator import length_hint
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np

from ptxsearch.emulator import waiting
from ptxsearch.emulator.code import Code, Segment
from ptxsearch.emulator.frame import Frame, Group
from ptxsearch.emulator.halt import TaintStarted
from ptxsearch.emulator.lanes import Active, merged
from ptxsearch.emulator.memory import Allocation
from ptxsearch.emulator.operation import Array
from ptxsearch.emulator.ordering import Ordering
from ptxsearch.emulator.taint import run_tainted, undefine_registers

if TYPE_CHECKING:
    from ptxsearch.emulator.asynchrony import Copies
    from ptxsearch.emulator.launch import Launch
    from ptxsearch.emulator.waiting import Parked

QUIET_POLLS = 32
QUIET_LOOPS = 20_000
NO_LIMIT = 1 << 60


class Chunk:
    """Whole blocks run together; lane `row * width + thread` is a thread of block row `row`."""

    def __init__(self, launch: Launch, blocks: Array, first_row: int) -> None:
        self.launch = launch
        self.blocks = blocks
        self.rows = blocks.size
        self.width = -(-launch.threads // 32) * 32
        self.lanes = self.rows * self.width
        self.first = first_row * self.width
        self.order = Ordering(launch.sequence, self.first, self.rows, self.width)
        self.live: Array = np.tile(np.arange(self.width) < launch.threads, self.rows)
        self.live_count = self.rows * launch.threads
        self.real = self.live.copy()
        self.announced: dict[tuple[int, int], list[int]] = {}
        self.ragged = False
        self.groups: dict[tuple[int, int], Group] = {}
        self.parked: list[Parked] = []
        self.polled = False
        self.copies: Copies | None = None
        self._specials: dict[str, Array] = {}
        self.threads_range = launch.lane_numbers(self.lanes)
        self._snapshot: list[tuple[Group, int, list[Array | None]]] = []
        self.shared = Allocation(
            "", "shared", 0, np.zeros(launch.shared_stride * self.rows, np.uint8)
        )
        self.shared.shadow = launch.block_shadow(self.shared.size) if launch.checks else None
        self.shared_rows = (
            np.repeat(np.arange(self.rows) * launch.shared_stride, self.width)
            if self.rows > 1
            else None
        )
        self.local_stride = 0
        self.local = Allocation("", "local", 0, np.zeros(0, np.uint8))
        self.local_rows = np.zeros(0, np.int64)
        frame = Frame(self, launch.code, None, -1)
        self.reserve(frame)
        self.begin(frame)
        self.add(Group(frame, 0, self._present()))

    def _present(self) -> Active | None:
        if self.live_count == self.lanes:
            return None
        return self.launch.present(self.rows, self.live)

    def begin(self, frame: Frame) -> None:
        """Note which registers of a new frame hold nothing yet."""
        undefine_registers(frame)

    def reserve(self, frame: Frame) -> None:
        """Make local memory reach to the end of the frame."""
        need = frame.local_base + frame.code.frame_bytes
        if need <= self.local_stride:
            return
        stride = max(need, 2 * self.local_stride)
        if stride * self.lanes > self.launch.local_limit:
            stride = need
            if stride * self.lanes > self.launch.local_limit:
                self.launch.exhausted(frame)
        grown = Allocation("", "local", 0, np.zeros(stride * self.lanes, np.uint8))
        old = self.local_stride
        if old:
            rows = grown.data.reshape(self.lanes, stride)
            rows[:, :old] = self.local.data.reshape(self.lanes, old)
        if self.launch.checks:
            grown.defined = np.zeros(grown.size, np.bool_)
            if old and self.local.defined is not None:
                known = grown.defined.reshape(self.lanes, stride)
                known[:, :old] = self.local.defined.reshape(self.lanes, old)
        self.local, self.local_stride = grown, stride
        self.local_rows = np.arange(self.lanes) * stride

    def special(self, name: str) -> Array:
        """The value of a special register that stays the same during the launch."""
        found = self._specials.get(name)
        if found is None:
            found = self._specials[name] = self.launch.special(self, name)
        return found

    def numbers(self, active: Active | None) -> Array:
        """The active lanes by number."""
        return self.threads_range if active is None else active.index

    def add(self, group: Group) -> None:
        """Make a group runnable, joined with the lanes that stand at the same place."""
        key = (id(group.frame), group.pc)
        other = self.groups.get(key)
        if other is not None and other.active is not None and group.active is not None:
            group.active = merged(other.active, group.active)
            group.steps = max(group.steps, other.steps)
        self.groups[key] = group

    def exit(self, active: Active | None) -> None:
        """End the lanes."""
        if active is None:
            self.live[:] = False
            self.live_count = 0
        else:
            self.live[active.index] = False
            self.live_count -= active.count
            warps = self.live.reshape(-1, 32)[np.unique(active.index >> 5)]
            if bool(warps.any()):
                self.ragged = True
        if self.parked:
            waiting.resolve(self)

    def run(self) -> str:
        """Run until every lane is done ("done") or all that can run spin ("spinning")."""
        while True:
            group = self._choose()
            if group is None:
                if self.groups:
                    return "spinning"
                if not self.parked:
                    return "done"
                waiting.stuck(self)
            else:
                self._advance(group)

    def _choose(self) -> Group | None:
        """The group to run next, taken out of the runnable ones; None where all spin."""
        best: Group | None = None
        for group in self.groups.values():
            if group.yielded:
                continue
            if best is None or (-group.frame.depth, group.pc) < (-best.frame.depth, best.pc):
                best = group
        if best is not None:
            del self.groups[id(best.frame), best.pc]
        return best

    def shared_settled(self) -> None:
        """Note that a barrier put all accesses to shared memory so far into the past."""
        if self.shared.shadow is not None:
            self.shared.shadow.forget()

    def wake(self) -> None:
        """Let spinning groups look again."""
        for group in self.groups.values():
            group.yielded = False
            group.quiet = 0

    def unchanged(self) -> bool:
        """Whether the runnable groups stand exactly as they stood when this was last asked."""
        before, now = self._snapshot, []
        same = len(before) == len(self.groups)
        for at, group in enumerate(self.groups.values()):
            registers = list(group.frame.registers[1:])
            now.append((group, group.pc, registers))
            if same:
                other, pc, old = before[at]
                same = other is group and pc == group.pc and _equal(old, registers)
        self._snapshot = now
        return same

    def _advance(self, group: Group) -> None:
        """Run a group until it parts, parks, ends, spins or reaches other lanes."""
        frame = group.frame
        limit = NO_LIMIT
        for other in self.groups.values():
            if other.frame is frame and other.pc > group.pc:
                limit = min(limit, other.pc)
        code, launch = frame.code, self.launch
        segment_of, count, deadline = code.segment, launch.count, launch.deadline
        end = len(code.steps)
        while True:
            segment = segment_of(group.pc)
            if segment.steps:
                self._execute(segment, group)
            count(segment, group.active, self)
            group.steps += segment.length
            if group.steps > launch.steps:
                launch.steps = group.steps
            if deadline is not None and monotonic() > deadline:
                launch.out_of_time()
            if group.steps > launch.max_steps:
                launch.step_limit(self, group, segment)
            group.pc = segment.end
            if segment.control is not None:
                if not segment.control.control(self, group):  # type: ignore[misc]
                    return
            elif segment.end >= end:
                launch.fell_off(self, group)
            if group.pc >= limit:
                self.add(group)
                return

    def _execute(self, segment: Segment, group: Group) -> None:
        frame, active = group.frame, group.active
        registers = frame.registers
        if frame.taint:
            run_tainted(frame, segment.steps, active)
            return
        if active is None:
            fast = iter(segment.fast)
            try:
                for step in fast:
                    step(registers)
            except TaintStarted:
                done = len(segment.fast) - length_hint(fast)
                run_tainted(frame, segment.steps[done:], active)
            return
        masked = iter(segment.masked)
        try:
            for masked_step in masked:
                masked_step(registers, active)
        except TaintStarted:
            done = len(segment.masked) - length_hint(masked)
            run_tainted(frame, segment.steps[done:], active)

    def looped(self, group: Group) -> bool:
        """Note a backward jump; False where the group spins and gives way."""
        version = self.launch.version
        if version != group.version:
            group.version, group.quiet = version, 0
        else:
            group.quiet += 1
        polled, self.polled = self.polled, False
        if group.quiet < QUIET_POLLS or (not polled and group.quiet % QUIET_LOOPS):
            return True
        group.yielded = True
        self.add(group)
        return False


def _equal(old: list[Array | None], new: list[Array | None]) -> bool:
    for one, other in zip(old, new, strict=True):
        if one is not other and not (
            one is not None and other is not None and np.array_equal(one, other)
        ):
            return False
    return True


__all__ = ["Chunk", "Code", "Frame", "Group"]
