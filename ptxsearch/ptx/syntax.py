"""The records a PTX module is made of: what `parse` returns and everything else reads.

Names follow the PTX ISA manual. All records are frozen; a `Module` compares by value.
Nested `{ }` scopes are flattened by the parser: a register or variable declared in an
inner scope is renamed to a name that is unique in its function, so that
`Function.registers` and `Function.variables` need no scope rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Register:
    """A declared register, `%r1`; `component` is x, y, z or w of a `.reg .v4`.

    Operands of video instructions select bytes or halves: there it is b0, h1, h10, b7610, ...
    with a minus ahead where the operand is negated (`-`, `-h0`).
    """

    name: str
    component: str = ""


@dataclass(frozen=True, slots=True)
class Special:
    """A predefined read-only register with its component, `%tid.x`, `%laneid`."""

    name: str


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer literal; negative values are kept negative."""

    value: int


@dataclass(frozen=True, slots=True)
class Float:
    """A floating literal as exact bits: width 32 for `0f`, 64 for `0d` and decimals."""

    bits: int
    width: int


@dataclass(frozen=True, slots=True)
class Name:
    """A variable, parameter, function or label used as an operand."""

    name: str


@dataclass(frozen=True, slots=True)
class Address:
    """`[base+offset]` in bytes; the base is None for an absolute address.

    Of `mov` and `cvta`, `sym+4` and `sym[1]` are an Address too: the address itself, not a load.
    """

    base: Register | Name | None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Negated:
    """`!%p`: the complement of a predicate operand."""

    register: Register


@dataclass(frozen=True, slots=True)
class Sink:
    """`_`: a destination that is thrown away."""


@dataclass(frozen=True, slots=True)
class Vector:
    """`{a, b, c, d}`."""

    elements: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """`d|p`: two destinations written by one instruction."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Group:
    """`(a, b)`: the returns or the arguments of a call; `[tensor, {x, y}]` is a Group too."""

    elements: tuple[Operand, ...]


Operand = (
    Register | Special | Integer | Float | Name | Address | Negated | Sink | Vector | Pair | Group
)


@dataclass(frozen=True, slots=True)
class Guard:
    """`@%p` or `@!%p` in front of an instruction."""

    register: Register
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """A place in the source the PTX was made from (`.loc file line column`)."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: `ld.global.nc.v4.f32` has opcode `ld`, modifiers global, nc, v4, f32.

    A qualifier with a scope stays one modifier (`shared::cta`, `L1::evict_last`).
    A call's operands are always Group (returns), Register or Name, Group (arguments),
    and, where given, the Name of a target list or prototype.
    """

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Guard | None
    line: int
    source: Source | None = None

    @property
    def mnemonic(self) -> str:
        """Opcode and modifiers as written."""
        return ".".join((self.opcode, *self.modifiers))


@dataclass(frozen=True, slots=True)
class Reference:
    """An address inside an initialiser: `size` bytes at `at` hold the address of `name` + addend.

    `generic` is True for `generic(name)`; `mask` is the byte selected by `0xFF00(name)`, or None.
    """

    at: int
    size: int
    name: str
    addend: int = 0
    generic: bool = False
    mask: int | None = None


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable or parameter in memory. `space`: global, const, shared, local, param or tex.

    A parameter that a `.func` takes or returns in a register has the space `reg` and the
    register's name, which is in `Function.registers` as well.

    `shape` has one entry a dimension, 0 for an unsized `[]`; a scalar has an empty shape.
    `type` is the element type without the dot, `vector` its width 1, 2 or 4.
    `init` is the initialiser as bytes (None where there is none). `pointer` is what `.ptr`
    says of a parameter: space ("" for generic) and alignment; `attributes` are those of
    `.attribute(...)` as written.
    """

    name: str
    space: str
    type: str
    vector: int
    shape: tuple[int, ...]
    align: int
    size: int
    line: int
    init: bytes | None = None
    references: tuple[Reference, ...] = ()
    linkage: str = ""
    pointer: tuple[str, int] | None = None
    attributes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Function:
    """An entry or a device function with its body flattened into one instruction list.

    `labels` maps a label to the index of the instruction that follows it (it may equal
    `len(instructions)`). `tables` holds `.branchtargets` and `.calltargets` lists by their
    label, `prototypes` the `.callprototype` labels as (returns, params). `registers` maps a
    name to its type (`u32`, `pred`; `v4.f32` for a vector register), with `%r<9>` expanded
    only where the instructions use the name. `directives` holds performance directives, such
    as `maxntid` -> (128, 1, 1). `declared` is True for a prototype without a body. `pragmas`
    are (index of the instruction that follows, text), with index -1 ahead of the body.
    """

    name: str
    kind: str
    params: tuple[Variable, ...]
    returns: tuple[Variable, ...]
    registers: Mapping[str, str]
    variables: tuple[Variable, ...]
    instructions: tuple[Instruction, ...]
    labels: Mapping[str, int]
    tables: Mapping[str, tuple[str, ...]]
    prototypes: Mapping[str, tuple[tuple[Variable, ...], tuple[Variable, ...]]]
    directives: Mapping[str, tuple[int, ...]]
    line: int
    linkage: str = ""
    declared: bool = False
    pragmas: tuple[tuple[int, str], ...] = ()
    attributes: tuple[str, ...] = ()

    @property
    def is_entry(self) -> bool:
        """Whether the host can launch it."""
        return self.kind == "entry"


@dataclass(frozen=True, slots=True)
class Module:
    """A parsed module; `text` is the source it was parsed from, byte for byte.

    `options` are the words after the architecture in `.target`, `aliases` what `.alias` declares.
    """

    version: tuple[int, int]
    target: str
    address_size: int
    functions: Mapping[str, Function]
    variables: Mapping[str, Variable]
    text: str = field(compare=False, repr=False)
    options: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    pragmas: tuple[str, ...] = ()

    @property
    def entries(self) -> tuple[str, ...]:
        """Names of the functions the host can launch, in source order."""
        return tuple(name for name, function in self.functions.items() if function.is_entry)


@dataclass(frozen=True, slots=True)
class SyntaxFault:
    """Why a text is not a module: a value, not an exception, because a bad kernel is a value.

    `line` and `column` count from 1; `excerpt` is the offending line, truncated.
    """

    message: str
    line: int
    column: int
    excerpt: str = ""

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {self.message}"
