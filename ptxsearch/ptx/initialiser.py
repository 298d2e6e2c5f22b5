"""Initialisers of variables: the text after `=` as bytes and references to other objects."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from ptxsearch.ptx import limits
from ptxsearch.ptx.constant import as_double, constant, integer, literal
from ptxsearch.ptx.scope import Scopes
from ptxsearch.ptx.syntax import Float, Integer, Name, Reference
from ptxsearch.ptx.tokens import Tokens
from ptxsearch.ptx.vocabulary import FLOAT_TYPES, TYPE_BYTES


@dataclass(slots=True)
class Contents:
    """Bytes and references gathered so far; `shape` is the declared one, 0 where open."""

    type: str
    shape: tuple[int, ...]
    data: bytearray = field(default_factory=bytearray)
    references: list[Reference] = field(default_factory=list)


def initialiser(
    tokens: Tokens, scopes: Scopes, *, element_type: str, shape: tuple[int, ...]
) -> Contents:
    """The initialiser at the cursor, unpadded; braces nest no deeper than `shape`."""
    contents = Contents(element_type, shape)
    if tokens.next != "{":
        if shape:
            tokens.fail("an array is initialised by a list in braces")
        _element(tokens, scopes, contents)
        return contents
    if not shape:
        tokens.fail("a scalar is initialised by one constant without braces")
    strides = _strides(contents)
    ends: list[int] = []
    while True:
        if tokens.accept("{"):
            _open(tokens, contents, strides, ends)
            if tokens.next != "}":
                continue
        else:
            _element(tokens, scopes, contents)
            if ends[-1] and len(contents.data) > ends[-1]:
                tokens.fail("an initialiser has more elements than its array; enlarge the array")
        while ends and tokens.next == "}":
            _close(tokens, contents, strides, ends)
        if not ends:
            return contents
        tokens.expect(",", "an element of an initialiser")
        if tokens.next == "}":
            tokens.fail("expected a constant after ',', got '}'")


def _strides(contents: Contents) -> list[int]:
    """Bytes of one element of each dimension, outermost first."""
    size = TYPE_BYTES[contents.type]
    strides = []
    for extent in reversed(contents.shape):
        strides.append(size)
        size *= extent
    return strides[::-1]


def _open(tokens: Tokens, contents: Contents, strides: list[int], ends: list[int]) -> None:
    if len(ends) >= len(strides):
        tokens.fail("an initialiser has more levels of braces than its array has dimensions")
    extent = contents.shape[len(ends)]
    ends.append(len(contents.data) + extent * strides[len(ends)] if extent else 0)


def _close(tokens: Tokens, contents: Contents, strides: list[int], ends: list[int]) -> None:
    """End a list in braces: rows inside an array are filled up with zeros."""
    tokens.at += 1
    end = ends.pop()
    if not ends:
        return
    if end > limits.INITIALISED_BYTES:
        tokens.fail(f"initialised data exceed {limits.INITIALISED_BYTES} bytes; shrink the array")
    if ends[-1] and end > ends[-1]:
        tokens.fail("an initialiser has more rows than its array; enlarge the array")
    contents.data.extend(bytes(max(0, end - len(contents.data))))


def _element(tokens: Tokens, scopes: Scopes, contents: Contents) -> None:
    text = tokens.next
    if text[:1].isdigit() and tokens.texts[tokens.at + 1] == "(":
        _masked(tokens, scopes, contents)
        return
    names = text[:1].isalpha() or text[:1] in ("_", "$")
    if names and not isinstance(scopes.resolve(text), Integer):
        _reference(tokens, scopes, contents, mask=None)
        return
    value = constant(tokens)
    contents.data += _encode(tokens, contents.type, value)


def _masked(tokens: Tokens, scopes: Scopes, contents: Contents) -> None:
    """`0xFF00(name)`: one byte of an address."""
    start = tokens.at
    value = literal(tokens.take())
    mask = value.value if isinstance(value, Integer) else 0
    shift = (mask.bit_length() - 1) // 8 * 8 if mask else 0
    if mask != 0xFF << shift:
        tokens.fail("a mask selects one byte: 0xFF, 0xFF00, 0xFF0000, ...", start)
    tokens.expect("(", "a mask")
    _reference(tokens, scopes, contents, mask=mask)
    tokens.expect(")", "the name under a mask")


def _reference(tokens: Tokens, scopes: Scopes, contents: Contents, *, mask: int | None) -> None:
    size = TYPE_BYTES[contents.type]
    start = tokens.at
    if mask is None and size < 4:
        tokens.fail(f"an address does not fit into .{contents.type}; use .u64 or a mask 0xFF(name)")
    generic = tokens.next == "generic" and tokens.texts[tokens.at + 1] == "("
    if generic:
        tokens.at += 2
    word = tokens.identifier("a variable or function")
    name = scopes.resolve(word)
    if not isinstance(name, Name):
        scopes.undeclared(word, tokens.at - 1)
    addend = 0
    if generic:
        tokens.expect(")", "generic(name")
    if tokens.next in ("+", "-"):
        tokens.accept("+")
        addend = integer(tokens, "an offset")
    if contents.type in FLOAT_TYPES:
        tokens.fail("an address cannot initialise a float", start)
    contents.references.append(
        Reference(len(contents.data), size, name.name, addend, generic=generic, mask=mask)
    )
    contents.data.extend(bytes(size))


def _encode(tokens: Tokens, element_type: str, value: Integer | Float) -> bytes:
    size = TYPE_BYTES[element_type]
    if isinstance(value, Integer):
        if element_type in ("f32", "f64"):
            value = Float(int.from_bytes(struct.pack(">d", float(value.value)), "big"), 64)
        else:
            return (value.value & ((1 << (8 * size)) - 1)).to_bytes(size, "little")
    if element_type == "f32" or (element_type not in FLOAT_TYPES and value.width == 8 * size):
        return _float_bytes(value, size)
    if element_type == "f64":
        return _float_bytes(value, 8)
    tokens.fail(f"a float constant cannot initialise .{element_type}; write its bits as 0x...")


def _float_bytes(value: Float, size: int) -> bytes:
    if value.width == 8 * size:
        return value.bits.to_bytes(size, "little")
    number = as_double(value)
    try:
        return struct.pack("<f" if size == 4 else "<d", number)
    except OverflowError:
        return struct.pack("<f", float("inf") if number > 0 else float("-inf"))
