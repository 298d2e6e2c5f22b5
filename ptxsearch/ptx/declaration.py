"""Declarations: registers, variables and parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ptxsearch.ptx import limits
from ptxsearch.ptx.constant import integer, number
from ptxsearch.ptx.initialiser import Contents, initialiser
from ptxsearch.ptx.scope import Scopes
from ptxsearch.ptx.syntax import Variable
from ptxsearch.ptx.tokens import Tokens, suggestion
from ptxsearch.ptx.vocabulary import OPAQUE_TYPES, SPACES, TYPE_BYTES


@dataclass(slots=True)
class Kind:
    """What stands in front of a declared name: its type, vector width, alignment, attributes."""

    type: str = ""
    vector: int = 1
    align: int = 0
    pointer: tuple[str, int] | None = None
    attributes: tuple[str, ...] = ()

    @property
    def register(self) -> str:
        """The type of a register declared so: `u32`, or `v4.f32` for a vector."""
        return self.type if self.vector == 1 else f"v{self.vector}.{self.type}"

    @property
    def bytes(self) -> int:
        """Size of one element with its vector width."""
        return TYPE_BYTES[self.type] * self.vector


def kind(tokens: Tokens) -> Kind:
    """The `.align 8 .v2 .f32` part of a declaration at the cursor."""
    result = Kind()
    while tokens.next.startswith("."):
        word = tokens.next[1:]
        if word in TYPE_BYTES:
            if result.type:
                tokens.fail(f"a declaration has two types, .{result.type} and .{word}")
            result.type = word
        elif word in ("v2", "v4", "v8"):
            result.vector = int(word[1])
        elif word not in ("align", "ptr", "attribute"):
            tokens.fail(f"unexpected '.{word}' in a declaration{suggestion(word, TYPE_BYTES)}")
        tokens.at += 1
        if word == "align":
            result.align = alignment(tokens)
        elif word == "ptr":
            result.pointer = _pointer(tokens)
        elif word == "attribute":
            result.attributes += attribute(tokens)
    if not result.type:
        tokens.fail(f"expected a type such as .u32 in a declaration, got {tokens.shown()}")
    return result


def alignment(tokens: Tokens) -> int:
    """The number after `.align`."""
    start = tokens.at
    value = integer(tokens, "an alignment")
    if value < 1 or value & (value - 1) or value > 1 << 20:
        tokens.fail(f"an alignment is a power of two from 1 to {1 << 20}, got {value}", start)
    return value


def _pointer(tokens: Tokens) -> tuple[str, int]:
    space, align = "", 4
    while tokens.next.startswith(".") and tokens.next[1:] in {*SPACES, "align", "generic"}:
        word = tokens.take()[1:]
        if word == "align":
            align = alignment(tokens)
        else:
            space = word
    return space, align


def attribute(tokens: Tokens) -> tuple[str, ...]:
    """The parts of `(.managed, .unified(1, 2))` after `.attribute`, as written."""
    tokens.expect("(", ".attribute")
    words: list[list[str]] = [[]]
    depth = 0
    while depth or tokens.next != ")":
        text = tokens.take()
        if not text:
            tokens.fail("'.attribute(' is never closed")
        depth += {"(": 1, ")": -1}.get(text, 0)
        if text == "," and not depth:
            words.append([])
        else:
            words[-1].append(text)
    tokens.at += 1
    return tuple("".join(parts) for parts in words)


def registers(tokens: Tokens, scopes: Scopes) -> None:
    """Declare what `.reg` lists up to its semicolon."""
    sort = kind(tokens)
    while True:
        start = tokens.at
        name = tokens.identifier("a register")
        if tokens.accept("<"):
            count = number(tokens, "a number of registers")
            if not 0 <= count <= limits.REGISTER_RANGE:
                tokens.fail(
                    f"'{name[:40]}<{count}>' declares {count} registers; 0 to "
                    f"{limits.REGISTER_RANGE} are allowed",
                    start,
                )
            tokens.expect(">", "a number of registers")
            scopes.register_range(name, count, sort.register)
        else:
            scopes.register(name, sort.register)
        if not tokens.accept(","):
            break
    tokens.expect(";", "a register declaration")


def variables(
    tokens: Tokens, scopes: Scopes, *, space: str, linkage: str, declare: Callable[[str], str]
) -> list[Variable]:
    """What a variable declaration lists, from after its state space up to its semicolon."""
    sort = kind(tokens)
    found = []
    while True:
        found.append(_declarator(tokens, scopes, sort=sort, space=space, declare=declare))
        if not tokens.accept(","):
            break
    tokens.expect(";", f"a .{space} declaration")
    return [replace(variable, linkage=linkage) for variable in found]


def formals(tokens: Tokens, scopes: Scopes, *, named: bool) -> tuple[Variable, ...]:
    """The parameters in parentheses at the cursor; `named` ones are declared in `scopes`."""
    tokens.expect("(", "a function")
    found: list[Variable] = []
    while not tokens.accept(")"):
        if found:
            tokens.expect(",", "a parameter")
        found.append(_parameter(tokens, scopes, named=named))
    return tuple(found)


def _parameter(tokens: Tokens, scopes: Scopes, *, named: bool) -> Variable:
    """One parameter: in `.param` space or, of a `.func`, a register."""
    word = tokens.next
    if word not in (".param", ".reg"):
        tokens.fail(f"a parameter begins with .param or .reg, got {tokens.shown()}")
    tokens.at += 1
    sort = kind(tokens)

    def declare(name: str) -> str:
        if not named:
            return name
        return scopes.register(name, sort.register) if word == ".reg" else scopes.variable(name)

    return _declarator(tokens, scopes, sort=sort, space=word[1:], declare=declare)


def index_bytes(variable: Variable) -> int:
    """How far apart in memory the elements `x[0]` and `x[1]` are."""
    size = TYPE_BYTES[variable.type] * variable.vector
    for extent in variable.shape[1:]:
        size *= extent
    return size


def _declarator(
    tokens: Tokens, scopes: Scopes, *, sort: Kind, space: str, declare: Callable[[str], str]
) -> Variable:
    line = tokens.line()
    start = tokens.at
    name = "_" if tokens.accept("_") else declare(tokens.identifier("a variable"))
    if tokens.next == "<":
        tokens.fail("numbered names 'x<4>' are for registers; declare variables one by one")
    if sort.type == "pred" and space != "reg":
        tokens.fail("a predicate lives in a register; declare it with .reg .pred", start)
    shape = _shape(tokens)
    size = sort.bytes
    for extent in shape:
        size *= extent
        if size > limits.OBJECT_BYTES:
            tokens.fail("the variable is larger than any address space", start)
    variable = Variable(
        name=name,
        space=space,
        type=sort.type,
        vector=sort.vector,
        shape=shape,
        align=sort.align or sort.bytes,
        size=size,
        line=line,
        pointer=sort.pointer,
        attributes=sort.attributes,
    )
    if tokens.accept("="):
        return _initialised(tokens, scopes, variable)
    return variable


def _shape(tokens: Tokens) -> tuple[int, ...]:
    shape: list[int] = []
    while tokens.accept("["):
        if tokens.accept("]"):
            if shape:
                tokens.fail("only the first dimension of an array may be left open")
            shape.append(0)
            continue
        start = tokens.at
        extent = integer(tokens, "an array size")
        tokens.expect("]", "an array size")
        if not 0 <= extent <= limits.OBJECT_BYTES or len(shape) >= limits.DIMENSIONS:
            tokens.fail(f"an array cannot have the size {extent}", start)
        shape.append(extent)
    return tuple(shape)


def _initialised(tokens: Tokens, scopes: Scopes, variable: Variable) -> Variable:
    if variable.space not in ("global", "const"):
        tokens.fail(f"a .{variable.space} variable cannot have an initialiser; store the values")
    if variable.type in OPAQUE_TYPES:
        _skip_fields(tokens)
        return variable
    inner = (variable.vector,) if variable.vector > 1 else ()
    contents = initialiser(tokens, scopes, element_type=variable.type, shape=variable.shape + inner)
    return _filled(tokens, variable, contents)


def _filled(tokens: Tokens, variable: Variable, contents: Contents) -> Variable:
    size, shape = variable.size, variable.shape
    if shape[:1] == (0,):
        row = TYPE_BYTES[variable.type] * variable.vector
        for extent in shape[1:]:
            row *= extent
        rows = -(-len(contents.data) // row) if row else 0
        shape, size = (rows, *shape[1:]), rows * row
    if size > limits.INITIALISED_BYTES:
        tokens.fail(f"an initialised variable has {size} bytes; at most {limits.INITIALISED_BYTES}")
    data = bytes(contents.data) + bytes(max(0, size - len(contents.data)))
    return replace(
        variable, size=size, shape=shape, init=data, references=tuple(contents.references)
    )


def _skip_fields(tokens: Tokens) -> None:
    """Pass over the named fields of a sampler or texture."""
    tokens.expect("{", "'='")
    while not tokens.accept("}"):
        if not tokens.take():
            tokens.fail("an initialiser is never closed")
