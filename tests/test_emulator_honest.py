"""Honest kernels that pass messages, wait, diverge or call in unusual ways, against numpy."""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxsearch.emulator import Report, load, undefined
from ptxsearch.ptx import Module, parse
from tests.emulator_cases import DATA

i32 = np.int32
RNG = np.random.default_rng(1)
INTEGERS = RNG.integers(0, 99, 1024).astype(i32)
LANES = np.arange(64)


@cache
def module() -> Module:
    """The kernels, parsed once."""
    parsed = parse((DATA / "honest.ptx").read_text())
    assert isinstance(parsed, Module)
    return parsed


def run(entry: str, grid: Any, block: Any, *args: Any, shared: int = 0) -> Report:
    """A launch that must be reported clean."""
    launch = {"grid": grid, "block": block, "args": args, "shared_bytes": shared}
    report = load(module()).launch(entry, **launch)
    assert report.status == "ok", report.message
    return report


def zeros(count: int, dtype: Any = i32) -> Any:
    """An output."""
    return np.zeros(count, dtype)


def test_spin_lock_between_blocks() -> None:
    """Plain increments under a lock taken by one thread of each block are no race."""
    count, done = zeros(1), zeros(64 * 20)
    run("lock", 20, 64, zeros(1), count, undefined(done))
    assert count[0] == 60


def test_spin_lock_in_a_warp() -> None:
    """Every lane of every warp gets the lock in its turn."""
    count = zeros(1)
    run("lockall", 2, 64, zeros(1), count)
    assert count[0] == 128


@pytest.mark.parametrize("blocks", [4, 40])
def test_grid_barrier(blocks: int) -> None:
    """Words of other blocks may be read behind a barrier of the grid made of atomics."""
    n = 64 * blocks
    a = np.arange(n, dtype=i32)
    want = a.copy()
    for _ in range(4):
        want = np.roll(np.roll(want, -1) + 1, -64)
    run("grid", blocks, 64, a, undefined(zeros(n)), zeros(1, np.uint32), i32(n))
    assert np.array_equal(want, a)


def test_grid_barrier_over_several_chunks() -> None:
    """Blocks that wait for blocks not yet started let them start."""
    n = 64 * 600
    a = np.arange(n, dtype=i32)
    want = a.copy()
    for _ in range(4):
        want = np.roll(np.roll(want, -1) + 1, -64)
    run("grid", 600, 64, a, undefined(zeros(n)), zeros(1, np.uint32), i32(n))
    assert np.array_equal(want, a)


def test_scan_with_look_back() -> None:
    """A one-pass scan whose blocks wait for flags of the blocks before them is clean."""
    n, blocks = 3000, 24
    x = RNG.integers(-9, 9, n).astype(i32)
    y, flags = zeros(n), zeros(blocks)
    sums, totals = undefined(zeros(blocks)), undefined(zeros(blocks))
    run("lookback", blocks, 128, x, undefined(y), flags, sums, totals, i32(n))
    assert np.array_equal(np.cumsum(x), y)


def test_last_block() -> None:
    """The last of many blocks may add up what the others left behind a fence and an atomic."""
    n, blocks = 1 << 16, 300
    x = RNG.integers(-4, 5, n).astype(np.float32)
    total = zeros(1, np.float32)
    parts = undefined(zeros(blocks, np.float32))
    run("lastb", blocks, 256, x, parts, undefined(total), zeros(1, np.uint32), i32(n))
    assert total[0] == x.sum()


def test_reduction_in_a_warp() -> None:
    """Warp barriers order what the lanes of a warp write and read."""
    sums = zeros(4)
    run("wsync", 4, 256, INTEGERS, undefined(sums))
    assert np.array_equal(INTEGERS.reshape(4, 256).sum(axis=1), sums)
    sums = zeros(16)
    run("wvol", 16, 64, INTEGERS, undefined(sums))
    assert np.array_equal(INTEGERS.reshape(16, 64).sum(axis=1), sums)


def test_warp_barriers_of_halves_and_of_branches() -> None:
    """Halves of a warp may synchronise alone; lanes may meet at different instructions."""
    out = zeros(64)
    run("halfsync", 1, 64, INTEGERS, undefined(out))
    assert np.array_equal(INTEGERS[:64][(LANES ^ 1) ^ 5] + 1, out)
    run("divsync", 1, 64, INTEGERS, undefined(out))
    assert np.array_equal((INTEGERS[:64] + np.where(LANES & 1, 1, 2))[LANES ^ 1], out)


def test_cooperative_groups() -> None:
    """Tiles reduce among themselves; coalesced lanes share one atomic."""
    sums = zeros(4)
    run("cgt", 1, 64, INTEGERS, undefined(sums))
    assert np.array_equal(INTEGERS[:64].reshape(4, 16).sum(axis=1), sums)
    counter, picked = zeros(1), zeros(334)
    run("aggr", 8, 128, counter, undefined(picked), i32(1000))
    assert np.array_equal(np.arange(0, 1000, 3), np.sort(picked))


def test_bytes_of_one_word() -> None:
    """Threads may write the bytes of one shared word each."""
    x = RNG.integers(0, 255, 1000).astype(np.uint8)
    y = zeros(1000, np.uint8)
    run("bytes", 4, 256, x, undefined(y), i32(1000))
    padded = np.zeros(1024, np.uint8)
    padded[:1000] = x
    assert np.array_equal(padded.reshape(4, 256)[:, ::-1].reshape(-1)[:1000], y)


