"""Instructions of memory, control and warps written by hand, against values of numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxsearch.emulator import Report, emulate

HEAD = ".version 8.3\n.target sm_90\n.address_size 64\n"
LANES = np.arange(64, dtype=np.int64)


def body(code: str, *, outside: str = "", registers: str = "") -> str:
    """A kernel that stores %r1 of every thread to out[thread]."""
    return f"""{HEAD}{outside}
.visible .entry k(.param .u64 out)
{{
    .reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<32>; .reg .b64 %d<16>; .reg .f32 %f<8>;
    {registers}
    mov.u32 %r0, %tid.x;
    {code}
    ld.param.u64 %d14, [out];
    mul.wide.u32 %d15, %r0, 4;
    add.u64 %d14, %d14, %d15;
    st.global.u32 [%d14], %r1;
    ret;
}}
"""


def launch(text: str, threads: int = 64, **more: Any) -> tuple[Report, list[int]]:
    """The report and what each thread stored."""
    out = np.zeros(threads, np.uint32)
    report = emulate(text, entry="k", grid=1, block=threads, args=[out], **more)
    return report, out.tolist()


CASES: dict[str, tuple[str, str, Any]] = {
    "generic pointers to module variables": (
        "ld.global.u64 %d1, [table+8]; ld.u32 %r1, [%d1+4];",
        ".global .align 4 .u32 data[3] = {7, 8, 9};\n"
        ".global .align 8 .u64 table[2] = {generic(data), generic(data)+4};",
        np.full(64, 9),
    ),
    "constant memory indexed by lane": (
        "and.b32 %r2, %r0, 3; mul.wide.u32 %d1, %r2, 4; mov.u64 %d2, weights;\n"
        "add.u64 %d1, %d1, %d2; ld.const.u32 %r1, [%d1];",
        ".const .align 4 .u32 weights[4] = {3, 1, 4, 1};",
        np.array([3, 1, 4, 1])[LANES & 3],
    ),
    "address of a parameter": (
        "mov.b64 %d1, out; cvta.param.u64 %d1, %d1; ld.u64 %d2, [%d1];\n"
        "ld.param.u64 %d3, [out]; setp.eq.u64 %p1, %d2, %d3; selp.u32 %r1, 1, 0, %p1;",
        "",
        np.ones(64),
    ),
    "local memory, sub-word and signed": (
        ".local .align 4 .b8 buf[8]; cvt.u16.u32 %h1, %r0; st.local.u8 [buf+2], %h1;\n"
        "neg.s16 %h1, %h1; st.local.u8 [buf+3], %h1; ld.local.s8 %r1, [buf+3];",
        "",
        -LANES,
    ),
    "vectors of four": (
        ".shared .align 16 .b32 s[256]; shl.b32 %r2, %r0, 4; mov.u32 %r3, s;\n"
        "add.u32 %r2, %r2, %r3;\n"
        "add.u32 %r4, %r0, 1; add.u32 %r5, %r0, 2; add.u32 %r6, %r0, 3;\n"
        "st.shared.v4.u32 [%r2], {%r0, %r4, %r5, %r6};\n"
        "ld.shared.v2.u32 {%r7, %r8}, [%r2+8];\n"
        "mad.lo.u32 %r1, %r7, 100, %r8;",
        "",
        (LANES + 2) * 100 + LANES + 3,
    ),
    "atomic on a generic shared address": (
        ".shared .align 4 .u32 c; setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.u32 [c], 0; bar.sync 0;\n"
        "mov.u32 %r2, c; cvt.u64.u32 %d1, %r2; cvta.shared.u64 %d1, %d1;\n"
        "atom.add.u32 %r3, [%d1], %r0; bar.sync 0; ld.shared.u32 %r1, [c];",
        "",
        np.full(64, LANES.sum()),
    ),
    "atomic with result in lane order": (
        "mov.u64 %d1, c; atom.global.add.u32 %r1, [%d1], %r0;",
        ".global .align 4 .u32 c = 10;",
        10 + np.cumsum(LANES) - LANES,
    ),
    "compare and swap of 16 bits": (
        "mov.u64 %d1, c; cvt.u16.u32 %h1, %r0; add.u16 %h2, %h1, 1;\n"
        "atom.global.cas.b16 %h3, [%d1], %h1, %h2; cvt.u32.u16 %r1, %h3;",
        ".global .align 4 .b16 c[2] = {0, 5};",
        LANES,
    ),
    "float atomics of two elements": (
        "mov.u64 %d1, c; mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0f40000000;\n"
        "atom.global.v2.f32.add {%f3, %f4}, [%d1], {%f1, %f2}; cvt.rzi.u32.f32 %r1, %f4;",
        ".global .align 8 .f32 c[2];",
        LANES * 2,
    ),
    "predicate pair": (
        "setp.lt.u32 %p1|%p2, %r0, 40; selp.u32 %r1, 1, 2, %p1; @%p2 add.u32 %r1, %r1, 10;",
        "",
        np.where(LANES < 40, 1, 12),
    ),
    "uniform vote and vote of all": (
        "setp.lt.u32 %p1, %r0, 32; vote.sync.uni.pred %p2, %p1, -1;\n"
        "vote.sync.all.pred %p3, %p1, -1;\n"
        "selp.u32 %r1, 1, 0, %p2; @%p3 add.u32 %r1, %r1, 2;",
        "",
        np.where(LANES < 32, 3, 1),
    ),
    "vote of the complement": (
        "setp.lt.u32 %p1, %r0, 33; vote.sync.ballot.b32 %r1, !%p1, -1;",
        "",
        np.where(LANES < 32, 0, 0xFFFFFFFE),
    ),
    "match of all lanes": (
        "shr.u32 %r2, %r0, 5; match.all.sync.b32 %r1|%p1, %r2, -1; @!%p1 mov.u32 %r1, 5;",
        "",
        np.full(64, 0xFFFFFFFF),
    ),
    "elected lane": (
        "elect.sync %r2|%p1, 0xfffffff8; selp.u32 %r1, 1, 0, %p1;",
        "",
        None,
    ),
    "active mask in a branch": (
        "and.b32 %r2, %r0, 3; mov.u32 %r1, 0; setp.ne.u32 %p1, %r2, 1; @%p1 bra DONE;\n"
        "activemask.b32 %r1;\nDONE:",
        "",
        np.where(LANES & 3 == 1, 0x22222222, 0),
    ),
    "barrier reductions": (
        "setp.lt.u32 %p1, %r0, 10; barrier.red.popc.u32 %r1, 1, %p1;\n"
        "barrier.red.and.pred %p2, 2, %p1; @%p2 add.u32 %r1, %r1, 100;\n"
        "barrier.red.or.pred %p3, 3, !%p1; @%p3 add.u32 %r1, %r1, 1000;",
        "",
        np.full(64, 1010),
    ),
    "exit of some lanes": (
        "mov.u32 %r1, 7; setp.gt.u32 %p1, %r0, 20; @%p1 exit;",
        "",
        np.where(LANES <= 20, 7, 0),
    ),
    "carry over 64 bits": (
        "mov.u32 %r2, 0xffffffff; add.cc.u32 %r3, %r2, %r0; addc.u32 %r1, 5, 0;",
        "",
        5 + (LANES > 0),
    ),
    "special registers": (
        "mov.u32 %r2, %laneid; mov.u32 %r3, %warpid; mov.u32 %r4, %lanemask_lt;\n"
        "popc.b32 %r4, %r4;\n"
        "mov.u32 %r5, %nwarpid; mad.lo.u32 %r1, %r3, 100, %r2; mad.lo.u32 %r1, %r4, 1000, %r1;\n"
        "mad.lo.u32 %r1, %r5, 1000000, %r1;",
        "",
        2_000_000 + LANES % 32 * 1000 + LANES // 32 * 100 + LANES % 32,
    ),
    "shared address of 32 bits that wraps": (
        ".shared .align 4 .b32 s[64]; shl.b32 %r2, %r0, 2; mov.u32 %r3, s;\n"
        "add.u32 %r2, %r2, %r3;\n"
        "st.shared.u32 [%r2], %r0; add.u32 %r2, %r2, -8; ld.shared.u32 %r1, [%r2+8];",
        "",
        LANES,
    ),
    "copy of fewer bytes than asked": (
        ".shared .align 16 .b32 s[64]; shl.b32 %r2, %r0, 2; mov.u32 %r3, s;\n"
        "add.u32 %r2, %r2, %r3;\n"
        "mov.u64 %d1, data; and.b32 %r4, %r0, 3; shl.b32 %r5, %r4, 2; cvt.u64.u32 %d2, %r5;\n"
        "add.u64 %d1, %d1, %d2; setp.lt.u32 %p1, %r0, 32; selp.u32 %r6, 4, 2, %p1;\n"
        "cp.async.ca.shared.global [%r2], [%d1], 4, %r6; cp.async.wait_all;\n"
        "ld.shared.u32 %r1, [%r2];",
        ".global .align 4 .u32 data[4] = {0x10001, 0x20002, 0x30003, 0x40004};",
        np.where(LANES < 32, ((LANES & 3) + 1) * 0x10001, (LANES & 3) + 1),
    ),
}


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[2] is not None])
def test_result(name: str) -> None:
    """Every thread stores what the instructions mean."""
    code, outside, want = CASES[name]
    report, got = launch(body(code, outside=outside))
    assert report.status == "ok", report.message
    assert (np.asarray(want).astype(np.int64) & 0xFFFFFFFF).tolist() == got


def test_lane_outside_its_mask() -> None:
    """A lane that executes a warp instruction whose mask leaves it out is a fault."""
    code, outside, _ = CASES["elected lane"]
    report, _ = launch(body(code, outside=outside))
    assert [fault.kind for fault in report.faults] == ["illegal_instruction"]


CALLS = (
    HEAD
    + """
