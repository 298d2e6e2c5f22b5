"""Which builder makes the step of which instruction."""

from __future__ import annotations

from ptxsearch.emulator.access import build_load, build_store
from ptxsearch.emulator.asynchrony import build_async
from ptxsearch.emulator.atomics import build_atomic, unsupported
from ptxsearch.emulator.barrier import build_barrier
from ptxsearch.emulator.calls import build_call, build_return
from ptxsearch.emulator.code import Step
from ptxsearch.emulator.control import (
    build_branch,
    build_exit,
    build_indexed_branch,
    guarded_control,
)
from ptxsearch.emulator.crosslane import (
    build_active_mask,
    build_elect,
    build_match,
    build_reduction,
    build_shuffle,
    build_vote,
)
from ptxsearch.emulator.guard import guarded
from ptxsearch.emulator.halt import Refused, Unable
from ptxsearch.emulator.miscellany import (
    build_fence,
    build_nothing,
    build_policy,
    build_trap,
)
from ptxsearch.emulator.pure import build_arithmetic
from ptxsearch.emulator.spaces import build_convert_address, build_is_space
from ptxsearch.emulator.translate import Builder, Translator
from ptxsearch.ptx.syntax import Instruction

BUILDERS: dict[str, Builder] = {
    "ld": build_load,
    "ldu": build_load,
    "st": build_store,
    "atom": build_atomic,
    "red": build_atomic,
    "bar": build_barrier,
    "barrier": build_barrier,
    "bra": build_branch,
    "brx": build_indexed_branch,
    "call": build_call,
    "ret": build_return,
    "exit": build_exit,
    "shfl": build_shuffle,
    "vote": build_vote,
    "match": build_match,
    "redux": build_reduction,
    "elect": build_elect,
    "activemask": build_active_mask,
    "membar": build_fence,
    "fence": build_fence,
    "trap": build_trap,
    "cp": build_async,
    "cvta": build_convert_address,
    "isspacep": build_is_space,
    "createpolicy": build_policy,
    "prefetch": build_nothing,
    "prefetchu": build_nothing,
    "nanosleep": build_nothing,
    "pmevent": build_nothing,
    "brkpt": build_nothing,
    "applypriority": build_nothing,
    "discard": build_nothing,
}

OUT_OF_SCOPE = {
    "mma": "tensor cores",
    "wmma": "tensor cores",
    "wgmma": "tensor cores",
    "tcgen05": "tensor cores",
    "ldmatrix": "matrix loads",
    "stmatrix": "matrix stores",
    "movmatrix": "matrix moves",
    "mbarrier": "mbarriers",
    "mapa": "clusters",
    "getctarank": "clusters",
    "setmaxnreg": "register reallocation",
    "griddepcontrol": "dependent launches",
    "multimem": "multicast memory",
    "tensormap": "tensor maps",
    "clusterlaunchcontrol": "clusters",
    "tex": "textures",
    "tld4": "textures",
    "txq": "textures",
    "suld": "surfaces",
    "sust": "surfaces",
    "sured": "surfaces",
    "suq": "surfaces",
    "alloca": "a stack of varying size",
    "stacksave": "a stack of varying size",
    "stackrestore": "a stack of varying size",
}


OPERANDS = {
    "ld": (2, 4),
    "ldu": (2, 2),
    "st": (2, 4),
    "atom": (3, 5),
    "red": (2, 4),
    "bar": (0, 4),
    "barrier": (0, 4),
    "bra": (1, 1),
    "brx": (2, 2),
    "shfl": (4, 5),
    "vote": (2, 3),
    "match": (3, 3),
    "redux": (3, 3),
    "elect": (2, 2),
    "activemask": (1, 1),
    "cvta": (2, 2),
    "isspacep": (2, 2),
    "mov": (2, 2),
    "createpolicy": (1, 8),
}
"""The fewest and most operands of an opcode whose builder relies on them."""


def builder_of(instruction: Instruction) -> Builder:
    """The builder of an instruction, with its guard and default values taken care of."""
    return _build


def _build(t: Translator, instruction: Instruction) -> Step:
    reason = OUT_OF_SCOPE.get(instruction.opcode)
    if reason is not None:
        return unsupported(instruction, reason)
    fewest, most = OPERANDS.get(instruction.opcode, (0, 8))
    if not fewest <= len(instruction.operands) <= most:
        raise Refused(
            f"line {instruction.line}: {instruction.mnemonic} takes {fewest} to {most} operands, "
            f"got {len(instruction.operands)}"
        )
    builder = BUILDERS.get(instruction.opcode, build_arithmetic)
    try:
        step = builder(t, instruction)
    except Unable as unable:
        return unsupported(instruction, unable.what.reason)
    if instruction.guard is None:
        return step
    if step.control is not None:
        if instruction.opcode == "bra":
            return step
        return guarded_control(t, instruction, step)
    return guarded(step, instruction.guard, t.register(instruction.guard.register))


__all__ = ["BUILDERS", "builder_of"]
