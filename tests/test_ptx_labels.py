"""Sanitising labels: only labels with a leading dot change, and the result is stable."""

from __future__ import annotations

import pytest

from ptxsearch.ptx import Module, SyntaxFault, parse, sanitise
from tests.ptx_corpus import CASES, entry, source

DOTTED = entry(
    ".reg .b32 %r<4>; .reg .b64 %rd<2>; .reg .pred %p;\n"
    ".LBB0_1: ld.global.L1::evict_last.L2::128B.u32 %r1, [%rd1]; // .LBB0_1 stays here\n"
    "@%p bra .LBB0_1;\nbra.uni .L1;\n.L1: ret; /* .L1: */"
)


def test_dotted_labels_are_renamed_at_definition_and_use() -> None:
    """A module that is refused for its dotted labels parses afterwards, branches intact."""
    assert isinstance(parse(DOTTED), SyntaxFault)
    function = parse(sanitise(DOTTED))
    assert isinstance(function, Module)
    assert dict(function.functions["k"].labels) == {"$LBB0_1": 0, "$L1": 3}


def test_qualifiers_and_comments_stay() -> None:
    """`.L1::evict_last`, comments and everything but the labels keep their text."""
    clean = sanitise(DOTTED)
    assert "ld.global.L1::evict_last.L2::128B.u32" in clean
    assert "// .LBB0_1 stays here" in clean
    assert "/* .L1: */" in clean
    assert clean.replace("$LBB0_1", ".LBB0_1").replace("$L1", ".L1") == DOTTED


def test_new_names_avoid_every_word() -> None:
    """A label whose plain new name is taken gets another one."""
    text = entry("$L_3: .L_3: bra .L_3; bra $L_3;")
    clean = parse(sanitise(text))
    assert isinstance(clean, Module)
    first, second = clean.functions["k"].instructions
    assert first.operands != second.operands


def test_sanitising_twice_changes_nothing_more() -> None:
    """The function is idempotent."""
    assert sanitise(sanitise(DOTTED)) == sanitise(DOTTED)


@pytest.mark.parametrize("name", CASES)
def test_clean_modules_stay_as_they_are(name: str) -> None:
    """Text without dotted labels is given back byte for byte."""
    assert sanitise(source(name)) == source(name)
