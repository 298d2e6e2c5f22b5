"""Integer arithmetic and bit operations of the emulator against Python integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ptxsearch.emulator.arithmetic import Array, Invalid, Operation, decode
from ptxsearch.ptx.syntax import Integer, Register
from tests.arithmetic_oracle import apply, apply_all, instruction, operation

COUNT = 600
TYPES = ("u16", "s16", "u32", "s32", "u64", "s64")
KINDS = {16: np.uint16, 32: np.uint32, 64: np.uint64}


def width(type_: str) -> int:
    """Bits of a type."""
    return int(type_[1:])


def words(bits: int, seed: int, count: int = COUNT) -> Array:
    """Words with many at the ends of the range and many small ones."""
    rng = np.random.default_rng(seed)
    anything = (
        rng.integers(0, 1 << bits, count, dtype=np.uint64, endpoint=False)
        if bits < 64
        else (rng.integers(0, (1 << 64) - 1, count, dtype=np.uint64))
    )
    edges = np.array([0, 1, 2, (1 << bits) - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1], np.uint64)
    choice = rng.integers(0, 4, count)
    small = rng.integers(0, 64, count).astype(np.uint64)
    picked = np.choose(choice, [anything, anything, rng.choice(edges, count), small])
    return picked.astype(KINDS[bits])


def value(word: int, type_: str) -> int:
    """A word read as a type."""
    bits = width(type_)
    return word - (1 << bits) if type_[0] == "s" and word >> (bits - 1) else word


def check(
    mnemonic: str, type_: str, exact: Callable[..., int], sources: int, bits: int = 0
) -> None:
    """Compares an instruction with a function of Python integers, modulo the result's width."""
    arrays = [words(width(type_), seed) for seed in range(sources)]
    got = apply(mnemonic, *arrays).tolist()
    mask = (1 << (bits or width(type_))) - 1
    lanes = zip(*(array.tolist() for array in arrays), strict=True)
    want = [exact(*(value(word, type_) for word in lane)) & mask for lane in lanes]
    assert got == want


@pytest.mark.parametrize("type_", TYPES)
def test_sums_and_products(type_: str) -> None:
    """add, sub, mul and mad agree with exact integers cut to the width."""
    bits = width(type_)
    check(f"add.{type_}", type_, lambda a, b: a + b, 2)
    check(f"sub.{type_}", type_, lambda a, b: a - b, 2)
    check(f"mul.lo.{type_}", type_, lambda a, b: a * b, 2)
    check(f"mul.hi.{type_}", type_, lambda a, b: (a * b) >> bits, 2)
    check(f"mad.lo.{type_}", type_, lambda a, b, c: a * b + c, 3)
    check(f"mad.hi.{type_}", type_, lambda a, b, c: ((a * b) >> bits) + c, 3)
    check(f"sad.{type_}", type_, lambda a, b, c: c + abs(a - b), 3)
    if bits < 64:
        check(f"mul.wide.{type_}", type_, lambda a, b: a * b, 2, 2 * bits)


@pytest.mark.parametrize("type_", TYPES)
def test_division_truncates(type_: str) -> None:
    """`div` and `rem` round toward zero; division by zero gives all ones."""

    def quotient(a: int, b: int) -> int:
        return -1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)

    check(f"div.{type_}", type_, quotient, 2)
    check(f"rem.{type_}", type_, lambda a, b: a - quotient(a, b) * b if b else -1, 2)


@pytest.mark.parametrize("type_", TYPES)
def test_extremes_and_signs(type_: str) -> None:
    """min, max, abs and neg agree with exact integers."""
    check(f"min.{type_}", type_, min, 2)
    check(f"max.{type_}", type_, max, 2)
    if type_[0] == "s":
        check(f"abs.{type_}", type_, abs, 1)
        check(f"neg.{type_}", type_, lambda a: -a, 1)


def clamp(x: int) -> int:
    """An integer clamped to s32."""
    return max(-(1 << 31), min((1 << 31) - 1, x))


