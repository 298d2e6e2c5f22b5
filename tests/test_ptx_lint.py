"""Lint: what each rule refuses and what it lets pass, on recorded kernels and small ones."""

from __future__ import annotations

from typing import Any

import pytest

from ptxsearch.ptx import Finding, lint
from tests.ptx_corpus import CASES, HEAD, Launch, entry, module, source

# Kernels that keep state in a module variable: two cheats, a last-block ticket that has to become
# scratch, and one that stores to a module variable to test generic addressing.
STATEFUL = {"cheat_cache_global", "cheat_unchanged_probe", "reduce_last_block", "ptx_generic_addr"}


def rules(text: str, *launches: Launch, **options: object) -> list[str]:
    """The rules that a module breaks, in order, each once."""
    found = lint(module(text), launches or (Launch("k"),), **options)  # type: ignore[arg-type]
    return list(dict.fromkeys(finding.rule for finding in found))


def recorded(name: str) -> tuple[Finding, ...]:
    """What lint says of a corpus kernel under its recorded launch."""
    case = CASES[name]
    launch = Launch(
        case["entry"],
        tuple(argument for argument, _ in case["args"]),
        tuple(case["grid"]),
        tuple(case["block"]),
        tuple(case["cluster"]),
        case["shared"],
    )
    sizes = {argument: size for argument, size in case["args"] if size}
    return lint(module(source(name)), [launch], sizes=sizes)


@pytest.mark.parametrize("name", sorted(CASES.keys() - STATEFUL))
def test_kernels_without_state_pass(name: str) -> None:
    """No rule refuses a recorded kernel that keeps nothing between launches."""
    assert recorded(name) == ()


@pytest.mark.parametrize("name", sorted(STATEFUL))
def test_kernels_with_module_state_are_refused(name: str) -> None:
    """A kernel that writes to a module variable is refused, with the line of the write."""
    found = recorded(name)
    assert {finding.rule for finding in found} == {"module-state"}
    lines = source(name).split("\n")
    writes = [lines[f.line - 1].split()[0] for f in found if "may write" in f.message]
    assert writes
    assert all(word.split(".")[0] in ("st", "atom") for word in writes)


TABLE = ".global .align 4 .u32 table[2] = {1, 2};\n.global .align 8 .u64 place = table;\n"
TABLE += ".const .u64 fixed = table;\n"
USES = ".reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .pred %p;\n"


def stateful(body: str, before: str = "") -> list[str]:
    """Findings on an entry that uses a constant table."""
    text = entry(USES + body).replace(".visible", before + ".visible")
    found = lint(module(text.replace(HEAD, HEAD + TABLE)), [Launch("k")])
    assert {finding.rule for finding in found} <= {"module-state", "outside-code"}
    return [finding.message for finding in found if finding.rule == "module-state"]


@pytest.mark.parametrize(
    "body",
    [
        "ld.global.u32 %r1, [table+4];",
        "mov.u64 %rd1, table; add.u64 %rd1, %rd1, 4; ld.global.nc.u32 %r1, [%rd1];",
        "mov.u64 %rd1, table; cvta.global.u64 %rd1, %rd1; ld.u32 %r1, [%rd1]; st.u32 [%rd2], %r1;",
        "mov.u64 %rd1, table; cp.async.ca.shared.global [%r1], [%rd1], 4;",
        "ld.global.u64 %rd1, [place]; ld.global.u32 %r1, [%rd1];",
        "mov.u64 %rd1, table; setp.eq.u64 %p, %rd1, 0; selp.b32 %r1, 1, 0, %p; st.u32 [%rd2], %r1;",
        ".local .b8 stack[8]; mov.u64 %rd1, table; st.local.u64 [stack], %rd1;"
        " ld.local.u64 %rd2, [stack]; ld.global.u32 %r1, [%rd2];",
    ],
)
def test_reading_a_constant_table_passes(body: str) -> None:
    """Loads and asynchronous copies from an initialised module variable are honest."""
    assert stateful(body) == []


