"""`CudaDriver`: the driver protocol over cuda.bindings, on one visible device.

Importing this module touches no driver: the first `CudaDriver` does, and raises DeviceError with
the remedy where there is none.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ptxsearch.errors import DeviceError
from ptxsearch.evaluation import Array
from ptxsearch.gpu.driver import DriverError, Function, Properties, TileShape

__all__ = ["CudaDriver", "binding"]

NOT_READY = 600


def binding() -> Any:
    """The module of driver calls. Raises DeviceError where cuda-bindings is not installed."""
    try:
        return importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        raise DeviceError(
            f"cuda.bindings cannot be imported: {error}",
            "pip install 'cuda-bindings>=12.9,<14', or use the emulated device",
        ) from error


class CudaDriver:
    """The driver on one visible device, in its primary context."""

    def __init__(self, index: int = 0) -> None:
        self._d = binding()
        self._start(index)
        (self._stream,) = self._call("cuStreamCreate", self._d.CUstream_flags(1))
        self._attributes = self._d.CUfunction_attribute
        # Between the filler and the last event every microsecond of the host counts.
        self._launch, self._record = self._d.cuLaunchKernel, self._d.cuEventRecord
        self._query, self._success = self._d.cuEventQuery, self._d.CUresult.CUDA_SUCCESS

    def _call(self, name: str, *arguments: Any) -> tuple[Any, ...]:
        code, *values = getattr(self._d, name)(*arguments)
        if int(code) != 0:
            raise DriverError(name, int(code), *self._describe(code))
        return tuple(values)

    def _describe(self, code: Any) -> tuple[str, str]:
        texts = []
        for name in ("cuGetErrorName", "cuGetErrorString"):
            failed, text = getattr(self._d, name)(code)
            texts.append(text.decode() if int(failed) == 0 and text else f"code {int(code)}")
        return texts[0], texts[1]

    def _start(self, index: int) -> None:
        remedy = "install an NVIDIA driver, or use the emulated device"
        try:
            self._call("cuInit", 0)
        except (RuntimeError, DriverError) as error:
            raise DeviceError(f"no CUDA driver answered: {error}", remedy) from error
        (count,) = self._call("cuDeviceGetCount")
        if not 0 <= index < count:
            raise DeviceError(
                f"there is no CUDA device {index}: {count} are visible",
                "choose a smaller index or set CUDA_VISIBLE_DEVICES",
            )
        (device,) = self._call("cuDeviceGet", index)
        (context,) = self._call("cuDevicePrimaryCtxRetain", device)
        self._call("cuCtxSetCurrent", context)
        self.properties = self._properties(device)

    def _properties(self, device: Any) -> Properties:
        names = self._d.CUdevice_attribute

        def attribute(name: str) -> int:
            key = getattr(names, f"CU_DEVICE_ATTRIBUTE_{name}")
            return int(self._call("cuDeviceGetAttribute", key, device)[0])

        major, minor = attribute("COMPUTE_CAPABILITY_MAJOR"), attribute("COMPUTE_CAPABILITY_MINOR")
        (text,) = self._call("cuDeviceGetName", 256, device)
        (uuid,) = self._call("cuDeviceGetUuid", device)
        return Properties(
            name=text.split(b"\0")[0].decode(),
            arch=f"sm_{major}{minor}",
            uuid=bytes(uuid.bytes).hex(),
            driver=int(self._call("cuDriverGetVersion")[0]),
            multiprocessors=attribute("MULTIPROCESSOR_COUNT"),
            memory=int(self._call("cuDeviceTotalMem", device)[0]),
            l2_bytes=attribute("L2_CACHE_SIZE"),
            shared_limit=attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            clock_hz=attribute("CLOCK_RATE") * 1e3,
        )

    def free_memory(self) -> int:
        """Bytes of device memory that are free now."""
        return int(self._call("cuMemGetInfo")[0])

    def allocate(self, size: int) -> int:
        """The address of `size` fresh bytes."""
        return int(self._call("cuMemAlloc", size)[0])

    def free(self, address: int) -> None:
        """Give an allocation back; waits for the work that uses it."""
        self._call("cuMemFree", address)

    def upload(self, address: int, array: Array) -> None:
        """Copy a contiguous array to the device."""
        if array.nbytes:
            self._call("cuMemcpyHtoDAsync", address, array.ctypes.data, array.nbytes, self._stream)

    def pinned(self, size: int) -> Array:
        """Page-locked host bytes, kept for the life of the process."""
        (address,) = self._call("cuMemHostAlloc", size, 0)
        return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(int(address)))

    def fetch(self, address: int, array: Array) -> None:
        """Queue a copy of device memory into a contiguous array in pinned memory."""
        if array.nbytes:
            self._call("cuMemcpyDtoHAsync", array.ctypes.data, address, array.nbytes, self._stream)

    def download(self, address: int, array: Array) -> None:
        """Copy device memory into a contiguous array, once all queued work is done."""
        self.fetch(address, array)
        self.synchronise()

    def copy(self, target: int, source: int, size: int) -> None:
        """Copy within the device."""
        if size:
            self._call("cuMemcpyDtoDAsync", target, source, size, self._stream)

    def zero(self, address: int, size: int) -> None:
        """Fill with zero bytes."""
        if size:
            self._call("cuMemsetD8Async", address, 0, size, self._stream)

    def load(self, cubin: bytes) -> Any:
        """The module of a cubin."""
        return self._call("cuModuleLoadData", cubin)[0]

    def unload(self, module: Any) -> None:
        """Give a module back."""
        self._call("cuModuleUnload", module)

    def function(self, module: Any, name: str, shared: int, cluster: int) -> Function:
        """An entry, allowed `shared` dynamic bytes and clusters of `cluster` blocks."""
        (handle,) = self._call("cuModuleGetFunction", module, name.encode())
        if shared:
            key = self._attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._call("cuFuncSetAttribute", handle, key, shared)
        if cluster > 8:
            key = self._attributes.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            self._call("cuFuncSetAttribute", handle, key, 1)
        key = self._attributes.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES
        local = int(self._call("cuFuncGetAttribute", key, handle)[0])
        return Function(handle, name, self._parameter_sizes(handle), local)

    def _parameter_sizes(self, handle: Any) -> tuple[int, ...]:
        sizes: list[int] = []
        while True:
            code, _, size = self._d.cuFuncGetParamInfo(handle, len(sizes))
            if int(code) != 0:
                return tuple(sizes)
            sizes.append(int(size))

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
        if cluster == (1, 1, 1):
            code = self._launch(function.handle, *grid, *block, shared, self._stream, arguments, 0)[
                0
            ]
            if code != self._success:
                raise DriverError("cuLaunchKernel", int(code), *self._describe(code))
            return
        config = self._d.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid
        config.blockDimX, config.blockDimY, config.blockDimZ = block
        config.sharedMemBytes = shared
        config.hStream = self._stream
        attribute = self._d.CUlaunchAttribute()
        attribute.id = self._d.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        value = attribute.value.clusterDim
        value.x, value.y, value.z = cluster
        config.attrs = [attribute]
        config.numAttrs = 1
        self._call("cuLaunchKernelEx", config, function.handle, arguments, 0)

    def event(self) -> Any:
        """A fresh event that keeps time."""
        return self._call("cuEventCreate", 0)[0]

    def record(self, event: Any) -> None:
        """Queue the event after the work so far."""
        code = self._record(event, self._stream)[0]
        if code != self._success:
            raise DriverError("cuEventRecord", int(code), *self._describe(code))

    def done(self, event: Any) -> bool:
        """Whether all work before the event is done."""
        (code,) = self._query(event)
        if code == self._success:
            return True
        if int(code) != NOT_READY:
            raise DriverError("cuEventQuery", int(code), *self._describe(code))
        return False

    def seconds(self, start: Any, end: Any) -> float:
        """Seconds between two events that are done."""
        return float(self._call("cuEventElapsedTime", start, end)[0]) * 1e-3

    def forget_persisting(self) -> None:
        """Turn persisting lines of the L2 cache back into normal ones, at once."""
        self._call("cuCtxResetPersistingL2Cache")

    def synchronise(self) -> None:
        """Wait for all queued work."""
        self._call("cuStreamSynchronize", self._stream)

    def capture(self, work: Any) -> Any:
        """A graph of what `work()` queues."""
        self._call("cuStreamBeginCapture", self._stream, self._d.CUstreamCaptureMode(2))
        try:
            work()
        finally:
            (graph,) = self._call("cuStreamEndCapture", self._stream)
        return self._call("cuGraphInstantiate", graph, 0)[0]

    def replay(self, graph: Any) -> None:
        """Queue a captured graph."""
        self._call("cuGraphLaunch", graph, self._stream)

    def tensor_map(self, address: int, tile: TileShape) -> bytes:
        """The 128 bytes of a TMA descriptor of `tile` at `address`."""
        d = self._d
        rank = len(tile.dims)
        (encoded,) = self._call(
            "cuTensorMapEncodeTiled",
            getattr(d.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_TILE_TYPES[tile.dtype]}"),
            rank,
            address,
            _wide(d.cuuint64_t, tile.dims),
            _wide(d.cuuint64_t, tile.strides),
            _wide(d.cuuint32_t, tile.box),
            _wide(d.cuuint32_t, (1,) * rank),
            d.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            getattr(d.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{_SWIZZLES[tile.swizzle]}"),
            d.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
            d.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
        return ctypes.string_at(encoded.getPtr(), 128)


def _wide(kind: Any, numbers: Sequence[int]) -> list[Any]:
    return [kind(number) for number in numbers]


_TILE_TYPES = {
    "f64": "FLOAT64", "f32": "FLOAT32", "f16": "FLOAT16", "bf16": "BFLOAT16",
    "e4m3": "UINT8", "e5m2": "UINT8", "u8": "UINT8", "s8": "UINT8", "u16": "UINT16",
    "s16": "UINT16", "u32": "UINT32", "s32": "INT32", "u64": "UINT64", "s64": "INT64",
}  # fmt: skip
_SWIZZLES = {"none": "NONE", "32": "32B", "64": "64B", "128": "128B"}
