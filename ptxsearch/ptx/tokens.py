"""Tokens of a PTX text and the cursor that walks over them.

A mnemonic with its modifiers (`ld.global.nc.f32`), a register with its component (`%tid.x`)
and a directive with its dot (`.reg`) are one token each; comments and blanks are none.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from typing import NoReturn

from ptxsearch.ptx import limits
from ptxsearch.ptx.syntax import SyntaxFault

END = ""

_TOKEN = re.compile(
    r"""(?:\s++ | //[^\n]*+ | /\*.*?\*/ | @@[^\n]*+)*+
    ( [A-Za-z_$%][\w$]*+ (?:\.[\w$]++ (?:::[\w$]++)*+)*+
    | \.[A-Za-z_$][\w$]*+ (?:::[\w$]++)*+
    | 0[xXfFdD]\w*+ | \d++(?:\.\d*+)?+(?:[eE][+-]?\d++)?+\w*+ | \.\d++(?:[eE][+-]?\d++)?+
    | "(?:[^"\\\n]|\\[^\n])*+"?+ | /\*.*+
    | << | >> | == | != | <= | >= | && | \|\| | :: | [^\s] | \Z
    )""",
    re.VERBOSE | re.ASCII | re.DOTALL,
)
_IDENTIFIER = re.compile(r"[A-Za-z][\w$]*|[_$%][\w$]+", re.ASCII)
_EXCERPT = 160
_CANDIDATES = 400


class Halt(Exception):
    """Ends a parse; `parse` turns it into the SyntaxFault it carries."""

    def __init__(self, fault: SyntaxFault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class Tokens:
    """The tokens of `text` and a position among them; two END tokens close the list."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.texts: list[str] = []
        self.starts: list[int] = []
        for match in _TOKEN.finditer(text):
            self.texts.append(match[1])
            self.starts.append(match.start(1))
        self.texts += [END, END]
        self.starts += [len(text), len(text)]
        self.at = 0
        self._words: frozenset[str] | None = None
        self._newlines = [match.start() for match in re.finditer("\n", text)]

    def line(self, at: int | None = None) -> int:
        """The line, from 1, of the token at an index, by default of the next one."""
        return bisect_right(self._newlines, self.starts[self.at if at is None else at] - 1) + 1

    @property
    def words(self) -> frozenset[str]:
        """Every distinct token, computed when first asked for."""
        if self._words is None:
            self._words = frozenset(self.texts)
        return self._words

    @property
    def next(self) -> str:
        """The next token, which stays where it is."""
        return self.texts[self.at]

    def take(self) -> str:
        """The next token; the cursor moves past it, but never past the end."""
        text = self.texts[self.at]
        if text:
            self.at += 1
        return text

    def accept(self, text: str) -> bool:
        """Whether the next token is `text`; if so the cursor moves past it."""
        if self.texts[self.at] != text:
            return False
        self.at += 1
        return True

    def expect(self, text: str, after: str) -> None:
        """Move past `text`, which must be the next token after what `after` names."""
        if self.texts[self.at] == text:
            self.at += 1
            return
        if text in (";", ",") and self.at and self.line() > self.line(self.at - 1):
            self.fail(f"missing '{text}' at the end of {after}", self.at - 1)
        self.fail(f"expected '{text}' after {after}, got {self.shown()}")

    def identifier(self, what: str) -> str:
        """The next token, which must be an identifier that names `what`."""
        text = self.texts[self.at]
        if _IDENTIFIER.fullmatch(text) is None:
            self.fail(f"expected the name of {what}, got {self.shown()}")
        if len(text) > limits.IDENTIFIER:
            self.fail(
                f"the name of {what} has {len(text)} characters; at most {limits.IDENTIFIER} "
                "are allowed, use a shorter one"
            )
        self.at += 1
        return text

    def string(self, what: str) -> str:
        """The contents of the string at the cursor, which gives `what`; it moves past it."""
        text = self.texts[self.at]
        if text[:1] != '"':
            self.fail(f"{what} is a string in double quotes, got {self.shown()}")
        if len(text) < 2 or text[-1] != '"':
            self.fail("a string is never closed; add the missing '\"'")
        self.at += 1
        return text[1:-1]

    def shown(self, at: int | None = None) -> str:
        """A token as a message shows it."""
        text = self.texts[self.at if at is None else at]
        if text == END:
            return "the end of the text"
        if text.startswith("/*"):
            return "a comment '/*' that is never closed"
        return repr(text if len(text) <= 60 else text[:60] + "...")

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        """End the parse with a fault at the token with index `at`, by default the next one."""
        start = self.starts[self.at if at is None else at]
        raise Halt(fault_at(self.text, start, message))


def fault_at(text: str, start: int, message: str) -> SyntaxFault:
    """The fault `message` at a character offset of `text`."""
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", line_start, line_start + 100_000)
    line = text[line_start : line_end if line_end >= 0 else line_start + 100_000]
    return SyntaxFault(
        message=message,
        line=text.count("\n", 0, start) + 1,
        column=start - line_start + 1,
        excerpt=line.strip()[:_EXCERPT],
    )


def suggestion(name: str, candidates: Iterable[str]) -> str:
    """`; did you mean ...?` with the names closest to `name`, or nothing."""
    names = [text[:80] for text in islice(candidates, _CANDIDATES)]
    close = get_close_matches(name[:80], names, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(repr(text) for text in close)}?" if close else ""
