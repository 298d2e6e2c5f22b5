"""Random damage to real modules: the PTX layer answers with values, never with an exception."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

from ptxsearch.ptx import Module, SyntaxFault, parse
from ptxsearch.ptx.render import render
from ptxsearch.ptx.tokens import Tokens
from ptxsearch.ptx.vocabulary import words

DATA = Path(__file__).parent / "data" / "ptx"
WORDS = (
    *words(
        """
        { } ( ) [ ] < > , ; : = + - * / | ! @ _ . .reg .b32 .u64 .pred .v4 .f32 .param .shared
        .local .global .const .align .entry .func .visible .extern .section .loc .file
        .branchtargets .callprototype .calltargets .pragma .ptr .maxntid %r0 %r1 %rd1 %p1 %f1
        %tid.x %r<9> WARP_SZ 0 1 -1 0x 0xFFFFFFFFFFFFFFFF 0f3F800000 0d 08 1e999
        99999999999999999999 0xFF( generic( mov.b32 bra ret call add.s32 ld.global.f32
        st.global.f32 "x" " /* */ // $L1 L1:
        """
    ),
    "\n",
    "\x00",
    "\xe9",
)


def corpus() -> list[str]:
    """Every module kept beside the tests."""
    return [path.read_text() for path in sorted(DATA.rglob("*.ptx"))]


def _flip(text: str, _: Sequence[str], rng: random.Random) -> str:
    at = rng.randrange(len(text))
    return text[:at] + chr(rng.randrange(256)) + text[at + 1 :]


def _truncate(text: str, _: Sequence[str], rng: random.Random) -> str:
    return text[: rng.randrange(1, len(text) + 1)]


def _delete(text: str, _: Sequence[str], rng: random.Random) -> str:
    at = rng.randrange(len(text))
    return text[:at] + text[at + rng.choice((1, 1, 2, 8, 80)) :] or " "


def _insert(text: str, _: Sequence[str], rng: random.Random) -> str:
    tokens = Tokens(text)
    at = tokens.starts[rng.randrange(len(tokens.starts))]
    return f"{text[:at]} {rng.choice(WORDS)} {text[at:]}"


def _replace(text: str, _: Sequence[str], rng: random.Random) -> str:
    tokens = Tokens(text)
    which = rng.randrange(len(tokens.starts))
    at = tokens.starts[which]
    return text[:at] + rng.choice(WORDS) + text[at + len(tokens.texts[which]) :]


def _repeat(text: str, _: Sequence[str], rng: random.Random) -> str:
    at = rng.randrange(len(text))
    end = at + rng.choice((1, 10, 100, 1000))
    return text[:end] + text[at:end] * rng.choice((1, 1, 3, 50)) + text[end:]


def _splice(text: str, texts: Sequence[str], rng: random.Random) -> str:
    other = rng.choice(texts)
    start = rng.randrange(len(other))
    at = rng.randrange(len(text))
    return text[:at] + other[start : start + rng.choice((5, 50, 500))] + text[at:]


MUTATIONS: tuple[Callable[[str, Sequence[str], random.Random], str], ...] = (
    _flip,
    _truncate,
    _delete,
    _insert,
    _insert,
    _replace,
    _replace,
    _repeat,
    _splice,
)


def damaged(texts: Sequence[str], rng: random.Random) -> str:
    """One of the texts after one to four mutations."""
    text = rng.choice(texts)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        text = rng.choice(MUTATIONS)(text, texts, rng) or " "
    return text


def check(text: str) -> bool:
    """Whether the text is a module; a module must survive rendering and parsing."""
    module = parse(text)
    if isinstance(module, SyntaxFault):
        assert module.line >= 1
        assert module.column >= 1
        assert module.message
        return False
    again = parse(render(module))
    assert isinstance(again, Module), f"{again} in the rendering of {text!r}"
    if again != module:
        raise AssertionError(f"another module after a round trip of {text!r}")
    return True


def test_damaged_modules_give_a_module_or_a_fault() -> None:
    """Each damaged text is a fault with a place, or a module that survives a round trip."""
    rng = random.Random(20261130)
    texts = corpus()
    outcomes = [check(damaged(texts, rng)) for _ in range(600)]
    assert 30 < sum(outcomes) < 570
