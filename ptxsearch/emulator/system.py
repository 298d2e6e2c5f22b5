"""Calls of system functions: printing and failed assertions."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ptxsearch.emulator.code import Control
from ptxsearch.emulator.frame import Frame, Group
from ptxsearch.emulator.halt import Refused
from ptxsearch.emulator.memory import LOCAL_WINDOW, WINDOW
from ptxsearch.emulator.operation import Array
from ptxsearch.ptx.syntax import Instruction, Name, Operand

if TYPE_CHECKING:
    from ptxsearch.emulator.machine import Chunk
    from ptxsearch.emulator.translate import Translator

PRINT_LIMIT = 1000
STRING_LIMIT = 4096
_FORMAT = re.compile(r"%[-+ #0]*\d*(?:\.\d+)?(hh|h|ll|l|z|j|t)?([diouxXcsfFeEgGaAp%])")

System = Callable[["Translator", Instruction, Sequence[Operand], Sequence[Operand]], Control]


def _parameter(frame: Frame, operand: Operand, lane: int, size: int) -> int:
    """The value of a call's parameter in one lane."""
    if not isinstance(operand, Name) or operand.name not in frame.code.places:
        raise Refused("a system call takes its arguments in .param variables")
    start = frame.local_base + frame.code.places[operand.name].start
    rows = frame.chunk.local.data.reshape(frame.chunk.lanes, -1)
    return int.from_bytes(rows[lane, start : start + size].tobytes(), "little")


def _bytes_at(frame: Frame, lane: int, address: int, size: int) -> bytes:
    """Up to `size` bytes from a generic address as one lane sees it."""
    if LOCAL_WINDOW <= address < LOCAL_WINDOW + WINDOW:
        rows = frame.chunk.local.data.reshape(frame.chunk.lanes, -1)
        at = address - LOCAL_WINDOW
        return rows[lane, at : at + size].tobytes()
    found = frame.chunk.launch.memory.find(address)
    if found is None:
        return b""
    at = address - found.base
    return found.data[at : at + size].tobytes()


def _string(frame: Frame, lane: int, address: int) -> str:
    raw = _bytes_at(frame, lane, address, STRING_LIMIT)
    return raw.partition(b"\0")[0].decode("latin-1")


def _formatted(frame: Frame, lane: int, template: str, values: int) -> str:
    """The text of one `printf`; its arguments lie in a buffer, doubles and 64 bits aligned."""
    at = values

    def take(size: int) -> bytes:
        nonlocal at
        at = -(-at // size) * size
        raw = _bytes_at(frame, lane, at, size)
        at += size
        return raw.ljust(size, b"\0")

    def replace(match: re.Match[str]) -> str:
        length, kind = match.groups()
        spec = match.group(0).replace(length or "\0", "") if length else match.group(0)
        if kind == "%":
            return "%"
        if kind in "fFeEgGaA":
            value = float(np.frombuffer(take(8), np.float64)[0])
            return float(value).hex() if kind in "aA" else str(spec % value)
        if kind == "s":
            return spec % _string(frame, lane, int.from_bytes(take(8), "little"))
        if kind == "p":
            return hex(int.from_bytes(take(8), "little"))
        size = 8 if length in ("ll", "l", "z", "j", "t") else 4
        number = int.from_bytes(take(size), "little", signed=kind in "di")
        return spec % chr(number & 255) if kind == "c" else spec.replace("u", "d") % number

    return _FORMAT.sub(replace, template)


def build_print(
    t: Translator,
    instruction: Instruction,
    returns: Sequence[Operand],
    arguments: Sequence[Operand],
) -> Control:
    """The control of `vprintf`."""

    def control(chunk: Chunk, group: Group) -> bool:
        frame, launch = group.frame, chunk.launch
        for lane in chunk.numbers(group.active).tolist():
            if len(launch.printed) >= PRINT_LIMIT:
                break
            template = _string(frame, lane, _parameter(frame, arguments[0], lane, 8))
            values = _parameter(frame, arguments[1], lane, 8)
            launch.printed.append(_formatted(frame, lane, template, values))
        _define_results(frame, returns)
        group.pc += 1
        return True

    return control


def _define_results(frame: Frame, returns: Sequence[Operand]) -> None:
    chunk = frame.chunk
    for operand in returns:
        if isinstance(operand, Name) and chunk.local.defined is not None:
            place = frame.code.places[operand.name]
            start = frame.local_base + place.start
            known = chunk.local.defined.reshape(chunk.lanes, -1)
            known[:, start : start + place.size] = True


def build_assertion(
    t: Translator,
    instruction: Instruction,
    returns: Sequence[Operand],
    arguments: Sequence[Operand],
) -> Control:
    """The control of `__assertfail`: message, file, line, function, size of a character."""

    def control(chunk: Chunk, group: Group) -> bool:
        frame = group.frame
        lanes: Array = chunk.numbers(group.active)
        lane = int(lanes[0])
        message, file = (
            _string(frame, lane, _parameter(frame, argument, lane, 8)) for argument in arguments[:2]
        )
        line = _parameter(frame, arguments[2], lane, 4)
        chunk.launch.fatal(
            chunk,
            instruction,
            lane,
            "trap",
            space="control",
            count=lanes.size,
            message=f"assertion failed: {message} ({file}:{line})",
        )

    return control


CALLS: dict[str, System] = {"vprintf": build_print, "__assertfail": build_assertion}
