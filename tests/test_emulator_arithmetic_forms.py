"""The forms the emulator knows against those the assembler accepts, and their expansions."""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Callable, Iterator

import pytest

from ptxsearch.emulator.arithmetic import Operation, decode
from ptxsearch.emulator.operation import WIDTHS
from ptxsearch.ptx.syntax import Instruction, Register
from ptxsearch.toolchain.find import machine_toolchain
from tests.arithmetic_oracle import operation
from tests.cubins import assembled

PREFIX = {1: "%p", 8: "%h", 16: "%h", 32: "%r", 64: "%d"}
DECLARED = {"%p": "pred", "%h": "b16", "%r": "b32", "%d": "b64"}
HEADER = (
    ".version 9.0\n.target {arch}\n.address_size 64\n.visible .entry k() {{\n"
    ".reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %d<9>;\n"
)
Form = tuple[str, tuple[str, ...]]
FLAGS = ("rn", "rz", "ftz", "sat", "relu", "NaN", "approx", "full", "wide", "hi", "lo")
TYPES = (
    "u16",
    "s32",
    "u64",
    "b32",
    "b64",
    "pred",
    "f16",
    "f16x2",
    "bf16",
    "bf16x2",
    "f32",
    "f64",
    "u16x2",
    "s16x2",
)
SOURCES = {
    **dict.fromkeys(
        [
            "abs",
            "neg",
            "not",
            "cnot",
            "rcp",
            "sqrt",
            "rsqrt",
            "sin",
            "cos",
            "lg2",
            "ex2",
            "tanh",
            "brev",
        ],
        1,
    ),
    **dict.fromkeys(
        ["add", "sub", "mul", "min", "max", "div", "rem", "mul24", "and", "or", "xor", "copysign"],
        2,
    ),
    **dict.fromkeys(["fma", "mad", "sad", "mad24"], 3),
}
UNKNOWN = {"rcp.rn.ftz.f64", "rcp.rz.ftz.f64"}
"""Undocumented forms, which stay unsupported; so do the roundings of fma.bf16 but .rn."""


def name(type_: str, index: int) -> str:
    """A register that holds the type."""
    return f"{PREFIX[WIDTHS[type_]]}{index}"


def arithmetic() -> Iterator[Form]:
    """Mnemonics with up to two modifiers, each with registers of its types."""
    for (opcode, count), type_ in itertools.product(SOURCES.items(), TYPES):
        for size in range(3):
            for flags in itertools.combinations(FLAGS, size):
                registers = [name(type_, index) for index in range(count + 1)]
                if "wide" in flags and WIDTHS[type_] in (16, 32):
                    wide = PREFIX[2 * WIDTHS[type_]]
                    registers[0] = f"{wide}0"
                    if opcode == "mad":
                        registers[3] = f"{wide}3"
                yield ".".join((opcode, *flags, type_)), tuple(registers)


def conversions() -> Iterator[Form]:
    """Cvt between all types of one value, with every rounding and the common modifiers."""
    types = ["u8", "s8", "u16", "s32", "u64", "f16", "bf16", "f32", "f64"]
    roundings = ("", "rni", "rzi", "rn", "rna", "rz", "rp")
    extras = ("", "ftz", "sat", "ftz.sat", "relu", "satfinite", "satfinite.relu")
    for result, source in itertools.product(types, repeat=2):
        for rounding, extra in itertools.product(roundings, extras):
            words = ["cvt", *rounding.split(), *extra.split("."), result, source]
            mnemonic = ".".join(word for word in words if word)
            yield mnemonic, (name(result, 0), name(source, 1))


def comparisons() -> Iterator[Form]:
    """Setp and set of every relation and type."""
    relations = ["eq", "ne", "lt", "ge", "lo", "hs", "equ", "neu", "ltu", "num", "nan"]
    for relation, type_ in itertools.product(relations, TYPES):
        for join in ("", "and", "xor"):
            sources = [name(type_, 1), name(type_, 2), *(["%p3"] if join else [])]
            words = [relation, *join.split()]
            yield ".".join(("setp", *words, type_)), ("%p0", *sources)
            for result in ("u32", "f32", "f16"):
                yield ".".join(("set", *words, result, type_)), (name(result, 0), *sources)


def accepted(forms: list[Form], arch: str) -> list[bool]:
    """Which of the forms ptxas accepts."""
    ptxas = machine_toolchain().ptxas
    if ptxas is None:
        pytest.skip("no ptxas on this machine")
    lines = [f"{mnemonic} {', '.join(registers)};" for mnemonic, registers in forms]
    verdicts: list[bool] = []
    for start in range(0, len(lines), 2000):
        part = lines[start : start + 2000]
        text = HEADER.format(arch=arch) + "\n".join(part) + "\nret;\n}\n"
        command = [str(ptxas), f"-arch={arch}", "-", "-o", "/dev/null"]
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=60, check=False
        )
        wrong = {int(line) for line in re.findall(r"line (\d+);", done.stdout + done.stderr)}
        assert wrong or done.returncode == 0, done.stderr
        verdicts += [index + 6 not in wrong for index in range(len(part))]
    return verdicts


