"""Kernels of further kinds, written without regard to how they are emulated, by reference."""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from ptxsearch.emulator import Module, Report, load, undefined
from ptxsearch.toolchain import Compiled, compile_kernel
from tests import emulator_references as ref
from tests.emulator_cases import DATA

i32, u32, f32, f64, u64 = np.int32, np.uint32, np.float32, np.float64, np.uint64
SOURCES = DATA / "independent"
RNG = np.random.default_rng(20261130)


@cache
def ptx(name: str) -> str:
    """The PTX of a kernel, compiled if it is CUDA C++."""
    written = SOURCES / f"{name}.ptx"
    if written.exists():
        return written.read_text()
    source = (SOURCES / f"{name}.cu").read_text()
    entries = re.findall(r"__global__ void (\w+)\(", source)
    compiled = compile_kernel(source, "cuda", {}, arch="sm_90", entries=entries)
    assert isinstance(compiled, Compiled), compiled.text
    return compiled.ptx


def run(
    name: str, grid: Any, block: Any, *args: Any, shared: int = 0, module: Module | None = None
) -> Report:
    """A launch that must be reported clean."""
    given = module or load(ptx(name))
    report = given.launch(name, grid=grid, block=block, shared_bytes=shared, args=args)
    assert report.status == "ok", (report.message, report.faults, report.unsupported)
    assert not report.faults
    return report


def zeros(shape: Any, dtype: Any = i32) -> Any:
    """An output."""
    return np.zeros(shape, dtype)


def integers(low: int, high: int, shape: Any, dtype: Any = i32) -> Any:
    """Random integers of a type."""
    return RNG.integers(low, high, shape, dtype)


def test_online_softmax() -> None:
    """Rows are softmax of the input within a few float32 units, whatever their length."""
    for rows, cols in ((6, 1000), (5, 20)):
        x = (RNG.standard_normal((rows, cols)) * 20).astype(f32)
        y = zeros((rows, cols), f32)
        run("online_softmax", 2, (32, 4), x, undefined(y), i32(rows), i32(cols))
        assert np.allclose(ref.softmax(x), y, rtol=2e-5, atol=1e-30)


def test_kahan_sum() -> None:
    """Compensated sums are within one unit of the exact sum, where plain sums are far off."""
    x = (RNG.random((2000, 70)) * 10.0 ** RNG.integers(-4, 5, (2000, 70))).astype(f32)
    total, lost = zeros(70, f32), zeros(70, f32)
    run("kahan_sum", 2, 64, x, undefined(total), undefined(lost), i32(2000), i32(70))
    exact = np.array([math.fsum(column) for column in x.T.astype(f64)])
    assert (np.abs(exact - total) <= np.spacing(exact.astype(f32))).all()
    assert (np.abs(exact - total.astype(f64) + lost) < np.spacing(exact.astype(f32)) / 4).all()


def test_bitonic_pairs() -> None:
    """Each block sorts its pairs by key."""
    keys = RNG.permutation(3 * 256).astype(u32).reshape(3, 256) * u32(5591)
    values = RNG.random((3, 256), f32)
    want = ref.sorted_pairs(keys, values)
    run("bitonic_pairs", 3, 128, keys, values, shared=2048)
    assert np.array_equal(want[0], keys)
    assert np.array_equal(want[1], values)


@pytest.mark.parametrize("rate", [0.0, 0.02, 0.5])
def test_segmented_scan(rate: float) -> None:
    """Sums start anew at every head, over warps with no head too."""
    x, heads = integers(-99, 99, 300), (RNG.random(300) < rate).astype(np.uint8)
    y = zeros(300)
    run("segmented_scan", 1, 320, x, heads, undefined(y), i32(300))
    assert ref.segmented_sums(x, heads) == y.tolist()


def test_spmv_csr() -> None:
    """A sparse product equals scipy's."""
    dense = np.where(RNG.random((77, 50)) < 0.2, RNG.standard_normal((77, 50)), 0)
    matrix = sparse.csr_array(dense)
    x, y = RNG.standard_normal(50), zeros(77, f64)
    csr = (matrix.data, matrix.indices.astype(i32), matrix.indptr.astype(i32))
    run("spmv_csr", 10, 64, *csr, x, undefined(y), i32(77))
    assert np.allclose(dense @ x, y, rtol=1e-13, atol=1e-14)


