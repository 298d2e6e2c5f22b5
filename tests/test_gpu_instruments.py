"""The device's own kernels, emulated: junk counted, the first byte past a guard, digests."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import ptxsearch.gpu
from ptxsearch.emulator.device import EmulatedDevice
from ptxsearch.evaluation import Array, Built, Inputs, Outputs
from ptxsearch.kernel import Kernel, Launch
from ptxsearch.tasks import Workload
from ptxsearch.toolchain import build

SOURCE = Path(ptxsearch.gpu.__file__).with_name("instruments.cu").read_text()
ZONES = """
extern "C" __global__ void zones(u64 buffer, u64* table, unsigned begin, unsigned size) {
  table[0] = buffer + begin;
  table[1] = size;
}
extern "C" __global__ void where(u64 buffer, u64* address) { *address -= buffer; }
extern "C" __global__ void put(unsigned char* buffer, int at) { if (at >= 0) buffer[at] ^= 1; }
extern "C" __global__ void nothing(u64* cell) { *cell = ~0ULL; }
"""
SIZE = 1029
SEED = 77


def launch(entry: str, *args: str, blocks: int = 1, threads: int = 64) -> Launch:
    """One launch of an instrument."""
    return Launch(entry, args, (str(blocks),), (str(threads),))


@cache
def built(launches: tuple[Launch, ...]) -> Built:
    """The instruments with a launch sequence."""
    made = build(Kernel(SOURCE + ZONES, "cuda", launches), "sm_90")
    assert isinstance(made, Built), made
    return made


def left(launches: Sequence[Launch], buffer: Array) -> dict[str, Array]:
    """What a sequence leaves in `buffer`, a `table` and a `cell` that starts as zero."""
    inputs = Inputs(
        {"buffer": buffer, "table": np.zeros(2, np.uint64), "cell": np.zeros(1, np.uint64)},
        {"buffer": "inout", "table": "inout", "cell": "inout"},
        {"n": buffer.size},
    )
    made = EmulatedDevice().run(
        built(tuple(launches)), Workload("w", {"n": buffer.size}), inputs, timeout=60.0
    )
    assert isinstance(made, Outputs), made
    return {name: np.asarray(array) for name, array in made.arrays.items()}


FILL = launch("ptxsearch_fill", "buffer", "n", str(SEED), blocks=2)


def mixed(words: Array) -> Array:
    """The hash of 32-bit words (lowbias32 of Chris Wellons), in 64-bit arithmetic."""
    x = words.astype(np.uint64)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor) & np.uint64(0xFFFFFFFF)
    return x ^ (x >> np.uint64(16))


def test_junk_is_nan_in_every_type() -> None:
    """Each 16-bit word is 0xfff0 to 0xffff, and they differ."""
    words = left([FILL], np.zeros(SIZE, np.uint8))["buffer"][: SIZE // 2 * 2].view(np.uint16)
    assert (words >= 0xFFF0).all()
    assert len(set(words.tolist())) == 16


@pytest.mark.parametrize(("at", "words"), [(-1, 257), (0, 256), (1023, 256), (1024, 256)])
def test_words_that_hold_junk_are_counted(at: int, words: int) -> None:
    """All whole words count at first; one byte that differs takes its word off, the last too."""
    count = launch("ptxsearch_unwritten", "buffer", "n", str(SEED), "cell", blocks=3)
    found = left([FILL, launch("put", "buffer", str(at), threads=1), count], np.zeros(SIZE, "u1"))
    assert int(found["cell"][0]) == words


@pytest.mark.parametrize(("begin", "size"), [(0, 512), (5, 600), (16, 33), (3, 17)])
@pytest.mark.parametrize("within", [None, 0, 15, 16, -1])
def test_guard_tells_the_first_byte_that_was_written(
    begin: int, size: int, within: int | None
) -> None:
    """A zone at any address, filled, is whole until a byte of it changes, which is then named."""
    at = -1 if within is None else begin + within % size
    found = left(
        [
            launch("zones", "buffer", "table", str(begin), str(size), threads=1),
            launch("ptxsearch_guard_fill", "table", str(SEED)),
            launch("put", "buffer", str(at), threads=1),
            launch("nothing", "cell", threads=1),
            launch("ptxsearch_guard_check", "table", str(SEED), "cell"),
            launch("where", "buffer", "cell", threads=1),
        ],
        np.full(SIZE, 7, np.uint8),
    )
    first = int(found["cell"][0])
    assert first == at if within is not None else first > SIZE
    outside = np.ones(SIZE, bool)
    outside[begin : begin + size] = False
    assert (found["buffer"][outside] == 7).all()


def test_guard_and_fill_write_the_same_junk() -> None:
    """A zone filled as a guard inside a filled buffer leaves every word junk."""
    found = left(
        [
            FILL,
            launch("zones", "buffer", "table", "5", "900", threads=1),
            launch("ptxsearch_guard_fill", "table", str(SEED)),
            launch("ptxsearch_unwritten", "buffer", "n", str(SEED), "cell"),
        ],
        np.zeros(SIZE, np.uint8),
    )
    assert int(found["cell"][0]) == 257


@pytest.mark.parametrize("size", [1, 3, 4, 16, 31, 1000, SIZE])
def test_digest_is_the_sum_of_its_words_by_place(size: int) -> None:
    """The digest of any size is the weighted sum of hashed words, bytes that are left added."""
    buffer = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    key = 0xC0FFEE + size
    digest = launch("ptxsearch_digest", "buffer", "n", "cell", str(key), blocks=2)
    found = int(left([digest], buffer)["cell"][0])
    words = buffer[: size // 4 * 4].view(np.uint32)
    places = np.arange(len(words), dtype=np.uint64)
    keys = (places * np.uint64(0x9E3779B9) & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    rest = buffer[len(words) * 4 :].astype(np.uint32)
    tail = rest + 257 * np.arange(len(rest), dtype=np.uint32)
    tail = mixed(tail ^ np.uint32(key)) << np.uint64(20)
    with np.errstate(over="ignore"):
        hashed = mixed(mixed(words ^ np.uint32(key)).astype(np.uint32) ^ keys)
        want = np.sum(hashed * (2 * places + np.uint64(1))) + np.sum(tail)
    assert found == int(want) % (1 << 64)
