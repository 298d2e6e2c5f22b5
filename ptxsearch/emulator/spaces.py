"""Addresses converted between the generic space and others, and asked for theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ptxsearch.emulator.code import Step
from ptxsearch.emulator.halt import one_of
from ptxsearch.emulator.memory import WINDOW, WINDOWS
from ptxsearch.emulator.operation import Array
from ptxsearch.emulator.pure import over_all, over_some
from ptxsearch.ptx.syntax import Instruction

if TYPE_CHECKING:
    from ptxsearch.emulator.translate import Translator


def build_convert_address(t: Translator, instruction: Instruction) -> Step:
    """The step of `cvta` and `cvta.to`; addresses of parameters are generic from the start."""
    space = next(
        (m.partition("::")[0] for m in instruction.modifiers if m.partition("::")[0] in WINDOWS),
        "global",
    )
    target, source = instruction.operands
    slot, offset, _ = t.address(source, space)
    where = t.target(target)
    kind = t.storage(target)  # type: ignore[arg-type]
    window = 0 if space == "param" else WINDOWS[space]
    if "to" in instruction.modifiers:
        window = -window
    change = np.uint64((window + offset) & 0xFFFF_FFFF_FFFF_FFFF)

    def compute(value: Array) -> tuple[Array]:
        if not change:
            return (value if value.dtype == kind else value.astype(kind),)
        return ((value.astype(np.uint64) + change).astype(kind),)

    return Step(
        instruction,
        over_all(compute, (slot,), (where,)),
        over_some(compute, (slot,), (where,)),
        sources=(slot,),
        targets=(where,),
    )


def build_is_space(t: Translator, instruction: Instruction) -> Step:
    """The step of `isspacep`."""
    name = one_of(instruction, *WINDOWS, "const", "shared::cta", "param::entry")
    space = name.partition("::")[0]
    slot = t.source(instruction.operands[1], "b64")
    where = t.target(instruction.operands[0])
    windows = [WINDOWS[name] for name in WINDOWS if name != "global"]

    def compute(value: Array) -> tuple[Array]:
        address = value.astype(np.int64)
        if space == "global":
            inside = np.ones(address.shape, np.bool_)
            for base in windows:
                inside &= (address < base) | (address >= base + WINDOW)
            return (inside,)
        if space == "const":
            return (np.zeros(address.shape, np.bool_),)
        base = WINDOWS[space]
        return ((address >= base) & (address < base + WINDOW),)

    return Step(
        instruction,
        over_all(compute, (slot,), (where,)),
        over_some(compute, (slot,), (where,)),
        sources=(slot,),
        targets=(where,),
    )
