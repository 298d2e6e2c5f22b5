"""Video instructions of the emulator against the manual's description, lane by lane."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ptxsearch.emulator.arithmetic import Array, Invalid, Operation, decode
from ptxsearch.ptx.syntax import Instruction, Register

COUNT = 300


def words(seed: int) -> Array:
    """Random words."""
    return np.random.default_rng(seed).integers(0, 1 << 32, COUNT, dtype=np.uint32)


def run(mnemonic: str, operands: str, *arrays: Array) -> list[int]:
    """The result of an instruction whose operands carry selectors: `d.h1 a.b0 b c`."""
    opcode, *modifiers = mnemonic.split(".")
    registers = tuple(Register(*word.split(".")) for word in operands.split())
    decoded = decode(Instruction(opcode, tuple(modifiers), registers, None, 1), {})
    assert isinstance(decoded, Operation), decoded
    result: list[int] = decoded.run(*arrays)[0].tolist()
    return result


def field(word: int, at: int, bits: int, signed: bool) -> int:
    """Bits of a word as an integer."""
    value = word >> at & ((1 << bits) - 1)
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def clamp(value: int, bits: int, signed: bool) -> int:
    """A value clamped to a type."""
    low = -(1 << (bits - 1)) if signed else 0
    return max(low, min(low + (1 << bits) - 1, value))


FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "vadd": lambda a, b: a + b,
    "vsub": lambda a, b: a - b,
    "vabsdiff": lambda a, b: abs(a - b),
    "vmin": min,
    "vmax": max,
}


@pytest.mark.parametrize("opcode", list(FUNCTIONS))
@pytest.mark.parametrize("sign", ["u", "s"])
def test_scalar(opcode: str, sign: str) -> None:
    """Scalar forms select, saturate, combine with c or merge into it."""
    a, b, c = words(1), words(2), words(3)
    types, signed = ".".join([f"{sign}32"] * 3), sign == "s"
    lanes = list(zip(a.tolist(), b.tolist(), c.tolist(), strict=True))
    raw = [FUNCTIONS[opcode](field(x, 8, 8, signed), field(y, 16, 16, signed)) for x, y, _ in lanes]
    mask = 0xFFFFFFFF
    assert run(f"{opcode}.{types}", "d a.b1 b.h1", a, b) == [v & mask for v in raw]
    total = [v + z & mask for v, (*_, z) in zip(raw, lanes, strict=True)]
    assert run(f"{opcode}.{types}.add", "d a.b1 b.h1 c", a, b, c) == total
    merged = [
        z & 0xFFFF00FF | (clamp(v, 8, signed) & 255) << 8
        for v, (*_, z) in zip(raw, lanes, strict=True)
    ]
    assert run(f"{opcode}.{types}.sat", "d.b1 a.b1 b.h1 c", a, b, c) == merged
    whole = [
        FUNCTIONS[opcode](field(x, 0, 32, signed), field(y, 0, 32, signed)) for x, y, _ in lanes
    ]
    want = [clamp(v, 32, signed) & mask for v in whole]
    assert run(f"{opcode}.{types}.sat", "d a b", a, b) == want


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("opcode", [*FUNCTIONS, "vavrg"])
@pytest.mark.parametrize("sign", ["u", "s"])
def test_lanes(opcode: str, count: int, sign: str) -> None:
    """SIMD forms work on lanes of a and b, under a mask, summed where .add asks for it."""
    a, b, c = words(4), words(5), words(6)
    bits, signed = 32 // count, sign == "s"
    types = ".".join([f"{sign}32"] * 3)

    def function(x: int, y: int) -> int:
        if opcode == "vavrg":
            return (x + y + (x + y >= 0)) >> 1
        return FUNCTIONS[opcode](x, y)

    selector = "h03" if count == 2 else "b0716"
    mask = "h1" if count == 2 else "b31"
    default, picked, summed = [], [], []
    for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True):
        one = [field(x, i * bits, bits, signed) for i in range(count)]
        two = [field(y, i * bits, bits, signed) for i in range(count)]
        pair = one + two
        values = [clamp(function(p, q), bits, signed) for p, q in zip(one, two, strict=True)]
        default.append(sum((v & ((1 << bits) - 1)) << (i * bits) for i, v in enumerate(values)))
        chosen = [pair[int(digit)] for digit in reversed(selector[1:])]
        mixed = [function(p, q) for p, q in zip(chosen, two, strict=True)]
        parts = [z >> (i * bits) & ((1 << bits) - 1) for i in range(count)]
        for i in range(count):
            if str(i) in mask:
                parts[i] = mixed[i] & ((1 << bits) - 1)
        picked.append(sum(part << (i * bits) for i, part in enumerate(parts)))
        plain = [function(p, q) for p, q in zip(one, two, strict=True)]
        summed.append(z + sum(plain) & 0xFFFFFFFF)
    name = f"{opcode}{count}.{types}"
    assert run(f"{name}.sat", "d a b c", a, b, c) == default
    assert run(name, f"d.{mask} a.{selector} b c", a, b, c) == picked
    assert run(f"{name}.add", "d a b c", a, b, c) == summed


@pytest.mark.parametrize("count", [2, 4])
def test_comparisons_of_lanes(count: int) -> None:
    """vset2 and vset4 give 1 in each lane that holds the relation, or their number with .add."""
    a, b, c = words(7), words(8), words(9)
    bits = 32 // count
    masks, numbers = [], []
    for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True):
        hits = [
            field(x, i * bits, bits, True) < field(y, i * bits, bits, False) for i in range(count)
        ]
        masks.append(sum(hit << (i * bits) for i, hit in enumerate(hits)))
        numbers.append(z + sum(hits) & 0xFFFFFFFF)
    assert run(f"vset{count}.s32.u32.lt", "d a b c", a, b, c) == masks
    assert run(f"vset{count}.s32.u32.lt.add", "d a b c", a, b, c) == numbers


def test_shifts() -> None:
    """Vshl and vshr clamp or wrap the amount and take the type of a."""
    a, b = words(10), words(11) & np.uint32(0x3F3F3F3F)
    lanes = list(zip(a.tolist(), (b & np.uint32(63)).tolist(), strict=True))
    left = [(x << min(n, 32)) & 0xFFFFFFFF for x, n in lanes]
    assert run("vshl.u32.u32.u32.clamp", "d a b.b0", a, b) == left
    right = [(field(x, 0, 32, True) >> (n & 31)) & 0xFFFFFFFF for x, n in lanes]
    assert run("vshr.s32.s32.u32.wrap", "d a b.b0", a, b) == right


def test_multiply_add() -> None:
    """Vmad negates, adds one, shifts and saturates beyond 64 bits."""
    a, b, c = words(12), words(13), words(14)
    lanes = list(zip(a.tolist(), b.tolist(), c.tolist(), strict=True))
    mask = 0xFFFFFFFF
    assert run("vmad.u32.u32.u32", "d a b c", a, b, c) == [x * y + z & mask for x, y, z in lanes]
    negated = [clamp(-(x * y) + field(z, 0, 32, True), 32, True) & mask for x, y, z in lanes]
    assert run("vmad.s32.u32.u32.sat", "d a.- b c", a, b, c) == negated
    average = [(x * y + z + 1 >> 7) & mask for x, y, z in lanes]
    assert run("vmad.u32.u32.u32.po.shr7", "d a b c", a, b, c) == average
    signed = [
        (field(x, 0, 8, True) * field(y, 16, 16, True) - field(z, 0, 32, True) >> 15) & mask
        for x, y, z in lanes
    ]
    assert run("vmad.s32.s32.s32.shr15", "d a.b0 b.h1 c.-", a, b, c) == signed


def test_refused() -> None:
    """Accumulation cannot saturate and shifts need a mode for their amount."""
    registers = tuple(Register(name) for name in "dabc")
    for mnemonic in ("vadd4.u32.u32.u32.sat.add", "vshl.u32.u32.u32"):
        opcode, *modifiers = mnemonic.split(".")
        decoded = decode(Instruction(opcode, tuple(modifiers), registers, None, 1), {})
        assert isinstance(decoded, Invalid)
