"""One launch: its blocks run chunk by chunk, spinning chunks taking turns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from ptxsearch.emulator import special
from ptxsearch.emulator.address import Target
from ptxsearch.emulator.code import Code, Place
from ptxsearch.emulator.counters import Tally
from ptxsearch.emulator.findings import Findings
from ptxsearch.emulator.footprint import Footprint
from ptxsearch.emulator.frame import Frame
from ptxsearch.emulator.halt import Halt, Refused, Unable
from ptxsearch.emulator.lanes import Active
from ptxsearch.emulator.machine import Chunk
from ptxsearch.emulator.memory import Allocation, Memory
from ptxsearch.emulator.operation import Array
from ptxsearch.emulator.ordering import Sequence as Events
from ptxsearch.emulator.origins import Near
from ptxsearch.emulator.program import Program, source_name
from ptxsearch.emulator.report import Fault, Report, Unsupported
from ptxsearch.emulator.setting import Setting
from ptxsearch.emulator.shadow import Shadow
from ptxsearch.emulator.synchron import Synchron
from ptxsearch.plural import plural

if TYPE_CHECKING:
    from ptxsearch.emulator.arguments import View

CHUNK_LANES = 1 << 16
"""Threads of a chunk: the more, the less every instruction costs, until memory caches overflow."""

CHUNK_VALUES = 1 << 23
"""Values of all registers of a chunk: kernels with many registers get smaller chunks."""

CHUNK_SHARED = 1 << 24
CHUNK_LOCAL = 1 << 24
RESIDENT_LANES = 132 * 2048
LOCAL_LIMIT = 1 << 29
MAX_STEPS = 10_000_000
NANOSECONDS = 1_000_000_000
TIMEOUTS = frozenset({"infinite_loop"})


class Launch(Findings):
    """The state that all chunks of a launch share."""

    def __init__(
        self,
        program: Program,
        memory: Memory,
        views: Sequence[View],
        setting: Setting,
    ) -> None:
        super().__init__()
        self.program = program
        self.memory = memory
        self.views = views
        self.grid = setting.grid
        self.block = setting.block
        self.threads = setting.block[0] * setting.block[1] * setting.block[2]
        self.block_order = setting.blocks
        self.max_steps = setting.max_steps
        self.checks = setting.checks
        self.deadline = setting.deadline
        self.number = setting.number
        self.static_shared = program.static_shared
        self.dynamic_shared = setting.dynamic_shared
        self.local_limit = LOCAL_LIMIT
        self.sequence = Events()
        self.synchron = Synchron()
        self.counters = Tally()
        if not setting.whole:
            self.counters.footprint = Footprint(-(-self.threads // 32) * 32)
        self.count = self.counters.segment
        self.printed: list[str] = []
        self.version = 0
        self._clock = 0
        self.late = False
        self._numbers: dict[int, Array] = {}
        self._present: dict[int, Active] = {}
        self._specials: dict[tuple[str, int], Array] = {}
        self._places = list(program.places)
        dynamic = setting.dynamic_shared
        if program.dynamic or dynamic:
            name = source_name(program.dynamic[0]) if program.dynamic else "dynamic shared memory"
            self._places.append(Place(name, "shared", program.dynamic_start, dynamic))
        self.shared_stride = -(-(program.dynamic_start + dynamic) // 128) * 128
        self._unused = program.unused_shared(self.shared_stride, dynamic)
        self.code: Code = program.code(program.entry)

    def run(self) -> Report:
        """Run every block; a report, whatever happens."""
        status, message = "ok", ""
        unsupported: Unsupported | None = None
        try:
            with np.errstate(all="ignore"):
                self._run_chunks()
        except Halt:
            status = "fault"
        except Unable as unable:
            status, unsupported = "unsupported", unable.what
        except Refused as refused:
            status, message = "invalid", str(refused)
        self.program.forget()
        reads = self._reads()
        if self.faults and status == "ok":
            status = "fault"
        if any(fault.kind in TIMEOUTS for fault in self.faults.values()):
            status = "timeout"
        elif self.late and not self.faults:
            status, message = "timeout", "the launch took longer than it was given"
        return Report(
            status,
            faults=tuple(self.faults.values()),
            counters=self.counters.total(),
            steps=self.steps,
            unsupported=unsupported,
            message=message or _summary(self.faults.values(), unsupported),
            notes=tuple(self.notes.values()),
            printed=tuple(self.printed),
            reads=reads,
            touched=self.counters.footprint.touched() if self.counters.footprint else {},
            bytes_stored={view.name: view.allocation.stored for view in self.views},
        )

    def _reads(self) -> dict[str, Array]:
        """Which bytes of each buffer were read; what lies outside every buffer is noted."""
        reads: dict[str, Array] = {}
        outside: dict[int, tuple[Allocation, Array]] = {}
        for view in self.views:
            allocation = view.allocation
            if allocation.shadow is None:
                if self.checks:
                    reads[view.name] = np.zeros(view.size, np.bool_)
                continue
            if id(allocation) not in outside:
                outside[id(allocation)] = (allocation, allocation.shadow.read_bytes())
            read = outside[id(allocation)][1]
            reads[view.name] = read[view.offset : view.offset + view.size].copy()
        for allocation, read in outside.values():
            self._note_outside(allocation, read)
        return reads

    def _note_outside(self, allocation: Allocation, read: Array) -> None:
        """Note what was read and written of an allocation between the buffers that lie in it."""
        views = [view for view in self.views if view.allocation is allocation]
        shadow = allocation.shadow
        if shadow is None or any(view.size == allocation.size for view in views):
            return
        for verb, left in (("read", read), ("written", shadow.written_bytes())):
            for view in views:
                left[view.offset : view.offset + view.size] = False
            if left.any():
                first = int(left.argmax())
                name, start = self.view_at(allocation, allocation.base + first)
                self.notes[f"{verb} outside {name}"] = (
                    f"{plural(int(np.count_nonzero(left)), 'byte')} {verb} outside every argument, "
                    f"the first at byte {allocation.base + first - start} from the start of {name}"
                )

    def _run_chunks(self) -> None:
        width = -(-self.threads // 32) * 32
        lanes = min(CHUNK_LANES, CHUNK_VALUES // self.code.size)
        rows = max(1, lanes // width)
        if self.code.frame_bytes:
            rows = max(1, min(rows, CHUNK_LOCAL // (self.code.frame_bytes * width)))
        if self.shared_stride:
            rows = max(1, min(rows, CHUNK_SHARED // self.shared_stride))
        total = len(self.block_order)
        next_row = 0
        waiting: list[Chunk] = []
        while next_row < total or waiting:
            if self.faults:
                return
            room = sum(chunk.lanes for chunk in waiting) + rows * width <= RESIDENT_LANES
            if next_row < total and (room or not waiting):
                chosen = self.block_order[next_row : next_row + rows]
                if isinstance(chosen, range):
                    chosen = np.arange(chosen.start, chosen.stop)
                chunk = Chunk(self, chosen, next_row)
                next_row += rows
                self._run(chunk, waiting)
            else:
                waiting = self._round(waiting)
                rows = max(1, min(rows, 32))

    def _run(self, chunk: Chunk, waiting: list[Chunk]) -> None:
        if chunk.run() == "spinning":
            waiting.append(chunk)

    def _round(self, waiting: list[Chunk]) -> list[Chunk]:
        """Give every spinning chunk a turn; an endless loop where nothing moves any more."""
        before = self.version
        still: list[Chunk] = []
        for chunk in waiting:
            chunk.wake()
            if chunk.run() == "spinning":
                still.append(chunk)
        same = [chunk.unchanged() for chunk in still]
        if still and len(still) == len(waiting) and self.version == before and all(same):
            chunk = still[0]
            group = next(iter(chunk.groups.values()))
            self.endless(
                chunk,
                group,
                "loops for ever: nothing that it waits for can change any more",
            )
        return still

    def lane_numbers(self, lanes: int) -> Array:
        """0, 1, ... as one array for all chunks of a size."""
        found = self._numbers.get(lanes)
        if found is None:
            found = self._numbers[lanes] = np.arange(lanes)
        return found

    def present(self, rows: int, live: Array) -> Active:
        """The lanes that are threads, for all chunks of a size."""
        found = self._present.get(rows)
        if found is None:
            found = self._present[rows] = Active(np.flatnonzero(live), live.size)
        return found

    def special(self, chunk: Chunk, name: str) -> Array:
        """A special register of a chunk; what depends on the thread alone is made once."""
        if not name.startswith(special.BY_THREAD):
            return special.value(chunk, name)
        key = (name, chunk.rows)
        found = self._specials.get(key)
        if found is None:
            found = self._specials[key] = special.value(chunk, name)
        return found

    def shadow(self, allocation: Allocation) -> Shadow:
        """The stamps of an allocation, made on first use."""
        found = allocation.shadow
        if found is None:
            found = allocation.shadow = Shadow(allocation.size)
        return found

    def block_shadow(self, size: int) -> Shadow:
        """The stamps of the shared memory of a chunk's blocks."""
        return Shadow(size, private=True, unused=self._unused)

    def tick(self, name: str) -> int:
        """The value of a clock: it moves on with every look at it."""
        self._clock += 32
        return self._clock + (NANOSECONDS if "timer" in name else 0)

    def shared_object(self, address: int, size: int) -> Place | None:
        """The shared variable that holds the bytes."""
        for place in self._places:
            if place.start <= address and address + size <= place.start + place.size:
                return place
        return None

    def nearest_shared(self, address: int) -> Near:
        """The shared variable at or before an address."""
        best: Near = ("", 0)
        for place in self._places:
            if place.start <= address or not best[0]:
                best = (place.name, place.start)
        return best

    def nearest(self, frame: Frame, target: Target, address: int) -> Near:
        """The argument or variable at, before or shortly behind an address, if any."""
        found = self.memory.nearest(address)
        return self.view_at(found, address) if found is not None else ("", 0)

    def view_at(self, allocation: Allocation, address: int) -> Near:
        """The argument or variable of an allocation at or before an address."""
        best: Near = (allocation.name, allocation.base)
        for view in self.views:
            start = allocation.base + view.offset
            if view.allocation is allocation and best[1] <= start <= address:
                best = (view.name, start)
        return best

    def out_of_time(self) -> NoReturn:
        """Give the launch up: its time is over."""
        self.late = True
        raise Halt

    def exhausted(self, frame: Frame) -> NoReturn:
        """Refuse a launch that needs too much local memory."""
        raise Refused(
            f"function {frame.code.function.name} needs {frame.code.frame_bytes} bytes of local "
            f"memory a thread at call depth {frame.depth}: too much; use smaller arrays"
        )


def _summary(faults: Iterable[Fault], unsupported: Unsupported | None) -> str:
    if unsupported is not None:
        return str(unsupported)
    first = next(iter(faults), None)
    return str(first) if first is not None else ""
