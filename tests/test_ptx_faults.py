"""Faults of the parser: where they are, what they say, and that no input costs without bound."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ptxsearch.ptx import Module, SyntaxFault, limits, parse
from tests.ptx_corpus import HEAD, entry, source

ROOT = Path(__file__).parent.parent
BODY = HEAD + ".visible .entry k(.param .u64 a)\n{\n.reg .b32 %r<10>; .reg .b64 %rd<4>;\n"


def fault(text: str) -> SyntaxFault:
    """The fault in a text that must have one."""
    parsed = parse(text)
    assert isinstance(parsed, SyntaxFault)
    return parsed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BODY + "add.u32 %r1, %r2, %q1;\n}", ("'%q1' is not declared", "'%r", ".reg")),
        (BODY + "add.u32 %r1, %r2, %r12;\n}", ("%r12", "'%r<10>'", "'%r9'", "13")),
        (BODY + "mov.u32 %r1, %tidx;\n}", ("'%tidx'", "'%tid.x'")),
        (BODY + "LOOP:\nbra LOPP;\n}", ("'LOPP'", "'LOOP'")),
        (BODY + "add.u32 %r1, %r2, 1\nret;\n}", ("missing ';'", "add.u32")),
        (BODY + "add.u32 %r1, %r2;\n}", ("add.u32", "takes 3 operands, got 2")),
        (BODY + "addd.u32 %r1, %r2, 1;\n}", ("'addd.u32'", "'add'")),
        (BODY + ".regs .b32 %x;\n}", ("'.regs'", "'reg'")),
        (BODY + ".L_3:\nret;\n}", ("label", "dot", "'L_3:'")),
        (BODY + "L: ret;\nL: ret;\n}", ("label 'L'", "twice")),
        (BODY + ".reg .b32 x; .reg .b64 x;\n}", ("'x'", "twice")),
        (BODY + "ld.global.u32 %r1, [%rd1+%rd2];\n}", ("one register and a constant",)),
        (BODY + "mov.u32 %r1, [%rd1];\n}", ("ld and st",)),
        (BODY + "ret\n}", ("missing ';'", "'ret'")),
        (BODY + "ld.global.u32 %r1, %rd1;\n}", ("second operand", "ld.global.u32", "[a]")),
        (BODY + "st.global.u32 %rd1, %r1;\n}", ("first operand", "[a]")),
        (BODY + "add.u32 %r1 %r2, 4;\n}", ("',' or ';'", "'%r2'")),
        (BODY + "mov.f32 %r1, 0f3F80;\n}", ("0f", "8 hexadecimal digits")),
        (BODY + "mov.u32 %r1, 089;\n}", ("'089' is no number",)),
        (BODY + "mov.u32 %r1, 5/0;\n}", ("divides by zero",)),
        (BODY + "ret;\n", ("'{' is never closed",)),
        (BODY + "ret;\n}\n}", ("'}'", "too many")),
        (BODY + "/* ret;\n}", ("never closed",)),
        (BODY + "@%p9 ret;\n}", ("'%p9' is not declared",)),
        (BODY + "call foo;\n}", ("'foo'",)),
        (".target sm_90\n", (".version",)),
        (".version 8.0\n.entry k() { ret; }", (".target",)),
        (".version 8.0\n.target sm90\n", ("sm90", "sm_90")),
        (HEAD + "ret;", ("outside a function",)),
        (HEAD + ".gobal .u32 x;", ("'.gobal'", "'global'")),
        (HEAD + ".global .u33 x;", (".u33",)),
        (HEAD + ".global .u32 x[2] = {1, 2, 3};", ("more elements",)),
        (HEAD + ".shared .u32 x = 1;", ("initialiser",)),
        (HEAD + ".global .align 3 .u32 x;", ("power of two", "3")),
        (HEAD + ".entry k() .maxthreads 128 { ret; }", ("'.maxthreads'",)),
        (HEAD + ".entry k() { ret; }\n.entry k() { ret; }", ("'k'", "twice")),
        ("\x00" + HEAD, ("'\\x00'",)),
    ],
)
def test_message_says_what_was_wrong(text: str, words: tuple[str, ...]) -> None:
    """A fault's message names the offending word and what to write instead."""
    message = fault(text).message
    assert all(word in message for word in words), message


def test_place_and_excerpt_of_a_fault() -> None:
    """Line and column point at the offending token and the excerpt shows its line."""
    found = fault(BODY + "ret;\n  add.u32 %r1, %bad, 1;\n}")
    assert (found.line, found.column) == (8, 16)
    assert found.excerpt == "add.u32 %r1, %bad, 1;"
    assert str(found).startswith("line 8, column 16: ")


def test_missing_semicolon_is_reported_on_its_own_line() -> None:
    """The line of a missing semicolon is that of the statement, not of the next one."""
    assert fault(BODY + "add.u32 %r1, %r2, 1\n\n\nret;\n}").line == 7


