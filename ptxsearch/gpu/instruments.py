"""Our own small kernels on the device: junk fills, guards, digests, the scrub, the filler spin.

`compile_instruments` makes their cubin (cached by the toolchain); `Instruments` runs them. The
hot ones keep their argument blocks, because the driver copies arguments when a launch is queued.
"""

from __future__ import annotations

import ctypes
import secrets
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ptxsearch.errors import ToolchainError, UsageError
from ptxsearch.evaluation import Array
from ptxsearch.gpu.driver import Driver, Function
from ptxsearch.toolchain import CompileFailure, compile_kernel

__all__ = [
    "ENTRIES",
    "NOTHING",
    "Arguments",
    "Cells",
    "Instruments",
    "check_cells",
    "compile_instruments",
]

ENTRIES = (
    "ptxsearch_fill", "ptxsearch_unwritten", "ptxsearch_guard_fill", "ptxsearch_guard_check",
    "ptxsearch_digest", "ptxsearch_scrub", "ptxsearch_spin",
)  # fmt: skip
CLEAN_BYTES = 256 << 20
CELLS = 128
NOTHING = (1 << 64) - 1


def compile_instruments(arch: str) -> bytes:
    """The cubin of the instruments for an architecture. Raises ToolchainError without one."""
    source = Path(__file__).with_name("instruments.cu").read_text()
    made = compile_kernel(source, "cuda", {}, arch=arch, entries=ENTRIES)
    if isinstance(made, CompileFailure) or not made.cubin:
        said = made.message if isinstance(made, CompileFailure) else "no cubin was made"
        raise ToolchainError(
            f"the device's own kernels do not compile for {arch}: {said}",
            "check the compiler wheels with `ptxsearch doctor`",
        )
    return made.cubin


class Arguments:
    """Kernel arguments laid out as the driver takes them; `address` is the pointer array's."""

    def __init__(self, values: Sequence[bytes]) -> None:
        self._cells = [ctypes.create_string_buffer(value, max(len(value), 8)) for value in values]
        pointers = [ctypes.addressof(cell) for cell in self._cells]
        self._array = (ctypes.c_void_p * max(len(pointers), 1))(*pointers)
        self.address = ctypes.addressof(self._array)

    def set(self, index: int, value: int) -> None:
        """Replace the integer argument `index`."""
        ctypes.memmove(self._cells[index], (value & NOTHING).to_bytes(8, "little"), 8)


def whole(*values: int) -> Arguments:
    """Arguments of up to eight bytes each, little-endian, so that any narrower type fits."""
    return Arguments([(value & NOTHING).to_bytes(8, "little") for value in values])


def check_cells(count: int) -> None:
    """Raise UsageError where one look at a placement needs more than `CELLS` results."""
    if count > CELLS:
        raise UsageError(f"{count - 1} buffers are more than {CELLS - 1}", "use fewer")


class Cells:
    """64-bit results of instruments: set before they are queued, fetched after, read when done.

    Both ways the host's side is pinned, so that neither waits for the device.
    """

    def __init__(self, driver: Driver, address: int, host: Array) -> None:
        self._driver, self._address = driver, address
        self._before, self._after = host[:CELLS], host[CELLS:]

    @classmethod
    def several(cls, driver: Driver, count: int) -> list[Cells]:
        """So many groups of cells that do not share any."""
        address = driver.allocate(8 * CELLS * count)
        host = driver.pinned(16 * CELLS * count).view(np.uint64).reshape(count, 2 * CELLS)
        return [cls(driver, address + 8 * CELLS * n, host[n]) for n in range(count)]

    def set(self, values: Sequence[int]) -> list[int]:
        """Queue the setting of a cell for each value. Returns their addresses on the device."""
        count = len(values)
        check_cells(count)
        self._before[:count] = values
        self._driver.upload(self._address, self._before[:count])
        return [self._address + 8 * index for index in range(count)]

    def fetch(self) -> None:
        """Queue the copy of the results to the host."""
        self._driver.fetch(self._address, self._after)

    def read(self, count: int) -> list[int]:
        """The first `count` results, once the copy is done."""
        return [int(result) for result in self._after[:count]]


class Instruments:
    """The instruments on one device; owns the clean buffer. Everything is queued, nothing waits."""

    def __init__(self, driver: Driver, cubin: bytes) -> None:
        self._driver = driver
        properties = driver.properties
        module = driver.load(cubin)
        shared = properties.shared_limit
        self._function: dict[str, Function] = {
            name: driver.function(module, name, shared if name == "ptxsearch_scrub" else 0, 1)
            for name in ENTRIES
        }
        self._shared = shared
        self._key = secrets.randbits(32)
        self._blocks = properties.multiprocessors
        self._clock = properties.clock_hz
        size = max(CLEAN_BYTES, 4 * properties.l2_bytes)
        self._clean = driver.allocate(size)
        sink = driver.allocate(8)
        driver.zero(self._clean, size)
        self._scrub = whole(self._clean, size, shared // 4, 0, sink)
        self._spin = whole(0)
        self._fill = whole(0, 0, 0)

    def _go(self, name: str, blocks: int, threads: int, arguments: Arguments) -> None:
        shared = self._shared if name == "ptxsearch_scrub" else 0
        self._driver.launch(
            self._function[name],
            (blocks, 1, 1),
            (threads, 1, 1),
            shared=shared,
            arguments=arguments.address,
        )

    def _blocks_for(self, size: int) -> int:
        return max(1, min(8 * self._blocks, -(-size // 16 // 256)))

    def fill(self, address: int, size: int, seed: int) -> None:
        """Fill device memory with the junk of `seed`."""
        if size:
            for index, value in enumerate((address, size, seed)):
                self._fill.set(index, value)
            self._go("ptxsearch_fill", self._blocks_for(size), 256, self._fill)

    def scrub(self, seed: int) -> None:
        """Read a clean buffer through the L2 and leave junk in every shared memory."""
        self._scrub.set(3, seed)
        self._go("ptxsearch_scrub", self._blocks, 1024, self._scrub)

    def spin(self, seconds: float) -> None:
        """Keep the device busy with one thread for at least `seconds` at the highest clock."""
        self._spin.set(0, int(seconds * self._clock))
        self._go("ptxsearch_spin", 1, 1, self._spin)

    def unwritten(self, address: int, size: int, seed: int, cell: int) -> None:
        """Add to a cell how many 4-byte words still hold the junk of `seed`."""
        arguments = whole(address, size, seed, cell)
        self._go("ptxsearch_unwritten", self._blocks_for(size), 256, arguments)

    def digest(self, address: int, size: int, cell: int) -> None:
        """Add to a cell a 64-bit sum of every word and its place, under this process's own key."""
        arguments = whole(address, size, cell, self._key)
        self._go("ptxsearch_digest", self._blocks_for(size), 256, arguments)

    def guard(self, zones: int, count: int, seed: int) -> None:
        """Fill the `count` guard zones of the table at address `zones`."""
        if count:
            self._go("ptxsearch_guard_fill", count, 1024, whole(zones, seed))

    def breach(self, zones: int, count: int, seed: int, cell: int) -> None:
        """Lower a cell to the lowest address in a guard zone that was written."""
        if count:
            self._go("ptxsearch_guard_check", count, 1024, whole(zones, seed, cell))
