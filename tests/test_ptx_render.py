"""Rendering: text that parses to the same module, line for line."""

from __future__ import annotations

import pytest

from ptxsearch.ptx import render
from tests.ptx_corpus import CASES, DATA, entry, module, source


@pytest.mark.parametrize("name", CASES)
def test_corpus_kernel_survives_the_round_trip(name: str) -> None:
    """A rendered kernel parses to an equal module, lines and source places included."""
    parsed = module(source(name))
    assert module(render(parsed)) == parsed


def test_every_construct_survives_the_round_trip() -> None:
    """One of each construct, rendered and parsed, is equal."""
    parsed = module((DATA / "constructs.ptx").read_text())
    assert module(render(parsed)) == parsed


def test_instructions_stay_on_their_lines() -> None:
    """An instruction of the rendered text stands on the line its record names."""
    text = entry("\n\n\n.reg .b32 x;\n\n   mov.b32 x, 7;\n\nret;")
    rendered = render(module(text)).split("\n")
    assert "mov.b32 x, 7;" in rendered[text.split("\n").index("   mov.b32 x, 7;")]


def test_text_without_lines_depends_on_no_blank_line() -> None:
    """With `keep_lines` off, two layouts of one module give the same text."""
    compact = entry(".reg .b32 x; mov.b32 x, 7; L: bra L;")
    loose = entry("\n.reg .b32 x;\n\nmov.b32 x, 7;\nL:\n  bra L;\n")
    assert render(module(compact), keep_lines=False) == render(module(loose), keep_lines=False)
