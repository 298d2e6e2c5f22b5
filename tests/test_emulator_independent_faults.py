"""Faulty kernels made to slip past the checks: each must be reported with its kind and place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxsearch.emulator import Fault, Report, emulate, undefined
from tests.test_emulator_independent import SOURCES, f32, i32, ptx, u32, zeros

INTS = np.arange(1, 4097, dtype=i32)
FLOATS = np.arange(1, 4097, dtype=f32)
TRIPS = np.array([4] * 40 + [3] + [4] * 23, i32)


def launch(name: str, grid: Any, block: Any, *args: Any) -> Report:
    """A launch with all checks and a bound on the steps of a thread."""
    return emulate(ptx(name), entry=name, grid=grid, block=block, args=args, max_steps=200_000)


def fault(report: Report, kind: str) -> Fault:
    """The first fault of a report, which must be of that kind."""
    assert report.status in ("fault", "timeout"), (report.status, report.message)
    assert report.faults, report.message
    assert report.faults[0].kind == kind, report.faults
    return report.faults[0]


def line_of(name: str, text: str) -> int:
    """The number of the only line of a source that holds a text."""
    lines = (SOURCES / f"{name}.cu").read_text().splitlines()
    (found,) = [number for number, line in enumerate(lines, 1) if text in line]
    return found


def out(count: Any, dtype: Any = i32) -> Any:
    """An output with undefined contents."""
    return undefined(zeros(count, dtype))


RACES = {
    "fault_warp_step_race": (2, 64, INTS[:128], out(2)),
    "fault_fence_before_barrier": (3, 64, INTS[:192], out(192), out(192), zeros(1, u32), i32(192)),
    "fault_previous_tile": (1, 64, FLOATS[:320], out(64, f32), i32(5)),
    "fault_total_of_blocks": (4, 32, INTS[:128], zeros(1)),
    "fault_partial_of_neighbour": (4, 64, INTS[:256], out(4), out(4)),
    "fault_last_copy": (1, 64, INTS[:192], out(64), i32(3)),
    "fault_after_many_reads": (32, 128, zeros(4096), out(4096), zeros(1, u32), i32(1300)),
    "fault_half_mask": (1, 32, INTS[:32], out(32)),
}


@pytest.mark.parametrize("name", RACES)
def test_races(name: str) -> None:
    """Accesses that only luck orders are races."""
    found = fault(launch(name, *RACES[name]), "data_race")
    assert found.other_thread != found.thread or found.other_block != found.block


def test_race_on_a_slot_of_the_tile_before() -> None:
    """The race is between the next tile's store and the read of the tile before."""
    found = fault(launch("fault_previous_tile", *RACES["fault_previous_tile"]), "data_race")
    assert found.source_line == line_of("fault_previous_tile", "= x[k * 64 + t]")
    assert (found.space, found.object) == ("shared", "tile")


def test_one_word_behind_an_input() -> None:
    """A read behind an allocation is out of bounds by one word."""
    report = launch("fault_into_padding", 1, 128, FLOATS[:128].copy(), out(128, f32), i32(128))
    found = fault(report, "out_of_bounds_read")
    assert (found.thread, found.offset, found.size) == ((127, 0, 0), 512, 4)


def test_one_word_behind_a_view() -> None:
    """Behind a view that ends its arena is out of bounds; a gap between views is noted."""
    arena = np.ones(272, f32)
    last, first = arena[144:], arena[:128]
    report = launch("fault_into_padding", 1, 128, last, undefined(first), i32(128))
    assert fault(report, "out_of_bounds_read").offset == 512
    report = launch("fault_into_padding", 1, 128, first, undefined(last), i32(128))
    assert any("outside every argument" in note for note in report.notes)


def test_next_buffer_of_an_arena() -> None:
    """A read behind a view that meets the next buffer collides with the next buffer's writer."""
    arena = np.ones(256, f32)
    report = launch("fault_into_padding", 1, 128, arena[:128], undefined(arena[128:]), i32(128))
    kinds = {found.kind for found in report.faults}
    assert kinds <= {"data_race", "uninitialised_read"}
    assert kinds


def test_index_before_a_shared_array() -> None:
    """A key of 0 hits the word before its array, which belongs to no array."""
    keys = np.arange(1, 33, dtype=i32)
    assert launch("fault_negative_index", 1, 32, keys, out(32)).status == "ok"
    keys[5] = 0
    report = launch("fault_negative_index", 1, 32, keys, out(32))
    found = fault(report, "out_of_bounds_write")
    assert (found.space, found.thread) == ("shared", (5, 0, 0))


def test_overrun_of_a_stack() -> None:
    """Only the input that needs nine entries overruns a stack of eight, by its last entry."""
    depth = np.array([3, 8, 2, 5] * 8, i32)
    assert launch("fault_stack_overrun", 1, 32, depth, out(32)).status == "ok"
    depth[9] = 9
    found = fault(launch("fault_stack_overrun", 1, 32, depth, out(32)), "out_of_bounds_write")
    assert (found.space, found.thread, found.offset) == ("local", (9, 0, 0), 32)


