"""Identity keys: one for each machine code and launch, whatever the source looks like."""

from __future__ import annotations

from typing import Any

import pytest

from ptxsearch.elf import read
from ptxsearch.evaluation import Built
from ptxsearch.identity import code_identity, identity
from ptxsearch.kernel import BoundLaunch, Kernel, Launch, Scratch, TensorMap
from tests.cubins import assembled
from tests.ptx_corpus import CASES, HEAD, entry, source
from tests.ptx_rewrite import (
    REWRITES,
    add_dead_code,
    rename_objects,
    rename_registers,
    reorder_declarations,
)

BASE = BoundLaunch("k", ("x", 7), (4, 1, 1), (32, 1, 1), (1, 1, 1), 0)
PTX = entry(
    ".reg .b32 %r<4>; .reg .b64 %rd<4>; .shared .align 4 .b8 s[512];\n"
    "mov.u32 %r1, %tid.x; mov.u32 %r2, s; st.shared.u32 [%r2], %r1; bar.sync 0;\n"
    "ld.shared.u32 %r3, [%r2]; ld.param.u64 %rd1, [x]; st.global.u32 [%rd1], %r3; ret;",
    ".param .u64 x, .param .u32 n",
)


def built(ptx: str, **parts: Any) -> Built:
    """A compiled kernel with the given scratch and tensor maps."""
    kernel = Kernel(
        ptx, "ptx", (Launch("k", ("x", "7"), ("4", "1", "1"), ("32", "1", "1")),), **parts
    )
    return Built(assembled(ptx), ptx, kernel, {})


def key(ptx: str = PTX, launch: BoundLaunch = BASE, **parts: Any) -> str:
    """The key of one launch on sm_90."""
    return identity(built(ptx, **parts), [("small", (launch,))], arch="sm_90", toolchain="13.0")


def test_key_is_stable() -> None:
    """The same kernel assembled with and without line information has the same key."""
    with_lines = assembled(PTX, options=("-lineinfo",))
    assert code_identity(with_lines, "k") == code_identity(assembled(PTX), "k")
    assert with_lines != assembled(PTX)
    assert key() == key()


@pytest.mark.parametrize("name", ["hist_shared", "noinline_calls", "switch_dense", "assert_guard"])
def test_rewrites_keep_the_key(name: str) -> None:
    """Renaming, layout, order of registers, line information and dead code change no key."""
    text, kernel = source(name), CASES[name]["entry"]
    wanted = code_identity(assembled(text), kernel)
    for rewrite in REWRITES:
        if name == "assert_guard" and rewrite is reorder_declarations:
            continue  # the order of .global variables is the order of the table of addresses
        renamed = f"obj_{kernel}" if rewrite is rename_objects else kernel
        assert code_identity(assembled(rewrite(text)), renamed) == wanted, rewrite.__name__


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CASES.keys() - {"debug_dot"}))
def test_rewrites_keep_the_key_of_every_corpus_kernel(name: str) -> None:
    """Three rewrites of every corpus kernel compile to the same key."""
    text, arch, kernel = source(name), CASES[name]["target"], CASES[name]["entry"]
    wanted = code_identity(assembled(text, arch), kernel)
    for rewrite in (rename_registers, add_dead_code):
        assert code_identity(assembled(rewrite(text), arch), kernel) == wanted
    renamed = assembled(rename_objects(text), arch)
    assert code_identity(renamed, f"obj_{kernel}") == wanted


@pytest.mark.slow
def test_no_two_corpus_kernels_share_a_key() -> None:
    """Kernels with different machine code have different keys."""
    keys = {
        name: code_identity(assembled(source(name), case["target"]), case["entry"])
        for name, case in CASES.items()
    }
    assert len(set(keys.values())) == len(keys)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("s[512]", "s[1024]"),
        (".param .u32 n", ".param .u64 n"),
        ("\n\n{", "\n.maxntid 64\n{"),
        ("\n\n{", "\n.reqnctapercluster 2\n{"),
        ("\n\n{", "\n.maxnreg 64\n{"),
        ("st.shared.u32 [%r2], %r1", "st.shared.u32 [%r2+4], %r1"),
    ],
)
def test_facts_of_the_code_change_the_key(old: str, new: str) -> None:
    """Shared size, parameters, bounds, cluster and code are part of the key."""
    assert old in PTX
    assert key(PTX.replace(old, new)) != key()


def text_section(ptx: str) -> bytes:
    """The machine code alone."""
    section = read(assembled(ptx)).section(".text.k")
    assert section is not None
    return section.data


