"""What a load, a store or an atomic moves: space, type, width and ordering."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ptxsearch.emulator.halt import Unable
from ptxsearch.emulator.operation import WIDTHS
from ptxsearch.emulator.ordering import BLOCK_SCOPE
from ptxsearch.emulator.ordering import STRONG as STRONG_STAMP
from ptxsearch.emulator.report import Unsupported
from ptxsearch.ptx.syntax import Instruction

if TYPE_CHECKING:
    pass


SPACES = {
    "global": "global",
    "shared": "shared",
    "shared::cta": "shared",
    "local": "local",
    "const": "const",
    "param": "param",
    "param::entry": "param",
    "param::func": "param",
}


FOREIGN = {
    "shared::cluster": "clusters",
    "async": "asynchronous stores",
    "b128": "values of 128 bits",
    "mmio": "memory-mapped input and output",
}


STRONG = frozenset({"volatile", "relaxed", "acquire", "release", "mmio", "acq_rel"})


VECTORS = {"v2": 2, "v4": 4, "v8": 8}


@dataclass(frozen=True, slots=True)
class Shape:
    """What a load or store moves: its space, element type, vector width and ordering."""

    space: str
    type: str
    vector: int
    strong: bool
    order: str
    block_scope: bool

    @property
    def flags(self) -> int:
        """What its stamps carry."""
        if not self.strong:
            return 0
        return STRONG_STAMP | BLOCK_SCOPE if self.block_scope else STRONG_STAMP

    @property
    def element(self) -> int:
        """Bytes of one element."""
        return max(WIDTHS[self.type] // 8, 1)


def shape_of(instruction: Instruction) -> Shape:
    """The shape of a load, a store or an atomic."""
    modifiers = instruction.modifiers
    for modifier, reason in FOREIGN.items():
        if modifier in modifiers:
            raise Unable(Unsupported(instruction.mnemonic, instruction.line, reason))
    space = next((SPACES[m] for m in modifiers if m in SPACES), "")
    types = [m for m in modifiers if m in WIDTHS]
    order = next((m for m in modifiers if m in STRONG), "")
    vector = next((VECTORS[m] for m in modifiers if m in VECTORS), 1)
    return Shape(
        space,
        types[-1] if types else "b32",
        vector,
        bool(order),
        order,
        "cta" in modifiers,
    )
