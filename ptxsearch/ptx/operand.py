"""Operands of an instruction, as they stand between commas."""

from __future__ import annotations

from ptxsearch.ptx.constant import constant, integer
from ptxsearch.ptx.scope import Pending, Scopes
from ptxsearch.ptx.syntax import (
    Address,
    Group,
    Integer,
    Name,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Vector,
)
from ptxsearch.ptx.tokens import END, Tokens

_SINK = Sink()
_CONSTANT_STARTS = frozenset("-+~(") | frozenset("0123456789")


class Operands:
    """Reads operands of one instruction after the other.

    `slot` tells where a name that may be a label was used, `memory` whether the instruction can
    have an operand in brackets.
    """

    def __init__(self, tokens: Tokens, scopes: Scopes) -> None:
        self.tokens = tokens
        self.scopes = scopes
        self.slot: int | str = 0
        self.memory = True

    def operand(self) -> Operand:
        """The operand at the cursor, which moves past it."""
        tokens = self.tokens
        text = tokens.next
        if text == "[":
            return self._address()
        if text == "{":
            return self._vector()
        first = self.element()
        if tokens.next == "|":
            tokens.at += 1
            return Pair(first, self.element())
        return first

    def element(self) -> Operand:
        """A register, name or constant: what may stand inside a vector."""
        tokens = self.tokens
        text = tokens.next
        operand = self.scopes.resolve(text)
        if operand is not None and not isinstance(operand, Integer):
            tokens.at += 1
            if isinstance(operand, Name) and tokens.next in ("+", "-", "["):
                return self._displaced(operand)
            return operand
        if text == "-" and isinstance(self.scopes.resolve(tokens.texts[tokens.at + 1]), Register):
            return self._minus()
        if text[:1] in _CONSTANT_STARTS or isinstance(operand, Integer):
            return constant(tokens)
        if text == "_":
            tokens.at += 1
            return _SINK
        if text == "!":
            tokens.at += 1
            return self._negated()
        return self._forward(text)

    def group(self, what: str) -> Group:
        """`(a, b)` at the cursor: the returns or arguments of a call."""
        tokens = self.tokens
        tokens.expect("(", what)
        elements: list[Operand] = []
        if not tokens.accept(")"):
            elements.append(self.operand())
            while tokens.accept(","):
                elements.append(self.operand())
            tokens.expect(")", what)
        return Group(tuple(elements))

    def _minus(self) -> Register:
        """`-a.h0`: video instructions negate an operand."""
        register = self.scopes.resolve(self.tokens.texts[self.tokens.at + 1])
        assert isinstance(register, Register)
        self.tokens.at += 2
        return Register(register.name, "-" + register.component)

    def _negated(self) -> Operand:
        tokens = self.tokens
        start = tokens.at
        operand = self.element()
        if isinstance(operand, Register):
            return Negated(operand)
        if isinstance(operand, Integer):
            return Integer(int(operand.value == 0))
        tokens.fail("'!' complements a predicate register", start)

    def _forward(self, text: str) -> Operand:
        tokens = self.tokens
        if text == END or not (text[0].isalpha() or text[0] in "_$%"):
            if text.startswith(".") and len(text) > 1:
                tokens.fail(
                    f"unexpected {tokens.shown()}: labels and names do not begin with a dot"
                )
            tokens.fail(f"expected an operand, got {tokens.shown()}")
        if text[0] == "%" or "." in text:
            self.scopes.undeclared(text, tokens.at)
        tokens.identifier("an operand")
        self.scopes.top.pending.append(Pending(text, self.slot, tokens.at - 1))
        return Name(text)

    def _displaced(self, base: Name) -> Operand:
        tokens = self.tokens
        if tokens.next == "[":
            tokens.at += 1
            offset = integer(tokens, "an index")
            tokens.expect("]", "an index")
            return Address(base, offset * self.scopes.index_bytes(base.name))
        return Address(base, self._offset())

    def _offset(self) -> int:
        """`+ expression` or `- expression` at the cursor as one signed number."""
        tokens = self.tokens
        if tokens.next == "+":
            tokens.at += 1
        return integer(tokens, "an offset")

    def _address(self) -> Operand:
        tokens = self.tokens
        if not self.memory:
            tokens.fail("mov, cvta and isspacep take no [address]; load and store with ld and st")
        tokens.at += 1
        base = self._base()
        if tokens.next == "]":
            tokens.at += 1
            return base if isinstance(base, Address) else Address(base)
        if tokens.next == ",":
            return self._tuple(base)
        if isinstance(base, Address) or tokens.next not in ("+", "-"):
            tokens.fail(f"expected ']', '+' or '-' in an address, got {tokens.shown()}")
        start = tokens.at
        if tokens.next == "+" and self.scopes.resolve(tokens.texts[start + 1]) is not None:
            tokens.fail("an address takes one register and a constant; add registers first", start)
        address = Address(base, self._offset())
        if tokens.next == ",":
            return self._tuple(address)
        tokens.expect("]", "an address")
        return address

    def _base(self) -> Register | Name | Address:
        tokens = self.tokens
        text = tokens.next
        if text[:1] in _CONSTANT_STARTS:
            return Address(None, integer(tokens, "an address"))
        start = tokens.at
        operand = self.scopes.resolve(text)
        if operand is None:
            operand = self._forward(text)
        else:
            tokens.at += 1
        if isinstance(operand, Register | Name):
            return operand
        tokens.fail(
            f"an address starts with a register or a variable, got {tokens.shown(start)}", start
        )

    def _tuple(self, base: Register | Name | Address) -> Group:
        """`[tensor, {x, y}]`: the rest of a bracket with several parts."""
        tokens = self.tokens
        elements: list[Operand] = [base]
        while tokens.accept(","):
            elements.append(self._vector() if tokens.next == "{" else self.element())
        tokens.expect("]", "an address")
        return Group(tuple(elements))

    def _vector(self) -> Vector:
        tokens = self.tokens
        tokens.at += 1
        elements = [self.element()]
        while tokens.accept(","):
            elements.append(self.element())
        tokens.expect("}", "a vector")
        return Vector(tuple(elements))
