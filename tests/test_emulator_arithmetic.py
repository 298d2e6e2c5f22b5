"""The contract of decode and encode, moves and comparisons of floats."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from ptxsearch.emulator.arithmetic import (
    RULES,
    Array,
    Invalid,
    Operation,
    Unsupported,
    decode,
    encode,
)
from ptxsearch.emulator.operation import STORAGE, WIDTHS
from ptxsearch.ptx.syntax import Float, Instruction, Integer, Operand, Register, Sink, Vector
from tests.arithmetic_oracle import apply, apply_all, number, operation, samples

REGISTERS = {
    "%p": "pred",
    "%h": "b16",
    "%s": "u16",
    "%r": "b32",
    "%u": "u32",
    "%f": "f32",
    "%d": "b64",
    "%v": "v4.f32",
}


def decoded(mnemonic: str, *operands: Operand) -> Operation | Unsupported | Invalid:
    """The instruction decoded with the declared registers above."""
    opcode, *modifiers = mnemonic.split(".")
    return decode(Instruction(opcode, tuple(modifiers), operands, None, 1), REGISTERS)


def ready(mnemonic: str, *operands: Operand) -> Operation:
    """The same where an operation is expected."""
    result = decoded(mnemonic, *operands)
    assert isinstance(result, Operation), result
    return result


P, H, S, R, U, F, D = (Register(name) for name in list(REGISTERS)[:7])


@pytest.mark.parametrize("mnemonic", ["frob.u32", "fma.rn.oob.f16", "add.rs.f32", "ld.global.u32"])
def test_unknown_instructions_are_named(mnemonic: str) -> None:
    """What the emulator does not know is unsupported under its full mnemonic."""
    assert decoded(mnemonic, R, R, R, R) == Unsupported(mnemonic)


@pytest.mark.parametrize(
    ("mnemonic", "operands"),
    [
        ("add.f32", (F, F, Integer(1))),
        ("add.u32", (R, R, Float(0x3F800000, 32))),
        ("add.f32", (F, F, U)),
        ("add.s32", (R, R, F)),
        ("add.s32", (R, R, D)),
        ("add.s32", (R, R)),
        ("and.b32", (R, R, P)),
        ("cvt.u32.u16", (H, S)),
        ("cvt.s32.f32", (R, F)),
        ("cvt.rn.rz.f32.f64", (F, D)),
        ("fma.f32", (F, F, F, F)),
        ("mul.u32", (R, R, R)),
        ("mov.b32", (R, Vector((R, R)))),
        ("setp.lt.b32", (P, R, R)),
        ("shf.l.b32", (R, R, R, R)),
    ],
)
def test_what_no_assembler_accepts_is_invalid(mnemonic: str, operands: tuple[Operand, ...]) -> None:
    """Operands or modifiers that ptxas refuses give a reason instead of an operation."""
    result = decoded(mnemonic, *operands)
    assert isinstance(result, Invalid)
    assert result.reason


def test_conversion_adapts_to_wider_registers() -> None:
    """Cvt reads the low part of a wider register and extends into one by the sign."""
    signed = ready("cvt.s8.s32", R, R)
    assert signed.destinations == ("b32",)
    words = np.array([0x180, 0x17F], np.uint32)
    assert signed.run(words)[0].tolist() == [0xFFFFFF80, 0x7F]
    assert ready("cvt.u8.u32", R, R).run(words)[0].tolist() == [0x80, 0x7F]
    assert ready("cvt.u32.u8", R, H).run(np.array([0xABCD], np.uint16))[0].tolist() == [0xCD]


def test_uniform_sources_give_uniform_results() -> None:
    """Length 1 in gives length 1 out, and length 1 mixes with any other length."""
    one, many = np.array([3], np.uint32), np.arange(5, dtype=np.uint32)
    fma = operation("fma.rn.f32", 3)
    assert fma.run(one, one, one)[0].shape == (1,)
    for sources in ((one, many, one), (many, one, one), (one, one, many)):
        assert fma.run(*sources)[0].shape == (5,)
    assert apply("add.u32", many, one).tolist() == [3, 4, 5, 6, 7]


def test_sources_are_not_written() -> None:
    """No operation changes the arrays it is given."""
    rng = np.random.default_rng(1)
    sources = [rng.integers(0, 1 << 32, 64, dtype=np.uint32) for _ in range(3)]
    kept = [source.copy() for source in sources]
    for mnemonic in ("fma.rn.f32", "fma.rn.ftz.sat.f32", "fma.rn.f16x2", "mad.lo.u32", "prmt.b32"):
        apply(mnemonic, *sources)
    assert all((a == b).all() for a, b in zip(sources, kept, strict=True))


def test_literals_are_stored_as_ptxas_stores_them() -> None:
    """Integers wrap to the width, decimals are rounded, 32-bit literals stay bits in an f64."""
    assert encode(Integer(-1), "u16") == np.uint16(0xFFFF)
    assert encode(Integer(70000), "b16") == np.uint16(70000 & 0xFFFF)
    assert encode(Float(0x3FF199999999999A, 64), "f32") == np.float32(1.1).view(np.uint32)
    assert encode(Float(0x3FF199999999999A, 64), "f64") == np.float64(1.1).view(np.uint64)
    assert encode(Float(0x3F800000, 32), "f64") == np.uint64(0x3F800000)
    assert encode(Integer(1), "pred") == np.bool_(True)
    assert encode(Integer(-2), "s64").dtype == np.uint64


def test_words_are_packed_from_the_lowest_part() -> None:
    """A vector source makes a word and a vector destination takes it apart, sinks included."""
    low, high = np.array([1, 2], np.uint32), np.array([3, 4], np.uint32)
    packed = ready("mov.b64", D, Vector((R, R))).run(low, high)[0]
    assert packed.tolist() == [1 | 3 << 32, 2 | 4 << 32]
    parts = ready("mov.b64", Vector((R, Sink())), D).run(packed)
    assert [part.tolist() for part in parts] == [[1, 2], [3, 4]]
    quarters = ready("mov.b64", Vector((H, H, H, H)), D).run(packed)
    assert [part.tolist() for part in quarters] == [[1, 2], [0, 0], [3, 4], [0, 0]]
    assert ready("mov.f32", F, Register("%v", "y")).run(low)[0].tolist() == [1, 2]


RELATIONS: dict[str, Callable[[float, float], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a < b or a > b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


@pytest.mark.parametrize("type_", ["f16", "bf16", "f32", "f64"])
def test_comparisons_of_floats(type_: str) -> None:
    """Ordered relations are false for NaN, unordered ones true, num and nan tell which."""
    a, b = samples(type_, 700, 1), samples(type_, 700, 2)
    pairs = [
        (number(x, type_), number(y, type_)) for x, y in zip(a.tolist(), b.tolist(), strict=True)
    ]
    nan = np.array([math.isnan(x) or math.isnan(y) for x, y in pairs])
    for name, relation in RELATIONS.items():
        want = np.array([relation(*pair) for pair in pairs])
        assert (apply(f"setp.{name}.{type_}", a, b) == want).all()
        assert (apply(f"setp.{name}u.{type_}", a, b) == (want | nan)).all()
    assert (apply(f"setp.nan.{type_}", a, b) == nan).all()
    assert (apply(f"setp.num.{type_}", a, b) == ~nan).all()


def test_comparison_flushes_where_asked() -> None:
    """.ftz makes subnormal sources equal to zero."""
    tiny, zero = np.array([1], np.uint32), np.array([0], np.uint32)
    assert not apply("setp.eq.f32", tiny, zero)[0]
    assert apply("setp.eq.ftz.f32", tiny, zero)[0]


def test_set_gives_ones_of_its_type() -> None:
    """`set` gives all ones, 1.0 of the result's type, or that in each half."""
    a, b = (np.array([x], np.float32).view(np.uint32) for x in (1.0, 2.0))
    assert apply("set.lt.u32.f32", a, b).tolist() == [0xFFFFFFFF]
    assert apply("set.lt.f32.f32", a, b).tolist() == [0x3F800000]
    assert apply("set.gt.s32.f32", a, b).tolist() == [0]
    halves = np.array([0x3C004000], np.uint32), np.array([0x40003C00], np.uint32)
    assert apply("set.lt.f16x2.f16x2", *halves).tolist() == [0x3C000000]
    assert apply("set.lt.u32.f16x2", *halves).tolist() == [0xFFFF0000]
    low, high = apply_all("setp.lt.f16x2", *halves, outputs=2)
    assert (low.tolist(), high.tolist()) == ([False], [True])


