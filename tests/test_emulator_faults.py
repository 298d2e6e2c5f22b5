"""Small kernels that are wrong in one way each, and honest ones that look like them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from ptxsearch.emulator import Report, load, undefined
from ptxsearch.emulator import launch as machine
from ptxsearch.ptx import Module, parse
from tests.emulator_cases import DATA

COUNT = 256
DEFINED_OUTPUT = frozenset(
    {
        "atomics_on_few_words",
        "block_scope_within_block",
        "blocks_wait_in_a_ring",
        "bounds_atomic",
        "bounds_vector_store",
        "flag_with_fences",
        "misaligned_double",
        "race_block_scope_between_blocks",
        "race_flag_with_block_fence",
        "race_flag_without_acquire",
        "race_flag_without_release",
        "race_last_block_without_fence",
        "race_plain_flag",
        "race_total_read_too_early",
    }
)
SEVENS = frozenset({"undefined_local"})

FAULTY = [
    ("race_neighbour_in_next_block", "data_race", 4, 64, 0),
    ("race_between_blocks", "data_race", 4, 64, 0),
    ("race_shift_in_place", "data_race", 4, 64, 0),
    ("race_bytes_of_other_warp", "data_race", 4, 64, 0),
    ("race_flag_without_release", "data_race", 2, 32, 0),
    ("race_flag_without_acquire", "data_race", 2, 32, 0),
    ("race_flag_with_block_fence", "data_race", 2, 32, 0),
    ("race_plain_flag", "data_race", 2, 32, 0),
    ("race_atomic_and_plain_read", "data_race", 4, 64, 0),
    ("race_plain_initialisation", "data_race", 4, 64, 0),
    ("race_last_block_without_fence", "data_race", 4, 64, 0),
    ("race_broadcast_in_warp", "data_race", 4, 64, 0),
    ("race_shuffle_orders_nothing", "data_race", 4, 64, 0),
    ("race_half_warp_barriers", "data_race", 4, 64, 0),
    ("race_single_buffer", "data_race", 4, 64, 0),
    ("race_two_writers", "data_race", 4, 64, 0),
    ("race_blocks_write_one_word", "data_race", 4, 32, 0),
    ("race_block_scope_between_blocks", "data_race", 4, 32, 0),
    ("barrier_of_odd_lanes", "divergent_barrier", 1, 64, 0),
    ("barrier_waits_for_too_many", "illegal_instruction", 1, 64, 0),
    ("barrier_never_complete", "barrier_deadlock", 1, 64, 0),
    ("warp_barrier_and_spin", "infinite_loop", 1, 32, 0),
    ("loop_without_end", "infinite_loop", 1, 32, 0),
    ("blocks_wait_in_a_ring", "infinite_loop", 3, 32, 0),
    ("bounds_shared_row", "out_of_bounds_write", 1, 64, 0),
    ("bounds_before_start", "out_of_bounds_read", 1, 64, 0),
    ("bounds_between_buffers", "out_of_bounds_read", 1, 64, 0),
    ("bounds_constant", "out_of_bounds_read", 1, 64, 0),
    ("bounds_dynamic_shared", "out_of_bounds_read", 1, 64, 256),
    ("bounds_no_dynamic_shared", "out_of_bounds_write", 1, 64, 0),
    ("bounds_vector_store", "out_of_bounds_write", 1, 96, 0),
    ("bounds_atomic", "out_of_bounds_write", 1, 32, 0),
    ("misaligned_pair", "misaligned_access", 1, 32, 0),
    ("misaligned_double", "misaligned_access", 1, 1, 0),
    ("misaligned_shared_half", "misaligned_access", 1, 32, 0),
    ("undefined_shared", "uninitialised_read", 1, 64, 0),
    ("undefined_local", "uninitialised_read", 1, 32, 0),
    ("undefined_output", "uninitialised_read", 1, 64, 0),
    ("undefined_branch", "uninitialised_read", 1, 64, 0),
    ("undefined_address", "uninitialised_read", 1, 64, 0),
    ("undefined_lane", "uninitialised_read", 1, 32, 0),
    ("race_copy_not_waited", "data_race", 1, 64, 0),
    ("race_copy_of_other_thread", "data_race", 1, 64, 0),
    ("trap_executed", "trap", 1, 32, 0),
    ("race_write_after_read", "data_race", 4, 64, 0),
    ("race_total_read_too_early", "data_race", 4, 64, 0),
    ("call_of_no_function", "illegal_instruction", 1, 32, 0),
]
"""Kernel, fault, blocks, threads, dynamic shared bytes."""

HONEST = [
    ("flag_with_fences", 2, 32, 0),
    ("double_buffer", 4, 64, 0),
    ("two_writers_of_one_value", 4, 64, 0),
    ("all_write_one_value", 4, 64, 0),
    ("block_scope_within_block", 4, 32, 0),
    ("exited_warp_counts_as_arrived", 1, 64, 0),
    ("barriers_of_other_loops_pair_up", 1, 64, 0),
    ("junk_never_used", 1, 64, 0),
    ("junk_not_selected", 1, 64, 0),
    ("lane_not_selected", 1, 32, 0),
    ("plain_copy", 4, 64, 0),
    ("global_words_behind_barrier", 4, 64, 0),
    ("atomics_on_few_words", 4, 64, 0),
]
"""Kernel, blocks, threads, dynamic shared bytes."""


@cache
def module() -> Module:
    """The kernels, parsed once."""
    parsed = parse((DATA / "faults.ptx").read_text())
    assert isinstance(parsed, Module)
    return parsed


def run(name: str, grid: int, block: int, shared: int) -> Report:
    """One launch on 256 small integers and an output that is undefined unless it must not be."""
    values = np.arange(COUNT, dtype=np.int32) * 7 % 50
    if name in SEVENS:
        values[:] = 7
    out: Any = np.zeros(COUNT, np.int32)
    return load(module()).launch(
        name,
        grid=grid,
        block=block,
        shared_bytes=shared,
        args={
            "x": values,
            "y": out if name in DEFINED_OUTPUT else undefined(out),
            "n": np.int32(COUNT),
        },
        max_steps=200_000,
    )


@pytest.mark.parametrize(("name", "kind", "grid", "block", "shared"), FAULTY)
def test_fault(name: str, kind: str, grid: int, block: int, shared: int) -> None:
    """The fault is reported by kind, with its line in PTX and source and a place."""
    report = run(name, grid, block, shared)
    assert report.status == ("timeout" if kind == "infinite_loop" else "fault")
    fault = next(fault for fault in report.faults if fault.kind == kind)
    assert fault.line > 0
    assert fault.source_line is not None
    assert fault.message
    if kind == "data_race":
        assert fault.other_thread is not None
        assert (fault.other_block, fault.other_thread) != (fault.block, fault.thread) or (
            "async write" in fault.access
        )


@pytest.mark.parametrize(("name", "grid", "block", "shared"), HONEST)
def test_no_fault(name: str, grid: int, block: int, shared: int) -> None:
    """Nothing is reported."""
    report = run(name, grid, block, shared)
    assert report.status == "ok", report.message


ACROSS_BLOCKS = [row for row in FAULTY if row[1] == "data_race" and row[2] > 1]


@pytest.mark.parametrize(("name", "kind", "grid", "block", "shared"), ACROSS_BLOCKS)
def test_fault_of_blocks_run_one_by_one(
    name: str, kind: str, grid: int, block: int, shared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Races are found whether blocks run together or one after the other."""
    monkeypatch.setattr(machine, "CHUNK_LANES", 1)
    report = run(name, grid, block, shared)
    early = {"uninitialised_read"} if name == "race_between_blocks" else {kind}
    assert early & {fault.kind for fault in report.faults}


