"""Loading, arguments, memory between launches and reports of the emulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxsearch.emulator import Report, emulate, load, undefined
from ptxsearch.errors import UsageError

i32 = np.int32

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"

COUNTER = (
    HEAD
    + """
.global .align 4 .u32 count[2] = {5, 7};
.visible .entry add(.param .u64 out, .param .u32 step) {
    .reg .b32 %r<4>; .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [step];
    mov.u64 %rd2, count;
    atom.global.add.u32 %r2, [%rd2], %r1;
    st.global.u32 [%rd1], %r2;
    ret;
}
"""
)

STRUCT = (
    HEAD
    + """
.visible .entry fields(.param .align 8 .b8 s[16], .param .u64 out) {
    .reg .b32 %r<3>; .reg .f64 %d<2>; .reg .b64 %rd<2>;
    ld.param.u32 %r1, [s];
    ld.param.f64 %d1, [s+8];
    ld.param.u64 %rd1, [out];
    cvt.rzi.s32.f64 %r2, %d1;
    add.s32 %r1, %r1, %r2;
    st.global.u32 [%rd1], %r1;
    ret;
}
"""
)

COPY = (
    HEAD
    + """
.visible .entry copy(.param .u64 from, .param .u64 to, .param .u32 n) {
    .reg .pred %p; .reg .b32 %r<6>; .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [from];
    ld.param.u64 %rd2, [to];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
    mad.lo.u32 %r2, %r2, %r3, %r4;
    setp.ge.u32 %p, %r2, %r1;
    @%p ret;
    mul.wide.u32 %rd3, %r2, 4;
    add.u64 %rd4, %rd1, %rd3;
    add.u64 %rd5, %rd2, %rd3;
    ld.global.u32 %r5, [%rd4];
    st.global.u32 [%rd5], %r5;
    ret;
}
"""
)


def copy(source: Any, target: Any, n: int, **launch: Any) -> Report:
    """One launch of `copy`."""
    args = [source, target, i32(n)]
    launch = {"grid": -(-n // 64), "block": 64, "args": args, **launch}
    return emulate(COPY, entry="copy", **launch)


def test_module_variables_live_between_launches() -> None:
    """A module variable keeps what launches and the host write to it."""
    module, out = load(COUNTER), np.zeros(1, i32)
    assert module.read_global("count").view(np.uint32).tolist() == [5, 7]
    for want in (5, 8):
        assert module.launch("add", grid=1, block=1, args=[out, i32(3)]).ok
        assert out[0] == want
    module.write_global("count", np.array([100], np.uint32))
    module.launch("add", grid=1, block=1, args=[out, i32(3)])
    assert out[0] == 100
    assert module.read_global("count").view(np.uint32).tolist() == [103, 7]


def test_unknown_module_variable() -> None:
    """A name that the module lacks is the caller's mistake, answered with the names it has."""
    with pytest.raises(UsageError, match="count"):
        load(COUNTER).read_global("total")


def test_struct_by_value() -> None:
    """Bytes are a struct passed by value."""
    raw = np.array([4], i32).tobytes() + bytes(4) + np.array([2.5]).tobytes()
    out = np.zeros(1, i32)
    assert emulate(STRUCT, entry="fields", grid=1, block=1, args=[raw, out]).ok
    assert out[0] == 6


def test_views_of_one_array() -> None:
    """Views of one base lie in it at their true offsets: an arena is one array."""
    arena = np.zeros(300, i32)
    arena[:100] = np.arange(100)
    report = copy(arena[:100], arena[150:250], 100)
    assert report.ok
    assert np.array_equal(arena[150:250], np.arange(100))
    assert not arena[100:150].any()


def test_neighbours_of_a_view_are_no_fault() -> None:
    """Bounds are those of the base array, where a view continues into its neighbour."""
    arena = np.arange(300, dtype=i32)
    assert copy(arena[:10], np.zeros(100, i32), 100).ok


def test_equal_addresses_in_every_launch() -> None:
    """A base array has one address for the life of a module."""
    text = HEAD + (
        ".visible .entry where(.param .u64 a, .param .u64 out) {\n"
        ".reg .b64 %rd<3>; ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [out];\n"
        "st.global.u64 [%rd2], %rd1; ret; }\n"
    )
    module, a, other = load(text), np.zeros(8), np.zeros(8)
    out = np.zeros(1, np.uint64)
    seen = []
    for array in (a, other, a, a[2:]):
        module.launch("where", grid=1, block=1, args=[array, out])
        seen.append(int(out[0]))
    assert seen[0] == seen[2] != seen[1]
    assert seen[3] == seen[0] + 16


def test_undefined_contents() -> None:
    """Contents marked undefined are a fault when they are used, and only then."""
    source = np.arange(64, dtype=i32)
    report = copy(undefined(source), np.zeros(64, i32), 64)
    assert [fault.kind for fault in report.faults] == ["uninitialised_read"]
    assert copy(source, undefined(np.zeros(64, i32)), 64).ok


