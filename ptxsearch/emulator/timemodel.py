"""A modelled time from counters: the busiest pipe, latency against occupancy, a launch constant.

The model is first-order and deterministic. It takes the counters of a sample of whole blocks,
scales them to the grid, and asks how long each part of the GPU is busy: DRAM, L2, L1 and shared
memory, issue slots, arithmetic. A chain of dependent memory accesses that too few resident warps
hide bounds it from below. Constants are those of an H200 measured in docs/results.md and of the
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
L1_LATENCY = 40.0
L1_BYTES_PER_CYCLE = 64.0
SHARED_LATENCY = 29.0
BARRIER_CYCLES = 40.0
ISSUE_CYCLES = 5.0
SOFTNESS = 4.0
L1_BYTES = 256 << 10
ATOMIC_CYCLES = 0.25
# Cycles of the whole GPU to place one block: 2^20 blocks of 64 threads took 634 us on an H200.
BLOCK_CYCLES = 1.2
# What a store of part of a sector costs L2, over a whole one: a naive transpose took 989 us there.
PARTIAL_STORE = 2.2


@dataclass(frozen=True)
class Sample:
    """What a sample of whole blocks did: counters, and bytes by buffer.

    `fetched` are the bytes of sectors read, distinct within each block, `read` distinct over the
    sample, `written` bytes stored, `extent` the bytes of the buffer. `independent` is how many
    global loads a warp has in flight before it needs the first.
    """

    counters: Counters
    blocks: int
    warps: int
    read: Mapping[str, int]
    fetched: Mapping[str, int]
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
        "blocks": grid.blocks * BLOCK_CYCLES / gpu.clock,
    }
    total = sum(seconds**SOFTNESS for seconds in parts.values()) ** (1 / SOFTNESS)
    return Breakdown(parts, total)


def traffic(sample: Sample, grid: Grid) -> tuple[float, float, float]:
    """Scaled bytes: (DRAM read, DRAM written, through L2).

    Blocks that read the same bytes share them in L2, so a buffer leaves DRAM once. Within a block
    a repeated sector hits L1 where the resident blocks' bytes fit there.
    """
    scale = grid.blocks / max(sample.blocks, 1)
    read = sum(min(b * scale, sample.extent[name]) for name, b in sample.read.items())
    written = sum(min(b * scale, sample.extent[name]) for name, b in sample.written.items())
    counters = sample.counters
    loads = _sum(counters, "global_load_sectors")
    unique = sum(sample.fetched.values())
    resident = unique / max(sample.blocks, 1) * grid.occupancy.blocks_per_sm
    through = unique / SECTOR if resident <= L1_BYTES / 2 else loads
    local = _sum(counters, "local_load_sectors", "local_store_sectors") / 4
    stores = _sum(counters, "global_store_sectors")
    partial = max(0.0, stores - _sum(counters, "global_store_bytes") / SECTOR)
    stores += PARTIAL_STORE * partial
    atomics = 2 * _sum(counters, "global_atomic_sectors")
    moved = (min(through, loads) + stores + local + atomics) * SECTOR * scale
    return read, written, moved


def _sum(counters: Counters, *names: str) -> float:
    return float(sum(getattr(counters, name) or 0.0 for name in names))


def _memory(sample: Sample, grid: Grid, gpu: Gpu, scale: float) -> dict[str, float]:
    read, written, through = traffic(sample, grid)
    bandwidth = gpu.bandwidth * DRAM_ATTAINABLE
    counters = sample.counters
    sectors = _sum(counters, "global_load_sectors", "global_store_sectors")
    atomics = _sum(counters, "global_atomic_requests")
    return {
        "dram": (read + written) / bandwidth,
        "l2": through / (bandwidth * L2_OVER_DRAM),
        "l1": sectors * scale * SECTOR / (L1_BYTES_PER_CYCLE * gpu.sms * gpu.clock),
        "atomics": atomics * scale * ATOMIC_CYCLES / gpu.clock,
    }


def _pipes(counters: Counters, gpu: Gpu, scale: float) -> dict[str, float]:
    arch = find_arch(gpu.arch)
    rate = gpu.sms * gpu.clock / scale
    shared = _sum(
        counters, "shared_load_wavefronts", "shared_store_wavefronts", "shared_atomic_requests"
    )
    return {
        "shared": shared / rate,
        "issue": _sum(counters, "ptx_warp_instructions") / PARTITIONS / rate,
        "fp32": _sum(counters, "fp32_add", "fp32_mul", "fp32_fma") / arch.fp32_lanes / rate,
        "fp64": _sum(counters, "fp64_add", "fp64_mul", "fp64_fma") / arch.fp64_lanes / rate,
        "fp16": _sum(counters, "fp16_add", "fp16_mul", "fp16_fma") / arch.fp16_lanes / rate,
        "special": _sum(counters, "special_functions") / arch.special_lanes / rate,
        "integer": _sum(counters, "integer_operations") / (arch.fp32_lanes / 2) / rate,
    }


def _latency(sample: Sample, grid: Grid, gpu: Gpu) -> float:
    """Waves of resident blocks times the length of one warp's chain of dependent accesses."""
    counters, warps = sample.counters, max(sample.warps, 1)
    loads = _sum(counters, "global_load_requests") / warps
    shared = _sum(counters, "shared_load_requests") / warps
    asked = _sum(counters, "global_load_sectors") * SECTOR
    fresh = min(1.0, sum(sample.fetched.values()) / asked) if asked else 0.0
    wait = fresh * DRAM_LATENCY + (1 - fresh) * L1_LATENCY
    chain = loads / max(sample.independent, 1.0) * wait
    chain += shared / max(sample.independent, 2.0) * SHARED_LATENCY
    chain += _sum(counters, "barriers") / warps * BARRIER_CYCLES
    chain += _sum(counters, "ptx_warp_instructions") / warps * ISSUE_CYCLES / 2
    resident = gpu.sms * max(grid.occupancy.blocks_per_sm, 1)
    waves = grid.blocks / resident
    # A last wave that is not full takes as long as a full one; many waves overlap their ends.
    rounds = max(1.0, waves + 0.5 * (1 - waves % 1 if waves % 1 else 0.0) / max(waves, 1.0))
    return rounds * chain / gpu.clock


def warps_of(threads: int) -> int:
    """Warps of a block."""
    return -(-threads // WARP)
