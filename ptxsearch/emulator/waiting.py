"""Lanes that wait for others: at barriers of a block and at synchronising warp instructions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ptxsearch.emulator.code import Step
from ptxsearch.emulator.frame import Frame, Group
from ptxsearch.emulator.lanes import Active
from ptxsearch.emulator.operation import Array

if TYPE_CHECKING:
    from ptxsearch.emulator.machine import Chunk


@dataclass(slots=True, eq=False)
class Parked:
    """Lanes that wait at one instruction.

    At a barrier `number` is its number and `expected` the threads it waits for (0: all of the
    block), one for each lane, `aligned` whether whole warps must arrive together. At a warp
    instruction `meets` names what must match and `masks` says for each lane whom it waits for.
    `finish` completes the instruction for lanes that are released.
    """

    frame: Frame
    pc: int
    steps: int
    index: Array
    step: Step
    meets: str
    numbers: Array
    expected: Array
    aligned: bool
    finish: Callable[[Chunk, list[tuple[Parked, Array]]], None]

    def part(self, keep: Array) -> Parked | None:
        """What still waits when only the lanes `keep` (a bool for each) stay."""
        if not keep.any():
            return None
        return Parked(
            self.frame,
            self.pc,
            self.steps,
            self.index[keep],
            self.step,
            self.meets,
            self.numbers[keep],
            self.expected[keep],
            self.aligned,
            self.finish,
        )


def park(chunk: Chunk, parked: Parked) -> None:
    """Let lanes wait, and release whoever need not wait any more."""
    chunk.parked.append(parked)
    resolve(chunk)


def resolve(chunk: Chunk) -> None:
    """Release every barrier and warp instruction whose lanes are complete."""
    for meets in {parked.meets for parked in chunk.parked}:
        entries = [parked for parked in chunk.parked if parked.meets == meets]
        if meets == BARRIER:
            _resolve_barriers(chunk, entries)
        else:
            _resolve_warps(chunk, entries)


BARRIER = "barrier"


def _release(chunk: Chunk, entries: list[Parked], lanes: Array) -> None:
    """Complete the instructions for the lanes (a bool for each of the chunk) and let them go."""
    going: list[tuple[Parked, Array]] = []
    for parked in entries:
        on = lanes[parked.index]
        if on.any():
            going.append((parked, parked.index[on]))
            chunk.parked.remove(parked)
            rest = parked.part(~on)
            if rest is not None:
                chunk.parked.append(rest)
    if not going:
        return
    going[0][0].finish(chunk, going)
    for parked, index in going:
        active = None if index.size == chunk.lanes else Active(index, chunk.lanes)
        chunk.add(Group(parked.frame, parked.pc + 1, active, parked.steps))


def _resolve_barriers(chunk: Chunk, entries: list[Parked]) -> None:
    for number in {int(n) for parked in entries for n in np.unique(parked.numbers)}:
        entries = [parked for parked in chunk.parked if parked.meets == BARRIER]
        _resolve_barrier(chunk, entries, number)


def _resolve_barrier(chunk: Chunk, entries: list[Parked], number: int) -> None:
    shape = (chunk.rows, chunk.width)
    wait = np.zeros(chunk.lanes, np.bool_)
    expected = np.zeros(chunk.lanes, np.int64)
    for parked in entries:
        on = parked.numbers == number
        wait[parked.index[on]] = True
        expected[parked.index[on]] = parked.expected[on]
    waiting, live = wait.reshape(shape), chunk.live.reshape(shape)
    wanted = expected.reshape(shape).max(axis=1)
    ready = np.zeros(chunk.rows, np.bool_)
    some = waiting.any(axis=1)
    full = some & (wanted == 0)
    ready[full] = (waiting[full] | ~live[full]).all(axis=1)
    for row in np.flatnonzero(some & (wanted > 0)).tolist():
        ready[row] = _partial_ready(chunk, row, number, waiting[row], int(wanted[row]))
    if not ready.any():
        return
    lanes = (waiting & ready[:, None]).reshape(-1)
    _check_whole_warps(chunk, entries, lanes, number)
    for row in np.flatnonzero(ready & (wanted > 0)).tolist():
        _pass_partial(chunk, row, number, waiting[row])
    whole = np.flatnonzero(ready & (wanted == 0))
    if whole.size:
        everything = whole.size == chunk.rows
        chunk.order.barrier(None if everything else whole)
        if everything:
            chunk.shared_settled()
    _release(chunk, entries, lanes)


def _partial_ready(chunk: Chunk, row: int, number: int, waiting: Array, wanted: int) -> bool:
    warps = np.flatnonzero(waiting.reshape(-1, 32).any(axis=1)).tolist()
    announced = chunk.announced.get((row, number), [])
    return (len(warps) + len(announced)) * 32 >= wanted


def _pass_partial(chunk: Chunk, row: int, number: int, waiting: Array) -> None:
    warps: list[int] = np.flatnonzero(waiting.reshape(-1, 32).any(axis=1)).tolist()
    announced = chunk.announced.pop((row, number), [])
    chunk.order.partial_barrier(row, sorted({*warps, *announced}), warps)


def _check_whole_warps(chunk: Chunk, entries: list[Parked], lanes: Array, number: int) -> None:
    """An aligned barrier must be reached by all lanes of a warp at one instruction."""
    place = np.full(chunk.lanes, -1, np.int64)
    aligned = np.zeros(chunk.lanes, np.bool_)
    for parked in entries:
        place[parked.index] = parked.pc + (id(parked.frame) << 20) % (1 << 60)
        aligned[parked.index] = parked.aligned
    going = lanes.reshape(-1, 32)
    touched = np.asarray((going & aligned.reshape(-1, 32)).any(axis=1))
    real = chunk.real.reshape(-1, 32)
    places = place.reshape(-1, 32)
    highest = places.max(axis=1, keepdims=True)
    bad: Array = touched[:, None] & real & (~going | (places != highest))
    if bad.any():
        divergent(chunk, entries, bad.reshape(-1), number)


def divergent(chunk: Chunk, entries: list[Parked], bad: Array, number: int) -> None:
    """Report a barrier that only part of a warp reached; `bad` are the lanes that did not."""
    lane = int(bad.argmax())
    warp = lane // 32
    at = next(p for p in entries if bool((p.index // 32 == warp).any()))
    gone = not bool(chunk.live[lane])
    reason = "has exited" if gone else "is at another instruction"
    chunk.launch.fatal(
        chunk,
        at.step.instruction,
        lane,
        "divergent_barrier",
        space="barrier",
        object=str(number),
        count=int(np.count_nonzero(bad)),
        message=(
            f"barrier {number} is reached by only some lanes of a warp: this thread {reason}; "
            "let every lane of the warp reach the same barrier instruction"
        ),
    )


def _resolve_warps(chunk: Chunk, entries: list[Parked]) -> None:
    """Release the lanes whose whole mask waits at a matching instruction."""
    shape = (-1, 32)
    masks = np.zeros(chunk.lanes, np.uint32)
    wait = np.zeros(chunk.lanes, np.bool_)
    for parked in entries:
        masks[parked.index] = parked.numbers
        wait[parked.index] = True
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    waiting = wait.reshape(shape)
    live = (chunk.live.reshape(shape) * bits).sum(axis=1, dtype=np.uint32)[:, None]
    table = masks.reshape(shape)
    alike = np.zeros(waiting.shape, np.uint32)
    for lane in range(32):
        same = (table == table[:, lane : lane + 1]) & waiting
        alike[:, lane] = (same * bits).sum(axis=1, dtype=np.uint32)
    ready = waiting & ((table & live & ~alike) == 0)
    if ready.any():
        _release(chunk, entries, ready.reshape(-1))


def stuck(chunk: Chunk) -> None:
    """Report why no lane of the chunk can go on."""
    entries = [parked for parked in chunk.parked if parked.meets == BARRIER]
    for parked in entries:
        if not parked.aligned:
            continue
        lanes = np.zeros(chunk.lanes, np.bool_)
        for other in entries:
            if other.pc == parked.pc and other.frame is parked.frame:
                lanes[other.index] = True
        rows = lanes.reshape(-1, 32)
        some = np.asarray(rows.any(axis=1))
        bad = some[:, None] & ~rows & chunk.real.reshape(-1, 32)
        if bad.any():
            divergent(chunk, entries, bad.reshape(-1), int(parked.numbers[0]))
    parked = (entries or chunk.parked)[0]
    number = int(parked.numbers[0])
    what = f"barrier {number}" if entries else f"{parked.step.instruction.mnemonic}"
    chunk.launch.fatal(
        chunk,
        parked.step.instruction,
        int(parked.index[0]),
        "barrier_deadlock",
        space="barrier",
        object=str(number) if entries else "",
        count=sum(p.index.size for p in chunk.parked),
        message=(
            f"threads wait at {what} for others that never arrive; "
            "every thread it waits for must reach it"
        ),
    )