def test_reads_and_stores_are_reported() -> None:
    """The report tells which bytes of each buffer were read and how many were stored."""
    source, target = np.arange(100, dtype=i32), np.zeros(100, i32)
    args = {"x": source, "y": target, "n": i32(40)}
    launch: dict[str, Any] = {"grid": 1, "block": 64, "args": args}
    report = emulate(COPY, entry="copy", **launch)
    assert report.reads["x"].reshape(100, 4).all(axis=1).tolist() == [True] * 40 + [False] * 60
    assert not report.reads["y"].any()
    assert report.bytes_stored == {"x": 0, "y": 160}


def test_a_selection_of_blocks() -> None:
    """Only the blocks asked for run, in their place in the whole grid."""
    source, target = np.arange(640, dtype=i32) + 1, np.zeros(640, i32)
    report = copy(source, target, 640, blocks=[2, 7], checks=False)
    assert report.ok
    rows = target.reshape(10, 64)
    assert np.flatnonzero(rows.any(axis=1)).tolist() == [2, 7]
    assert np.array_equal(rows[7], source.reshape(10, 64)[7])
    assert report.counters.global_load_requests == 4


def test_no_checks_give_the_same_result() -> None:
    """Without checks outputs and counters are the same."""
    source = np.arange(1000, dtype=i32)
    results = []
    for checks in (True, False):
        target = np.zeros(1000, i32)
        report = copy(source, target, 1000, checks=checks)
        results.append((target.tolist(), report.counters))
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"args": [np.zeros(4, i32)]}, "takes 3 arguments, got 1"),
        ({"args": [np.zeros(4, i32), np.zeros(4, i32), np.int64(4)]}, "takes 4 bytes, got 8"),
        ({"args": [np.zeros(4, i32), np.zeros(4, i32), "4"]}, "str"),
        ({"args": [np.zeros((4, 4), i32)[:, :2], np.zeros(4, i32), i32(4)]}, "not contiguous"),
        ({"block": 2048}, "exceeds 1024"),
        ({"block": 0}, "at least 1"),
        ({"grid": (1, 70000, 1)}, "exceeds"),
        ({"shared_bytes": 1 << 20}, "shared memory"),
        ({"blocks": [9]}, "blocks must lie in"),
        ({"grid": 1.5}, "one to three integers"),
        ({"block": None}, "one to three integers"),
        ({"shared_bytes": "many"}, "an integer of at least 0"),
        ({"args": 3}, "pass a list or a mapping"),
    ],
)
def test_impossible_launches(change: dict[str, Any], words: str) -> None:
    """A launch that cannot be made is invalid, with the reason."""
    args = [np.zeros(4, i32), np.zeros(4, i32), i32(4)]
    launch: dict[str, Any] = {"grid": 1, "block": 32, "args": args, **change}
    report = emulate(COPY, entry="copy", **launch)
    assert report.status == "invalid"
    assert words in report.message


def test_unknown_entry_and_malformed_text() -> None:
    """A missing entry and a text that is no PTX are invalid, with the reason."""
    assert "copy" in emulate(COPY, entry="paste", grid=1, block=1).message
    report = emulate("not ptx at all", entry="copy", grid=1, block=1)
    assert report.status == "invalid"
    assert "line 1" in report.message


def test_step_limit() -> None:
    """A thread that executes more instructions than allowed ends the launch as a timeout."""
    text = HEAD + (
        ".visible .entry count(.param .u64 out) { .reg .b32 %r<2>; .reg .pred %p;\n"
        "mov.u32 %r1, 0;\nL: add.u32 %r1, %r1, 1;\nsetp.ne.u32 %p, %r1, 0;\n@%p bra L;\nret; }\n"
    )
    report = emulate(text, entry="count", grid=1, block=1, args=[np.zeros(1)], max_steps=5000)
    assert report.status == "timeout"
    assert report.faults[0].kind == "infinite_loop"
    assert "5000" in report.faults[0].message


def test_read_only_buffers() -> None:
    """An array that numpy holds read-only can be read; a store into it is a fault."""
    fixed = np.arange(64, dtype=i32)
    fixed.flags.writeable = False
    assert copy(fixed, np.zeros(64, i32), 64).ok
    report = copy(np.zeros(64, i32), fixed, 64)
    assert [fault.kind for fault in report.faults] == ["out_of_bounds_write"]


def test_time_limit() -> None:
    """A launch that takes longer than it is given ends as a timeout without a fault."""
    report = copy(np.zeros(64, i32), np.zeros(64, i32), 64, grid=(1 << 30,), seconds=0.1)
    assert report.status == "timeout"
    assert report.faults == ()
    assert "longer" in report.message