def test_padding_may_be_copied() -> None:
    """Copying structs with padding that nothing wrote is no fault."""
    kind = np.dtype(
        {
            "names": ["a", "b", "c"],
            "formats": ["i1", "f8", "i2"],
            "offsets": [0, 8, 16],
            "itemsize": 24,
        }
    )
    x, y = np.zeros(50, kind), np.zeros(50, kind)
    x["a"], x["b"], x["c"] = np.arange(50), RNG.random(50), 7
    run("structs", 2, 32, x, undefined(y), i32(50))
    assert np.array_equal(x["b"] * 2, y["b"])
    assert np.array_equal(x["c"], y["c"])
    run("locst", 1, 64, INTEGERS, undefined(zeros(64)), i32(3))


def test_recursion_and_function_pointers() -> None:
    """Lanes may recurse to different depths and call different functions."""
    out = zeros(64)
    run("rec", 1, 64, undefined(out))
    fibonacci = [0, 1, 1, 2, 3, 5, 8, 13, 21, 34]
    assert [fibonacci[lane % 10] for lane in range(64)] == out.tolist()
    run("fptr", 1, 64, undefined(out))
    assert [(lane + 1, lane * 2, lane - 3)[lane % 3] for lane in range(64)] == out.tolist()


def test_printing() -> None:
    """What a kernel prints is formatted as C does and kept."""
    report = run("pr", 1, 64, undefined(zeros(64)))
    assert report.printed == tuple(
        f"t={t} f={t * 1.5:.2f} s=abc l={t << 40} c=x {t:5d}%\n" for t in range(3)
    )


def test_votes_and_matches_under_divergence() -> None:
    """Votes, matches and reductions see the lanes that take part and no others."""
    out = zeros(64 * 6, np.uint32)
    run("wops", 1, 64, INTEGERS, undefined(out))
    value = (INTEGERS[:64] & 7).astype(np.uint32)
    for lane, row in enumerate(out.reshape(64, 6).tolist()):
        warp = value[lane // 32 * 32 :][:32]
        assert row[0] == sum(1 << k for k in range(32) if warp[k] == value[lane])
        assert row[1:4] == [0, warp.sum(), warp.max()]
        if lane & 1:
            odd = sum(1 << k for k in range(1, 32, 2) if warp[k] > 3)
            assert row[4:] == [odd, warp[1]]
        else:
            assert row[4:] == [16, int((warp[::2] == 0).any())]


def test_atomics() -> None:
    """Atomics of every kind and width add up."""
    x = INTEGERS[:512]
    o = zeros(10)
    o[1], o[3] = 999, -1
    f, d, q = zeros(4, np.float32), zeros(1, np.float64), zeros(2, np.uint64)
    h, b, s = zeros(2, np.float16), zeros(1, np.uint16), zeros(2, np.uint16)
    run("atom", 4, 128, INTEGERS, o, f, d, q, h, b, s)
    ufuncs = (np.add, np.minimum, np.maximum, np.bitwise_and, np.bitwise_or, np.bitwise_xor)
    assert o[:6].tolist() == [int(ufunc.reduce(x)) for ufunc in ufuncs]
    assert o[6] == 512 % 11
    assert o[9] == -x.sum()
    assert f.tolist() == [(x[k::4] & 7).sum() for k in range(4)]
    assert d[0] == x.sum()
    assert q.tolist() == [x.sum(), x.max()]
    assert h.tolist() == [512.0, 1024.0]
    assert float(b.view(ml_dtypes.bfloat16)[0]) == 256.0
    assert s[0] == 512


def test_asynchronous_copies() -> None:
    """A double-buffered pipeline of asynchronous copies is clean and right."""
    x = RNG.integers(-8, 8, (3, 5, 64, 4)).astype(np.float32)
    y = zeros(192, np.float32)
    run("pipe", 3, 64, x, undefined(y), i32(5))
    assert np.array_equal(x.sum(axis=(1, 3))[:, ::-1].reshape(-1), y)


def test_blocks_of_odd_shape() -> None:
    """Blocks of 5 x 7 x 3 threads in a grid of three dimensions, loops with break and continue."""
    y = zeros(1000)
    run("odd", (2, 2, 3), (5, 7, 3), INTEGERS, undefined(y), i32(1000))
    padded = np.zeros(1260, i32)
    padded[:1000] = INTEGERS[:1000]
    want = []
    for block in padded.reshape(12, 105):
        for thread in range(105):
            total = 0
            for value in block[: thread + 1].tolist():
                if value == 13:
                    continue
                if value > 90:
                    break
                total += value
            want.append(total)
    assert want[:1000] == y.tolist()


def test_in_place() -> None:
    """A grid-stride loop may write what the same thread read."""
    z = RNG.random(10007).astype(np.float32)
    want = z.astype(np.float64) ** 2 + 1
    run("inplace", 7, 96, z, i32(10007))
    assert np.allclose(want, z)


def test_dynamic_shared_memory() -> None:
    """Two arrays in dynamic shared memory."""
    x = RNG.integers(0, 9, 256).astype(i32)
    before = x.reshape(4, 64).copy()
    run("rot", 4, 64, x, i32(256), shared=512)
    assert np.array_equal(before * 100 + np.roll(before, -1, axis=1), x.reshape(4, 64))


def test_clock_moves_on() -> None:
    """Two looks at the clock differ."""
    y = zeros(32, np.int64)
    run("clk", 1, 32, undefined(y))
    assert y.all()
