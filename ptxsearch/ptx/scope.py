"""Scopes of names while a function is read: what a name stands for, flattened to unique names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar

from ptxsearch.ptx import limits
from ptxsearch.ptx.syntax import Integer, Name, Operand, Register, Special
from ptxsearch.ptx.tokens import Tokens, suggestion
from ptxsearch.ptx.vocabulary import LANES, SPECIALS, SUBWORD, WARP_SIZE

_Bound = TypeVar("_Bound")
_NUMBERED = re.compile(r"(.*?)(0|[1-9][0-9]{0,8})", re.DOTALL)


@dataclass(slots=True)
class Range:
    """A set of registers declared as `%r<count>`; `names` holds those that were used."""

    count: int
    type: str
    depth: int
    names: dict[str, Register] = field(default_factory=dict)


@dataclass(slots=True)
class Pending:
    """A use of a name that may be a label further down; `slot` says where it was used."""

    name: str
    slot: int | str
    token: int


@dataclass(slots=True)
class Scope:
    """One `{ }`: what it hides of the outer ones, its labels, and its unresolved names."""

    names: dict[str, Operand | None] = field(default_factory=dict)
    ranges: dict[str, Range | None] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    pending: list[Pending] = field(default_factory=list)


class Scopes:
    """The names visible at the cursor; `registers` collects every register of the function.

    `module_names` are the variables and functions of the module so far with the bytes of one
    element, `element_bytes` adds to them the variables of the function.
    """

    def __init__(self, tokens: Tokens, module_names: Mapping[str, int]) -> None:
        self.tokens = tokens
        self.module_names = module_names
        self.element_bytes: dict[str, int] = {}
        self.registers: dict[str, str] = {}
        self.resolved: dict[str, Operand] = {}
        self._names: dict[str, Operand] = {}
        self._ranges: dict[str, Range] = {}
        self._stack: list[Scope] = [Scope()]
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}

    @property
    def top(self) -> Scope:
        """The innermost scope."""
        return self._stack[-1]

    @property
    def depth(self) -> int:
        """How many scopes are open; the function's own is the first."""
        return len(self._stack)

    def open(self) -> None:
        """Enter an inner scope."""
        if len(self._stack) >= limits.SCOPE_DEPTH:
            self.tokens.fail(f"scopes are nested deeper than {limits.SCOPE_DEPTH}; close some")
        self._stack.append(Scope())

    def close(self) -> Iterator[tuple[Pending, str]]:
        """Leave the innermost scope; yields each use of one of its labels and the unique name."""
        scope = self._stack.pop()
        for name, operand in scope.names.items():
            _restore(self._names, name, operand)
        for prefix, numbered in scope.ranges.items():
            _restore(self._ranges, prefix, numbered)
        self.resolved.clear()
        for use in scope.pending:
            unique = scope.labels.get(use.name)
            if unique is not None:
                yield use, unique
            elif self._stack:
                self._stack[-1].pending.append(use)
            else:
                self._unknown(use, scope.labels)

    def unique(self, name: str) -> str:
        """`name`, or where it is taken in this function, `name$2`, `name$3`, ..."""
        if name not in self._taken and name not in self.module_names:
            self._taken.add(name)
            return name
        number = self._numbers.get(name, 1)
        while True:
            number += 1
            candidate = f"{name}${number}"
            if candidate not in self._taken and candidate not in self.tokens.words:
                break
        self._numbers[name] = number
        self._taken.add(candidate)
        return candidate

    def label(self, name: str) -> str:
        """Declare a label in the innermost scope; gives its unique name."""
        if name in self.top.labels:
            self.tokens.fail(f"label '{name}' is defined twice; rename one of them")
        unique = self.unique(name)
        self.top.labels[name] = unique
        return unique

    def register(self, name: str, register_type: str) -> str:
        """Declare one register in the innermost scope; gives its unique name."""
        unique = self.unique(self._fresh(name))
        self.registers[unique] = register_type
        self._bind(name, Register(unique))
        return unique

    def register_range(self, prefix: str, count: int, register_type: str) -> None:
        """Declare `prefix0` to `prefix{count-1}` in the innermost scope."""
        scope = self.top
        if prefix in scope.ranges:
            self.tokens.fail(f"registers '{prefix}<...>' are declared twice in one scope")
        scope.ranges[prefix] = self._ranges.get(prefix)
        self._ranges[prefix] = Range(count, register_type, self.depth)
        self.resolved.clear()

    def index_bytes(self, name: str) -> int:
        """How far apart the elements of a variable are, by its unique name."""
        return self.element_bytes.get(name) or self.module_names.get(name) or 1

    def variable(self, name: str) -> str:
        """Declare a variable in the innermost scope; gives its unique name."""
        unique = self.unique(self._fresh(name))
        self._bind(name, Name(unique))
        return unique

    def resolve(self, text: str) -> Operand | None:
        """What a word stands for; None for a name not declared so far, which may be a label."""
        operand = self.resolved.get(text)
        if operand is None:
            operand = self._find(text)
            if operand is not None:
                self.resolved[text] = operand
        return operand

    def undeclared(self, text: str, at: int) -> NoReturn:
        """End the parse: `text`, the token at `at`, was never declared."""
        if text[0] != "%" and "." not in text:
            self._unknown(Pending(text, 0, at), ())
        match = _NUMBERED.fullmatch(text)
        numbered = self._ranges.get(match[1]) if match else None
        if match and numbered:
            self.tokens.fail(
                f"register '{text}' is outside '{match[1]}<{numbered.count}>'; the last one is "
                f"'{match[1]}{numbered.count - 1}': declare {int(match[2]) + 1} or more",
                at,
            )
        number = int(match[2]) if match else 0
        in_range = (
            f"{prefix}{number if number < numbered.count else 0}"
            for prefix, numbered in self._ranges.items()
        )
        known = [*self._names, *in_range, *SPECIALS]
        self.tokens.fail(
            f"register '{text}' is not declared{suggestion(text, known)}; declare it with .reg "
            "before its first use",
            at,
        )

    def _fresh(self, name: str) -> str:
        match = _NUMBERED.fullmatch(name)
        inside = (
            match is not None
            and match[1] in self.top.ranges
            and int(match[2]) < self._ranges[match[1]].count
        )
        if name in self.top.names or inside:
            self.tokens.fail(f"'{name}' is declared twice in one scope; rename one of them")
        return name

    def _bind(self, name: str, operand: Operand) -> None:
        self.top.names[name] = self._names.get(name)
        self._names[name] = operand
        self.resolved.clear()

    def _find(self, text: str) -> Operand | None:
        match = _NUMBERED.fullmatch(text)
        if match is not None:
            numbered = self._ranges.get(match[1])
            if numbered is not None and int(match[2]) < numbered.count:
                return self._from_range(text, numbered)
        if text in self._names:
            return self._names[text]
        if text in SPECIALS:
            return Special(text)
        if text in WARP_SIZE:
            return Integer(WARP_SIZE[text])
        base, dot, lane = text.partition(".")
        if dot and (lane in LANES or SUBWORD.fullmatch(lane)):
            whole = self._find(base)
            if isinstance(whole, Register):
                return Register(whole.name, LANES.get(lane, lane))
        return Name(text) if text in self.module_names else None

    def _from_range(self, text: str, numbered: Range) -> Operand:
        """The register `text` of a range, unless an inner scope declares that very name."""
        for scope in reversed(self._stack[numbered.depth :]):
            if text in scope.names:
                return self._names[text]
        register = numbered.names.get(text)
        if register is None:
            register = numbered.names[text] = Register(self.unique(text))
            self.registers[register.name] = numbered.type
        return register

    def _unknown(self, use: Pending, labels: Iterable[str]) -> NoReturn:
        known = [*labels, *self._names, *self.module_names]
        self.tokens.fail(
            f"'{use.name}' is neither declared before its use nor a label of this scope"
            f"{suggestion(use.name, known)}",
            use.token,
        )


def _restore(table: dict[str, _Bound], name: str, value: _Bound | None) -> None:
    if value is None:
        del table[name]
    else:
        table[name] = value