@pytest.mark.parametrize("family", [arithmetic, conversions, comparisons])
def test_every_accepted_form_is_known(family: Callable[[], Iterator[Form]]) -> None:
    """What ptxas accepts for sm_90 decodes to an operation, bar undocumented forms."""
    forms = list(family())
    verdicts = accepted(forms, "sm_90")
    assert sum(verdicts) > 50
    registers = {f"{prefix}{i}": type_ for prefix, type_ in DECLARED.items() for i in range(9)}
    for (mnemonic, names), good in zip(forms, verdicts, strict=True):
        opcode, *modifiers = mnemonic.split(".")
        operands = tuple(Register(each) for each in names)
        decoded = decode(Instruction(opcode, tuple(modifiers), operands, None, 1), registers)
        unknown = mnemonic in UNKNOWN or mnemonic.startswith(("fma.rz.bf16", "fma.rz.relu.bf16"))
        if good and not unknown:
            assert isinstance(decoded, Operation), (mnemonic, decoded)


EXPANDED = [
    "div.rn.f32",
    "div.full.f32",
    "div.approx.f32",
    "div.approx.ftz.f32",
    "rcp.rn.f32",
    "rcp.approx.f32",
    "rcp.approx.ftz.f32",
    "sqrt.rn.f32",
    "sqrt.approx.ftz.f32",
    "rsqrt.approx.f32",
    "ex2.approx.f32",
    "lg2.approx.f32",
    "sin.approx.f32",
    "cos.approx.ftz.f32",
    "tanh.approx.f32",
    "div.rn.f64",
    "rcp.rn.f64",
    "sqrt.rn.f64",
    "rsqrt.approx.f64",
    "fma.rn.f32",
    "add.f32",
    "mul.f64",
]
OPERATIONS = {
    "FADD": "fp32_add", "FMUL": "fp32_mul", "FFMA": "fp32_fma",
    "DADD": "fp64_add", "DMUL": "fp64_mul", "DFMA": "fp64_fma",
}  # fmt: skip


def sources(mnemonic: str) -> int:
    """How many sources an expanded form takes."""
    return {"div": 2, "add": 2, "mul": 2, "fma": 3}.get(mnemonic.split(".")[0], 1)


def entry(index: int, mnemonic: str) -> str:
    """A kernel that loads the sources of a form, executes it and stores the result."""
    type_ = mnemonic.rpartition(".")[2]
    size, count = WIDTHS[type_] // 8, sources(mnemonic)
    loads = "\n".join(f"ld.global.{type_} %x{i}, [%d1+{i * size}];" for i in range(1, count + 1))
    operands = ", ".join(f"%x{i}" for i in range(count + 1))
    return (
        f".visible .entry k{index}(.param .u64 o) {{\n.reg .b64 %d<2>; .reg .{type_} %x<4>;\n"
        f"ld.param.u64 %d1, [o];\n{loads}\n{mnemonic} {operands};\n"
        f"st.global.{type_} [%d1], %x0;\nret;\n}}\n"
    )


@pytest.fixture(scope="module")
def listings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The machine code of each expanded form up to its exit."""
    text = ".version 9.0\n.target sm_90\n.address_size 64\n" + "".join(
        entry(index, mnemonic) for index, mnemonic in enumerate(EXPANDED)
    )
    path = tmp_path_factory.mktemp("forms") / "k.cubin"
    path.write_bytes(assembled(text))
    disassembler = machine_toolchain().require_ptxas().with_name("nvdisasm")
    if not disassembler.exists():
        pytest.skip("no nvdisasm on this machine")
    command = [str(disassembler), "-c", str(path)]
    listing = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    bodies = {}
    for index, mnemonic in enumerate(EXPANDED):
        found = re.search(rf"^\.text\.k{index}:$(.*?)EXIT", listing, re.MULTILINE | re.DOTALL)
        assert found
        bodies[mnemonic] = found.group(1)
    return bodies


@pytest.mark.parametrize("mnemonic", EXPANDED)
def test_counts_are_those_of_the_machine_code(mnemonic: str, listings: dict[str, str]) -> None:
    """The counted operations are the unpredicated ones that ptxas emits before the exit."""
    found: dict[str, int] = {}
    for opcode in re.findall(r"\*/\s+([A-Z]{4})[.\s]", listings[mnemonic]):
        if opcode in OPERATIONS:
            kind = OPERATIONS[opcode]
            found[kind] = found.get(kind, 0) + 1
    assert dict(operation(mnemonic, sources(mnemonic)).flops) == found
