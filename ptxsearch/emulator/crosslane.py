"""Instructions across the lanes of a warp: shuffle, vote, match, reduce, elect, warp barrier."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ptxsearch.emulator.code import Step
from ptxsearch.emulator.exchange import BITS, Exchange
from ptxsearch.emulator.halt import Unable, one_of
from ptxsearch.emulator.operation import Array
from ptxsearch.emulator.report import Unsupported
from ptxsearch.ptx.syntax import Instruction

if TYPE_CHECKING:
    from ptxsearch.emulator.translate import Translator


def build_shuffle(t: Translator, instruction: Instruction) -> Step:
    """The step of `shfl`: d|p, a, b, c [, mask]."""
    operands = instruction.operands
    targets = list(t.flattened(operands[0]))
    mode = one_of(instruction, "up", "down", "bfly", "idx")
    sync = "sync" in instruction.modifiers

    def compute(rows: list[Array], there: Array, masks: Array) -> tuple[list[Array], Array | None]:
        value, amount, control = rows
        lane = np.arange(32, dtype=np.int64)[None, :]
        b = (amount & 31).astype(np.int64)
        clamp, segment = (control & 31).astype(np.int64), ((control >> 8) & 31).astype(np.int64)
        highest = (lane & segment) | (clamp & ~segment)
        lowest = lane & segment
        if mode == "up":
            source = lane - b
            fits = source >= highest
        elif mode == "down":
            source = lane + b
            fits = source <= highest
        elif mode == "bfly":
            source = lane ^ b
            fits = source <= highest
        else:
            source = lowest | (b & ~segment)
            fits = source <= highest
        source = np.where(fits, source, lane) & 31
        result = np.take_along_axis(value, source, axis=1)
        present = np.take_along_axis(there, source, axis=1)
        return [result, np.broadcast_to(fits, result.shape)], np.where(present, source, -1)

    return Exchange(
        t,
        instruction,
        sources=[(operands[1], "b32"), (operands[2], "b32"), (operands[3], "b32")],
        targets=targets,
        mask=operands[4] if sync and len(operands) > 4 else None,
        compute=compute,
    ).step()


def build_vote(t: Translator, instruction: Instruction) -> Step:
    """The step of `vote`: d, p [, mask]."""
    operands, modifiers = instruction.operands, instruction.modifiers
    mode = one_of(instruction, "all", "any", "uni", "ballot")

    def compute(rows: list[Array], there: Array, masks: Array) -> tuple[list[Array], Array | None]:
        held = rows[0] & there
        bits = (held * BITS).sum(axis=1, dtype=np.uint32)[:, None] & masks
        present = (there * BITS).sum(axis=1, dtype=np.uint32)[:, None] & masks
        if mode == "ballot":
            return [bits], None
        if mode == "any":
            return [bits != 0], None
        if mode == "all":
            return [bits == present], None
        return [(bits == present) | (bits == 0)], None

    return Exchange(
        t,
        instruction,
        sources=[(operands[1], "pred")],
        targets=[operands[0]],
        mask=operands[2] if "sync" in modifiers and len(operands) > 2 else None,
        compute=compute,
    ).step()


def build_match(t: Translator, instruction: Instruction) -> Step:
    """The step of `match.sync`: d[|p], a, mask."""
    operands, modifiers = instruction.operands, instruction.modifiers
    everyone = "all" in modifiers
    kind = modifiers[-1]

    def compute(rows: list[Array], there: Array, masks: Array) -> tuple[list[Array], Array | None]:
        value = rows[0]
        result = np.zeros(value.shape, np.uint32)
        for lane in range(32):
            same = there & there[:, lane : lane + 1] & (value == value[:, lane : lane + 1])
            result[:, lane] = (same * BITS).sum(axis=1, dtype=np.uint32)
        result &= masks
        if not everyone:
            return [result], None
        present = (there * BITS).sum(axis=1, dtype=np.uint32)[:, None] & masks
        equal = result == present
        return [np.where(equal, present, 0).astype(np.uint32), equal], None

    return Exchange(
        t,
        instruction,
        sources=[(operands[1], kind)],
        targets=list(t.flattened(operands[0])),
        mask=operands[2],
        compute=compute,
    ).step()


def build_reduction(t: Translator, instruction: Instruction) -> Step:
    """The step of `redux.sync`: d, a, mask."""
    operands, modifiers = instruction.operands, instruction.modifiers
    name = next((m for m in modifiers if m in ("add", "min", "max", "and", "or", "xor")), "")
    kind = modifiers[-1]
    if not name or kind not in ("u32", "s32", "b32"):
        raise Unable(Unsupported(instruction.mnemonic, instruction.line, "floating redux"))
    ufunc = {
        "add": np.add,
        "min": np.minimum,
        "max": np.maximum,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }[name]
    typed = np.int32 if kind == "s32" else np.uint32
    info = np.iinfo(typed)
    neutral = {"min": info.max, "max": info.min, "and": -1 if typed is np.int32 else info.max}

    def compute(rows: list[Array], there: Array, masks: Array) -> tuple[list[Array], Array | None]:
        value = np.ascontiguousarray(rows[0]).view(typed)
        result = np.zeros(value.shape, typed)
        done = ~there
        while not done.all():
            lead = (~done).argmax(axis=1)
            mask = np.take_along_axis(masks, lead[:, None], axis=1)
            members = there & ~done & (masks == mask)
            filled = np.where(members, value, typed(neutral.get(name, 0)))
            total = ufunc.reduce(filled, axis=1, dtype=typed)
            result = np.where(members, total[:, None], result)
            done = done | members
        return [result.view(np.uint32)], None

    return Exchange(
        t,
        instruction,
        sources=[(operands[1], "b32")],
        targets=[operands[0]],
        mask=operands[2],
        compute=compute,
    ).step()


def build_warp_barrier(t: Translator, instruction: Instruction) -> Step:
    """The step of `bar.warp.sync`: mask."""

    def compute(rows: list[Array], there: Array, masks: Array) -> tuple[list[Array], Array | None]:
        return [], None

    return Exchange(
        t,
        instruction,
        sources=[],
        targets=[],
        mask=instruction.operands[0],
        compute=compute,
    ).step()


def build_elect(t: Translator, instruction: Instruction) -> Step:
    """The step of `elect.sync`: d|p, mask."""

    def compute(rows: list[Array], there: Array, masks: Array) -> tuple[list[Array], Array | None]:
        present = there & ((masks & BITS) != 0)
        leader = present.argmax(axis=1)[:, None]
        lane = np.arange(32)[None, :]
        return [np.broadcast_to(leader.astype(np.uint32), there.shape), lane == leader], None

    return Exchange(
        t,
        instruction,
        sources=[],
        targets=list(t.flattened(instruction.operands[0])),
        mask=instruction.operands[1],
        compute=compute,
    ).step()


def build_active_mask(t: Translator, instruction: Instruction) -> Step:
    """The step of `activemask`."""

    def compute(rows: list[Array], there: Array, masks: Array) -> tuple[list[Array], Array | None]:
        bits = (there * BITS).sum(axis=1, dtype=np.uint32)[:, None]
        return [np.broadcast_to(bits, there.shape)], None

    return Exchange(
        t,
        instruction,
        sources=[],
        targets=[instruction.operands[0]],
        mask=None,
        compute=compute,
    ).step()