def test_selection() -> None:
    """`selp` follows its predicate and `slct` the sign of its third source."""
    a, b = np.array([1, 2, 3], np.uint32), np.array([4, 5, 6], np.uint32)
    p = np.array([True, False, True])
    assert apply("selp.b32", a, b, p).tolist() == [1, 5, 3]
    assert apply("selp.b32", a[:1], b[:1], p).tolist() == [1, 4, 1]
    c = np.array([0, -1, 7], np.int32).view(np.uint32)
    assert apply("slct.u32.s32", a, b, c).tolist() == [1, 5, 3]
    c = np.array([-0.0, np.nan, -1.0], np.float32).view(np.uint32)
    assert apply("slct.u32.f32", a, b, c).tolist() == [1, 5, 6]


@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_classes(type_: str) -> None:
    """`testp` classifies as the exponent and fraction fields say."""
    a = samples(type_, 700, 3)
    explicit = 23 if type_ == "f32" else 52
    top = (1 << (8 if type_ == "f32" else 11)) - 1
    exponent: Array = (a >> a.dtype.type(explicit)) & a.dtype.type(top)
    fraction: Array = a & a.dtype.type((1 << explicit) - 1)
    classes = {
        "finite": exponent != top,
        "infinite": (exponent == top) & (fraction == 0),
        "number": (exponent != top) | (fraction == 0),
        "notanumber": (exponent == top) & (fraction != 0),
        "normal": (exponent != top) & (exponent != 0),
        "subnormal": (exponent == 0) & (fraction != 0),
    }
    for name, want in classes.items():
        assert (apply(f"testp.{name}.{type_}", a) == want).all(), name


