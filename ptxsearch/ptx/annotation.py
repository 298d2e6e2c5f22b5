"""Directives that tell about the code without being part of it: places, pragmas, debug data."""

from __future__ import annotations

from collections.abc import Mapping

from ptxsearch.ptx.constant import integer
from ptxsearch.ptx.syntax import Source
from ptxsearch.ptx.tokens import Tokens


def source_place(tokens: Tokens, files: Mapping[int, str]) -> Source:
    """The place that `.loc` names: file, line and column, and perhaps where it was inlined."""
    file = integer(tokens, "a file number")
    line = integer(tokens, "a line number")
    if tokens.next[:1].isdigit():
        integer(tokens, "a column")
    while tokens.accept(","):
        _inlining(tokens)
    return Source(files.get(file, ""), line)


def _inlining(tokens: Tokens) -> None:
    """Pass over `function_name label[+offset]` or `inlined_at file line column`."""
    word = tokens.take()
    if word == "function_name":
        tokens.identifier("a label")
        if tokens.accept("+"):
            integer(tokens, "an offset")
    elif word == "inlined_at":
        for what in ("a file number", "a line number", "a column"):
            integer(tokens, what)
    else:
        tokens.fail(f"expected function_name or inlined_at in .loc, got {word[:40]!r}")


def files_named(tokens: Tokens) -> dict[int, str]:
    """The names `.file` gives to numbers, wherever in the text it does."""
    files: dict[int, str] = {}
    if ".file" in tokens.text:
        for at, text in enumerate(tokens.texts):
            if text == ".file" and tokens.texts[at + 1].isdecimal():
                files[int(tokens.texts[at + 1][:9])] = tokens.texts[at + 2].strip('"')
    return files


def pragma(tokens: Tokens) -> str:
    """The strings of a `.pragma` up to its semicolon, joined by commas."""
    words = [tokens.string("what follows .pragma")]
    while tokens.accept(","):
        words.append(tokens.string("what follows .pragma"))
    tokens.expect(";", ".pragma")
    return ",".join(words)


def skip_section(tokens: Tokens) -> None:
    """Pass over `.section name { ... }`: debug data say nothing about the code."""
    start = tokens.at
    tokens.take()
    tokens.expect("{", "the name of a section")
    depth = 1
    while depth:
        text = tokens.take()
        if not text:
            tokens.fail("a section is never closed; add the missing '}'", start)
        depth += {"{": 1, "}": -1}.get(text, 0)


def skip_file(tokens: Tokens) -> None:
    """Pass over what follows `.file`."""
    integer(tokens, "a file number")
    tokens.string("the name of a .file")
    while tokens.accept(","):
        integer(tokens, "a time or size of a file")
