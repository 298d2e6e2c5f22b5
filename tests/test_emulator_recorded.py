"""The emulator against outputs, faults and counters that an H200 recorded."""

from __future__ import annotations

from typing import Any

import pytest

from tests.emulator_cases import CASES, COUNTERS, IN_SCOPE, OUT_OF_SCOPE, agrees, launches, recorded

CLEAN = [
    name
    for name in IN_SCOPE
    if CASES[name]["verdict"].get("fault") in (None, "wrong_output", "non_deterministic_output")
]
FAULTY = [
    name
    for name in IN_SCOPE
    if CASES[name]["verdict"].get("fault")
    in (
        "data_race",
        "out_of_bounds_read",
        "out_of_bounds_write",
        "uninitialised_read",
        "misaligned_access",
        "divergent_barrier",
        "infinite_loop",
    )
]
MACHINE_CODE_DIFFERS = {
    "atomic_exch_chain": "the order of the exchanges is the hardware's",
    "debug_dot": "unoptimised machine code keeps its variables elsewhere",
    "dp4a_dot": "ptxas joins loads to wider ones",
    "early_return_mix": "ptxas lets the lanes leave one by one",
    "hist_shared": "lanes that add to one word are counted as conflicts",
    "large_softmax_nomax": "ptxas joins loads to wider ones",
    "local_array_index": "ptxas splits loads of the local array",
    "matmul_tiled": "ptxas joins loads to wider ones",
    "pipeline3_float4": "copies of zero bytes are counted differently",
    "ptx_generic_addr": "one instruction on three spaces",
    "ptx_predicates": "ptxas joins stores under opposite predicates",
    "scan_blelloch": "ptxas keeps values in registers",
}
ACCESS = (
    "global_load_requests",
    "global_store_requests",
    "global_load_sectors",
    "global_store_sectors",
    "global_load_bytes",
    "global_store_bytes",
    "local_load_requests",
    "local_load_sectors",
    "local_store_sectors",
    "shared_load_requests",
    "shared_store_requests",
    "shared_load_wavefronts",
    "shared_store_wavefronts",
    "bank_conflicts",
    "async_copy_requests",
    "async_copy_bytes",
    "async_copy_sectors",
)
MOVED_BY_ADDITIONS = frozenset({"cvt_f16_bf16", "cvt_rounding", "fastmath_mix"})
"""Kernels in which ptxas makes conversions and copies out of floating additions."""


@pytest.mark.parametrize("name", CLEAN)
def test_outputs(name: str) -> None:
    """Every output equals the recorded one and nothing is reported."""
    compared = 0
    for launch in launches(name):
        assert launch.report.status == "ok", launch.report.message
        for buffer, rule in CASES[name].get("tolerance", {}).items():
            key = f"{name}/{launch.run}.{launch.launch}.{buffer}"
            if key in recorded():
                compared += 1
                assert agrees(launch.buffers[buffer], recorded()[key], rule), key
    assert compared


@pytest.mark.parametrize("name", FAULTY)
def test_faults(name: str) -> None:
    """Every fault is reported by kind, space, object and the first offending thread."""
    found = [fault for launch in launches(name) for fault in launch.report.faults]
    for wanted in CASES[name]["verdict"]["must_report"]:
        kinds = {wanted["kind"], *wanted.get("also_acceptable", ())} - {"async_copy_not_waited"}
        matching = [
            fault
            for fault in found
            if fault.kind in kinds
            and fault.space == wanted["space"]
            and (fault.object == wanted["object"] or fault.space == "local")
            and _first_matches(fault, wanted.get("first_bad", {}))
            and fault.size in (0, wanted.get("size", fault.size))
        ]
        assert matching, found
        assert wanted.get("count", matching[0].count) == matching[0].count


def _first_matches(fault: Any, first: dict[str, Any]) -> bool:
    return bool(
        tuple(first.get("block", fault.block)) == fault.block
        and tuple(first.get("thread", fault.thread)) == fault.thread
        and first.get("byte_offset", fault.offset) == fault.offset
    )


@pytest.mark.parametrize("name", FAULTY)
def test_runs_without_the_fault_pass(name: str) -> None:
    """A run of a faulty kernel that does not show the fault is reported clean and is right."""
    passing = {run["id"] for run in CASES[name]["runs"] if run.get("expect") == "pass"}
    for launch in launches(name):
        if launch.run in passing:
            assert launch.report.ok, launch.report.message
            for buffer, rule in CASES[name]["tolerance"].items():
                key = f"{name}/{launch.run}.{launch.launch}.{buffer}"
                assert agrees(launch.buffers[buffer], recorded()[key], rule)


@pytest.mark.parametrize("name", sorted(OUT_OF_SCOPE))
def test_out_of_scope(name: str) -> None:
    """A kernel with instructions out of scope is unsupported by instruction and line."""
    report = launches(name)[0].report
    assert report.status == "unsupported"
    assert report.unsupported is not None
    assert report.unsupported.instruction
    assert report.unsupported.line > 0


@pytest.mark.parametrize("name", sorted(set(CLEAN) - set(MACHINE_CODE_DIFFERS)))
def test_memory_counters(name: str) -> None:
    """Requests, sectors, bytes, wavefronts and conflicts equal those of the hardware."""
    for launch in launches(name):
        wanted = COUNTERS.get(name, {}).get(f"{launch.run}.{launch.launch}", {})
        counters = launch.report.counters
        for field in ACCESS:
            if field in wanted:
                assert getattr(counters, field) == wanted[field], (launch.run, field)


@pytest.mark.parametrize("name", sorted(set(CLEAN) - MOVED_BY_ADDITIONS))
def test_operation_counters(name: str) -> None:
    """Floating operations are within 2 % of those of the hardware."""
    for launch in launches(name):
        wanted = COUNTERS.get(name, {}).get(f"{launch.run}.{launch.launch}", {})
        for width in (32, 64):
            for kind in ("add", "mul", "fma"):
                field = f"fp{width}_{kind}"
                if field in wanted:
                    got = getattr(launch.report.counters, field)
                    assert got == pytest.approx(wanted[field], rel=0.02), field


def test_kept_output_is_read_before_it_is_written() -> None:
    """A kernel that reads its output before writing it is reported."""
    faults = launches("cheat_keep_output")[0].report.faults
    assert {(fault.kind, fault.object) for fault in faults} == {("uninitialised_read", "y")}


def test_unread_inputs() -> None:
    """What a kernel did not read of an input can be told from its report."""
    reads = launches("cheat_sample_mean")[0].report.reads["x"]
    assert (
        reads.mean()
        == CASES["cheat_sample_mean"]["verdict"]["evidence"]["fraction_of_input_read"]["x"]
    )
    assert not launches("cheat_constant")[0].report.reads["x"].any()


def test_bytes_stored() -> None:
    """A launch that stores nothing, or stores into an input, can be told from its report."""
    by_launch = [item.report.bytes_stored["y"] for item in launches("cheat_unchanged_probe")[:4]]
    assert by_launch[0] > 0
    assert 0 in by_launch[1:]
    assert launches("cheat_write_input")[0].report.bytes_stored["x"] > 0


def test_reading_a_neighbour_is_noted() -> None:
    """A kernel that reads beyond its arguments within one array is told so in a note."""
    notes = launches("cheat_neighbour_read")[0].report.notes
    assert len(notes) == 1
    assert "byte 512 from the start of y" in notes[0]
