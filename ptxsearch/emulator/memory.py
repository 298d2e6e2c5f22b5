"""The device's address space: allocations with gaps between them, and the windows beside it."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import numpy as np

from ptxsearch.emulator.operation import Array

if TYPE_CHECKING:
    from ptxsearch.emulator.shadow import Shadow

SHARED_WINDOW = 0x0100_0000_0000
LOCAL_WINDOW = 0x0200_0000_0000
PARAM_WINDOW = 0x0300_0000_0000
CODE_WINDOW = 0x0400_0000_0000
WINDOW = 0x0001_0000_0000
"""Each window maps one space into generic addresses and is 4 GiB long."""

HEAP = 0x7000_0000_0000
ALIGNMENT = 512
GAP = 1 << 20

UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class Allocation:
    """One object in memory: its address, its bytes and what a launch did to them.

    `defined` is a bool for each byte where some bytes are undefined, otherwise None.
    """

    def __init__(self, name: str, space: str, base: int, data: Array) -> None:
        self.name = name
        self.space = space
        self.base = base
        self.data = data
        self.size = data.size
        self.writable = space not in ("const", "param") and bool(data.flags.writeable)
        self.defined: Array | None = None
        self.shadow: Shadow | None = None
        self.stored = 0
        self.read: Array | None = None
        self._views: dict[tuple[int, int], Array] = {}

    @property
    def end(self) -> int:
        """The address after the last byte."""
        return self.base + self.size

    def view(self, size: int, vector: int = 1) -> Array:
        """The bytes as elements of `size` bytes, in rows of `vector` where it is above 1."""
        found = self._views.get((size, vector))
        if found is None:
            whole = size * vector
            found = self.data[: self.size // whole * whole].view(UNSIGNED[size])
            if vector > 1:
                found = found.reshape(-1, vector)
            self._views[size, vector] = found
        return found

    def undefine(self) -> None:
        """Mark every byte as never written."""
        self.defined = np.zeros(self.size, np.bool_)

    def begin(self) -> None:
        """Forget what earlier launches did."""
        self.shadow = None
        self.stored = 0
        self.read = None


class Memory:
    """All allocations of a module, sorted by address, looked up by address."""

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._allocations: list[Allocation] = []
        self._next = HEAP
        self.parameters: Allocation | None = None

    def __iter__(self) -> Any:
        return iter(self._allocations)

    def add(self, name: str, space: str, data: Array) -> Allocation:
        """A new allocation behind all others that holds the flat bytes `data`, not a copy."""
        allocation = Allocation(name, space, self._next, data)
        beyond = self._next + 2 * data.size + GAP
        self._next = -(-beyond // ALIGNMENT) * ALIGNMENT
        self._bases.append(allocation.base)
        self._allocations.append(allocation)
        return allocation

    def find(self, address: int) -> Allocation | None:
        """The allocation that holds the byte, or None."""
        parameters = self.parameters
        if parameters is not None and parameters.base <= address < parameters.end:
            return parameters
        at = bisect_right(self._bases, address) - 1
        if at >= 0 and address < self._allocations[at].end:
            return self._allocations[at]
        return None

    def nearest(self, address: int) -> Allocation | None:
        """The allocation at or below the address, or the one that starts shortly above it."""
        at = bisect_right(self._bases, address) - 1
        below = self._allocations[at] if at >= 0 else None
        beyond = address - below.end if below is not None else GAP
        if at + 1 < len(self._bases):
            above = self._allocations[at + 1]
            if above.base - address < min(beyond, GAP // 2):
                return above
        return below


def variable_bytes(size: int, init: bytes | None) -> Array:
    """Writable bytes of a module variable: its initialiser, then zeros."""
    data = np.zeros(size, np.uint8)
    if init:
        data[: len(init)] = np.frombuffer(init, np.uint8)
    return data


def window_of(address: int) -> str:
    """The space whose window holds the generic address; global where none does."""
    if SHARED_WINDOW <= address < SHARED_WINDOW + WINDOW:
        return "shared"
    if LOCAL_WINDOW <= address < LOCAL_WINDOW + WINDOW:
        return "local"
    if PARAM_WINDOW <= address < PARAM_WINDOW + WINDOW:
        return "param"
    return "global"


WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW, "global": 0}