@pytest.mark.parametrize(
    "body",
    [
        "st.global.u32 [table], %r1;",
        "mov.u64 %rd1, table; mov.u64 %rd2, %rd1; st.global.u32 [%rd2], %r1;",
        "mov.u64 %rd1, table; mad.lo.u64 %rd2, %rd3, 4, %rd1; atom.global.add.u32 %r1, [%rd2], 1;",
        "mov.u64 %rd1, table; red.global.add.u32 [%rd1], 1;",
        "mov.u64 %rd1, table; cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 16;",
        "mov.u64 %rd1, table; mov.b64 {%r1, %r2}, %rd1; mov.b64 %rd2, {%r1, %r2};"
        " st.global.u32 [%rd2], 1;",
        "ld.global.u64 %rd1, [place]; st.global.u32 [%rd1], %r1;",
        "ld.const.u64 %rd1, [fixed]; st.global.u32 [%rd1], %r1;",
        "mov.u64 %rd1, fixed; ld.const.u64 %rd2, [%rd1]; red.global.add.u32 [%rd2], 1;",
        "mov.u64 %rd1, table; st.global.u64 [%rd2], %rd1;",
        "mov.u64 %rd1, table; atom.global.exch.b64 %rd2, [%rd3], %rd1;",
        "mov.u64 %rd1, table; shfl.sync.idx.b32 %r1, %r2, 0, 31, -1; selp.b64 %rd2, %rd1, %rd3, %p;"
        " st.global.u32 [%rd2], 1;",
        "L: st.global.u32 [%rd2], 1; mov.u64 %rd2, %rd1; mov.u64 %rd1, table; bra L;",
        ".local .b8 stack[8]; mov.u64 %rd1, table; st.local.u64 [stack], %rd1;"
        " ld.local.u64 %rd2, [stack]; st.global.u32 [%rd2], %r1;",
        ".local .b8 stack[8]; mov.u64 %rd3, stack; cvta.local.u64 %rd3, %rd3; mov.u64 %rd1, table;"
        " st.u64 [%rd3], %rd1; ld.u64 %rd2, [%rd3]; st.global.u32 [%rd2], %r1;",
    ],
)
def test_writing_or_leaking_a_module_variable_is_refused(body: str) -> None:
    """A store, atomic or copy to it, or its address stored anywhere, is found on every path."""
    assert len(stateful(body)) >= 1


def test_addresses_are_followed_through_functions() -> None:
    """A function that stores through its parameter is refused where a table's address goes in."""
    callee = (
        ".func (.param .b64 out) same(.param .b64 in) { .reg .b64 a; ld.param.b64 a, [in]; "
        "st.param.b64 [out], a; ret; }\n"
    )
    call = (
        "{ .param .b64 i; .param .b64 o; mov.u64 %rd1, table; st.param.b64 [i], %rd1;"
        " call (o), same, (i); ld.param.b64 %rd2, [o]; }"
    )
    assert stateful(call + " ld.global.u32 %r1, [%rd2];", callee) == []
    assert len(stateful(call + " st.global.u32 [%rd2], %r1;", callee)) == 1


def test_results_of_calls_by_pointer_are_followed() -> None:
    """A pointer call may give what any function of the module gives."""
    callee = (
        ".func (.param .b64 out) where() { .reg .b64 a; mov.u64 a, table; "
        "st.param.b64 [out], a; ret; }\n"
    )
    call = (
        "P: .callprototype (.param .b64 _) _ (); { .param .b64 o; mov.u64 %rd3, where;"
        " call (o), %rd3, (), P; ld.param.b64 %rd2, [o]; }"
    )
    assert stateful(call + " ld.global.u32 %r1, [%rd2];", callee) == []
    assert len(stateful(call + " st.global.u32 [%rd2], %r1;", callee)) == 1


