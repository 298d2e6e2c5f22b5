"""Device memory for candidates: guarded regions, input sets with digests, placements.

A region is an allocation of its own with a guard zone on either side. An input set holds the
clean copies that nobody but us touches; a placement is one copy of a set at addresses of its own,
with outputs and scratch. Everything counts against one budget of bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ptxsearch.evaluation import Array, Fault
from ptxsearch.gpu.driver import Driver, DriverError
from ptxsearch.gpu.instruments import Cells, Instruments, check_cells

__all__ = ["GUARD", "InputSet", "Memory", "Placement", "Region"]

GUARD = 65536
PAGE = 2 << 20
SMALL = 4096
SPARE_BLOCKS = 3
TABLE_BYTES = 1 << 17
OUT_OF_MEMORY = 2
_WRITTEN = ("out", "inout")


@dataclass(frozen=True)
class Region:
    """`size` bytes at `pointer`, a multiple of 256; a guard zone lies before and after."""

    pointer: int
    size: int

    @property
    def base(self) -> int:
        """Where the allocation starts."""
        return self.pointer - GUARD

    @property
    def zones(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The guards before and after, as (address, bytes)."""
        return (self.base, GUARD), (self.pointer + self.size, GUARD)


def _block(size: int) -> int:
    """Bytes really taken for `size`: a power of two below a page, whole pages above."""
    if size > PAGE // 2:
        return -(-size // PAGE) * PAGE
    return max(SMALL, 1 << (size - 1).bit_length())


def footprint(size: int) -> int:
    """Bytes that a region of `size` takes, guards included."""
    return 2 * GUARD + -(-size // 256) * 256


@dataclass
class InputSet:
    """The clean device copies of one set of inputs, and what their digests must stay."""

    label: str
    arrays: Mapping[str, Array]
    scalars: Mapping[str, bytes]
    roles: Mapping[str, str]
    masters: dict[str, int] = field(default_factory=dict)
    digests: dict[str, int] = field(default_factory=dict)

    @property
    def written(self) -> tuple[str, ...]:
        """The arrays that a kernel leaves results in."""
        return tuple(name for name in self.arrays if self.roles[name] in _WRITTEN)

    @property
    def result_bytes(self) -> int:
        """Bytes of the arrays that a kernel leaves results in."""
        return sum(self.arrays[name].nbytes for name in self.written)


def _footprints(inputs: InputSet, scratch: Sequence[int]) -> list[int]:
    """The bytes of each region of a placement, then those of its table of guards."""
    sizes = [*(array.nbytes for array in inputs.arrays.values()), *scratch]
    return [*map(footprint, sizes), 16 * 2 * len(sizes)]


@dataclass
class Placement:
    """One copy of a set: a region for each array and for each scratch buffer, and the guards."""

    inputs: InputSet
    arrays: dict[str, Region]
    scratch: list[Region]
    zones: int
    seed: int

    @property
    def regions(self) -> list[Region]:
        """Every guarded region."""
        return [*self.arrays.values(), *self.scratch]

    def owner(self, address: int) -> tuple[str, int]:
        """Whose guard an address lies in, and the byte offset from that buffer's start."""
        named = [*self.arrays.items(), *((f"scratch {i}", r) for i, r in enumerate(self.scratch))]
        for name, region in named:
            if region.base <= address < region.pointer + region.size + GUARD:
                return name, address - region.pointer
        return "no buffer", 0

    def breach(self, address: int) -> Fault:
        """The fault of a write to `address` in a guard zone."""
        name, offset = self.owner(address)
        size = self.arrays[name].size if name in self.arrays else 0
        where = f"{offset - size} bytes past its end" if offset >= 0 else f"{-offset} before it"
        return Fault(
            kind="guard_written",
            message=f"the kernel wrote outside {name}: {where}; check the bounds of every store",
            space="global",
            address=address,
            object=name,
        )


class Memory:
    """Allocations of one device within `budget` bytes."""

    def __init__(self, driver: Driver, instruments: Instruments, budget: int) -> None:
        self._driver = driver
        self._instruments = instruments
        self._sizes: dict[int, int] = {}
        self._spare: dict[int, list[int]] = {}
        self._rng = np.random.default_rng(0)
        (self._cells,) = Cells.several(driver, 1)
        self._tables = driver.pinned(TABLE_BYTES)
        self._table = 0
        self.budget = min(budget, driver.free_memory() * 9 // 10)

    @property
    def used(self) -> int:
        """Bytes in use now, without those kept spare."""
        return sum(self._sizes.values()) - sum(s * len(a) for s, a in self._spare.items())

    def allocate(self, size: int) -> int:
        """Bytes whose contents are anything. Raises DriverError "out of memory" beyond the budget.

        Blocks given back are kept, and one of several is taken at random: asking the driver costs
        more than a small kernel takes, and successive placements shall lie on different pages.
        """
        block = _block(size)
        spare = self._spare.get(block, [])
        full = sum(self._sizes.values()) + block > self.budget
        if len(spare) > SPARE_BLOCKS or (spare and full):
            return spare.pop(int(self._rng.integers(len(spare))))
        if full:
            self.trim()
        if self.used + block > self.budget:
            text = f"{self.used + block} bytes exceed the device's budget of {self.budget}"
            raise DriverError("allocate", OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", text)
        address = self._driver.allocate(block)
        self._sizes[address] = block
        return address

    def spare(self, inputs: InputSet, scratch: Sequence[int]) -> bool:
        """Whether a placement would be of spare blocks alone, without a word to the driver."""
        needed = Counter(_block(size) for size in _footprints(inputs, scratch))
        return all(
            len(self._spare.get(block, ())) >= SPARE_BLOCKS + count
            for block, count in needed.items()
        )

    def free(self, address: int) -> None:
        """Give an allocation back, to be kept spare."""
        self._spare.setdefault(self._sizes[address], []).append(address)

    def trim(self) -> None:
        """Give all spare blocks back to the driver."""
        for addresses in self._spare.values():
            for address in addresses:
                self._driver.free(address)
                del self._sizes[address]
        self._spare.clear()

    def hold(self, inputs: InputSet) -> None:
        """Put the clean copies of a set on the device and take their digests.

        Raises UsageError where it has more buffers than an inspection can look at.
        """
        check_cells(1 + sum(inputs.roles[name] in ("in", "out") for name in inputs.arrays))
        for name, array in inputs.arrays.items():
            if inputs.roles[name] != "out":
                inputs.masters[name] = self.allocate(array.nbytes)
                self._driver.upload(inputs.masters[name], np.ascontiguousarray(array))
        names = [name for name in inputs.masters if inputs.roles[name] == "in"]
        addresses = self._cells.set([0] * len(names))
        for name, cell in zip(names, addresses, strict=True):
            self._instruments.digest(inputs.masters[name], inputs.arrays[name].nbytes, cell)
        self._cells.fetch()
        self._driver.synchronise()
        inputs.digests = dict(zip(names, self._cells.read(len(names)), strict=True))

    def drop(self, inputs: InputSet) -> None:
        """Take a set off the device."""
        for address in inputs.masters.values():
            self.free(address)
        inputs.masters.clear()

    def place(self, inputs: InputSet, scratch: Sequence[int], *, seed: int) -> Placement:
        """A copy of a set, `scratch` bytes each beside it, guards filled."""
        regions: list[Region] = []
        try:
            sizes = [*(array.nbytes for array in inputs.arrays.values()), *scratch]
            *footprints, table_size = _footprints(inputs, scratch)
            for size, whole in zip(sizes, footprints, strict=True):
                regions.append(Region(self.allocate(whole) + GUARD, size))
            zones = self.allocate(table_size)
        except DriverError:
            for region in regions:
                self.free(region.base)
            raise
        table = np.array([zone for region in regions for zone in region.zones], np.uint64)
        self._driver.upload(zones, self._pinned(table))
        named = dict(zip(inputs.arrays, regions, strict=False))
        placement = Placement(inputs, named, regions[len(named) :], zones, seed)
        self.restore(placement)
        return placement

    def _pinned(self, table: Array) -> Array:
        """A copy of a table that stays as it is until many more were queued."""
        if self._table + table.nbytes > TABLE_BYTES:
            self._table = 0
        copy = self._tables[self._table : self._table + table.nbytes]
        copy[:] = table.reshape(-1).view(np.uint8)
        self._table += table.nbytes
        return copy

    def restore(self, placement: Placement) -> None:
        """Fill the guards of a placement and copy the clean inputs into it."""
        self._instruments.guard(placement.zones, 2 * len(placement.regions), placement.seed)
        for name, address in placement.inputs.masters.items():
            region = placement.arrays[name]
            self._driver.copy(region.pointer, address, region.size)

    def wipe(self, placement: Placement) -> None:
        """Leave no result behind: the next kernel may look for the answers of earlier ones."""
        results = [placement.arrays[name] for name in placement.inputs.written]
        for region in [*results, *placement.scratch]:
            self._instruments.fill(region.pointer, region.size, placement.seed)

    def release(self, placement: Placement) -> None:
        """Give a placement's memory back."""
        for region in placement.regions:
            self.free(region.base)
        self.free(placement.zones)

    def poison(
        self, placement: Placement, seed: int, zeros: Sequence[tuple[int, int]] = ()
    ) -> None:
        """Restore inout arrays, fill outputs and scratch with junk, then the zeros scratch.

        `zeros` holds (scratch index, bytes).
        """
        inputs = placement.inputs
        for name in inputs.written:
            region = placement.arrays[name]
            if inputs.roles[name] == "inout":
                self._driver.copy(region.pointer, inputs.masters[name], region.size)
            else:
                self._instruments.fill(region.pointer, region.size, seed)
        for region in placement.scratch:
            self._instruments.fill(region.pointer, region.size, seed)
        for index, size in zeros:
            self._driver.zero(placement.scratch[index].pointer, size)