def test_radix_passes() -> None:
    """Four stable passes over 4-bit digits sort by the low 16 bits, ties in order."""
    keys = integers(0, 2**32, 250, u32) & u32(0xFF0F0F0F)
    want = keys[np.argsort(keys & 0xFFFF, kind="stable")]
    for shift in range(0, 16, 4):
        moved = zeros(250, u32)
        run("radix_pass", 1, 256, keys, undefined(moved), i32(250), i32(shift))
        keys = moved
    assert np.array_equal(want, keys)


def test_queens() -> None:
    """Six queens have 4 placements, seven have 40."""
    for n, known in ((6, 4), (7, 40)):
        total, parts = zeros(1, u64), zeros(n * n)
        run("queens", 1, 64, i32(n), total, undefined(parts))
        assert (known, known) == (total[0], parts.sum())


def test_mandelbrot() -> None:
    """Escape times are those of numpy in float32."""
    out = zeros((36, 60))
    run("mandelbrot", (4, 5), (16, 8), undefined(out), i32(60), i32(36), i32(60))
    assert np.array_equal(ref.escape_times(60, 36, 60), out)


def test_lu_solve() -> None:
    """Solutions and determinants of small systems are LAPACK's, zero leading pivots included."""
    a, b = RNG.standard_normal((50, 5, 5)), RNG.standard_normal((50, 5))
    a[::3, 0, 0] = 0
    x, determinant = zeros((50, 5), f64), zeros(50, f64)
    run("lu_solve", 2, 32, a, b, undefined(x), undefined(determinant), i32(50))
    assert np.allclose(np.linalg.solve(a, b[:, :, None])[:, :, 0], x, rtol=1e-7)
    assert np.allclose(np.linalg.det(a), determinant, rtol=1e-8)


def test_lookback_packed() -> None:
    """A scan whose tiles hand on their sums in one word needs no fence."""
    x, y = integers(0, 2**32, 1900, u32), zeros(1900, u32)
    run("lookback_packed", 15, 128, x, undefined(y), zeros(15, u64), zeros(1, u32), i32(1900))
    assert np.array_equal(np.cumsum(x, dtype=u32), y)


def test_jacobi_grid_barrier() -> None:
    """Sweeps separated by a barrier of the whole grid see all of the last one."""
    a, b = RNG.random(500), zeros(500, f64)
    want = ref.relaxed(a, 5)
    run("jacobi_grid_barrier", 8, 64, a, undefined(b), zeros(2, u32), i32(500), i32(5))
    assert np.allclose(want, b, rtol=1e-15)


def test_aggregated_append() -> None:
    """Lists hold the values that belong there, in any order."""
    x, lists, lengths = integers(0, 1000, 700), zeros((2, 700)), zeros(2)
    run("aggregated_append", 6, 128, x, undefined(lists), lengths, i32(700), i32(700))
    for parity in (0, 1):
        want = np.sort(x[(x % 3 != 0) & (x % 2 == parity)])
        assert np.array_equal(want, np.sort(lists[parity, : lengths[parity]]))


def test_fp8_round() -> None:
    """Both 8-bit formats round to nearest even and saturate."""
    ties = np.arange(-256, 256, dtype=f32) / 128
    x = np.concatenate((ties, (RNG.standard_normal(500) * 200).astype(f32), ties * f32(2**-7)))
    x = np.append(x, [f32(np.inf), f32(-np.inf), f32(1e30), f32(-0.0), f32(57344), f32(464)])
    a, b, back = zeros(len(x), np.uint8), zeros(len(x), np.uint8), zeros((len(x), 2), f32)
    run("fp8_round", 12, 128, x, undefined(a), undefined(b), undefined(back), i32(len(x)))
    e4m3, e5m2 = ref.fp8(x, ref.E4M3, 448), ref.fp8(x, ref.E5M2, 57344)
    assert np.array_equal(e4m3.view(np.uint8), a)
    assert np.array_equal(e5m2.view(np.uint8), b)
    assert np.array_equal(np.stack((e4m3.astype(f32), e5m2.astype(f32)), 1), back)


def test_pcg_jump() -> None:
    """Threads that jump ahead draw what one stream draws in order."""
    seed, out = 0x853C49E6748FEA9B, zeros(96 * 5, u32)
    run("pcg_jump", 3, 32, undefined(out), u64(seed), i32(5), u32(1000))
    assert ref.pcg(seed, 96 * 5, 1000) == out.tolist()


def test_union_find() -> None:
    """Components linked by compare-and-swap are networkx's."""
    parent, label = np.arange(300, dtype=i32), zeros(300)
    edges = integers(0, 300, (200, 2))
    module = load(ptx("union_find"))
    run("link_edges", 3, 32, parent, edges, i32(200), module=module)
    run("flatten", 3, 128, parent, undefined(label), i32(300), module=module)
    assert ref.components(300, edges) == label.tolist()


