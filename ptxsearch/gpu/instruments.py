"""Our own small kernels on the device: junk fills, guards, digests, the scrub, the filler spin.

`compile_instruments` makes their cubin (cached by the toolchain); `Instruments` runs them. The
hot ones keep their argument blocks, because the driver copies arguments when a launch is queued.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ptxsearch.errors import ToolchainError, UsageError
from ptxsearch.gpu.driver import Driver, Function
from ptxsearch.toolchain import CompileFailure, compile_kernel

__all__ = ["ENTRIES", "Arguments", "Instruments", "compile_instruments"]

ENTRIES = (
    "ptxsearch_fill", "ptxsearch_unwritten", "ptxsearch_guard_fill", "ptxsearch_guard_check",
    "ptxsearch_digest", "ptxsearch_scrub", "ptxsearch_spin",
)  # fmt: skip
CLEAN_BYTES = 256 << 20
CELLS = 64
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


class Instruments:
    """The instruments on one device; owns the clean buffer and a small result buffer."""

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
        self._blocks = properties.multiprocessors
        self._clock = properties.clock_hz
        size = max(CLEAN_BYTES, 4 * properties.l2_bytes)
        self._clean = driver.allocate(size)
        self._result = driver.allocate(8 * CELLS + 8)
        driver.zero(self._clean, size)
        self._scrub = whole(self._clean, size, shared // 4, 0, self._result + 8 * CELLS)
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

    def unwritten(self, regions: Sequence[tuple[int, int]], seed: int) -> list[int]:
        """How many 4-byte words of each (address, size) still hold the junk of `seed`."""
        cells = self._cells(len(regions), 0)
        for cell, (address, size) in zip(cells, regions, strict=True):
            arguments = whole(address, size, seed, cell)
            self._go("ptxsearch_unwritten", self._blocks_for(size), 256, arguments)
        return self._read(len(regions))

    def digests(self, regions: Sequence[tuple[int, int]]) -> list[int]:
        """For each (address, size) a 64-bit sum that depends on every word and its place."""
        cells = self._cells(len(regions), 0)
        for cell, (address, size) in zip(cells, regions, strict=True):
            self._go("ptxsearch_digest", self._blocks_for(size), 256, whole(address, size, cell))
        return self._read(len(regions))

    def guard(self, zones: int, count: int, seed: int) -> None:
        """Fill the `count` guard zones of the table at address `zones`."""
        if count:
            self._go("ptxsearch_guard_fill", count, 256, whole(zones, seed))

    def breach(self, zones: int, count: int, seed: int) -> int | None:
        """The lowest address in a guard zone that was written, or None."""
        if not count:
            return None
        (cell,) = self._cells(1, NOTHING)
        self._go("ptxsearch_guard_check", count, 256, whole(zones, seed, cell))
        (first,) = self._read(1)
        return None if first == NOTHING else first

    def _cells(self, count: int, value: int) -> list[int]:
        """Addresses of `count` result cells, each set to `value`."""
        if count > CELLS:
            raise UsageError(f"{count} buffers are more than {CELLS}", "use fewer parameters")
        self._driver.upload(self._result, np.full(count, value, np.uint64))
        return [self._result + 8 * index for index in range(count)]

    def _read(self, count: int) -> list[int]:
        results = np.zeros(count, np.uint64)
        self._driver.download(self._result, results)
        return [int(result) for result in results]
