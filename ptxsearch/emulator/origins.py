"""Where undefined bytes came from."""

from __future__ import annotations

import numpy as np

from ptxsearch.emulator.address import Piece, Target
from ptxsearch.emulator.frame import Frame, Origin
from ptxsearch.emulator.memory import Allocation
from ptxsearch.emulator.operation import Array
from ptxsearch.ptx.syntax import Instruction

Near = tuple[str, int]
"""The name of an object and its start, in the addresses of its space."""


class Origins:
    """Numbers the origins of undefined bytes; a launch knows the names of objects."""

    def __init__(self) -> None:
        self.origins: list[Origin] = []
        self._load_origins: dict[tuple[int, int, str], int] = {}

    def nearest_own(self, frame: Frame, space: str, address: int) -> Near:
        """The shared or local variable at or before an address."""
        raise NotImplementedError

    def view_at(self, allocation: Allocation, address: int) -> Near:
        """The argument or variable of an allocation at or before an address."""
        raise NotImplementedError

    def load_origin(self, frame: Frame, piece: Piece, target: Target) -> int:
        """The number of an origin of undefined bits: a load of undefined bytes."""
        chunk = frame.chunk
        lanes = chunk.numbers(piece.active)
        known = self._load_origins.get((id(target), id(chunk), piece.space))
        if known is not None:
            address = self.origins[known - 1].address
            address[lanes] = piece.pattern.address + piece.offset  # type: ignore[index]
            return known
        address = np.zeros(chunk.lanes, np.int64)
        address[lanes] = piece.pattern.address + piece.offset
        first = int(address[lanes[0]])
        if piece.space in ("shared", "local"):
            name, start = self.nearest_own(frame, piece.space, first)
        else:
            name, start = self.view_at(piece.allocation, first)
        origin = Origin(target.instruction, piece.space, name, start, address, target.size)
        self.origins.append(origin)
        self._load_origins[id(target), id(chunk), piece.space] = len(self.origins)
        return len(self.origins)

    def register_origin(self, frame: Frame, name: str) -> int:
        """The number of an origin of undefined bits: a register never written."""
        function = frame.code.function
        readers = (i for i in function.instructions if f"'{name.partition('.')[0]}'" in repr(i))
        at = next(readers, function.instructions[0])
        self.origins.append(Origin(at, "register", name, 0, None, 0))
        return len(self.origins)

    def lane_origin(self, frame: Frame, instruction: Instruction) -> int:
        """The number of an origin of undefined bits: a lane that takes no part in a shuffle."""
        self.origins.append(Origin(instruction, "register", "an inactive lane", 0, None, 4))
        return len(self.origins)

    def loaded(self, numbers: Array) -> bool:
        """Whether origins of these numbers (0 is none) are all loads."""
        known = np.unique(numbers[numbers > 0]).tolist()
        return all(self.origins[number - 1].space != "register" for number in known)