DAMAGED: dict[str, str | bytes] = {
    "empty": "",
    "nul": "\0",
    "binary": random.Random(1).randbytes(1 << 18),
    "not utf-8": HEAD.encode() + b"\xff",
    "truncated": source("matmul_tiled")[:2000],
    "open braces": BODY + "{" * 100_000,
    "open parentheses": BODY + "mov.b32 %r1, " + "(" * 1_000_000,
    "closed parentheses": BODY + "mov.b32 %r1, " + "(" * 400_000 + "1" + ")" * 400_000 + ";}",
    "signs": BODY + "mov.b32 %r1, " + "-" * 900_000 + "1;}",
    "long identifier": BODY + "mov.b32 %r1, " + "a" * 10_000_000 + ";}",
    "identifier": BODY + "mov.b32 %r1, " + "a" * 900_000 + ";}",
    "mnemonic": BODY + "ld" + ".a" * 400_000 + " %r1;}",
    "long number": BODY + "mov.b32 %r1, " + "9" * 900_000 + ";}",
    "million elements": HEAD + ".global .u32 x[1000000] = {" + "1," * 1_000_000 + "1};",
    "two thousand million registers": BODY + ".reg .b32 %z<2000000000>; ret; }",
    "smallest by minus one": BODY + "mov.b64 %rd1, (-9223372036854775808)/(-1)/0; }",
    "percent n": BODY + 'mov.b32 %r1, "%n%n%s"; }',
    "3000 entries": HEAD + "".join(f".entry k{i}() {{ ret; }}\n" for i in range(3000)),
    "open comments": BODY + "/* " * 300_000,
    "quotes": BODY + '"' * 900_001,
    "escapes": BODY + '.pragma "' + "\\a" * 400_000,
    "escaped quotes": BODY + '"' + '\\"' * 400_000,
    "attribute": HEAD + ".global .attribute(" + ".a" * 300_000,
    "instructions": BODY + "ret;" * 200_000 + "}",
    "zeros": HEAD + "".join(f".global .b8 a{i}[16000000]={{1}};" for i in range(20_000)),
    "dimensions": HEAD + ".shared .b8 x" + "[99999999999]" * 1000 + ";",
    "braces of an initialiser": HEAD + ".global .u32 x" + "[1]" * 16 + " = " + "{" * 400_000,
    "section": HEAD + ".section .debug_info {" + ".b8 1\n" * 100_000,
    "blanks": "\n" * 1_000_000 + "x",
    "surrogate": BODY + "// \ud800\n ret;}",
    "digit that is none": BODY + "mov.b32 %r1, \u00b2;}",
    "many undeclared": BODY + "".join(f"add.u32 %q{i},1,1;" for i in range(20_000)),
    "far label": BODY + "{" * 200 + "bra X;" * 40_000 + "}" * 200 + "ret;}",
}

LARGE: dict[str, str | bytes] = {
    "elements": HEAD + ".global .u32 x[1000000] = {" + "1," * 400_000 + "1};\n",
    "labels": BODY + "".join(f"L{i}: bra L{i};\n" for i in range(40_000)) + "}",
    "scopes": BODY + "".join("{.reg .b32 a; mov.b32 a,1;}" for _ in range(30_000)) + "}",
    "vector": BODY + "mov.b32 {" + "%r1," * 200_000 + "%r1}, 5;}",
    "parameters": HEAD
    + f".entry k({','.join(f'.param .u32 p{i}' for i in range(40_000))}){{ret;}}",
    "targets": BODY + "T: .branchtargets " + "L," * 300_000 + "L; L: ret;}",
    "renamed targets": BODY + "L: { T: .branchtargets " + "L," * 200_000 + "L; L: ret;}}",
    "renamed vector": BODY + "L: { mov.b32 {" + "L," * 200_000 + "L}, 5; L: ret;}}",
    "shadowed names": HEAD
    + "".join(
        f".func f{i}() {{.reg .b32 a; {{.reg .b32 a; mov.b32 a, 1;}} ret;}}\n" for i in range(990)
    ),
    "terabyte": HEAD + ".shared .b8 x[1000000000000];",
    "at signs": HEAD + "@" * 900_000,
}


def spent(text: str | bytes) -> tuple[Module | SyntaxFault, float]:
    """What the parser gives and the CPU seconds it took."""
    start = time.process_time()
    parsed = parse(text)
    return parsed, time.process_time() - start


@pytest.mark.parametrize("name", DAMAGED)
def test_malformed_text_is_a_fault_within_bounds(name: str) -> None:
    """Each kind of malformed text gives a short fault in under three seconds."""
    parsed, seconds = spent(DAMAGED[name])
    assert isinstance(parsed, SyntaxFault)
    assert len(str(parsed)) + len(parsed.excerpt) < 700
    assert seconds < 3


@pytest.mark.slow
def test_no_malformed_text_takes_a_gigabyte() -> None:
    """A process that may use one gigabyte of address space parses every damaged text."""
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "from ptxsearch.ptx import parse\n"
        "from tests.test_ptx_faults import DAMAGED\n"
        "for text in DAMAGED.values(): parse(text)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, cwd=ROOT)


@pytest.mark.parametrize("name", LARGE)
def test_large_text_is_parsed_within_bounds(name: str) -> None:
    """Large but well-formed modules parse in time that grows with their size alone."""
    parsed, seconds = spent(LARGE[name])
    assert isinstance(parsed, Module), str(parsed)
    assert seconds < 3


def test_limits_are_those_declared() -> None:
    """One byte or one instruction above the declared limits is a fault that names the limit."""
    padding = limits.SOURCE_BYTES - len(entry("ret;"))
    assert isinstance(parse(entry("ret;") + " " * padding), Module)
    assert str(limits.SOURCE_BYTES) in fault(entry("ret;") + " " * (padding + 1)).message
    assert isinstance(parse(entry("ret;" * limits.INSTRUCTIONS)), Module)
    assert str(limits.INSTRUCTIONS) in fault(entry("ret;" * (limits.INSTRUCTIONS + 1))).message