def test_saturating_sums() -> None:
    """.sat clamps to the range of s32."""
    check("add.sat.s32", "s32", lambda a, b: clamp(a + b), 2)
    check("sub.sat.s32", "s32", lambda a, b: clamp(a - b), 2)
    check("mad.hi.sat.s32", "s32", lambda a, b, c: clamp(((a * b) >> 32) + c), 3)


@pytest.mark.parametrize("type_", ["u32", "s32"])
def test_products_of_24_bits(type_: str) -> None:
    """mul24 takes the low 24 bits of each source and gives bits 31..0 or 47..16."""

    def low(x: int) -> int:
        x &= 0xFFFFFF
        return x - (1 << 24) if type_ == "s32" and x >> 23 else x

    check(f"mul24.lo.{type_}", type_, lambda a, b: low(a) * low(b), 2)
    check(f"mul24.hi.{type_}", type_, lambda a, b: (low(a) * low(b)) >> 16, 2)
    check(f"mad24.lo.{type_}", type_, lambda a, b, c: low(a) * low(b) + c, 3)


@pytest.mark.parametrize("left", ["u32", "s32"])
@pytest.mark.parametrize("right", ["u32", "s32"])
def test_dot_products(left: str, right: str) -> None:
    """dp4a and dp2a add the products of signed or unsigned fields to c."""
    a, b, c = (words(32, seed) for seed in (4, 5, 6))

    def fields(word: int, type_: str, bits: int) -> list[int]:
        parts = [(word >> at) & ((1 << bits) - 1) for at in range(0, 32, bits)]
        return [p - (1 << bits) if type_ == "s32" and p >> (bits - 1) else p for p in parts]

    def dot(x: int, y: int, z: int, bits: int, first: int) -> int:
        wide, narrow = fields(x, left, bits), fields(y, right, 8)[first:]
        return (sum(p * q for p, q in zip(wide, narrow, strict=False)) + z) & 0xFFFFFFFF

    lanes = list(zip(a.tolist(), b.tolist(), c.tolist(), strict=True))
    for name, bits, first in (("dp4a", 8, 0), ("dp2a.lo", 16, 0), ("dp2a.hi", 16, 2)):
        got = apply(f"{name}.{left}.{right}", a, b, c).tolist()
        assert got == [dot(*lane, bits, first) for lane in lanes], name


@pytest.mark.parametrize("bits", [32, 64])
def test_carry_chains(bits: int) -> None:
    """Chains of add, sub and mad through the carry agree with integers of twice the width."""
    mask = (1 << bits) - 1
    low, high, low2, high2 = (words(bits, seed) for seed in (7, 8, 9, 10))
    with np.errstate(all="ignore"):
        for name, sign in (("add", 1), ("sub", -1)):
            first = operation(f"{name}.cc.u{bits}", 2)
            last = operation(f"{name}c.cc.u{bits}", 2)
            assert (first.reads_carry, last.reads_carry, last.writes_carry) == (False, True, True)
            one, carry = first.run(low, low2)
            two, out = last.run(high, high2, carry)
            lanes = zip(low.tolist(), high.tolist(), low2.tolist(), high2.tolist(), strict=True)
            for lane, (a, b, c, d) in enumerate(lanes):
                exact = (a | b << bits) + sign * (c | d << bits)
                assert one[lane] == exact & mask
                assert two[lane] == (exact >> bits) & mask
                assert bool(out[lane]) == bool(exact >> (2 * bits) & 1)
        one, carry = operation(f"mad.lo.cc.u{bits}", 3).run(low, low2, high)
        (two,) = operation(f"madc.hi.u{bits}", 3).run(low, low2, high2, carry)
        lanes = zip(low.tolist(), low2.tolist(), high.tolist(), high2.tolist(), strict=True)
        for lane, (a, b, c, d) in enumerate(lanes):
            exact = a * b + (c | d << bits)
            assert one[lane] == exact & mask
            assert two[lane] == (exact >> bits) & mask


