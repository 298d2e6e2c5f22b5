"""Normalised text: equal under rewrites that keep the machine code, different otherwise."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest

from ptxsearch.identity import code_identity
from ptxsearch.ptx import normalise
from tests.cubins import assembled
from tests.ptx_corpus import CASES, HEAD, entry, module, source
from tests.ptx_rewrite import REWRITES


@pytest.mark.parametrize("rewrite", REWRITES, ids=lambda rewrite: rewrite.__name__)
def test_rewrites_of_every_corpus_kernel_have_one_text(rewrite: Callable[[str], str]) -> None:
    """Other names, layout, order, line information or dead code leave the text as it is."""
    changed = 0
    for name in CASES:
        text = source(name)
        rewritten = rewrite(text)
        changed += rewritten != text
        assert normalise(module(rewritten)) == normalise(module(text)), name
    assert changed > 60


def test_normalised_text_is_its_own_normal_form() -> None:
    """The text parses, and normalising it again changes nothing."""
    for name in CASES:
        text = normalise(module(source(name)))
        assert normalise(module(text)) == text, name


def test_order_of_functions_does_not_matter() -> None:
    """Two functions and two entries in another order give the same text."""
    first = ".func one() { .reg .b32 a; mov.b32 a, %tid.x; st.shared.u32 [a], a; ret; }\n"
    second = ".func two() { bar.sync 0; ret; }\n"
    entries = [f".entry {name}() {{ call one; call two; {op}; ret; }}\n" for name, op in
               (("a", "bar.sync 1"), ("b", "bar.sync 2"))]  # fmt: skip
    forward = HEAD + first + second + entries[0] + entries[1]
    backward = HEAD + second + first + entries[1] + entries[0]
    assert normalise(module(forward)) == normalise(module(backward))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("add.u32 %r1, %r2, 4;", "add.u32 %r1, %r2, 5;"),
        ("add.u32 %r1, %r2, 4;", "sub.u32 %r1, %r2, 4;"),
        ("shr.u32 %r1, %r2, 4;", "shr.s32 %r1, %r2, 4;"),
        ("sub.u32 %r1, %r2, %r3;", "sub.u32 %r1, %r3, %r2;"),
        ("ld.global.u32 %r1, [%rd1];", "ld.global.u32 %r1, [%rd1+4];"),
        ("ld.global.u32 %r1, [%rd1];", "ld.global.nc.u32 %r1, [%rd1];"),
        ("@%p1 add.u32 %r1, %r2, 1;", "@!%p1 add.u32 %r1, %r2, 1;"),
        ("mov.u32 %r1, %tid.x;", "mov.u32 %r1, %tid.y;"),
        ("mov.u32 %r1, s;", "mov.u32 %r1, s+4;"),
    ],
)
def test_every_live_detail_matters(old: str, new: str) -> None:
    """Another constant, opcode, type, operand order, offset, guard or register is another text."""
    frame = (
        ".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<3>; .shared .align 16 .b8 s[64];\n"
        "mov.u32 %r2, %ctaid.x; mov.u32 %r3, %laneid; mov.u64 %rd1, %clock64;\n"
        "setp.eq.u32 %p1, %r2, %r3; mov.u32 %r1, 9;\n{}\nst.global.u32 [%rd1], %r1;\nret;"
    )
    first, second = (normalise(module(entry(frame.format(text)))) for text in (old, new))
    assert first != second


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (".maxntid 64", ".maxntid 128"),
        ("s[64]", "s[128]"),
        (".align 16", ".align 32"),
        (".target sm_90", ".target sm_80"),
        ("{1, 2}", "{1, 3}"),
        (".param .u32 n", ".param .u64 n"),
        ('.pragma "nounroll";', ""),
    ],
)
def test_every_declared_fact_matters(old: str, new: str) -> None:
    """Directives, sizes, alignment, target, table contents, parameters and pragmas matter."""
    body = (
        ".reg .b32 a, b; .shared .align 16 .b8 s[64]; mov.u32 a, s; ld.global.u32 b, [table];\n"
        'L: .pragma "nounroll"; st.shared.u32 [a], b; bra L;'
    )
    text = entry(body, ".param .u32 n", ".maxntid 64")
    text = text.replace(HEAD, HEAD + ".global .u32 table[2] = {1, 2};\n")
    assert old in text
    assert normalise(module(text)) != normalise(module(text.replace(old, new)))


def mutants(text: str, count: int) -> list[str]:
    """Versions of a kernel with one number or opcode changed."""
    rng = random.Random(count)
    places = list(re.finditer(r"\b(?:add|sub|min|max|and|or)\.[su]?[b]?\d+|(?<=, )\d+(?=;)", text))
    found = []
    for match in rng.sample(places, min(count, len(places))):
        word = match[0]
        swap = {"add": "sub", "sub": "add", "min": "max", "max": "min", "and": "or", "or": "and"}
        base, _, rest = word.partition(".")
        other = f"{swap[base]}.{rest}" if rest else str(int(word) ^ 1)
        found.append(text[: match.start()] + other + text[match.end() :])
    return found


@pytest.mark.parametrize("name", ["bit_tricks", "hist_shared", "matmul_tiled", "scan_blelloch"])
def test_different_machine_code_has_different_text(name: str) -> None:
    """Where ptxas makes other code of a one-word change, the normalised text differs too."""
    text = source(name)
    name = CASES[name]["entry"]
    original = code_identity(assembled(text), name)
    differing = 0
    for mutant in mutants(text, 8):
        if code_identity(assembled(mutant), name) != original:
            differing += 1
            assert normalise(module(mutant)) != normalise(module(text))
    assert differing >= 4
