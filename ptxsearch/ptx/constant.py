"""Constants: literals and the integer expressions PTX allows wherever a constant may stand."""

from __future__ import annotations

import operator
import re
import struct
from collections.abc import Callable
from functools import lru_cache

from ptxsearch.ptx.syntax import Float, Integer
from ptxsearch.ptx.tokens import Tokens
from ptxsearch.ptx.vocabulary import WARP_SIZE

_MASK = (1 << 64) - 1
_LONGEST = 64
_HEX = re.compile(r"0[xX][0-9a-fA-F]+U?")
_BINARY = re.compile(r"0[bB][01]+U?")
_OCTAL = re.compile(r"0[0-7]*U?")
_DECIMAL = re.compile(r"[1-9][0-9]*U?")
_FLOAT = re.compile(r"(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+")


@lru_cache(maxsize=4096)
def literal(text: str) -> Integer | Float | str:
    """The value of a number as written, or a sentence that says why it is none."""
    if len(text) > _LONGEST:
        return f"the number {text[:20]}... is longer than any constant of 64 bits"
    prefix = text[:2].lower()
    if prefix == "0f":
        return _bits(text, digits=8, width=32)
    if prefix == "0d":
        return _bits(text, digits=16, width=64)
    for pattern, base, skip in ((_HEX, 16, 2), (_BINARY, 2, 2), (_OCTAL, 8, 0), (_DECIMAL, 10, 0)):
        if pattern.fullmatch(text):
            value = int(text.rstrip("U")[skip:], base)
            if value > _MASK:
                return f"{text} does not fit into 64 bits"
            return Integer(value)
    if _FLOAT.fullmatch(text):
        return Float(int.from_bytes(struct.pack(">d", float(text)), "big"), 64)
    return f"{text!r} is no number; write 10, 0x1F, 017, 0b101, 1.5, 0f3F800000 or 0d and 16 digits"


def _bits(text: str, *, digits: int, width: int) -> Float | str:
    if re.fullmatch(f"0[fFdD][0-9a-fA-F]{{{digits}}}", text) is None:
        return f"{text!r} is no float: {text[:2]} takes exactly {digits} hexadecimal digits"
    return Float(int(text[2:], 16), width)


def negated(value: Float) -> Float:
    """The float with its sign turned."""
    return Float(value.bits ^ (1 << (value.width - 1)), value.width)


