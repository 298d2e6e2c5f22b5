"""What a device needs of a CUDA driver: the `Driver` protocol and its records.

`cuda` implements it. All work goes to one stream, in order; only `download`, `synchronise` and
`done` look at what came of it. A copy from or into memory that is not pinned may wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from ptxsearch.errors import DeviceError
from ptxsearch.evaluation import Array

__all__ = ["Driver", "DriverError", "Function", "Properties", "TileShape"]


class DriverError(DeviceError):
    """A driver call failed with `code`, named `name` by the driver."""

    def __init__(self, call: str, code: int, name: str, text: str) -> None:
        super().__init__(f"{call}: {name} ({text})", "")
        self.call = call
        self.code = code
        self.name = name
        self.text = text


@dataclass(frozen=True)
class Properties:
    """What one GPU is. Sizes are bytes; `driver` is as cuDriverGetVersion gives it (13000)."""

    name: str
    arch: str
    uuid: str
    driver: int
    multiprocessors: int
    memory: int
    l2_bytes: int
    shared_limit: int
    clock_hz: float


@dataclass(frozen=True)
class Function:
    """An entry of a loaded module with the byte size of each of its parameters."""

    handle: Any
    name: str
    sizes: tuple[int, ...]
    local_bytes: int = 0


@dataclass(frozen=True)
class TileShape:
    """What cuTensorMapEncodeTiled takes, innermost dimension first, strides in bytes."""

    dtype: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: str


class Driver(Protocol):
    """One GPU's context. Every method raises DriverError where the call fails."""

    properties: Properties

    def free_memory(self) -> int:
        """Bytes of device memory that are free now."""
        ...

    def allocate(self, size: int) -> int:
        """The address of `size` fresh bytes."""
        ...

    def free(self, address: int) -> None:
        """Give an allocation back; waits for the work that uses it."""
        ...

    def upload(self, address: int, array: Array) -> None:
        """Copy a contiguous array to the device."""
        ...

    def pinned(self, size: int) -> Array:
        """Host bytes that the device copies from and into while the host goes on."""
        ...

    def fetch(self, address: int, array: Array) -> None:
        """Queue a copy of device memory into a contiguous array in pinned memory."""
        ...

    def download(self, address: int, array: Array) -> None:
        """Copy device memory into a contiguous array, once all queued work is done."""
        ...

    def copy(self, target: int, source: int, size: int) -> None:
        """Copy within the device."""
        ...

    def zero(self, address: int, size: int) -> None:
        """Fill with zero bytes."""
        ...

    def load(self, cubin: bytes) -> Any:
        """The module of a cubin."""
        ...

    def unload(self, module: Any) -> None:
        """Give a module back."""
        ...

    def function(self, module: Any, name: str, shared: int, cluster: int) -> Function:
        """An entry, allowed `shared` dynamic bytes and clusters of `cluster` blocks."""
        ...

    def launch(
        self,
        function: Function,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        *,
        shared: int,
        arguments: int,
        cluster: tuple[int, int, int] = (1, 1, 1),
    ) -> None:
        """Queue one launch; `arguments` is the address of an array of pointers to values."""
        ...

    def event(self) -> Any:
        """A fresh event that keeps time."""
        ...

    def record(self, event: Any) -> None:
        """Queue the event after the work so far."""
        ...

    def done(self, event: Any) -> bool:
        """Whether all work before the event is done."""
        ...

    def seconds(self, start: Any, end: Any) -> float:
        """Seconds between two events that are done."""
        ...

    def forget_persisting(self) -> None:
        """Turn persisting lines of the L2 cache back into normal ones, at once."""
        ...

    def synchronise(self) -> None:
        """Wait for all queued work."""
        ...

    def capture(self, work: Any) -> Any:
        """A graph of what `work()` queues."""
        ...

    def replay(self, graph: Any) -> None:
        """Queue a captured graph."""
        ...

    def tensor_map(self, address: int, tile: TileShape) -> bytes:
        """The 128 bytes of a TMA descriptor of `tile` at `address`."""
        ...
