"""A modelled time from counters: the busiest pipe, latency against occupancy, a launch constant.

The model is first-order and deterministic. It takes the counters of a sample of whole blocks,
scales them to the grid, and asks how long each part of the GPU is busy: DRAM, L2, L1 and shared
memory, issue slots, arithmetic. A chain of dependent memory accesses that too few resident warps
hide bounds it from below. Constants are those of an H200 measured in docs/h200.md and of the
vendor's tables; they are the same for every kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ptxsearch.arch import PARTITIONS, WARP, Gpu, Occupancy, find_arch
from ptxsearch.evaluation import Counters

SECTOR = 32
LAUNCH_SECONDS = 2.2e-6
NEXT_LAUNCH_SECONDS = 1.0e-6
DRAM_ATTAINABLE = 0.885
L2_OVER_DRAM = 1.45
DRAM_LATENCY = 720.0
L2_LATENCY = 270.0
SHARED_LATENCY = 29.0
BARRIER_CYCLES = 40.0
ISSUE_CYCLES = 5.0
SOFTNESS = 4.0
L1_BYTES = 256 << 10
ATOMIC_CYCLES = 2.0


@dataclass(frozen=True)
class Sample:
    """What a sample of whole blocks did: counters, and unique bytes by buffer.

    `read` and `written` are unique bytes of the sample, `extent` the bytes of the buffer.
    `independent` is how many global loads a warp has in flight before it needs the first.
    """

    counters: Counters
    blocks: int
    warps: int
    read: Mapping[str, int]
    written: Mapping[str, int]
    extent: Mapping[str, int]
    independent: float


class Grid(NamedTuple):
    """The launch the sample stands for: blocks of the grid, and how many a multiprocessor holds."""

    blocks: int
    warps_per_block: int
    occupancy: Occupancy


@dataclass(frozen=True)
class Breakdown:
    """Seconds by what would bound the launch alone, and together."""

    parts: Mapping[str, float]
    seconds: float

    @property
    def bound(self) -> str:
        """The part that takes longest."""
        return max(self.parts, key=lambda part: self.parts[part])


def model(sample: Sample, grid: Grid, gpu: Gpu) -> Breakdown:
    """The modelled seconds of one launch, without the launch constant."""
    scale = grid.blocks / max(sample.blocks, 1)
    parts = {
        **_memory(sample, grid, gpu, scale),
        **_pipes(sample.counters, gpu, scale),
        "latency": _latency(sample, grid, gpu),
    }
    total = sum(seconds**SOFTNESS for seconds in parts.values()) ** (1 / SOFTNESS)
    return Breakdown(parts, total)


def traffic(sample: Sample, grid: Grid) -> tuple[float, float, float]:
    """Scaled bytes: (DRAM read, DRAM written, through L2).

    Blocks that read the same bytes share them in L2, so a buffer leaves DRAM once. Within a block
    a repeated sector hits L1 where the resident blocks' bytes fit there.
    """
    scale = grid.blocks / max(sample.blocks, 1)
    read = sum(min(bytes_ * scale, sample.extent[name]) for name, bytes_ in sample.read.items())
    written = sum(
        min(bytes_ * scale, sample.extent[name]) for name, bytes_ in sample.written.items()
    )
    loads = (sample.counters.global_load_sectors or 0.0) + (
        sample.counters.async_copy_sectors or 0.0
    )
    unique = sum(sample.read.values()) / SECTOR
    resident = unique * SECTOR / max(sample.blocks, 1) * grid.occupancy.blocks_per_sm
    through = unique if resident <= L1_BYTES / 2 else loads
    stores = sample.counters.global_store_sectors or 0.0
    local = (sample.counters.local_load_sectors or 0.0) + (
        sample.counters.local_store_sectors or 0.0
    )
    atomics = sample.counters.global_atomic_sectors or 0.0
    moved = (min(through, loads) + stores + local / 4 + 2 * atomics) * SECTOR * scale
    return read, written, moved


def _memory(sample: Sample, grid: Grid, gpu: Gpu, scale: float) -> dict[str, float]:
    read, written, through = traffic(sample, grid)
    bandwidth = gpu.bandwidth * DRAM_ATTAINABLE
    counters = sample.counters
    lsu = (
        (counters.global_load_sectors or 0.0)
        + (counters.global_store_sectors or 0.0)
        + (counters.async_copy_sectors or 0.0)
    )
    same = min((counters.global_atomic_requests or 0.0) * scale, 1e12)
    return {
        "dram": (read + written) / bandwidth,
        "l2": through / (bandwidth * L2_OVER_DRAM),
        "l1": lsu * scale * SECTOR / (64.0 * gpu.sms * gpu.clock),
        "atomics": same * ATOMIC_CYCLES / gpu.clock / 8,
    }


def _pipes(counters: Counters, gpu: Gpu, scale: float) -> dict[str, float]:
    arch = find_arch(gpu.arch)
    rate = gpu.sms * gpu.clock / scale
    wavefronts = (counters.shared_load_wavefronts or 0.0) + (
        counters.shared_store_wavefronts or 0.0
    )
    wavefronts += counters.shared_atomic_requests or 0.0
    fp32 = sum(getattr(counters, f"fp32_{kind}") or 0.0 for kind in ("add", "mul", "fma"))
    fp64 = sum(getattr(counters, f"fp64_{kind}") or 0.0 for kind in ("add", "mul", "fma"))
    fp16 = sum(getattr(counters, f"fp16_{kind}") or 0.0 for kind in ("add", "mul", "fma"))
    return {
        "shared": wavefronts / rate,
        "issue": (counters.ptx_warp_instructions or 0.0) / PARTITIONS / rate,
        "fp32": fp32 / arch.fp32_lanes / rate,
        "fp64": fp64 / arch.fp64_lanes / rate,
        "fp16": fp16 / arch.fp16_lanes / rate,
        "special": (counters.special_functions or 0.0) / arch.special_lanes / rate,
        "integer": (counters.integer_operations or 0.0) / (arch.fp32_lanes / 2) / rate,
    }


def _latency(sample: Sample, grid: Grid, gpu: Gpu) -> float:
    """Waves of resident blocks times the length of one warp's chain of dependent accesses."""
    counters, warps = sample.counters, max(sample.warps, 1)
    loads = ((counters.global_load_requests or 0.0) + (counters.async_copy_requests or 0.0)) / warps
    shared = (counters.shared_load_requests or 0.0) / warps
    unique = sum(sample.read.values())
    asked = (counters.global_load_sectors or 0.0) * SECTOR
    fresh = min(1.0, unique / asked) if asked else 0.0
    chain = (
        loads / max(sample.independent, 1.0) * (fresh * DRAM_LATENCY + (1 - fresh) * L2_LATENCY / 4)
    )
    chain += shared / max(sample.independent, 2.0) * SHARED_LATENCY
    chain += (counters.barriers or 0.0) / warps * BARRIER_CYCLES
    chain += (counters.ptx_warp_instructions or 0.0) / warps * ISSUE_CYCLES / 2
    resident = gpu.sms * max(grid.occupancy.blocks_per_sm, 1)
    waves = grid.blocks / resident
    # A last wave that is not full takes as long as a full one; many waves overlap their ends.
    rounds = max(1.0, waves + 0.5 * (1 - waves % 1 if waves % 1 else 0.0) / max(waves, 1.0))
    return rounds * chain / gpu.clock


def warps_of(threads: int) -> int:
    """Warps of a block."""
    return -(-threads // WARP)
