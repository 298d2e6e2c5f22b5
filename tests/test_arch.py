"""Limits and occupancy against an H200's driver and profiler, ptxas, and vendors' figures."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from ptxsearch.arch import (
    ARCHES,
    GPUS,
    RESERVED_SHARED,
    block_threads,
    find_arch,
    find_gpu,
    occupancy,
    typical_gpu,
)
from ptxsearch.errors import UsageError
from ptxsearch.toolchain import machine_toolchain

DATA = np.load(Path(__file__).with_name("data") / "arch" / "h200_occupancy.npz")
# What the driver may give shared memory on an H200, in KB (CUDA programming guide, Hopper tuning).
CARVEOUTS = (0, 8, 16, 32, 64, 100, 132, 164, 196, 228)


def test_blocks_per_sm_equal_the_drivers() -> None:
    """All 6,560 configurations that the driver was asked about agree exactly."""
    expected = DATA["driver"][:, 3]
    got = [occupancy("sm_90", *map(int, row[:3])).blocks_per_sm for row in DATA["driver"]]
    assert expected.tolist() == got


def test_block_threads_equal_the_drivers() -> None:
    """Registers and launch bounds allow the threads that the driver gave for 6,560 kernels."""
    got = [min(int(bound), block_threads("sm_90", int(r))) for bound, r, _ in DATA["threads"]]
    assert DATA["threads"][:, 2].tolist() == got


@pytest.mark.parametrize(("column", "name"), [(3, "registers"), (5, "warps"), (6, "blocks")])
def test_each_limit_equals_the_profilers(column: int, name: str) -> None:
    """Registers, warps and blocks alone allow what the profiler recorded for 699 launches."""
    expected = DATA["ncu"][:, column].astype(int)
    got = [occupancy("sm_90", *map(int, row[:3])).limits[name] for row in DATA["ncu"]]
    assert expected.tolist() == got


def test_shared_limit_is_the_profilers_at_the_largest_share() -> None:
    """The profiler's shared limit is ours for one of the shares a driver may choose."""
    for row in DATA["ncu"]:
        limits = occupancy("sm_90", *map(int, row[:3])).limits
        per_block = int(row[2]) + RESERVED_SHARED
        per_block = (per_block + 127) // 128 * 128
        assert row[4] in {kb * 1024 // per_block for kb in CARVEOUTS}
        assert row[4] <= limits["shared"]


def test_fraction_equals_the_profilers_theoretical_occupancy() -> None:
    """Theoretical occupancy agrees with the profiler to the last digit it prints."""
    rows = DATA["ncu"][~np.isnan(DATA["ncu"][:, 7])]
    got = [100 * occupancy("sm_90", *map(int, row[:3])).fraction for row in rows]
    np.testing.assert_allclose(got, rows[:, 7], atol=0.01)


# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
@pytest.mark.parametrize(
    ("arch", "warps", "blocks", "per_sm", "per_block"),
    [
        ("sm_80", 64, 32, 164, 163), ("sm_86", 48, 16, 100, 99), ("sm_89", 48, 24, 100, 99),
        ("sm_90", 64, 32, 228, 227), ("sm_100", 64, 32, 228, 227), ("sm_120", 48, 24, 100, 99),
    ],
)  # fmt: skip
def test_limits_are_the_guides(
    arch: str, warps: int, blocks: int, per_sm: int, per_block: int
) -> None:
    """Resident warps and blocks and shared memory are those of NVIDIA's table."""
    found = find_arch(arch)
    assert (warps, blocks) == (found.warps_per_sm, found.blocks_per_sm)
    assert (per_sm, per_block) == (found.shared_per_sm // 1024, found.shared_per_block // 1024)
    assert warps * 32 == found.threads_per_sm


@pytest.mark.parametrize("arch", sorted(ARCHES))
def test_ptx_floor_is_where_ptxas_starts_to_accept(arch: str, tmp_path: Path) -> None:
    """A target is accepted by ptxas at the stated PTX version and refused one earlier."""
    versions = ("6.5", "7.0", "7.1", "7.2", "7.3", "7.4", "7.5", "7.6", "7.7", "7.8", "8.0", "8.1",
                "8.2", "8.3", "8.4", "8.5", "8.6", "8.7", "8.8", "9.0")  # fmt: skip
    floor = ARCHES[arch].ptx_isa
    ptxas = machine_toolchain().require_ptxas()
    codes = []
    for version in (versions[versions.index(floor) - 1], floor):
        text = (
            f".version {version}\n.target {arch}\n.address_size 64\n.visible .entry k(){{ret;}}\n"
        )
        (tmp_path / "k.ptx").write_text(text)
        command = [str(ptxas), f"-arch={arch}", "k.ptx", "-o", "k.cubin"]
        codes.append(subprocess.run(command, cwd=tmp_path, capture_output=True).returncode)
    assert codes[0] != 0
    assert codes[1] == 0


# Data sheets: fp32 TFLOP/s of A100, RTX 3090, RTX 4090, H200, RTX 5090 and dense fp16 of three.
@pytest.mark.parametrize(
    ("device", "fp32", "fp16"),
    [
        ("NVIDIA A100-SXM4-80GB", 19.5, 312), ("NVIDIA GeForce RTX 3090", 35.6, None),
        ("NVIDIA GeForce RTX 4090", 82.6, 330), ("NVIDIA H200", 67, 989),
        ("NVIDIA GeForce RTX 5090", 104.8, None),
    ],
)  # fmt: skip
def test_peaks_are_the_data_sheets(device: str, fp32: float, fp16: float | None) -> None:
    """Multiprocessors, clocks and lanes multiply to the published peaks."""
    gpu = find_gpu(device)
    assert gpu is not None
    assert gpu.fp32_peak / 1e12 == pytest.approx(fp32, rel=0.03)
    if fp16 is not None:
        assert gpu.tensor_fp16_peak / 1e12 == pytest.approx(fp16, rel=0.09)


def test_a_block_that_cannot_run_names_its_limiter() -> None:
    """Too many threads, registers or shared bytes give no block and say which."""
    assert occupancy("sm_90", 2048, 16, 0).limiter == "threads"
    assert occupancy("sm_90", 1024, 80, 0).limiter == "registers"
    assert occupancy("sm_86", 128, 32, 100 * 1024).limiter == "shared"
    for refused in ((2048, 16, 0), (1024, 80, 0), (32, 16, 228 * 1024)):
        assert occupancy("sm_90", *refused).blocks_per_sm == 0


def test_variants_of_a_target_are_one_architecture() -> None:
    """sm_90, sm_90a and compute_90 have the same limits."""
    assert find_arch("sm_90") is find_arch("sm_90a") is find_arch("compute_90")
    assert find_arch("sm_100f").name == "sm_100"


@pytest.mark.parametrize("name", ["sm_91", "sm_", "90", "", "sm_90x"])
def test_unknown_architecture_lists_those_known(name: str) -> None:
    """The error names what was got and every architecture there is."""
    with pytest.raises(UsageError, match=r"unknown architecture.*sm_80.*sm_120"):
        find_arch(name)


def test_impossible_sizes_are_refused() -> None:
    """No threads or a negative size is a mistake of the caller."""
    with pytest.raises(UsageError, match="at least one thread"):
        occupancy("sm_90", 0, 16, 0)


def test_every_gpu_has_an_architecture() -> None:
    """Each well-known GPU and each architecture's stand-in can be looked up."""
    for gpu in GPUS:
        assert find_gpu(f"NVIDIA {gpu.name}") == gpu
        assert typical_gpu(gpu.arch) in GPUS
    assert find_gpu("NVIDIA TITAN X") is None
