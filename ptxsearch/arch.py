"""What each architecture holds: limits, occupancy, and the peaks of well-known GPUs.

Limits are those of the CUDA C++ Programming Guide's table of compute capabilities, rates per cycle
those of its table of arithmetic throughput; device figures are the vendor's data sheets'.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ptxsearch.errors import UsageError

WARP = 32
RESERVED_SHARED = 1024
SHARED_GRANULARITY = 128
REGISTER_GRANULARITY = 256
PARTITIONS = 4
STATIC_SHARED = 48 * 1024
Limiter = Literal["threads", "registers", "shared", "warps", "blocks"]


@dataclass(frozen=True)
class Arch:
    """The limits of one architecture; sizes in bytes, rates per multiprocessor and cycle.

    `shared_per_block` excludes the 1,024 bytes that the driver reserves in every block.
    `ptx_isa` is the first PTX version with this target, `cluster_blocks` the largest cluster
    without an opt-in (1: no clusters). A fused multiply-add counts once in the `_lanes`;
    `tensor_fp16` counts dense fp16 multiply-adds.
    """

    name: str
    ptx_isa: str
    warps_per_sm: int
    blocks_per_sm: int
    shared_per_sm: int
    shared_per_block: int
    fp32_lanes: int
    fp64_lanes: int
    fp16_lanes: int
    tensor_fp16: int
    cluster_blocks: int = 1
    registers_per_sm: int = 65536
    registers_per_thread: int = 255
    threads_per_block: int = 1024
    barriers_per_block: int = 16
    special_lanes: int = 16
    load_store_lanes: int = 32
    shared_bytes_per_cycle: int = 128

    @property
    def threads_per_sm(self) -> int:
        """Resident threads of one multiprocessor."""
        return self.warps_per_sm * WARP


@dataclass(frozen=True)
class Gpu:
    """A well-known GPU: multiprocessors, boost clock in Hz, bytes, theoretical bytes per second."""

    name: str
    arch: str
    sms: int
    clock: float
    bandwidth: float
    l2_bytes: int
    memory_bytes: int

    @property
    def fp32_peak(self) -> float:
        """Theoretical fp32 operations per second, a fused multiply-add as two."""
        return 2.0 * find_arch(self.arch).fp32_lanes * self.sms * self.clock

    @property
    def fp64_peak(self) -> float:
        """Theoretical fp64 operations per second, a fused multiply-add as two."""
        return 2.0 * find_arch(self.arch).fp64_lanes * self.sms * self.clock

    @property
    def tensor_fp16_peak(self) -> float:
        """Theoretical dense fp16 tensor operations per second."""
        return 2.0 * find_arch(self.arch).tensor_fp16 * self.sms * self.clock


@dataclass(frozen=True)
class Occupancy:
    """Resident blocks and warps of one multiprocessor, and what bounds them.

    `fraction` is of the resident warps the multiprocessor holds. `limits` are the blocks that
    each resource alone would allow; 0 blocks mean that the launch is refused, for `limiter`.
    """

    blocks_per_sm: int
    warps: int
    fraction: float
    limiter: Limiter
    limits: Mapping[str, int] = field(default_factory=dict)


_KB = 1024
_ALL = (
    Arch("sm_80", "7.0", 64, 32, 164 * _KB, 163 * _KB, 64, 32, 256, 1024),
    Arch("sm_86", "7.1", 48, 16, 100 * _KB, 99 * _KB, 128, 2, 256, 512),
    Arch("sm_87", "7.4", 48, 16, 164 * _KB, 163 * _KB, 128, 2, 256, 512),
    Arch("sm_89", "7.8", 48, 24, 100 * _KB, 99 * _KB, 128, 2, 128, 512),
    Arch("sm_90", "7.8", 64, 32, 228 * _KB, 227 * _KB, 128, 64, 256, 2048, cluster_blocks=8),
    Arch("sm_100", "8.6", 64, 32, 228 * _KB, 227 * _KB, 128, 64, 256, 4096, cluster_blocks=8),
    Arch("sm_103", "8.8", 64, 32, 228 * _KB, 227 * _KB, 128, 2, 256, 4096, cluster_blocks=8),
    Arch("sm_120", "8.7", 48, 24, 100 * _KB, 99 * _KB, 128, 2, 128, 512, cluster_blocks=8),
    Arch("sm_121", "8.8", 48, 24, 100 * _KB, 99 * _KB, 128, 2, 128, 512, cluster_blocks=8),
)  # fmt: skip
ARCHES: Mapping[str, Arch] = {arch.name: arch for arch in _ALL}

_GB = 10**9
_MIB = 1 << 20
# The first GPU of an architecture stands for it where no device is there to ask.
GPUS: tuple[Gpu, ...] = (
    Gpu("A100 80GB", "sm_80", 108, 1.410e9, 2039e9, 40 * _MIB, 80 * _GB),
    Gpu("A100 40GB", "sm_80", 108, 1.410e9, 1555e9, 40 * _MIB, 40 * _GB),
    Gpu("RTX 3090", "sm_86", 82, 1.695e9, 936e9, 6 * _MIB, 24 * _GB),
    Gpu("RTX A6000", "sm_86", 84, 1.800e9, 768e9, 6 * _MIB, 48 * _GB),
    Gpu("A10", "sm_86", 72, 1.695e9, 600e9, 6 * _MIB, 24 * _GB),
    Gpu("RTX 4090", "sm_89", 128, 2.520e9, 1008e9, 72 * _MIB, 24 * _GB),
    Gpu("L40S", "sm_89", 142, 2.520e9, 864e9, 96 * _MIB, 48 * _GB),
    Gpu("L4", "sm_89", 58, 2.040e9, 300e9, 48 * _MIB, 24 * _GB),
    Gpu("H200", "sm_90", 132, 1.980e9, 4800e9, 60 * _MIB, 141 * _GB),
    Gpu("H100 PCIe", "sm_90", 114, 1.755e9, 2039e9, 50 * _MIB, 80 * _GB),
    Gpu("H100", "sm_90", 132, 1.980e9, 3352e9, 50 * _MIB, 80 * _GB),
    Gpu("B200", "sm_100", 148, 1.965e9, 8000e9, 126 * _MIB, 180 * _GB),
    Gpu("B300", "sm_103", 148, 1.920e9, 8000e9, 126 * _MIB, 288 * _GB),
    Gpu("RTX 5090", "sm_120", 170, 2.407e9, 1792e9, 96 * _MIB, 32 * _GB),
)


def find_arch(name: str) -> Arch:
    """The limits of `sm_90`, `sm_90a`, `compute_90` and the like.

    Raises UsageError for an architecture that is not in `ARCHES`.
    """
    match = re.fullmatch(r"(?:sm|compute)_(\d+)[af]?", name)
    arch = ARCHES.get(f"sm_{match[1]}") if match else None
    if arch is None:
        raise UsageError(f"unknown architecture {name!r}", f"use one of {', '.join(ARCHES)}")
    return arch


def find_gpu(device_name: str) -> Gpu | None:
    """The well-known GPU that a driver's device name speaks of; None for any other."""
    words = device_name.upper()
    matching = [gpu for gpu in GPUS if all(word.upper() in words for word in gpu.name.split())]
    return max(matching, key=lambda gpu: len(gpu.name), default=None)