@pytest.mark.parametrize("type_", ["b16", "b32", "b64", "u16", "s16", "s32", "s64", "u64"])
def test_shifts_clamp(type_: str) -> None:
    """Amounts of the width or more shift everything out."""
    bits = width(type_)
    a, amount = words(bits, 11), words(32, 12)
    lanes = list(zip(a.tolist(), amount.tolist(), strict=True))
    mask = (1 << bits) - 1
    right = [(value(x, type_) >> min(n, bits)) & mask for x, n in lanes]
    assert apply(f"shr.{type_}", a, amount).tolist() == right
    if type_[0] == "b":
        left = [(x << n) & mask if n < bits else 0 for x, n in lanes]
        assert apply(f"shl.{type_}", a, amount).tolist() == left


@pytest.mark.parametrize("mode", ["wrap", "clamp"])
def test_funnel_shifts(mode: str) -> None:
    """`shf` shifts the pair {b, a} by an amount taken modulo 32 or clamped to 32."""
    a, b, c = (words(32, seed) for seed in (13, 14, 15))
    lanes = list(zip(a.tolist(), b.tolist(), c.tolist(), strict=True))
    amounts = [n & 31 if mode == "wrap" else min(n, 32) for *_, n in lanes]
    pairs = [y << 32 | x for x, y, _ in lanes]
    left = [(p << n >> 32) & 0xFFFFFFFF for p, n in zip(pairs, amounts, strict=True)]
    right = [(p >> n) & 0xFFFFFFFF for p, n in zip(pairs, amounts, strict=True)]
    assert apply(f"shf.l.{mode}.b32", a, b, c).tolist() == left
    assert apply(f"shf.r.{mode}.b32", a, b, c).tolist() == right


@pytest.mark.parametrize("bits", [32, 64])
def test_counts(bits: int) -> None:
    """popc, clz, brev and bfind agree with the binary digits."""
    a = words(bits, 16)
    digits = [f"{x:0{bits}b}" for x in a.tolist()]
    assert apply(f"popc.b{bits}", a).tolist() == [d.count("1") for d in digits]
    assert apply(f"clz.b{bits}", a).tolist() == [len(d) - len(d.lstrip("0")) for d in digits]
    assert apply(f"brev.b{bits}", a).tolist() == [int(d[::-1], 2) for d in digits]
    found = [bits - 1 - d.find("1") if "1" in d else 0xFFFFFFFF for d in digits]
    assert apply(f"bfind.u{bits}", a).tolist() == found
    amount = [d.find("1") if "1" in d else 0xFFFFFFFF for d in digits]
    assert apply(f"bfind.shiftamt.u{bits}", a).tolist() == amount
    other = [d.find("0" if d[0] == "1" else "1") for d in digits]
    want = [bits - 1 - at if at >= 0 else 0xFFFFFFFF for at in other]
    assert apply(f"bfind.s{bits}", a).tolist() == want


@pytest.mark.parametrize("bits", [32, 64])
def test_fields(bits: int) -> None:
    """`bfe` and `bfi` follow the manual's bit-by-bit description."""
    a, b = words(bits, 17), words(bits, 18)
    rng = np.random.default_rng(19)
    position = rng.integers(0, 80, COUNT).astype(np.uint32) | np.uint32(256)
    length = rng.integers(0, 80, COUNT).astype(np.uint32)
    length[:100] = words(32, 20)[:100]
    lanes = list(zip(*(x.tolist() for x in (a, b, position, length)), strict=True))

    def extract(x: int, at: int, count: int, signed: bool) -> int:
        at, count, result = at & 255, count & 255, 0
        last = (
            x >> (bits - 1) & 1 if at + count > bits else x >> (at + count - 1) & 1 if count else 0
        )
        fill = last if signed and count else 0
        for i in range(bits):
            inside = i < count and at + i < bits
            result |= (x >> (at + i) & 1 if inside else fill) << i
        return result

    def insert(x: int, y: int, at: int, count: int) -> int:
        at, count = at & 255, count & 255
        for i in range(count):
            if at + i < bits:
                y = y & ~(1 << (at + i)) | (x >> i & 1) << (at + i) if i < bits else y
        return y

    for sign in "us":
        want = [extract(x, p, n, sign == "s") for x, _, p, n in lanes]
        assert apply(f"bfe.{sign}{bits}", a, position, length).tolist() == want
    assert apply(f"bfi.b{bits}", a, b, position, length).tolist() == [insert(*x) for x in lanes]


