"""The menu: each edit applies where it should, compiles, and leaves the answer as it was."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ptxsearch import menu
from ptxsearch.kernel import Edit, Kernel, Launch
from ptxsearch.space import Space
from ptxsearch.tree import Tree, TreeView

TILED = """
extern "C" __global__ void transpose(const float* x, float* out, int n) {
  __shared__ float tile[32][32];
  int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8)
    if (c < n && r + j < n) tile[threadIdx.y + j][threadIdx.x] = x[(r + j) * n + c];
  __syncthreads();
  int oc = blockIdx.y * 32 + threadIdx.x, orow = blockIdx.x * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8)
    if (oc < n && orow + j < n) out[(orow + j) * n + oc] = tile[threadIdx.x][threadIdx.y + j];
}
"""
KERNEL = Kernel(
    TILED,
    "cuda",
    (Launch("transpose", ("x", "out", "n"), ("ceil_div(n, 32)", "ceil_div(n, 32)"), ("32", "8")),),
)
FLAT = Kernel(
    'extern "C" __global__ void exps(const float* x, float* y, int n) {\n'
    "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "  if (i < n)\n    y[i] = expf(x[i]);\n}\n",
    "cuda",
    (Launch("exps", ("x", "y", "n"), ("ceil_div(n, 256)",), ("256",)),),
)
PTX = Kernel(
    """.version 8.0
.target sm_80
.address_size 64
.visible .entry twice(.param .u64 x, .param .u64 y)
{
 .reg .b64 %rd<5>;
 .reg .b32 %r<3>;
 .reg .f32 %f<3>;
 ld.param.u64 %rd1, [x];
 ld.param.u64 %rd2, [y];
 mov.u32 %r1, %tid.x;
 mul.wide.u32 %rd3, %r1, 4;
 add.s64 %rd1, %rd1, %rd3;
 add.s64 %rd2, %rd2, %rd3;
 ld.global.f32 %f1, [%rd1];
 add.f32 %f2, %f1, %f1;
 st.global.f32 [%rd2], %f2;
 ret;
}
""",
    "ptx",
    (Launch("twice", ("x", "y"), ("1",), ("32",)),),
)


@pytest.mark.parametrize(
    ("edit", "kernel", "expected"),
    [
        (menu.pad_tiles, KERNEL, "tile[32][(32) + PADDING];"),
        (menu.unroll_loops, KERNEL, "#pragma unroll UNROLL\n  for"),
        (menu.restrict_pointers, KERNEL, "const float* __restrict__ x, float* __restrict__ out"),
        (menu.bound_registers, KERNEL, "__launch_bounds__((32) * (8), MIN_BLOCKS) transpose("),
        (menu.approximate_math, FLAT, "__expf(x[i])"),
        (menu.stream_stores, FLAT, "__stcs(&y[i], expf(x[i]));"),
        (menu.cap_ptx_registers, PTX, ".maxntid 32, 1, 1\n.minnctapersm ${MIN_BLOCKS}"),
        (menu.read_only_loads, PTX, "ld.global.nc.f32 %f1"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_edit_changes_what_it_says(edit: menu.Rewrite, kernel: Kernel, expected: str) -> None:
    """The rewritten source holds the change, and a second application finds nothing to do."""
    changed = edit(kernel)
    assert changed is not None
    assert expected in changed.source
    assert edit(changed) is None


def test_block_size_moves_into_the_grid() -> None:
    """A literal block size becomes a parameter of block and grid."""
    changed = menu.parametrise_block(FLAT)
    assert changed is not None
    (launch,) = changed.launches
    assert (launch.grid[0], launch.block[0]) == ("ceil_div(n, BLOCK)", "BLOCK")
    assert changed.space is not None
    assert 256 in changed.space.params["BLOCK"]
    (bound,) = changed.bind({"n": 1000}, frozenset({"x", "y"}))
    assert bound.blocks * bound.threads >= 1000


@pytest.mark.parametrize("edit", [e.apply for e in menu.EDITS], ids=lambda e: e.__name__)
def test_preconditions(edit: menu.Rewrite) -> None:
    """No edit touches a kernel of the wrong language or one without anything to change."""
    empty = replace(KERNEL, source='extern "C" __global__ void transpose() {}', language="cuda")
    for kernel in (empty, replace(PTX, source="")):
        changed = edit(kernel)
        assert changed is None or changed.language == kernel.language
    assert menu.pad_tiles(PTX) is None
    assert menu.cap_ptx_registers(KERNEL) is None


def test_padding_keeps_vectors_aligned() -> None:
    """With 16-byte accesses the padding is a multiple of 16 bytes."""
    vector = replace(KERNEL, source=KERNEL.source + "// float4 loads\n")
    changed = menu.pad_tiles(vector)
    assert changed is not None
    assert changed.space is not None
    assert changed.space.params["PADDING"] == (0, 4, 8)


def test_menu_proposes_each_edit_once_along_a_path() -> None:
    """A node is offered the edits that neither it, its ancestors nor its children carry."""
    tree = Tree(KERNEL)
    tree.settle(tree.root, "ok", reward=0.0)
    proposer, rng = menu.Menu(), np.random.default_rng(0)
    view = TreeView(tree)
    first = proposer.propose(view, tree.root, 10, rng)
    strategies = [proposal.edit.strategy for proposal in first]
    assert len(set(strategies)) == len(strategies) >= 4
    child = tree.add(tree.root, first[0].kernel, first[0].edit, prior=1.0, idea=None)
    tree.settle(child, "ok", reward=0.1)
    assert first[0].edit.strategy not in [
        p.edit.strategy
        for node in (tree.root, child)
        for p in proposer.propose(view, node, 10, rng)
    ]


def test_grown_space_keeps_what_was_there() -> None:
    """A new parameter joins the space; its restriction holds for the first value."""
    kernel = replace(KERNEL, values={"T": 32}, space=Space({"T": (16, 32)}))
    changed = menu.grown(kernel, kernel.source, "M", (1, 2), first=2, restrictions=("M * T <= 64",))
    assert changed.space is not None
    assert changed.space.names == ("T", "M")
    assert changed.space.is_legal({"T": 32, "M": 2})
    assert Edit("a", "b").strategy == "a"