def test_printing_may_take_addresses_and_other_code_may_not() -> None:
    """Vprintf gets format strings; any other outside function is refused."""
    arguments = "(.param .b32 r) {} (.param .b64 a, .param .b64 b);\n"
    call = "mov.u64 %rd1, table; call (%r1), {}, (%rd1, %rd2);"
    printing = ".extern .func " + arguments.format("vprintf")
    launching = ".extern .func " + arguments.format("cudaLaunchDeviceV2")
    assert stateful(call.format("vprintf"), printing) == []
    assert len(stateful(call.format("cudaLaunchDeviceV2"), launching)) == 1
    text = entry(USES + "call (%r1), cudaLaunchDeviceV2, (%rd1, %rd2);")
    assert rules(text.replace(".visible", launching + ".visible")) == ["outside-code"]


def test_uninitialised_module_variable_is_refused() -> None:
    """A `.global` variable without contents is refused even where it is only read."""
    text = entry(USES + "ld.global.u32 %r1, [x];").replace(HEAD, HEAD + ".global .u32 x;\n")
    assert rules(text) == ["module-state"]


def test_a_module_variable_that_nothing_uses_passes() -> None:
    """The compiler of CUDA 13 declares such a helper for atomicExch."""
    helper = ".global .align 1 .u8 _ZN26__nv_atomic_triv_cp_helperIjE5__valE;\n"
    text = entry(USES + "atom.global.exch.b32 %r1, [%rd1], 1;").replace(HEAD, HEAD + helper)
    assert rules(text) == []


def test_entries_are_exactly_those_launched() -> None:
    """A missing entry and an entry that nothing launches are both refused."""
    text = entry("ret;")
    assert rules(text) == []
    assert rules(text, Launch("other")) == ["entries"]
    assert rules(text + ".entry idle() { ret; }") == ["entries"]


def test_arguments_match_parameters_in_number_order_and_size() -> None:
    """Too few arguments, swapped ones, integers that do not fit or meet a float are refused."""
    text = entry("ret;", ".param .u64 x, .param .u32 n, .param .f32 a")
    sizes = {"x": 8, "n": 4, "a": 4}
    assert rules(text, Launch("k", ("x", "n", "a")), sizes=sizes) == []
    assert rules(text, Launch("k", ("x", 7, "a")), sizes=sizes) == []
    for args in (("x", "n"), ("n", "x", "a"), ("x", 1 << 32, "a"), ("x", "n", 3)):
        assert rules(text, Launch("k", args), sizes=sizes) == ["arguments"]


def test_griddepcontrol_needs_permission() -> None:
    """Overlap with other launches is refused unless the task allows it."""
    text = entry("griddepcontrol.wait;")
    assert rules(text) == ["griddepcontrol"]
    assert rules(text, allow={"griddepcontrol"}) == []


@pytest.mark.parametrize(
    ("shape", "directives", "passes"),
    [
        ({"block": (1024, 1, 1)}, "", True),
        ({"block": (1024, 2, 1)}, "", False),
        ({"block": (1, 1, 65)}, "", False),
        ({"grid": (1, 65536, 1)}, "", False),
        ({"grid": (65536, 1, 1)}, "", True),
        ({"block": (256, 1, 1)}, ".maxntid 128", False),
        ({"block": (8, 16, 1)}, ".maxntid 128", True),
        ({"block": (64, 1, 1)}, ".reqntid 64", True),
        ({"block": (32, 2, 1)}, ".reqntid 64", False),
        ({"grid": (4, 1, 1)}, ".reqnctapercluster 2", True),
        ({"grid": (3, 1, 1)}, ".reqnctapercluster 2", False),
        ({"grid": (4, 1, 1), "cluster": (4, 1, 1)}, ".reqnctapercluster 2", False),
        ({"grid": (16, 1, 1), "cluster": (16, 1, 1)}, "", False),
    ],
)
def test_launch_shapes(shape: dict[str, Any], directives: str, passes: bool) -> None:
    """Extents are those the hardware and the kernel's own directives allow."""
    found = rules(entry("ret;", directives=directives), Launch("k", **shape))
    assert found == ([] if passes else ["shape"])


