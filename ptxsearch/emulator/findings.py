"""The faults of a launch: how each kind is found a name, a place and a message."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from ptxsearch.emulator.address import Piece, Target
from ptxsearch.emulator.code import Segment
from ptxsearch.emulator.frame import Frame, Group
from ptxsearch.emulator.halt import Halt
from ptxsearch.emulator.memory import Allocation
from ptxsearch.emulator.notes import Conflict
from ptxsearch.emulator.operation import Array
from ptxsearch.emulator.ordering import TID_MASK
from ptxsearch.emulator.origins import Near, Origins
from ptxsearch.emulator.report import Fault, Triple
from ptxsearch.emulator.shadow import Shadow
from ptxsearch.plural import plural
from ptxsearch.ptx.syntax import Instruction

if TYPE_CHECKING:
    from ptxsearch.emulator.machine import Chunk

FAULT_LIMIT = 32
OCCURRENCE_LIMIT = 256
STEPS_AFTER_FAULT = 20_000
"""How far a launch goes on after a fault that need not end it, to find others."""

DEPTH_LIMIT = 512


class Findings(Origins):
    """Collects faults; one is kept for each kind, instruction and object."""

    block: Triple
    grid: Triple
    block_order: range | Array
    max_steps: int
    shared_stride: int

    def __init__(self) -> None:
        super().__init__()
        self.faults: dict[tuple[str, int, str], Fault] = {}
        self.notes: dict[str, str] = {}
        self.occurrences = 0
        self.steps = 0

    def position(self, number: int, width: int) -> tuple[Triple, Triple]:
        """Block and thread of a thread by its number in the launch."""
        row, thread = divmod(number, width)
        x, y, _ = self.block
        gx, gy, _ = self.grid
        block = int(self.block_order[row])
        return (
            (block % gx, block // gx % gy, block // (gx * gy)),
            (thread % x, thread // x % y, thread // (x * y)),
        )

    def add(self, chunk: Chunk, instruction: Instruction, lane: int, fault: Fault) -> None:
        """Keep a fault of the thread that runs in a lane."""
        block, thread = self.position(chunk.first + lane, chunk.width)
        source = instruction.source
        fault = replace(
            fault,
            line=instruction.line,
            source_line=source.line if source else None,
            source_file=source.file if source else "",
            block=block,
            thread=thread,
        )
        self.occurrences += 1
        if self.occurrences == 1:
            self.max_steps = min(self.max_steps, self.steps + STEPS_AFTER_FAULT)
        key = (fault.kind, fault.line, fault.object)
        old = self.faults.get(key)
        if old is not None:
            self.faults[key] = replace(old, count=old.count + fault.count)
        elif len(self.faults) < FAULT_LIMIT:
            self.faults[key] = fault
        if self.occurrences > OCCURRENCE_LIMIT:
            raise Halt

    def fatal(
        self,
        chunk: Chunk,
        instruction: Instruction,
        lane: int,
        kind: str,
        *,
        space: str = "",
        object: str = "",
        count: int = 1,
        message: str = "",
    ) -> NoReturn:
        """Report a fault after which nothing can go on."""
        fault = Fault(kind, space=space, object=object, count=count, message=message)
        self.add(chunk, instruction, lane, fault)
        raise Halt

    def illegal(
        self, chunk: Chunk, group: Group, instruction: Instruction, message: str, *, lane: int = -1
    ) -> NoReturn:
        """Report an instruction that cannot be executed like this."""
        first = int(chunk.numbers(group.active)[0]) if lane < 0 else lane
        self.fatal(
            chunk, instruction, first, "illegal_instruction", space="control", message=message
        )

    def step_limit(self, chunk: Chunk, group: Group, segment: Segment) -> NoReturn:
        """Report a thread that executed too many instructions, unless a fault came before."""
        if self.faults:
            raise Halt
        self.endless(
            chunk,
            group,
            f"no end after {self.max_steps} instructions of one thread; the loop does not finish",
        )

    def endless(self, chunk: Chunk, group: Group, message: str) -> NoReturn:
        """Report lanes that never come to an end."""
        instructions = group.frame.code.function.instructions
        at = instructions[min(group.pc, len(instructions) - 1)]
        lanes = chunk.numbers(group.active)
        self.fatal(
            chunk,
            at,
            int(lanes[0]),
            "infinite_loop",
            space="control",
            count=lanes.size,
            message=message,
        )

    def fell_off(self, chunk: Chunk, group: Group) -> NoReturn:
        """Report code that runs past the end of its function."""
        last = group.frame.code.function.instructions[-1]
        self.illegal(chunk, group, last, "the code runs past the end of its function")

    def deep(self, chunk: Chunk, group: Group, depth: int) -> None:
        """Report a recursion without end."""
        if depth > DEPTH_LIMIT:
            at = group.frame.code.function.instructions[group.pc]
            self.illegal(chunk, group, at, f"calls nest deeper than {DEPTH_LIMIT}")

    def out_of_bounds(
        self,
        chunk: Chunk,
        target: Target,
        *,
        lane: int,
        address: int,
        near: Near,
        count: int,
        space: str = "",
    ) -> NoReturn:
        """Report an access outside every object."""
        name, start = near
        address &= (1 << 64) - 1
        kind = "out_of_bounds_write" if target.write else "out_of_bounds_read"
        space = space or target.space or "global"
        verb = "writes" if target.write else "reads"
        place = f", byte {address - start} from the start of {name}" if name else ""
        fault = Fault(
            kind,
            space=space,
            address=address,
            object=name,
            offset=address - start if name else None,
            size=target.size,
            count=count,
            message=f"{verb} {plural(target.size, 'byte')} at {address:#x}{place}, "
            "outside every object",
        )
        self.add(chunk, target.instruction, lane, fault)
        raise Halt

    def misaligned(
        self, frame: Frame, target: Target, *, lane: int, address: int, count: int
    ) -> NoReturn:
        """Report an address that is no multiple of the access size."""
        space = target.space or "global"
        if space in ("shared", "local"):
            name, start = self.nearest_own(frame, space, address)
        else:
            name, start = self.nearest(frame, target, address)
        place = f"byte {address - start} of {name}" if name else "in no object"
        fault = Fault(
            "misaligned_access",
            space=space,
            address=address,
            object=name,
            offset=address - start if name else None,
            size=target.size,
            count=count,
            message=(
                f"{plural(target.size, 'byte')} at {address:#x}, {place}: "
                f"the address must be a multiple of {target.size}"
            ),
        )
        self.add(frame.chunk, target.instruction, lane, fault)
        raise Halt

    def read_only(self, frame: Frame, target: Target, piece: Piece) -> NoReturn:
        """Report a store to memory that cannot be written."""
        first = int(piece.where.indices()[0]) * target.size
        lane = int(frame.chunk.numbers(piece.active)[0])
        allocation = piece.allocation
        self.out_of_bounds(
            frame.chunk,
            target,
            lane=lane,
            address=allocation.base + first,
            near=(allocation.name, allocation.base),
            count=piece.lanes,
            space=allocation.space,
        )

    def race(
        self, frame: Frame, target: Target, allocation: Allocation, conflict: Conflict
    ) -> None:
        """Report two accesses that nothing orders."""
        chunk = frame.chunk
        name, offset, address = self.located(frame, allocation, conflict)
        block, thread = self.position((conflict.stamp & TID_MASK) - 1, chunk.width)
        earlier, later = conflict.access
        line = conflict.line
        where = f" at line {line}" if line else ""
        fault = Fault(
            "data_race",
            space=allocation.space,
            address=address,
            object=name,
            offset=offset,
            size=target.size,
            count=conflict.count,
            access=conflict.access,
            other_line=line,
            other_block=block,
            other_thread=thread,
            message=(
                f"{later} of {name} at byte {offset} is not ordered after the {earlier}{where} by "
                f"thread {thread} of block {block}; put a barrier, or a fence with an atomic, "
                "between them, or make both atomic"
            ),
        )
        self.add(chunk, target.instruction, conflict.lane, fault)

    def same_value(self, target: Target, allocation: Allocation) -> None:
        """Note that threads which nothing orders store one value to one word."""
        name = allocation.name or "shared memory"
        self.notes[name] = (
            f"line {target.instruction.line}: several threads store the same value to one word of "
            f"{name}, in no order; one of them would do"
        )

    def located(
        self, frame: Frame, allocation: Allocation, conflict: Conflict
    ) -> tuple[str, int, int]:
        """Name of the object, byte in it and address of a conflict."""
        byte = conflict.word * self.shadow(allocation).granule
        if allocation.space == "shared":
            at = byte % self.shared_stride
            name, start = self.nearest_own(frame, "shared", at)
            return name, at - start, at
        name, start = self.view_at(allocation, allocation.base + byte)
        return name, allocation.base + byte - start, allocation.base + byte

    def uninitialised(
        self, frame: Frame, instruction: Instruction, marks: Array, lanes: Array
    ) -> None:
        """Report undefined bits used in lanes; `marks` holds the origin's number by lane."""
        for number in np.unique(marks[lanes]).tolist():
            if not number:
                continue
            here = lanes[marks[lanes] == number]
            origin = self.origins[number - 1]
            lane = int(here[0])
            used = ""
            if origin.instruction is not instruction:
                used = f"; used at line {instruction.line}"
            offset = None
            if origin.address is not None:
                offset = int(origin.address[lane]) - origin.start
            what = f"byte {offset} of {origin.object}" if offset is not None else origin.object
            fault = Fault(
                "uninitialised_read",
                space=origin.space,
                address=int(origin.address[lane]) if origin.address is not None else None,
                object=origin.object,
                offset=offset,
                size=origin.size,
                count=here.size,
                message=f"reads {what}, which nothing has written{used}",
            )
            self.add(frame.chunk, origin.instruction, lane, fault)

    def nearest(self, frame: Frame, target: Target, address: int) -> Near:
        """The object that a bad global address most likely belongs to."""
        raise NotImplementedError

    def nearest_own(self, frame: Frame, space: str, address: int) -> Near:
        """The shared or local variable at or before an address."""
        if space == "shared":
            return self.nearest_shared(address)
        own: Frame | None = frame
        best: Near = ("", 0)
        while own is not None:
            for place in own.code.places.values():
                start = own.local_base + place.start
                if start <= address and (not best[0] or start > best[1]):
                    best = (place.name, start)
            own = own.parent
        return best

    def nearest_shared(self, address: int) -> Near:
        """The shared variable at or before an address."""
        raise NotImplementedError

    def shadow(self, allocation: Allocation) -> Shadow:
        """The stamps of an allocation."""
        raise NotImplementedError