def as_double(value: Float) -> float:
    """The float as a Python float."""
    form = ">f" if value.width == 32 else ">d"
    return float(struct.unpack(form, value.bits.to_bytes(value.width // 8, "big"))[0])


_PRECEDENCE = {
    **dict.fromkeys(("==", "!="), 5),
    **dict.fromkeys(("<", "<=", ">", ">="), 6),
    **dict.fromkeys(("<<", ">>"), 7),
    **dict.fromkeys(("+", "-"), 8),
    **dict.fromkeys(("*", "/", "%"), 9),
    **{"||": 0, "&&": 1, "|": 2, "^": 3, "&": 4},
}
_UNARY = 10
_DEEPEST = 256
_APPLY: dict[str, Callable[[int, int], int]] = {
    "||": lambda a, b: int(bool(a) or bool(b)),
    "&&": lambda a, b: int(bool(a) and bool(b)),
    "|": operator.or_,
    "^": operator.xor,
    "&": operator.and_,
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "<": lambda a, b: int(a < b),
    "<=": lambda a, b: int(a <= b),
    ">": lambda a, b: int(a > b),
    ">=": lambda a, b: int(a >= b),
    "<<": lambda a, b: a << (b & 63),
    ">>": lambda a, b: a >> (b & 63),
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}


def _wrap(value: int) -> int:
    """Bring a result into the range of 64-bit constants, negative ones kept negative."""
    if -(1 << 63) <= value <= _MASK:
        return value
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


class _Evaluation:
    """The two stacks of an operator-precedence evaluation: no depth of parentheses recurses."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self.values: list[Integer | Float] = []
        self.operators: list[str] = []

    def prefix(self) -> None:
        """Push the signs and parentheses in front of a value; a cast `(.s64)` changes nothing."""
        tokens = self.tokens
        while tokens.next in ("-", "+", "~", "!", "("):
            mark = tokens.take()
            if mark == "(" and tokens.next in (".s64", ".u64"):
                tokens.at += 1
                tokens.expect(")", "the cast in a constant")
            else:
                self.push("(" if mark == "(" else "u" + mark)

    def push(self, mark: str) -> None:
        if len(self.operators) >= _DEEPEST:
            self.tokens.fail(f"a constant nests deeper than {_DEEPEST} operators; simplify it")
        self.operators.append(mark)

    def close(self) -> None:
        """Apply every `)` at the cursor that belongs to this expression."""
        while self.tokens.next == ")" and "(" in self.operators:
            self.apply_while(lambda mark: mark != "(")
            self.operators.pop()
            self.tokens.at += 1

    def binary(self) -> bool:
        """Whether a binary operator follows; if so it is pushed and the cursor moves past it."""
        rank = _PRECEDENCE.get(self.tokens.next)
        if rank is None:
            return False
        self.apply_while(lambda mark: mark != "(" and _rank(mark) >= rank)
        self.push(self.tokens.take())
        return True

    def apply_while(self, wanted: Callable[[str], bool]) -> None:
        while self.operators and wanted(self.operators[-1]):
            self.apply()

    def apply(self) -> None:
        mark = self.operators.pop()
        value = self.values.pop()
        if mark.startswith("u"):
            self.values.append(self._unary(mark[1], value))
            return
        first = self.values.pop()
        if not isinstance(value, Integer) or not isinstance(first, Integer):
            self.tokens.fail(f"'{mark}' in a constant takes integers only; write the float itself")
        if mark in "/%":
            self.values.append(self._divide(mark, first.value, value.value))
        else:
            self.values.append(Integer(_wrap(_APPLY[mark](first.value, value.value))))

    def _unary(self, mark: str, value: Integer | Float) -> Integer | Float:
        if isinstance(value, Float):
            if mark == "-":
                return negated(value)
            if mark == "+":
                return value
            self.tokens.fail(f"'{mark}' in a constant takes integers only")
        number = value.value
        result = {"-": -number, "+": number, "~": ~number, "!": int(not number)}[mark]
        return Integer(_wrap(result))

    def _divide(self, mark: str, first: int, second: int) -> Integer:
        if second == 0:
            self.tokens.fail("a constant divides by zero")
        quotient = abs(first) // abs(second)
        quotient = -quotient if (first < 0) != (second < 0) else quotient
        return Integer(_wrap(quotient if mark == "/" else first - quotient * second))


def constant(tokens: Tokens) -> Integer | Float:
    """The value of the constant expression at the cursor, which moves past it."""
    if tokens.next[:1].isdigit() and tokens.texts[tokens.at + 1] not in _PRECEDENCE:
        return _atom(tokens)
    run = _Evaluation(tokens)
    more = True
    while more:
        run.prefix()
        run.values.append(_atom(tokens))
        run.close()
        more = run.binary()
    if "(" in run.operators:
        tokens.fail(f"expected ')' in a constant, got {tokens.shown()}")
    run.apply_while(lambda _: True)
    return run.values[0]


def _rank(mark: str) -> int:
    return _UNARY if mark.startswith("u") else _PRECEDENCE[mark]


def _atom(tokens: Tokens) -> Integer | Float:
    text = tokens.next
    if text[:1].isdigit() or (text[:1] == "." and text[1:2].isdigit()):
        value = literal(text)
        if isinstance(value, str):
            tokens.fail(value)
        tokens.at += 1
        return value
    if text in WARP_SIZE:
        tokens.at += 1
        return Integer(WARP_SIZE[text])
    tokens.fail(f"expected a constant, got {tokens.shown()}")


def number(tokens: Tokens, what: str) -> int:
    """The single integer at the cursor, without operators, that gives `what`."""
    start = tokens.at
    value = _atom(tokens)
    if isinstance(value, Float):
        tokens.fail(f"{what} must be an integer, got {tokens.shown(start)}", start)
    return value.value


def integer(tokens: Tokens, what: str) -> int:
    """The integer constant at the cursor that gives `what`."""
    start = tokens.at
    value = constant(tokens)
    if isinstance(value, Float):
        tokens.fail(f"{what} must be an integer, got {tokens.shown(start)}", start)
    return value.value
