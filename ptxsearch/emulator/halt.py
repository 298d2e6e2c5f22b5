"""How the machine leaves a launch in the middle: signals that never pass its boundary."""

from __future__ import annotations

from collections.abc import Sequence

from ptxsearch.emulator.report import Unsupported
from ptxsearch.ptx.syntax import Instruction


class Halt(Exception):
    """The launch cannot go on: a fatal fault was reported."""


class Unable(Exception):
    """The launch met an instruction that is not supported."""

    def __init__(self, what: Unsupported) -> None:
        super().__init__(str(what))
        self.what = what


class Refused(Exception):
    """The launch itself is not valid; the message says why."""


def one_of(instruction: Instruction, *names: str) -> str:
    """The first of the names among an instruction's modifiers; it must have one."""
    for name in instruction.modifiers:
        if name in names:
            return name
    raise Refused(
        f"line {instruction.line}: {instruction.mnemonic} needs one of {', '.join(names)}"
    )


def counted(instruction: Instruction, operands: Sequence[object], wanted: int) -> None:
    """Refuse a vector of another length than the instruction names."""
    if len(operands) != wanted:
        raise Refused(
            f"line {instruction.line}: {instruction.mnemonic} moves {wanted} elements, "
            f"got {len(operands)}"
        )


class TaintStarted(Exception):
    """A load met undefined bytes: from here on undefined bits must be followed."""
