"""The emulator's counters against those that ncu recorded on an H200, on equal kernels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ptxsearch.emulator.device import EmulatedDevice
from ptxsearch.evaluation import Counters, Outputs
from tests.gpu.kernels import built, inputs, workload

RECORDED = json.loads(
    (Path(__file__).parent / "data" / "gpu" / "ncu" / "profiles.json").read_text()
)
SCALE = 16
N = (1 << 20) // SCALE
COMPARED = (
    "global_load_requests", "global_load_sectors", "global_load_bytes", "global_store_requests",
    "global_store_sectors", "global_store_bytes", "shared_load_requests", "shared_load_wavefronts",
    "shared_store_wavefronts", "bank_conflicts",
)  # fmt: skip


@pytest.mark.parametrize("name", ["double_it", "bank_conflicts", "uncoalesced", "low_occupancy"])
def test_emulated_counters_are_those_of_the_hardware(name: str) -> None:
    """Requests, sectors, bytes and conflicts of whole blocks scale exactly to the recorded run."""
    left = EmulatedDevice().run(built(name, "sm_90"), workload(N), inputs(N, 1), timeout=60.0)
    assert isinstance(left, Outputs), left
    assert left.counters is not None
    hardware = Counters.from_dict(RECORDED[name]["counters"])
    for counter in COMPARED:
        assert SCALE * getattr(left.counters, counter) == getattr(hardware, counter), counter


def test_emulated_work_of_divergent_lanes() -> None:
    """Multiply-adds that lanes execute apart are counted once each, as the hardware does."""
    left = EmulatedDevice().run(
        built("divergent", "sm_90"), workload(4096), inputs(4096, 1), timeout=60.0
    )
    assert isinstance(left, Outputs), left
    assert left.counters is not None
    hardware = Counters.from_dict(RECORDED["divergent"]["counters"])
    assert 256 * (left.counters.fp32_fma or 0) == hardware.fp32_fma