def test_truth_tables() -> None:
    """lop3 gives for every bit the table's entry, for all 256 tables."""
    a, b, c = (words(32, seed, 40) for seed in (21, 22, 23))
    registers = [Register(f"%{n}") for n in "dabc"]
    for table in range(256):
        decoded = decode(instruction("lop3.b32", *registers, Integer(table)), {})
        assert isinstance(decoded, Operation)
        (got,) = decoded.run(a, b, c, np.array([table], np.uint32))
        for bit in range(32):
            index = (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | (c >> bit & 1)
            assert ((got >> bit & 1) == (table >> index & 1)).all()
    assert isinstance(decode(instruction("lop3.b32", *registers, registers[1]), {}), Invalid)


def test_byte_permutation() -> None:
    """`prmt` picks bytes by nibbles of the selector and copies signs where their top bit is set."""
    a, b, selector = (words(32, seed) for seed in (24, 25, 26))
    got = apply("prmt.b32", a, b, selector).tolist()
    for x, y, s, result in zip(a.tolist(), b.tolist(), selector.tolist(), got, strict=True):
        source = x.to_bytes(4, "little") + y.to_bytes(4, "little")
        nibbles = [s >> (4 * i) & 15 for i in range(4)]
        picked = [source[n & 7] for n in nibbles]
        bytes_ = [
            (255 if p >> 7 else 0) if n & 8 else p for n, p in zip(nibbles, picked, strict=True)
        ]
        assert result == int.from_bytes(bytes(bytes_), "little")


def test_byte_permutation_by_one_selector() -> None:
    """A uniform selector gives for every lane what the same selector in each lane gives."""
    a, b = words(32, 24), words(32, 25)
    for selector in (0x0000, 0x5140, 0x7654, 0xBA98, 0xFEDC, 0x3F2E):
        one = np.array([selector], np.uint32)
        got = apply("prmt.b32", a, b, one)
        assert (got == apply("prmt.b32", a, b, np.repeat(one, COUNT))).all()


def test_permutation_modes() -> None:
    """The prmt modes give the rows of the manual's table."""
    a, b = np.array([0x03020100], np.uint32), np.array([0x07060504], np.uint32)
    rows = {
        "f4e": (0x03020100, 0x04030201, 0x05040302, 0x06050403),
        "b4e": (0x05060700, 0x06070001, 0x07000102, 0x00010203),
        "rc8": (0x00000000, 0x01010101, 0x02020202, 0x03030303),
        "ecl": (0x03020100, 0x03020101, 0x03020202, 0x03030303),
        "ecr": (0x00000000, 0x01010100, 0x02020100, 0x03020100),
        "rc16": (0x01000100, 0x03020302, 0x01000100, 0x03020302),
    }
    for mode, row in rows.items():
        selectors = np.arange(4, dtype=np.uint32)
        assert tuple(apply(f"prmt.b32.{mode}", a, b, selectors).tolist()) == row, mode


def test_nth_set_bit() -> None:
    """`fns` walks from the base to the n-th set bit, backwards for negative n."""
    mask = words(32, 27)
    rng = np.random.default_rng(28)
    base = rng.integers(0, 32, COUNT).astype(np.uint32)
    offset = rng.integers(-6, 7, COUNT).astype(np.int32)
    got = apply("fns.b32", mask, base, offset.view(np.uint32)).tolist()
    lanes = zip(mask.tolist(), base.tolist(), offset.tolist(), got, strict=True)
    for word, start, n, result in lanes:
        path = range(start, 32) if n >= 0 else range(start, -1, -1)
        hits = [at for at in path if word >> at & 1]
        if n == 0:
            want = start if word >> start & 1 else 0xFFFFFFFF
        else:
            want = hits[abs(n) - 1] if len(hits) >= abs(n) else 0xFFFFFFFF
        assert result == want


@pytest.mark.parametrize("mode", ["wrap", "clamp"])
def test_masks_and_extension(mode: str) -> None:
    """`bmsk` and `szext` take counts modulo 32 or clamped to 32."""
    a, b = words(32, 29), words(32, 30)
    lanes = list(zip(a.tolist(), b.tolist(), strict=True))

    def cut(n: int) -> int:
        return n & 31 if mode == "wrap" else min(n, 32)

    want = [((1 << cut(n)) - 1) << cut(x) & 0xFFFFFFFF for x, n in lanes]
    assert apply(f"bmsk.{mode}.b32", a, b).tolist() == want
    low = [x & ((1 << cut(n)) - 1) for x, n in lanes]
    assert apply(f"szext.{mode}.u32", a, b).tolist() == low
    signed = [
        v - (1 << cut(n)) & 0xFFFFFFFF if cut(n) and v >> (cut(n) - 1) else v
        for v, (_, n) in zip(low, lanes, strict=True)
    ]
    assert apply(f"szext.{mode}.s32", a, b).tolist() == signed


@pytest.mark.parametrize("type_", ["u32", "s32", "u64", "s16"])
def test_comparisons(type_: str) -> None:
    """`setp` gives the relation in p and its complement in q, joined with c."""
    a, b = words(width(type_), 31), words(width(type_), 32)
    c = np.random.default_rng(33).random(COUNT) < 0.5
    pairs = [
        (value(x, type_), value(y, type_)) for x, y in zip(a.tolist(), b.tolist(), strict=True)
    ]
    relations: dict[str, Callable[[int, int], bool]] = {
        "eq": lambda x, y: x == y,
        "ne": lambda x, y: x != y,
        "lt": lambda x, y: x < y,
        "le": lambda x, y: x <= y,
        "gt": lambda x, y: x > y,
        "ge": lambda x, y: x >= y,
    }
    for name, relation in relations.items():
        want = np.array([relation(*pair) for pair in pairs])
        p, q = apply_all(f"setp.{name}.{type_}", a, b, outputs=2)
        assert (p == want).all()
        assert (q == ~want).all()
        p, q = apply_all(f"setp.{name}.xor.{type_}", a, b, c, outputs=2)
        assert (p == want ^ c).all()
        assert (q == ~want ^ c).all()


def test_logic_of_predicates_and_words() -> None:
    """and, or, xor and not work on predicates and on words."""
    p, q = np.array([False, False, True, True]), np.array([False, True, False, True])
    assert apply("and.pred", p, q).tolist() == [False, False, False, True]
    assert apply("or.pred", p, q).tolist() == [False, True, True, True]
    assert apply("xor.pred", p, q).tolist() == [False, True, True, False]
    assert apply("not.pred", p).tolist() == [True, True, False, False]
    a = words(64, 34)
    assert apply("not.b64", a).tolist() == [~x & (1 << 64) - 1 for x in a.tolist()]
    assert apply("cnot.b64", a).tolist() == [int(x == 0) for x in a.tolist()]


def test_packed_halves() -> None:
    """add, min and max of u16x2 and s16x2 work on each half."""
    a, b = words(32, 35), words(32, 36)
    for sign, kind in (("u", np.uint16), ("s", np.int16)):
        x, y = a.view(kind), b.view(kind)
        for name, function in (("add", np.add), ("min", np.minimum), ("max", np.maximum)):
            want = function(x, y).view(np.uint32)
            assert (apply(f"{name}.{sign}16x2", a, b) == want).all()
    want = np.maximum(np.minimum(a.view(np.int16), b.view(np.int16)), 0).view(np.uint32)
    assert (apply("min.relu.s16x2", a, b) == want).all()