def typical_gpu(arch: str) -> Gpu | None:
    """A GPU that stands for `arch` where none is there; None where none is well known."""
    name = find_arch(arch).name
    return next((gpu for gpu in GPUS if gpu.arch == name), None)


def occupancy(arch: str, threads: int, registers: int, shared_bytes: int) -> Occupancy:
    """How many blocks of `threads` a multiprocessor holds at once.

    `registers` are per thread, `shared_bytes` the static and dynamic bytes of a block without the
    driver's reserve; the multiprocessor is given its largest share of shared memory, as the
    driver's own occupancy call does. Registers go to warps in units of 256 within each of four
    partitions (`cuda_occupancy.h` of the CUDA toolkit). Raises UsageError for no threads.
    """
    limits_of = find_arch(arch)
    if threads < 1 or registers < 0 or shared_bytes < 0:
        raise UsageError(
            f"a block of {threads} threads, {registers} registers, {shared_bytes} shared bytes",
            "give at least one thread and no negative size",
        )
    warps = -(-threads // WARP)
    limits: dict[str, int] = {
        "registers": _blocks_by_registers(limits_of, warps, registers),
        "shared": _blocks_by_shared(limits_of, shared_bytes),
        "warps": limits_of.warps_per_sm // warps,
        "blocks": limits_of.blocks_per_sm,
    }
    if threads > limits_of.threads_per_block:
        return Occupancy(0, 0, 0.0, "threads", limits)
    names: tuple[Limiter, ...] = ("registers", "shared", "warps", "blocks")
    limiter = min(names, key=lambda name: limits[name])
    blocks = limits[limiter]
    resident = blocks * warps
    return Occupancy(blocks, resident, resident / limits_of.warps_per_sm, limiter, limits)


def block_threads(arch: str, registers: int) -> int:
    """The most threads a block may have where each takes `registers`, 0 where it cannot run."""
    limits = find_arch(arch)
    if registers > limits.registers_per_thread:
        return 0
    return min(limits.threads_per_block, _resident_warps(limits, registers) * WARP)


def _resident_warps(arch: Arch, registers: int) -> int:
    """Warps whose registers a multiprocessor can hold, the same in each partition."""
    per_warp = _round_up(max(registers, 1) * WARP, REGISTER_GRANULARITY)
    return arch.registers_per_sm // PARTITIONS // per_warp * PARTITIONS


def _blocks_by_registers(arch: Arch, warps: int, registers: int) -> int:
    if registers > arch.registers_per_thread:
        return 0
    return _resident_warps(arch, registers) // warps


def _blocks_by_shared(arch: Arch, shared_bytes: int) -> int:
    if shared_bytes > arch.shared_per_block:
        return 0
    return arch.shared_per_sm // _round_up(shared_bytes + RESERVED_SHARED, SHARED_GRANULARITY)


def _round_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit
