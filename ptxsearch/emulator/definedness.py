"""Which bytes of an instruction's results are undefined, given those of its sources.

Instructions that move bytes about are followed byte by byte; for every other one a result is
undefined as a whole as soon as a byte of a source is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ptxsearch.emulator.code import Step
from ptxsearch.emulator.operation import WIDTHS, Array

if TYPE_CHECKING:
    from ptxsearch.emulator.frame import Frame

ORIGIN = 256
"""A mark is the number of its origin times this plus a bit for each undefined byte."""

CLEAN = np.zeros(1, np.int64)

Rule = Callable[["Frame", Step, list[Array]], "Array | None"]


def results(frame: Frame, step: Step) -> list[Array]:
    """The marks of each target of a step that has an undefined source."""
    marks = [frame.taint.get(slot, CLEAN) for slot in step.sources]
    origin = marks[0] // ORIGIN
    for other in marks[1:]:
        origin = np.maximum(origin, other // ORIGIN)
    masks = [found % ORIGIN for found in marks]
    widths = frame.code.widths
    if step.instruction.opcode == "mov":
        moved = _moved(step, masks, widths)
        return [_marked(origin, mask) for mask in moved]
    rule = RULES.get(step.instruction.opcode)
    mask = rule(frame, step, masks) if rule is not None else None
    if mask is None:
        some = np.logical_or.reduce(np.broadcast_arrays(*[found != 0 for found in masks]))
        return [_marked(origin, some * _full(widths.get(slot, 1))) for slot in step.targets]
    return [_marked(origin, mask)]


def _full(width: int) -> int:
    return (1 << width) - 1


def _marked(origin: Array, mask: Array) -> Array:
    return np.where(mask != 0, origin * ORIGIN + mask, 0)


def _moved(step: Step, masks: list[Array], widths: dict[int, int]) -> list[Array]:
    """A move, a pack of several registers into one, or the reverse."""
    if len(step.targets) == 1:
        width = widths.get(step.targets[0], 8) // max(len(masks), 1)
        out = masks[0]
        for at, mask in enumerate(masks[1:], 1):
            out = out | (mask << (at * width))
        return [out]
    parts, at = [], 0
    total = widths.get(step.sources[0], 8)
    for slot in step.targets:
        width = widths.get(slot, total // len(step.targets))
        parts.append((masks[0] >> at) & _full(width))
        at += width
    return parts


def _select(frame: Frame, step: Step, masks: list[Array]) -> Array | None:
    held = frame.registers[step.sources[2]]
    chosen = np.where(held, masks[0], masks[1])
    return np.where(masks[2] != 0, 1, 0) * _full(_width(frame, step)) | chosen


def _width(frame: Frame, step: Step) -> int:
    return frame.code.widths.get(step.targets[0], 8)


def _convert(frame: Frame, step: Step, masks: list[Array]) -> Array | None:
    types = [m for m in step.instruction.modifiers if m in WIDTHS]
    if len(types) < 2 or "sat" in step.instruction.modifiers:
        return None
    target, source = types[-2:]
    if target[0] not in "usb" or source[0] not in "usb" or "f" in target + source:
        return None
    size, width = WIDTHS[source] // 8, WIDTHS[target] // 8
    kept = masks[0] & _full(size)
    if width > size and source[0] == "s":
        kept = kept | np.where(kept >> (size - 1) & 1, _full(width) & ~_full(size), 0)
    return kept & _full(min(width, _width(frame, step)) if width <= size else width)


def _bytes_set(value: Array) -> Array:
    """Which bytes of each value are not zero."""
    raw = np.ascontiguousarray(value).view(np.uint8).reshape(value.shape[0], -1)
    return np.packbits(raw != 0, axis=1, bitorder="little")[:, 0].astype(np.int64)


def _and(frame: Frame, step: Step, masks: list[Array]) -> Array | None:
    out = masks[0] | masks[1]
    for mine, other in ((0, 1), (1, 0)):
        held = frame.registers[step.sources[other]]
        if held is not None and held.dtype != np.bool_ and not masks[other].any():
            out = masks[mine] & _bytes_set(held)
    return out


def _either(frame: Frame, step: Step, masks: list[Array]) -> Array | None:
    return masks[0] | masks[1]


def _same(frame: Frame, step: Step, masks: list[Array]) -> Array | None:
    return masks[0]


def _amount(frame: Frame, slot: int, masks: Array) -> Array | None:
    """A clean shift amount in bits."""
    if masks.any():
        return None
    held: Array = frame.registers[slot]
    return np.minimum(held.astype(np.int64), 64)


def _shift_left(frame: Frame, step: Step, masks: list[Array]) -> Array | None:
    amount = _amount(frame, step.sources[1], masks[1])
    if amount is None:
        return None
    out = masks[0] << (amount // 8)
    out = out | np.where(amount % 8 != 0, out << 1, 0)
    return np.asarray(out & _full(_width(frame, step)))


def _shift_right(frame: Frame, step: Step, masks: list[Array]) -> Array | None:
    amount = _amount(frame, step.sources[1], masks[1])
    if amount is None:
        return None
    width = _width(frame, step)
    wide = masks[0]
    if step.instruction.modifiers[-1].startswith("s"):
        top = (wide >> (width - 1)) & 1
        wide = wide | np.where(top != 0, 0xFFFF << width, 0)
    out = wide >> (amount // 8)
    out = out | np.where(amount % 8 != 0, (wide >> (amount // 8 + 1)), 0)
    return np.asarray(out & _full(width))


def _permute(frame: Frame, step: Step, masks: list[Array]) -> Array | None:
    if len(step.instruction.modifiers) > 1 or masks[2].any():
        return None
    selector = frame.registers[step.sources[2]].astype(np.int64)
    pool = masks[0] | (masks[1] << 4)
    out = np.zeros(1, np.int64)
    for at in range(4):
        picked = (selector >> (4 * at)) & 7
        out = out | (((pool >> picked) & 1) << at)
    return out


def _extract(frame: Frame, step: Step, masks: list[Array]) -> Array | None:
    position = _amount(frame, step.sources[1], masks[1])
    length = _amount(frame, step.sources[2], masks[2])
    if position is None or length is None:
        return None
    covered = _field(position, length)
    return np.where(masks[0] & covered, _full(_width(frame, step)), 0)


def _insert(frame: Frame, step: Step, masks: list[Array]) -> Array | None:
    position = _amount(frame, step.sources[2], masks[2])
    length = _amount(frame, step.sources[3], masks[3])
    if position is None or length is None:
        return None
    covered = _field(position, length)
    whole = (position % 8 == 0) & (length % 8 == 0)
    kept = np.where(whole, masks[1] & ~covered, masks[1])
    moved = masks[0] << (position // 8)
    moved = moved | np.where(whole, 0, moved << 1)
    return np.asarray((kept | (moved & covered)) & _full(_width(frame, step)))


def _field(position: Array, length: Array) -> Array:
    """The bytes that a field of bits covers."""
    first = position // 8
    last = (position + np.maximum(length, 1) - 1) // 8
    full = (np.int64(1) << (last - first + 1)) - 1
    return np.where(length > 0, full << first, 0)


RULES: dict[str, Rule] = {
    "selp": _select,
    "cvt": _convert,
    "and": _and,
    "or": _either,
    "xor": _either,
    "not": _same,
    "shl": _shift_left,
    "shr": _shift_right,
    "prmt": _permute,
    "bfe": _extract,
    "bfi": _insert,
}