@pytest.mark.parametrize(("name", "grid", "block", "shared"), HONEST)
def test_no_fault_of_blocks_run_one_by_one(
    name: str, grid: int, block: int, shared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Honest kernels are clean whether blocks run together or one after the other."""
    monkeypatch.setattr(machine, "CHUNK_LANES", 1)
    assert run(name, grid, block, shared).status == "ok"


READER_AND_WRITER = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 y)
{
    .reg .pred %p; .reg .b32 %r<4>; .reg .b64 %d<4>;
    ld.param.u64 %d1, [y]; mov.u32 %r1, %tid.x; mul.wide.u32 %d2, %r1, 4; add.u64 %d1, %d1, %d2;
    mov.u32 %r2, %ctaid.x;
    setp.eq.u32 %p, %r2, 0;
    @%p bra READ;
    st.global.u32 [%d1], %r2;
    ret;
READ:
    ld.global.u32 %r3, [%d1];
    st.global.u32 [%d1+256], %r3;
    ret;
}
"""


@pytest.mark.parametrize("lanes", [1, 1 << 16])
def test_race_of_equal_threads_of_two_blocks(lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of one number in two blocks are not taken for one thread."""
    monkeypatch.setattr(machine, "CHUNK_LANES", lanes)
    launch: dict[str, Any] = {"grid": 2, "block": 64, "args": [np.zeros(128, np.int32)]}
    report = load(READER_AND_WRITER).launch("k", **launch)
    assert [fault.kind for fault in report.faults] == ["data_race"]
    assert {report.faults[0].block, report.faults[0].other_block} == {(0, 0, 0), (1, 0, 0)}


def test_race_tells_both_lines() -> None:
    """A race names the line of the access it collides with."""
    fault = run("race_single_buffer", 4, 64, 0).faults[0]
    lines = (DATA / "faults.ptx").read_text().splitlines()
    assert fault.other_line is not None
    assert "st.shared" in lines[fault.line - 1]
    assert "ld.shared" in lines[fault.other_line - 1]
    assert fault.access == ("read", "write")


def test_undefined_value_names_its_load() -> None:
    """An undefined value is reported at its load, with the line that used it."""
    fault = run("undefined_branch", 1, 64, 0).faults[0]
    lines = (DATA / "faults.ptx").read_text().splitlines()
    assert "ld.shared" in lines[fault.line - 1]
    assert (fault.object, fault.offset, fault.count) == ("s", 240, 4)
    assert "used at line" in fault.message


def test_two_writers_of_one_value_are_noted() -> None:
    """Unordered stores of one value are no fault, but the report tells."""
    report = run("two_writers_of_one_value", 4, 64, 0)
    assert len(report.notes) == 1
    assert "same value" in report.notes[0]
    assert run("plain_copy", 4, 64, 0).notes == ()
