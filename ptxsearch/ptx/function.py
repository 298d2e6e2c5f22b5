"""The header of a function: what stands ahead of its body."""

from __future__ import annotations

from ptxsearch.ptx.annotation import pragma
from ptxsearch.ptx.body import Body
from ptxsearch.ptx.constant import integer
from ptxsearch.ptx.declaration import attribute, formals
from ptxsearch.ptx.scope import Scopes
from ptxsearch.ptx.syntax import Function, Variable
from ptxsearch.ptx.tokens import Tokens, suggestion
from ptxsearch.ptx.vocabulary import FUNCTION_DIRECTIVES


class Header:
    """Reads `(results) name (parameters) directives` of an `.entry` or `.func`."""

    def __init__(self, kind: str, linkage: str, line: int) -> None:
        self.kind = kind
        self.linkage = linkage
        self.line = line
        self.name = ""
        self.params: tuple[Variable, ...] = ()
        self.returns: tuple[Variable, ...] = ()
        self.directives: dict[str, tuple[int, ...]] = {}
        self.pragmas: list[tuple[int, str]] = []
        self.attributes: tuple[str, ...] = ()

    def read_name(self, tokens: Tokens, scopes: Scopes) -> int:
        """Read up to the name; gives the index of its token."""
        if tokens.accept(".attribute"):
            self.attributes = attribute(tokens)
        if tokens.next == "(" and self.kind == "func":
            self.returns = formals(tokens, scopes, named=True)
        start = tokens.at
        self.name = tokens.identifier("a function")
        return start

    def read_rest(self, tokens: Tokens, scopes: Scopes) -> None:
        """Read from behind the name up to the body or the semicolon."""
        if tokens.next == "(":
            self.params = formals(tokens, scopes, named=True)
        while tokens.next[:1] == ".":
            start = tokens.at
            word = tokens.take()[1:]
            if word == "pragma":
                self.pragmas.append((-1, pragma(tokens)))
            elif word in FUNCTION_DIRECTIVES:
                self.directives[word] = _values(tokens, word)
            else:
                hint = suggestion(word, FUNCTION_DIRECTIVES)
                tokens.fail(f"'.{word[:60]}' is no directive of a function{hint}", start)

    def function(self, scopes: Scopes, body: Body | None) -> Function:
        """The record of the function; without a body it is only declared."""
        return Function(
            name=self.name,
            kind=self.kind,
            params=self.params,
            returns=self.returns,
            registers=scopes.registers,
            variables=tuple(body.variables) if body else (),
            instructions=tuple(body.instructions) if body else (),
            labels=body.labels if body else {},
            tables=body.tables if body else {},
            prototypes=body.prototypes if body else {},
            directives=self.directives,
            line=self.line,
            linkage=self.linkage,
            declared=body is None,
            pragmas=(*self.pragmas, *(body.pragmas if body else ())),
            attributes=self.attributes,
        )


def _values(tokens: Tokens, word: str) -> tuple[int, ...]:
    """The numbers behind a performance directive; sizes left out are 1."""
    most = FUNCTION_DIRECTIVES[word][1]
    values: list[int] = []
    while len(values) < most and (not values or tokens.accept(",")):
        values.append(integer(tokens, f"the value of .{word}"))
    return (*values, *[1] * (most - len(values)))