@pytest.mark.parametrize("space", ["const", "global"])
def test_constant_tables_change_the_key_under_equal_code(space: str) -> None:
    """Kernels that differ in a table's contents alone have equal code and different keys."""
    body = (
        ".reg .b32 a, b; .reg .b64 p; ld.param.u64 p, [x]; mov.u32 a, %tid.x; "
        f".reg .b64 q; mov.u64 q, table; cvta.{space}.u64 q, q; ld.u32 b, [q+4]; "
        "add.u32 a, a, b; st.global.u32 [p], a; ret;"
    )
    text = entry(body, ".param .u64 x").replace(
        HEAD, HEAD + f".{space} .u32 table[2] = {{1, 2}};\n"
    )
    other = text.replace("{1, 2}", "{1, 3}")
    assert text_section(text) == text_section(other)
    assert code_identity(assembled(text), "k") != code_identity(assembled(other), "k")


def test_shared_size_and_cluster_change_the_key_under_equal_code() -> None:
    """Machine code alone does not tell these kernels apart, their keys do."""
    for old, new in (("s[512]", "s[1024]"), ("\n\n{", "\n.reqnctapercluster 2\n{")):
        other = PTX.replace(old, new)
        assert text_section(PTX) == text_section(other)
        assert key(PTX) != key(other)


@pytest.mark.parametrize(
    "changed",
    [
        {"grid": (5, 1, 1)},
        {"block": (64, 1, 1)},
        {"cluster": (2, 1, 1)},
        {"shared_bytes": 1024},
        {"args": ("x", 8)},
        {"args": ("y", 7)},
        {"args": (7, "x")},
    ],
)
def test_launch_values_change_the_key(changed: dict[str, Any]) -> None:
    """Grid, block, cluster, dynamic bytes and each argument by position are part of the key."""
    facts: dict[str, Any] = {"entry": "k", "args": BASE.args}
    facts |= {"grid": BASE.grid, "block": BASE.block}
    facts |= {"cluster": BASE.cluster, "shared_bytes": BASE.shared_bytes}
    assert key(launch=BoundLaunch(**{**facts, **changed})) != key()


def test_sequence_arch_and_toolchain_change_the_key() -> None:
    """One launch more, another architecture or another compiler is another key."""
    one = built(PTX)
    keys = {
        identity(one, [("small", (BASE,))], arch="sm_90", toolchain="13.0"),
        identity(one, [("small", (BASE, BASE))], arch="sm_90", toolchain="13.0"),
        identity(one, [("small", (BASE,)), ("large", (BASE,))], arch="sm_90", toolchain="13.0"),
        identity(one, [("small", (BASE,))], arch="sm_90a", toolchain="13.0"),
        identity(one, [("small", (BASE,))], arch="sm_90", toolchain="12.9"),
    }
    assert len(keys) == 5


def test_scratch_and_tensor_maps_count_by_declaration_not_by_name() -> None:
    """Renamed scratch keeps the key; other contents, size, box or swizzle change it."""

    def scratch(name: str = "t", init: Any = "zeros", shape: str = "n") -> str:
        launch = BoundLaunch("k", (name, 7), BASE.grid, BASE.block, BASE.cluster, 0)
        return key(launch=launch, scratch=(Scratch(name, "f32", (shape,), init),))

    def tensor(name: str = "m", box: str = "16", swizzle: Any = "none") -> str:
        launch = BoundLaunch("k", (name, 7), BASE.grid, BASE.block, BASE.cluster, 0)
        tensor_map = TensorMap(name, "x", "f32", ("n",), (), (box,), swizzle)
        return key(launch=launch, tensor_maps=(tensor_map,))

    assert scratch() == scratch("other")
    assert len({scratch(), scratch(init="undefined"), scratch(shape="2*n"), key()}) == 4
    assert tensor() == tensor("other")
    assert len({tensor(), tensor(box="32"), tensor(swizzle="64"), scratch()}) == 4


def test_without_a_cubin_the_normalised_text_is_the_code() -> None:
    """Where no compiler was at hand, renaming keeps the key and another constant changes it."""

    def textual(ptx: str) -> str:
        bare = Built(b"", ptx, built(PTX).kernel, {})
        return identity(bare, [("small", (BASE,))], arch="sm_90")

    assert textual(rename_registers(PTX)) == textual(PTX)
    assert textual(PTX.replace("s[512]", "s[1024]")) != textual(PTX)
