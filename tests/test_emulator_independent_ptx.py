"""PTX written by hand, with what compilers seldom emit, against references."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ptxsearch.emulator import undefined
from tests import emulator_references as ref
from tests.test_emulator_independent import integers, run, u32, u64, zeros


def test_ptx_wide_multiply() -> None:
    """256-bit products and differences carry and borrow through every word."""
    a, b = integers(0, 2**64, (40, 2), u64), integers(0, 2**64, (40, 2), u64)
    a[:4], b[:4] = u64(2**64 - 1), [[2**64 - 1] * 2, [0, 1], [1, 0], [0, 0]]
    c, out = integers(0, 2**64, (40, 4), u64), zeros((40, 5), u64)
    run("ptx_wide_multiply", 2, 32, a, b, c, undefined(out), u32(40))
    assert ref.products(a, b, c) == out.tolist()


@pytest.mark.parametrize("kinds", [1, 4, 40])
def test_ptx_group_by_key(kinds: int) -> None:
    """Groups of equal keys in a warp are reduced apart from one another."""
    keys, values = integers(0, kinds, 32), integers(-1000, 1000, 32)
    out = zeros((32, 4), u32)
    run("ptx_group_by_key", 1, 32, keys, values, undefined(out))
    assert np.array_equal(ref.groups(keys, values), out)


def test_ptx_binary_gcd() -> None:
    """Greatest common divisors are Python's, with zeros among the numbers."""
    a, b = integers(0, 2**63, 50, u64) * u64(2), integers(0, 2**62, 50, u64) * u64(4)
    a[:3], b[1:4] = 0, 0
    out = zeros(50, u64)
    run("ptx_binary_gcd", 2, 32, a, b, undefined(out), u32(50))
    assert list(map(math.gcd, a.tolist(), b.tolist())) == out.tolist()


@pytest.mark.parametrize("rounds", [2, 9])
def test_ptx_ring_of_barriers(rounds: int) -> None:
    """A warp that fills and a warp that empties slots order each other by named barriers alone."""
    x, out = integers(0, 2**32, (rounds, 32), u32), zeros(32, u32)
    run("ptx_ring_of_barriers", 1, 64, x, undefined(out), u32(rounds))
    assert ref.mirrored_horner(x) == out.tolist()


def test_ptx_message_chain() -> None:
    """Words behind a released flag may be read by the block that acquires it, without a fence."""
    out = zeros((9, 64), u32)
    run("ptx_message_chain", 9, 64, undefined(out), zeros(9, u32), u32(77))
    assert ref.chain(77, 9, 64) == out.tolist()


def test_ptx_base64() -> None:
    """Letters are those of the standard library."""
    data, out = integers(0, 256, 300, np.uint8), zeros(400, np.uint8)
    run("ptx_base64", 1, 128, data, undefined(out), u32(100))
    assert ref.letters(data.tobytes()) == out.tobytes()