def test_life_tiles() -> None:
    """Generations of tiles with borders are those of the whole torus."""
    now = integers(0, 2, (20, 40), np.uint8)
    for _ in range(2):
        want, after = ref.next_life(now), zeros((20, 40), np.uint8)
        run("life_tiles", (3, 3), (16, 8), now, undefined(after), i32(40), i32(20))
        assert np.array_equal(want, after)
        now = after


def test_quicksort_stack() -> None:
    """Every thread sorts its run in place."""
    x = integers(-300, 300, (40, 37), np.int16)
    want = np.sort(x, axis=1)
    run("quicksort_stack", 2, 32, x, i32(37), i32(40))
    assert np.array_equal(want, x)


@pytest.mark.parametrize("count", [1, 2, 11])
def test_async_window(count: int) -> None:
    """Rows that arrive by cp.async are all counted once, and no slot is reused too early."""
    rows, sums = integers(-(2**20), 2**20, (count, 128, 4)), zeros((128, 4))
    run("async_window", 2, 64, rows, undefined(sums), i32(count))
    assert np.array_equal(ref.window_sums(rows), sums)


def test_double_functions() -> None:
    """Functions of the double library agree with the C library to a few units."""
    x = np.append(RNG.standard_normal(60) * 50, [1e9, -3e5, 0.5, 1e-9])
    y = np.append(RNG.standard_normal(60) * 4, [0.0, 1.0, -2.0, 0.5])
    out = zeros((8, 64), f64)
    run("double_functions", 2, 32, x, y, undefined(out), i32(64))
    assert np.allclose(ref.double_functions(x, y), out, rtol=2e-14, atol=0)


def test_bilinear_resize() -> None:
    """An image enlarged by two in each direction equals float64 interpolation."""
    image = integers(0, 256, (13, 18, 4), np.uint8)
    out = zeros((26, 36, 4), np.uint8)
    sizes = (np.array([18, 13], i32).tobytes(), np.array([36, 26], i32).tobytes())
    run("bilinear_resize", (3, 4), (16, 8), image, undefined(out), *sizes)
    assert np.array_equal(ref.resized(image, 26, 36), out)


def test_morton_codes() -> None:
    """Codes interleave the bits of three coordinates; prefixes reach over blocks."""
    points = integers(0, 2**21, (300, 3), u32)
    points[100:140] = points[100] ^ integers(0, 4, (40, 3), u32)
    codes, prefix = zeros(300, u64), zeros(300)
    run("morton_codes", 3, 128, points, undefined(codes), undefined(prefix), i32(300))
    assert ref.morton(points) == codes.tolist()
    assert ref.common_prefix(ref.morton(points)) == prefix.tolist()


def test_best_pairs() -> None:
    """Structs may be copied with the padding that nobody wrote; their fields arrive."""
    kind = np.dtype([("value", f64), ("index", i32), ("padding", "V4")])
    mark = np.dtype([("tag", "i1"), ("gap", "V7"), ("value", f64), ("count", "i2"), ("end", "V6")])
    x, best, moved, marks = RNG.random(100), zeros(2, kind), zeros(100, kind), zeros(100, mark)
    run("best_pairs", 2, 64, x, undefined(best), undefined(moved), undefined(marks), i32(100))
    assert [x[:64].argmax(), 64 + x[64:].argmax()] == best["index"].tolist()
    assert [x[:64].max(), x[64:].max()] == best["value"].tolist()
    backward = np.r_[63:-1:-1, [99] * 28, 99:91:-1]
    assert np.array_equal(backward, moved["index"])
    swapped = np.arange(100) ^ 1
    assert np.array_equal(x[swapped], marks["value"])
    assert np.array_equal(swapped % 64, marks["tag"])
    assert np.array_equal(swapped % 64 * 3, marks["count"])


def test_lane_waits_lane() -> None:
    """Lanes of one warp may wait for one another, and fences order them."""
    y = zeros(64)
    run("lane_waits_lane", 1, 64, undefined(y))
    assert [(t | 1) * 3 + 1 - t % 2 for t in range(64)] == y.tolist()


def test_ordered_after_many_reads() -> None:
    """Stores behind a barrier of the grid are ordered after however many reads."""
    a = integers(0, 2**32, 4096, u32)
    want = ref.horner_rounds(a, 1300)
    run("ordered_after_many_reads", 32, 128, a, zeros(1, u32), i32(1300))
    assert np.array_equal(want, a)
