"""The emulator's arithmetic against outputs recorded on an H200."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ptxsearch.emulator.arithmetic import Array, Operation, decode
from ptxsearch.ptx.syntax import Instruction, Register
from tests.arithmetic_oracle import apply

RECORDED = Path(__file__).parent / "data" / "emulator_arithmetic" / "h200.npz"


@pytest.fixture(scope="module")
def h200() -> dict[str, Array]:
    """Inputs and recorded outputs as stored bits, flattened."""
    with np.load(RECORDED) as arrays:
        return {
            name: arrays[name].reshape(-1).view(f"u{arrays[name].dtype.itemsize}")
            for name in arrays.files
        }


def same(got: Array, want: Array) -> None:
    """Fails with the first lanes that differ."""
    bad = np.flatnonzero(got != want)
    assert not len(bad), [(int(i), hex(got[i]), hex(want[i])) for i in bad[:5]]


def test_extremes_of_special_values(h200: dict[str, Array]) -> None:
    """`min` and `max` match the GPU on NaNs, infinities, subnormals and zeros of both signs."""
    a, b = h200["clamp_select.a"], h200["clamp_select.b"]
    same(apply("min.f32", a, b), h200["clamp_select.mn.gpu"])
    same(apply("max.f32", apply("abs.f32", a), b), h200["clamp_select.mx.gpu"])
    flags = h200["clamp_select.flags.gpu"]
    for bit, relation in enumerate(("lt", "eq", "ltu", "neu")):
        recorded = (flags >> np.uint32(bit) & np.uint32(1)).astype(bool)
        same(apply(f"setp.{relation}.f32", a, b), recorded)


@pytest.mark.parametrize(
    ("column", "mnemonic"),
    list(
        enumerate(
            [
                "cvt.rni.s32.f32",
                "cvt.rzi.s32.f32",
                "cvt.rpi.s32.f32",
                "cvt.rmi.s32.f32",
                "cvt.rni.u32.f32",
                "cvt.rni.sat.s8.f32",
                "cvt.rzi.u8.f32",
                "cvt.rmi.sat.s16.f32",
            ]
        )
    ),
)
def test_roundings_to_integers(h200: dict[str, Array], column: int, mnemonic: str) -> None:
    """Conversions of special and ordinary f32 values to integers match the GPU."""
    got = apply(mnemonic, h200["cvt_rounding.x"])
    if got.dtype.itemsize < 4:
        signed = mnemonic.split(".")[-2][0] == "s"
        got = got.view(f"i{got.dtype.itemsize}").astype(np.int32) if signed else got
    same(got.astype(np.uint32), h200["cvt_rounding.o.gpu"][column::8])


@pytest.mark.parametrize(
    ("column", "mnemonic"),
    list(
        enumerate(
            [
                "cvt.rni.f32.f32",
                "cvt.rzi.f32.f32",
                "cvt.rpi.f32.f32",
                "cvt.rmi.f32.f32",
                "cvt.sat.f32.f32",
            ]
        )
    ),
)
def test_roundings_to_whole_floats(h200: dict[str, Array], column: int, mnemonic: str) -> None:
    """Rounding f32 to whole f32 values and saturation match the GPU."""
    same(apply(mnemonic, h200["cvt_rounding.x"]), h200["cvt_rounding.f.gpu"][column::6])


def test_wide_conversions(h200: dict[str, Array]) -> None:
    """Conversions between f64, s64, u64 and f32 match the GPU."""
    x, k = h200["cvt_wide.x"], h200["cvt_wide.k"]
    whole, real, single = (h200[f"cvt_wide.{name}.gpu"] for name in "odf")
    same(apply("cvt.rni.s64.f64", x), whole[0::4])
    scale = np.array([1e17]).view(np.uint64)
    same(apply("cvt.rmi.s64.f64", apply("mul.f64", x, scale)), whole[1::4])
    same(apply("cvt.rz.f64.s64", k), real[0::3])
    same(apply("cvt.rn.f64.u64", k), real[1::3])
    same(apply("cvt.f64.f32", apply("cvt.rn.f32.f64", x)), real[2::3])
    same(apply("cvt.rp.f32.f64", x), single[0::3])
    same(apply("cvt.rm.f32.s64", k), single[1::3])
    same(apply("cvt.rn.f32.u64", k), single[2::3])


def test_half_conversions(h200: dict[str, Array]) -> None:
    """Conversions of f32 to f16 and bf16, one and two at a time, match the GPU."""
    x, out = h200["cvt_f16_bf16.x"], h200["cvt_f16_bf16.o.gpu"]
    same(apply("cvt.rn.f16.f32", x), out[0::5])
    same(apply("cvt.rz.f16.f32", x), out[1::5])
    same(apply("cvt.rn.bf16.f32", x), out[2::5])
    pair = apply("cvt.rn.bf16x2.f32", x, apply("neg.f32", x))
    same((pair >> np.uint32(16)).astype(np.uint16), out[3::5])
    same(pair.astype(np.uint16), out[4::5])
    same(apply("cvt.f32.f16", out[0::5].copy()), h200["cvt_f16_bf16.b.gpu"][0::2])


def video(mnemonic: str, operands: str, *arrays: Array) -> Array:
    """The result of a video instruction on a, b and c with selectors such as `a.b1 b.h0`."""
    opcode, *modifiers = mnemonic.split(".")
    registers = [Register(*word.split(".")) for word in operands.split()]
    decoded = decode(
        Instruction(opcode, tuple(modifiers), (Register("d"), *registers), None, 1), {}
    )
    assert isinstance(decoded, Operation), decoded
    return decoded.run(*arrays[: len(registers)])[0]


@pytest.mark.parametrize(
    ("column", "mnemonic", "operands"),
    [
        (0, "vadd.s32.s32.s32.sat", "a.b1 b.h0"),
        (1, "vabsdiff4.u32.u32.u32.add", "a b c"),
        (2, "vmax.s32.u32.s32", "a.b3 b.h1"),
        (3, "vshl.u32.u32.u32.wrap", "a b.b0"),
        (4, "vmad.s32.s32.s32", "a.b2 b.b1 c"),
        (5, "vset.u32.u32.lt", "a b"),
        (6, "vadd4.u32.u32.u32", "a b c"),
        (7, "vavrg2.s32.s32.s32", "a b c"),
    ],
)
def test_video(h200: dict[str, Array], column: int, mnemonic: str, operands: str) -> None:
    """Scalar and SIMD video instructions match the GPU."""
    sources = h200["ptx_video_simd.pa"], h200["ptx_video_simd.pb"], np.array([0x00010203], "u4")
    got = video(mnemonic, operands, *sources)
    same(np.broadcast_to(got, 32), h200["ptx_video_simd.po.gpu"][column::8])


def test_chain_of_fma64(h200: dict[str, Array]) -> None:
    """A polynomial by fused steps of f64 matches the GPU bit by bit."""
    x = h200["double_horner.x"]
    total = np.array([0.015625]).view(np.uint64)
    for term in (0.125, -0.75, 1.5, -3.0):
        total = apply("fma.rn.f64", x, total, np.array([term]).view(np.uint64))
    scaled = apply("mul.f64", total, np.array([-0.5]).view(np.uint64))
    positive = apply("setp.gt.f64", total, np.zeros(1, np.uint64))
    same(apply("selp.f64", total, scaled, positive), h200["double_horner.y.gpu"])


def test_product_wraps_before_it_widens(h200: dict[str, Array]) -> None:
    """A 32-bit product that overflows wraps and is then extended by its sign."""
    x = h200["large_int_overflow.x"]
    wide = apply("cvt.s64.s32", apply("mul.lo.s32", x, x))
    same(wide, h200["large_int_overflow.y.gpu"])


def single(value: float) -> Array:
    """A uniform f32."""
    return np.array([value], np.float32).view(np.uint32)


def test_approximations_agree_within_their_bounds(h200: dict[str, Array]) -> None:
    """Approximate functions differ from the GPU by no more than both errors allow."""
    x, out = h200["fastmath_mix.x"], h200["fastmath_mix.o.gpu"].view(np.float32).reshape(8, -1)
    size = apply("abs.ftz.f32", x)
    power = apply("mul.ftz.f32", apply("mul.ftz.f32", x, single(0.25)), single(1.44269502))
    results = [
        (apply("ex2.approx.ftz.f32", power), out[0], 2**-21, 0.0),
        (
            apply(
                "mul.ftz.f32",
                apply("lg2.approx.ftz.f32", apply("add.ftz.f32", size, single(0.5))),
                single(0.693147182),
            ),
            out[1],
            2**-21,
            2**-21,
        ),
        (
            apply("rsqrt.approx.ftz.f32", apply("add.ftz.f32", size, single(0.01))),
            out[3],
            2**-21,
            0.0,
        ),
        (
            apply("div.approx.ftz.f32", x, apply("add.ftz.f32", size, single(3.0))),
            out[4],
            2**-21,
            0.0,
        ),
        (apply("sqrt.approx.ftz.f32", size), out[5], 2**-21, 0.0),
        (apply("tanh.approx.f32", x), out[6], 2**-10, 0.0),
    ]
    for got, recorded, relative, absolute in results:
        assert np.allclose(got.view(np.float32), recorded, rtol=relative, atol=absolute)
    sine, cosine = apply("sin.approx.ftz.f32", x), apply("cos.approx.ftz.f32", x)
    both = apply("fma.rn.ftz.f32", cosine, single(2.0), sine).view(np.float32)
    assert np.allclose(both, out[2], rtol=0, atol=2**-17)
    same(apply("mul.ftz.f32", x, single(1e-39)), out[7].view(np.uint32))