def anything(rng: np.random.Generator) -> Instruction:
    """A known opcode with modifiers and types of its own, on operands of any kind."""
    opcode = rng.choice(sorted(RULES))
    known = RULES[opcode][rng.integers(len(RULES[opcode]))]
    flags = rng.permutation(sorted(known.flags))[: rng.integers(4)].tolist() if known.flags else []
    types = [rng.choice(sorted(known.types))]
    types += rng.choice(sorted(known.others), rng.choice(known.arity) - 1).tolist()
    kinds: list[Operand] = [P, H, R, F, D, Integer(-5), Float(0x3F800000, 32), Sink()]
    free: list[Operand] = [Register(f"%z{index}") for index in range(6)]
    count = int(rng.integers(1, 6))
    operands = (
        free[:count]
        if rng.random() < 0.7
        else [kinds[at] for at in rng.integers(len(kinds), size=count)]
    )
    return Instruction(str(opcode), (*map(str, flags), *map(str, types)), tuple(operands), None, 1)


def test_any_instruction_is_a_value() -> None:
    """Random instructions decode without an exception, and what runs gives arrays as stored."""
    rng = np.random.default_rng(5)
    ran = 0
    for _ in range(8000):
        instruction = anything(rng)
        result = decode(instruction, REGISTERS)
        if not isinstance(result, Operation):
            assert result.reason
            continue
        if "b128" in (*result.sources, *result.destinations):
            continue
        sources = []
        for type_, operand in zip(result.sources, instruction.operands[1:], strict=True):
            held = REGISTERS.get(operand.name, type_) if isinstance(operand, Register) else type_
            width = WIDTHS[held]
            words = rng.integers(0, 1 << min(width, 63), rng.choice([1, 5]), dtype=np.uint64)
            sources.append(words.astype(STORAGE[width]))
        size = max(len(source) for source in sources)
        if result.reads_carry:
            sources.append(np.zeros(size, np.bool_))
        with np.errstate(all="ignore"):
            outcome = result.run(*sources)
        assert len(outcome) == len(result.destinations) + result.writes_carry
        for type_, array in zip(result.destinations, outcome, strict=False):
            assert array.dtype == STORAGE[WIDTHS[type_]], instruction.mnemonic
            assert array.shape in ((1,), (size,)), instruction.mnemonic
        ran += 1
    assert ran > 300