def test_tail_of_a_shared_tile() -> None:
    """The unfilled word of the last tile is found where it is summed, full tiles are clean."""
    full = launch("fault_short_tile", 2, 64, FLOATS[:128], out(2, f32), i32(128))
    assert full.status == "ok"
    report = launch("fault_short_tile", 2, 64, FLOATS[:127], out(2, f32), i32(127))
    found = fault(report, "uninitialised_read")
    assert (found.space, found.object, found.block) == ("shared", "tile", (1, 0, 0))


def test_register_unset_on_a_rare_path() -> None:
    """A register that one lane never set is found when that lane's value is stored."""
    keys = np.array([1, 9] * 16, u32)
    assert launch("fault_rare_accumulator", 1, 32, keys, out(32, f32)).status == "ok"
    keys[20] = 7
    report = launch("fault_rare_accumulator", 1, 32, keys, out(32, f32))
    assert fault(report, "uninitialised_read").thread == (20, 0, 0)


def test_vector_at_an_odd_row() -> None:
    """Rows of 18 floats are aligned for float4 in the first row only."""
    assert launch("fault_odd_row", 1, 4, FLOATS[:18], out(4, f32), i32(18)).status == "ok"
    report = launch("fault_odd_row", 2, 4, FLOATS[:36], out(8, f32), i32(18))
    found = fault(report, "misaligned_access")
    assert (found.block, found.offset, found.size) == ((1, 0, 0), 72, 16)


def test_barrier_in_a_loop_of_unequal_trips() -> None:
    """One lane with one trip less makes the barrier of the loop divergent."""
    equal = launch("fault_barrier_in_loop", 1, 64, np.full(64, 4, i32), out(64))
    assert equal.status == "ok"
    found = fault(launch("fault_barrier_in_loop", 1, 64, TRIPS, out(64)), "divergent_barrier")
    assert found.block == (0, 0, 0)
    assert 32 <= found.thread[0] < 64


def test_named_barriers_in_crossed_order() -> None:
    """Two warps that take two barriers in opposite order wait for ever."""
    fault(launch("fault_crossed_barriers", 1, 64, out(64)), "barrier_deadlock")


def test_lock_kept_on_one_path() -> None:
    """Blocks behind the one that keeps the lock spin for ever."""
    account, amounts = np.array([100], i32), np.array([1, 2, 3, 4], i32)
    assert launch("fault_lock_kept", 4, 32, zeros(1), account, amounts).status == "ok"
    assert account[0] == 90
    amounts[1] = 200
    report = launch("fault_lock_kept", 4, 32, zeros(1), account, amounts)
    found = fault(report, "infinite_loop")
    assert found.source_line == line_of("fault_lock_kept", "while (atomicCAS")


def test_shuffle_from_a_returned_lane() -> None:
    """Values of lanes that have returned are undefined where they are stored."""
    assert launch("fault_shuffle_from_exited", 1, 32, INTS[:32], out(1), i32(32)).status == "ok"
    report = launch("fault_shuffle_from_exited", 2, 32, INTS[:50], out(2), i32(50))
    assert fault(report, "uninitialised_read").block == (1, 0, 0)


def test_words_of_bytes_never_filled() -> None:
    """Padding may be copied undefined, but not words that hold bytes in other lanes."""
    x = np.arange(256, dtype=np.uint8).reshape(64, 4)
    full = launch("fault_component_of_tile", 1, 64, x, out((64, 4), np.uint8), i32(64))
    assert full.status == "ok"
    report = launch("fault_component_of_tile", 1, 64, x, out((64, 4), np.uint8), i32(60))
    found = fault(report, "uninitialised_read")
    assert (found.space, found.object, found.thread[0] < 4) == ("shared", "tile", True)


def test_index_before_a_buffer() -> None:
    """A negative index is told as bytes before the buffer it was meant for."""
    report = launch("fault_before_row", 1, 64, FLOATS[:64].copy(), out(64, f32), i32(64))
    found = fault(report, "out_of_bounds_read")
    assert (found.object, found.offset, found.thread) == ("fault_before_row_param_0", -8, (0, 0, 0))


def test_pointer_that_was_not_given() -> None:
    """A null pointer belongs to no object, and is met only where it is used."""
    name, null = "fault_null_pointer", np.uint64(0)
    assert launch(name, 1, 30, FLOATS[:64], out(64, f32), null).status == "ok"
    found = fault(launch(name, 1, 32, FLOATS[:64], out(64, f32), null), "out_of_bounds_write")
    assert (found.object, found.address, found.thread) == ("", 120, (30, 0, 0))


def test_word_written_between_views() -> None:
    """A store into the gap between two buffers of an arena is noted with its place."""
    arena = np.ones(320, f32)
    name, x, y = "gap_written", arena[192:], arena[:128]
    report = launch(name, 1, 160, x, undefined(y), i32(128))
    (note,) = report.notes
    assert report.status == "ok"
    assert note.startswith("4 bytes written outside every argument")
    assert "byte 512 from the start of gap_written_param_1" in note
    assert launch(name, 1, 120, x, undefined(y), i32(128)).notes == ()