@pytest.mark.parametrize(
    ("declared", "dynamic", "passes"),
    [
        (".shared .b8 x[49152];", 0, True),
        (".shared .b8 x[49153];", 0, False),
        (".shared .b8 x[1000000000000];", 0, False),
        (".shared .b8 x[1024];", 231424, True),
        (".shared .b8 x[1024];", 231425, False),
        (".local .b8 x[524288];", 0, True),
        (".local .b8 x[524289];", 0, False),
    ],
)
def test_memory_sizes(declared: str, dynamic: int, passes: bool) -> None:
    """Shared memory is at most 48 KiB static and 227 KiB in all on sm_90, local 512 KiB."""
    body = f"{declared} .reg .b64 %rd1; mov.u64 %rd1, x;"
    found = rules(entry(body), Launch("k", shared_bytes=dynamic))
    assert found == ([] if passes else ["memory"])


@pytest.mark.parametrize(
    ("directives", "passes"),
    [
        (".maxnreg 24", True),
        (".maxnreg 255", True),
        (".maxnreg 23", False),
        (".maxnreg 256", False),
        (".minnctapersm 2", False),
        (".maxntid 256\n.minnctapersm 8", True),
        (".maxntid 256\n.minnctapersm 9", False),
        (".reqntid 32\n.minnctapersm 4", True),
    ],
)
def test_directives_without_effect(directives: str, passes: bool) -> None:
    """Directives that ptxas was measured to ignore are refused."""
    found = rules(entry("ret;", directives=directives))
    assert found == ([] if passes else ["idle-directive"])


@pytest.mark.parametrize(
    ("body", "passes"),
    [
        ("ld.shared.v4.f32 {%f1,%f2,%f3,%f4}, [s+16];", True),
        ("ld.shared.v4.f32 {%f1,%f2,%f3,%f4}, [s+4];", False),
        ("mov.u32 %r1, s; add.u32 %r2, %r1, 8; ld.shared.v4.f32 {%f1,%f2,%f3,%f4}, [%r2];", False),
        ("mov.u32 %r1, s; add.u32 %r1, %r1, 8; ld.shared.v2.f32 {%f1,%f2}, [%r1];", True),
        (
            "mov.u32 %r1, s; mad.lo.u32 %r1, %r2, 16, %r1; st.shared.v2.f32 [%r1+4], {%f1,%f2};",
            False,
        ),
        ("mov.u32 %r1, s; mad.lo.u32 %r1, %r2, 4, %r1; st.shared.v2.f32 [%r1+4], {%f1,%f2};", True),
        (
            "mov.u32 %r1, s; shl.b32 %r2, %r3, 4; sub.u32 %r1, %r1, %r2;"
            " ld.shared.u32 %r4, [%r1+2];",
            False,
        ),
        ("mov.u32 %r1, s; @%p add.u32 %r1, %r1, 4; ld.shared.v2.f32 {%f1,%f2}, [%r1];", True),
        ("mov.u32 %r1, s; mul.hi.u32 %r1, %r1, 4; ld.shared.u32 %r4, [%r1+2];", True),
    ],
)
def test_accesses_that_are_always_misaligned(body: str, passes: bool) -> None:
    """An access is refused where every possible address is misaligned, and only there."""
    registers = ".reg .b32 %r<5>; .reg .f32 %f<5>; .reg .pred %p; .shared .align 16 .b8 s[256];"
    assert rules(entry(f"{registers}\n{body}")) == ([] if passes else ["alignment"])


def test_message_tells_line_wrong_allowed_and_remedy() -> None:
    """A finding reads as one line with its place, the value got, the limit and what to do."""
    (finding,) = lint(module(entry("ret;")), [Launch("k", block=(2048, 1, 1))])[:1]
    assert str(finding) == (
        "line 4: launch of 'k': a block of 2048 threads exceeds 1024; use a smaller block [shape]"
    )
