"""Which registers some path reads before it writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptxsearch.ptx.syntax import Function, Instruction, Name

if TYPE_CHECKING:
    from ptxsearch.emulator.code import Code


def uncertain_registers(code: Code, function: Function) -> tuple[tuple[int, str], ...]:
    """Slot and name of every register that may be read without having been written.

    A write under a guard does not count as one. Parameters that are registers are written by the
    call.
    """
    names = {slot: name for name, slot in code.slots.items()}
    given = 0
    for variable in function.params:
        if variable.name in code.slots:
            given |= 1 << code.slots[variable.name]
    starts = sorted({0, *code.leaders, *_after_branches(function)})
    blocks = [b for b in starts if b < len(code.steps)]
    if not blocks:
        return ()
    ends = [*blocks[1:], len(code.steps)]
    everything = (1 << code.size) - 1
    entry = dict.fromkeys(blocks, everything)
    entry[0] = given
    risky = 0
    work = [0]
    end_of = dict(zip(blocks, ends, strict=True))
    seen: set[int] = set()
    mask = sum(1 << slot for slot in names)
    while work:
        block = work.pop()
        known, missing = _through(code, block, end_of[block], entry[block])
        risky |= missing & mask
        seen.add(block)
        for successor in _successors(function, end_of[block]):
            if successor not in entry:
                continue
            merged = entry[successor] & known
            if merged != entry[successor] or successor not in seen:
                entry[successor] = merged
                work.append(successor)
    return tuple((slot, name) for slot, name in names.items() if risky >> slot & 1)


def _through(code: Code, start: int, end: int, known: int) -> tuple[int, int]:
    """What is written after a block, and what it reads too early."""
    missing = 0
    for step in code.steps[start:end]:
        for slot in (*step.sources, *step.critical):
            missing |= ~known & (1 << slot)
        if step.instruction.guard is None:
            for slot in step.targets:
                if slot >= 0:
                    known |= 1 << slot
    return known, missing


def _after_branches(function: Function) -> list[int]:
    return [at + 1 for at, i in enumerate(function.instructions) if i.opcode in ("bra", "brx")]


def _successors(function: Function, end: int) -> list[int]:
    last: Instruction = function.instructions[end - 1]
    falls = last.guard is not None
    if last.opcode == "bra" and isinstance(last.operands[0], Name):
        targets = [function.labels[last.operands[0].name]]
    elif last.opcode == "brx" and isinstance(last.operands[-1], Name):
        targets = [function.labels[label] for label in function.tables[last.operands[-1].name]]
    elif last.opcode in ("ret", "exit", "trap"):
        targets = []
    else:
        targets, falls = [], True
    return [*targets, end] if falls else targets