.func (.param .b32 r) sum(.param .align 4 .b8 v[12], .param .b32 k)
{
    .reg .b32 %r<8>;
    .local .align 4 .b32 tmp[2];
    ld.param.b32 %r1, [v]; ld.param.b32 %r2, [v+4]; ld.param.b32 %r3, [v+8]; ld.param.b32 %r4, [k];
    st.local.b32 [tmp+4], %r4;
    add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3;
    ld.local.b32 %r5, [tmp+4];
    mul.lo.u32 %r1, %r1, %r5;
    st.param.b32 [r], %r1;
    ret;
}
.func store(.param .b64 p, .param .b32 v)
{
    .reg .b32 %r1; .reg .b64 %d1;
    ld.param.b64 %d1, [p]; ld.param.b32 %r1, [v];
    st.b32 [%d1], %r1;
    ret;
}
.visible .entry k(.param .u64 out)
{
    .reg .b32 %r<8>; .reg .b64 %d<8>; .reg .pred %p;
    .local .align 4 .b32 mine;
    .param .align 4 .b8 a[12]; .param .b32 b; .param .b32 c; .param .b64 q;
    mov.u32 %r1, %tid.x;
    st.param.b32 [a], %r1; st.param.b32 [a+4], 1; st.param.b32 [a+8], 2; st.param.b32 [b], 3;
    call (c), sum, (a, b);
    ld.param.b32 %r2, [c];
    mov.u64 %d1, mine; cvta.local.u64 %d1, %d1;
    st.local.u32 [mine], 0;
    setp.gt.u32 %p, %r1, 9;
    st.param.b64 [q], %d1; st.param.b32 [b], %r2;
    @%p call store, (q, b);
    ld.local.u32 %r3, [mine];
    ld.param.u64 %d2, [out]; mul.wide.u32 %d3, %r1, 4; add.u64 %d2, %d2, %d3;
    st.global.u32 [%d2], %r3;
    ret;
}
"""
)


def test_calls_with_parameters_in_memory() -> None:
    """Arrays by value, results, local variables and pointers into the caller's locals."""
    report, got = launch(CALLS)
    assert report.status == "ok", report.message
    assert [(lane + 3) * 3 if lane > 9 else 0 for lane in range(64)] == got


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (
            "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r1,%r2}, {%r3}, {%r4}, {%r5,%r6};",
            "tensor",
        ),
        ("mbarrier.init.shared.b64 [%r0], 1;", "mbarrier"),
        ("ld.shared::cluster.u32 %r1, [%r0];", "cluster"),
        ("red.async.relaxed.cluster.global.add.u32 [%d1], %r0;", ""),
        ("mapa.shared::cluster.u32 %r1, %r0, 0;", "cluster"),
        ("griddepcontrol.wait;", "dependent"),
    ],
)
def test_unsupported(code: str, words: str) -> None:
    """What is out of scope is named with its line, never passed over."""
    report, _ = launch(body("mov.u64 %d1, 0;\n" + code))
    assert report.status == "unsupported"
    assert report.unsupported is not None
    assert report.unsupported.line > 8
    assert words in report.unsupported.reason


def test_fault_of_a_later_block_names_it() -> None:
    """Block and thread of a fault are those of the grid's three dimensions."""
    text = body(
        "mov.u32 %r1, %ctaid.y; mov.u32 %r2, %tid.y; setp.eq.u32 %p1, %r1, 2;\n"
        "setp.eq.and.u32 %p1, %r2, 1, %p1; @%p1 trap; mov.u32 %r0, 0; @!%p1 exit;"
    )
    report = emulate(text, entry="k", grid=(2, 3), block=(8, 4), args=[np.zeros(4)])
    fault = report.faults[0]
    assert (fault.kind, fault.block, fault.thread, fault.count) == (
        "trap",
        (0, 2, 0),
        (0, 1, 0),
        16,
    )
