"""Exact references for instruction semantics, from Python integers and fractions.

Nothing here shares code with the emulator; floats are made of `struct` and rational numbers.
"""

from __future__ import annotations

import math
import struct
from fractions import Fraction
from typing import Any

import numpy as np

from ptxsearch.emulator.arithmetic import Array, Operation, decode
from ptxsearch.ptx.syntax import Instruction, Operand, Register, Vector

PRECISION = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}
LEAST = {"f64": -1022, "f32": -126, "f16": -14, "bf16": -126}
WORD: dict[str, type[np.unsignedinteger[Any]]] = {
    "f64": np.uint64,
    "f32": np.uint32,
    "f16": np.uint16,
    "bf16": np.uint16,
}
NAN = {"f64": 0x7FF8 << 48, "f32": 0x7FFFFFFF, "f16": 0x7FFF, "bf16": 0x7FFF}
CODES = {"f64": "<d", "f32": "<f", "f16": "<e"}


def instruction(mnemonic: str, *operands: Operand) -> Instruction:
    """An instruction without guard from its mnemonic and operands."""
    opcode, *modifiers = mnemonic.split(".")
    return Instruction(opcode, tuple(modifiers), operands, None, 1)


def operation(mnemonic: str, sources: int, outputs: int = 1) -> Operation:
    """The decoded operation with undeclared registers as operands."""
    results = tuple(Register(f"%d{index}") for index in range(outputs))
    first: Operand = results[0] if outputs == 1 else Vector(results)
    rest = tuple(Register(f"%s{index}") for index in range(sources))
    decoded = decode(instruction(mnemonic, first, *rest), {})
    assert isinstance(decoded, Operation), decoded
    return decoded


def apply(mnemonic: str, *arrays: Array, outputs: int = 1) -> Array:
    """The first result of an instruction on stored arrays."""
    return apply_all(mnemonic, *arrays, outputs=outputs)[0]


def apply_all(mnemonic: str, *arrays: Array, outputs: int = 1) -> tuple[Array, ...]:
    """All results of an instruction on stored arrays."""
    with np.errstate(all="ignore"):
        return operation(mnemonic, len(arrays), outputs).run(*arrays)


def number(bits: int, type_: str) -> float:
    """The value of stored bits as a Python float."""
    if type_ == "bf16":
        return float(struct.unpack("<f", struct.pack("<I", bits << 16))[0])
    size = np.dtype(WORD[type_]).itemsize
    return float(struct.unpack(CODES[type_], int(bits).to_bytes(size, "little"))[0])


def stored(value: float, type_: str) -> int:
    """The bits of a value that the type holds exactly."""
    if math.isnan(value):
        return NAN[type_]
    if type_ == "bf16":
        return int(struct.unpack("<I", struct.pack("<f", value))[0]) >> 16
    return int.from_bytes(struct.pack(CODES[type_], value), "little")


def rounded(exact: Fraction, type_: str, mode: str) -> float:
    """A rational number that is not zero rounded to a type."""
    precision, least = PRECISION[type_], LEAST[type_]
    size = abs(exact)
    exponent = least
    while size >= Fraction(2) ** (exponent + 1):
        exponent += max(1, _magnitude(size) - exponent - 1)
    unit = Fraction(2) ** (exponent - precision + 1)
    count, rest = divmod(size, unit)
    up = {
        "rn": rest > unit / 2 or (rest == unit / 2 and count % 2 == 1),
        "rz": False,
        "rm": exact < 0 and rest > 0,
        "rp": exact > 0 and rest > 0,
    }[mode]
    result = (count + up) * unit
    limit = (2 - Fraction(2) ** (1 - precision)) * Fraction(2) ** (1 - least)
    if result > limit:
        stays = mode == "rz" or ((mode == "rm") == (exact > 0) and mode != "rn")
        size_float = float(limit) if stays else math.inf
    else:
        size_float = float(result)
    return -size_float if exact < 0 else size_float


def _magnitude(size: Fraction) -> int:
    return size.numerator.bit_length() - size.denominator.bit_length()


def fused(a: float, b: float, c: float, *, type_: str, mode: str) -> float:
    """`a * b + c` with one rounding, infinities and the sign of zero as IEEE 754 has them."""
    if not all(map(math.isfinite, (a, b, c))):
        if math.isfinite(a) and math.isfinite(b) and not math.isnan(c):
            return c
        if math.isnan(a) or math.isnan(b) or math.isnan(c) or a == 0 or b == 0:
            return math.nan
        product = math.copysign(math.inf, math.copysign(1, a) * math.copysign(1, b))
        return product + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact:
        return rounded(exact, type_, mode)
    product_sign = math.copysign(1, a) * math.copysign(1, b)
    if (a and b) or product_sign != math.copysign(1, c):
        return -0.0 if mode == "rm" else 0.0
    return math.copysign(0.0, c)


def samples(type_: str, count: int, seed: int) -> Array:
    """Stored bits of a floating type: any bits, small integers, specials, subnormals, ties."""
    rng = np.random.default_rng(seed)
    kind = WORD[type_]
    width = 8 * np.dtype(kind).itemsize
    explicit = PRECISION[type_] - 1
    anything = rng.integers(0, 1 << width, count, dtype=np.uint64)
    one = stored(1.0, type_)
    near = one + (rng.integers(-6, 7, count) << explicit) + rng.integers(-2, 3, count)
    near = near.astype(np.uint64) | (rng.integers(0, 2, count, dtype=np.uint64) << (width - 1))
    tiny = rng.integers(0, 8 << explicit, count, dtype=np.uint64)
    tiny |= rng.integers(0, 2, count, dtype=np.uint64) << np.uint64(width - 1)
    infinity = ((1 << (width - 1 - explicit)) - 1) << explicit
    values = [0, 1 << (width - 1), infinity, infinity | 1 << (width - 1), infinity + 1]
    values += [infinity - 1, 1, (1 << explicit) - 1, 1 << explicit, one]
    special = rng.choice(np.array(values, np.uint64), count)
    choice = rng.integers(0, 8, count)
    picked = np.choose(np.minimum(choice, 4), [special, tiny, anything, near, near])
    return picked.astype(kind)
