# ruff: noqa: D102 - the methods mean what the protocol says
"""A CUDA driver in numpy, for tests of what the device does around a kernel.

A cubin is JSON: entry, parameter sizes, what the kernel does, how long it takes, and with `only`
the first value of x for which it does that and not the right thing (with `once`, a file, the first
time; with `while`, as long as the file exists). Memory, junk and guards behave as on a GPU; the
clock is virtual and advances by each launch's duration.
"""

from __future__ import annotations

import ctypes
import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from ptxsearch.evaluation import Array
from ptxsearch.gpu.driver import DriverError, Function, Properties, TileShape

INSTRUMENTS = b"instruments"


def cubin(
    do: str, *, sizes: tuple[int, ...] = (8, 8, 4), seconds: float = 1e-4, **more: Any
) -> bytes:
    """The cubin of a fake kernel `k`."""
    return json.dumps({"do": do, "sizes": sizes, "seconds": seconds, **more}).encode()


class FakeDriver:
    """Device memory as byte arrays at made-up addresses; kernels as Python."""

    def __init__(self, index: int) -> None:
        self.properties = Properties(
            "Fake GPU",
            "sm_90",
            f"{index:04x}{os.getppid():028x}",
            13000,
            4,
            1 << 30,
            1 << 16,
            1 << 10,
            1e9,
        )
        self.blocks: dict[int, Array] = {}
        self.next = 1 << 32
        self.now = 0.0
        self.sticky = 0
        self.hung = False
        self.noise = np.random.default_rng(index + 1)
        self.launches: list[str] = []
        self.queued = False
        self.waits = 0
        self.running = False
        self.asked_while_running = 0

    def free_memory(self) -> int:
        return 1 << 30

    def allocate(self, size: int) -> int:
        self.asked_while_running += self.running
        self.next += 1 << 12
        address = self.next
        self.blocks[address] = np.zeros(size, np.uint8)
        self.next += -(-size // 256) * 256
        return address

    def free(self, address: int) -> None:
        del self.blocks[address]

    def view(self, address: int, size: int) -> Array:
        for base, block in self.blocks.items():
            if base <= address and address + size <= base + len(block):
                return block[address - base : address - base + size]
        raise DriverError("access", 700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal address")

    def upload(self, address: int, array: Array) -> None:
        self.queued = True
        self.view(address, array.nbytes)[:] = array.reshape(-1).view(np.uint8)

    def pinned(self, size: int) -> Array:
        return np.zeros(size, np.uint8)

    def fetch(self, address: int, array: Array) -> None:
        self.queued = True
        array.reshape(-1).view(np.uint8)[:] = self.view(address, array.nbytes)

    def download(self, address: int, array: Array) -> None:
        self.queued = True
        self.synchronise()
        array.reshape(-1).view(np.uint8)[:] = self.view(address, array.nbytes)

    def copy(self, target: int, source: int, size: int) -> None:
        self.queued = True
        self.view(target, size)[:] = self.view(source, size)

    def zero(self, address: int, size: int) -> None:
        self.queued = True
        self.view(address, size)[:] = 0

    def load(self, cubin: bytes) -> Any:
        if cubin == INSTRUMENTS:
            return INSTRUMENTS
        try:
            return json.loads(cubin)
        except ValueError as error:
            raise DriverError("cuModuleLoadData", 200, "CUDA_ERROR_INVALID_IMAGE", "no") from error

    def unload(self, module: Any) -> None:
        self._wait()

    def _wait(self) -> None:
        """Count one trip to the device: the host waits for work that it queued since the last."""
        self.waits += self.queued
        self.queued = self.running = False

    def function(self, module: Any, name: str, shared: int, cluster: int) -> Function:
        if module == INSTRUMENTS:
            return Function(None, name, ())
        return Function(module, name, tuple(module["sizes"]))

    def launch(
        self, function: Function, grid: Any, block: Any, *, shared: int, arguments: int,
        cluster: Any = (1, 1, 1),
    ) -> None:  # fmt: skip
        self.queued = True
        if block[0] > 1024:
            raise DriverError("cuLaunchKernel", 1, "CUDA_ERROR_INVALID_VALUE", "invalid argument")
        count = len(function.sizes) or 5
        pointers = ctypes.cast(arguments, ctypes.POINTER(ctypes.c_void_p))
        if function.handle is None:
            self._instrument(function.name, pointers, grid[0])
            return
        cells = [
            ctypes.string_at(pointers[i], s)
            for i, s in zip(range(count), function.sizes, strict=True)
        ]
        self._kernel(function.handle, [int.from_bytes(cell, "little") for cell in cells])

    def _instrument(self, name: str, pointers: Any, blocks: int) -> None:
        def argument(index: int) -> int:
            return int.from_bytes(ctypes.string_at(pointers[index], 8), "little")

        self.launches.append(name)
        self.now += 66e-6 if name.endswith("scrub") else 1e-6
        if name.endswith("_fill") and "guard" not in name:
            self.view(argument(0), argument(1))[:] = junk(argument(1), argument(2))
        elif name.endswith("unwritten"):
            held = self.view(argument(0), argument(1) // 4 * 4).view(np.uint32)
            like = junk(argument(1) // 4 * 4, argument(2)).view(np.uint32)
            self.view(argument(3), 8).view(np.uint64)[0] = np.count_nonzero(held == like)
        elif name.endswith("digest"):
            held = self.view(argument(0), argument(1)).astype(np.uint64)
            weights = np.arange(1, len(held) + 1, dtype=np.uint64)
            self.view(argument(2), 8).view(np.uint64)[0] = np.sum(held * weights)
        elif "guard" in name:
            self._guard(name, argument, blocks)
        elif name.endswith("spin"):
            self.now += argument(0) / self.properties.clock_hz

    def _guard(self, name: str, argument: Any, blocks: int) -> None:
        zones = self.view(argument(0), 16 * blocks).view(np.uint64).reshape(-1, 2)
        for address, size in zones.tolist():
            zone = self.view(address, size)
            if name.endswith("fill"):
                zone[:] = junk(size, argument(1))
            elif (wrong := np.flatnonzero(zone != junk(size, argument(1)))).size:
                first = self.view(argument(2), 8).view(np.uint64)
                first[0] = min(int(first[0]), address + int(wrong[0]))

    def _kernel(self, kernel: dict[str, Any], a: list[int]) -> None:
        self.launches.append(kernel["do"])
        self.running = True
        self.now += kernel["seconds"] * (
            1 + kernel.get("noise", 0.0) * self.noise.standard_normal()
        )
        do = kernel["do"]
        if "only" in kernel and self.view(a[0], 4).view(np.float32)[0] != kernel["only"]:
            do = "double"
        if "once" in kernel and do != "double":
            do = "double" if Path(kernel["once"]).exists() else do
            Path(kernel["once"]).touch()
        if "while" in kernel and not Path(kernel["while"]).exists():
            do = "double"
        if do.startswith("code "):
            self.sticky = int(do.split()[1])
        elif do == "hang":
            self.hung = True
        elif do == "die":
            os._exit(9)
        elif do == "slow host":
            time.sleep(kernel["host"])
        if len(a) == 3 and not self.sticky and not self.hung:
            x = self.view(a[0], 4 * a[2]).view(np.float32)
            y = self.view(a[1], 4 * a[2]).view(np.float32)
            if do != "skip":
                y[:] = 2 * x
            if do == "past the end":
                self.view(a[1] + 4 * a[2] + 12, 4)[:] = 1
            if do == "write input":
                x[3] = 7.0

    def event(self) -> Any:
        return SimpleNamespace(stamp=None)

    def record(self, event: Any) -> None:
        event.stamp, event.hung = self.now, self.hung

    def done(self, event: Any) -> bool:
        self._wait()
        if self.sticky:
            raise DriverError("cuEventQuery", self.sticky, f"CUDA_ERROR_{self.sticky}", "sticky")
        return not event.hung

    def seconds(self, start: Any, end: Any) -> float:
        return float(end.stamp - start.stamp)

    def forget_persisting(self) -> None:
        self.launches.append("forget")

    def synchronise(self) -> None:
        self._wait()
        if self.sticky:
            raise DriverError("synchronise", self.sticky, f"CUDA_ERROR_{self.sticky}", "sticky")

    def capture(self, work: Any) -> Any:
        return work

    def replay(self, graph: Any) -> None:
        graph()

    def tensor_map(self, address: int, tile: TileShape) -> bytes:
        return address.to_bytes(8, "little") + bytes(120)


def junk(size: int, seed: int) -> Array:
    """The fake's junk pattern: never zero, different for each seed."""
    return (0xF0 | ((np.arange(size) * 7 + seed) % 16)).astype(np.uint8)
