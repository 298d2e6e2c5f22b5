"""Operands, instructions and variables as PTX text."""

from __future__ import annotations

from collections.abc import Iterable

from ptxsearch.ptx.syntax import (
    Address,
    Float,
    Group,
    Instruction,
    Integer,
    Name,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Variable,
    Vector,
)
from ptxsearch.ptx.vocabulary import ADDRESS_OPCODES, TYPE_BYTES


def operand_text(operand: Operand, *, bare: bool = False) -> str:
    """An operand as PTX; `bare` leaves the brackets of an address out."""
    match operand:
        case Register(name, component):
            sign, part = ("-", component[1:]) if component[:1] == "-" else ("", component)
            return f"{sign}{name}.{part}" if part else sign + name
        case Special(name) | Name(name):
            return name
        case Integer(value):
            return str(value)
        case Float(bits, width):
            return f"0f{bits:08X}" if width == 32 else f"0d{bits:016X}"
        case Address(base, offset):
            text = _address_text(base, offset)
            return text if bare else f"[{text}]"
        case Negated(register):
            return "!" + operand_text(register)
        case Sink():
            return "_"
        case Vector(elements):
            return "{" + _listed(elements) + "}"
        case Pair(first, second):
            return f"{operand_text(first)}|{operand_text(second)}"
        case Group(elements):
            return "[" + ", ".join(operand_text(e, bare=True) for e in elements) + "]"


def _address_text(base: Register | Name | None, offset: int) -> str:
    if base is None:
        return str(offset)
    return f"{operand_text(base)}+{offset}" if offset else operand_text(base)


def _listed(elements: Iterable[Operand]) -> str:
    return ", ".join(operand_text(element) for element in elements)


def instruction_text(instruction: Instruction) -> str:
    """An instruction with its guard and semicolon."""
    words = []
    if instruction.guard:
        mark = "!" if instruction.guard.negated else ""
        words.append(f"@{mark}{operand_text(instruction.guard.register)}")
    modifiers = [m for m in instruction.modifiers if m != "unified"]
    words.append(".".join((instruction.opcode, *modifiers)))
    if instruction.opcode == "call":
        words.append(_call_text(instruction.operands))
    else:
        bare = instruction.opcode in ADDRESS_OPCODES
        texts = [operand_text(operand, bare=bare) for operand in instruction.operands]
        if "unified" in instruction.modifiers:
            texts = [f"{text}.unified" if text[0] == "[" else text for text in texts]
        words.append(", ".join(texts))
    return " ".join(word for word in words if word) + ";"


def _call_text(operands: tuple[Operand, ...]) -> str:
    returns, target, arguments, *rest = operands
    parts = [operand_text(target)]
    if isinstance(returns, Group) and returns.elements:
        parts.insert(0, f"({_listed(returns.elements)})")
    if isinstance(arguments, Group) and (arguments.elements or rest):
        parts.append(f"({_listed(arguments.elements)})")
    return ", ".join(parts + [operand_text(operand) for operand in rest])


def variable_text(variable: Variable) -> str:
    """A variable or parameter without its semicolon."""
    words = [f".{variable.linkage}"] if variable.linkage else []
    words.append(f".{variable.space}")
    if variable.attributes:
        words.append(f".attribute({', '.join(variable.attributes)})")
    if variable.align != TYPE_BYTES[variable.type] * variable.vector:
        words.append(f".align {variable.align}")
    if variable.vector > 1:
        words.append(f".v{variable.vector}")
    words.append(f".{variable.type}")
    if variable.pointer is not None:
        space, align = variable.pointer
        words.append(f".ptr{f' .{space}' if space else ''} .align {align}")
    words.append(variable.name + "".join(f"[{n or ''}]" for n in variable.shape))
    if variable.init is not None:
        words.append("= " + _initialiser_text(variable, variable.init))
    return " ".join(words)


def _initialiser_text(variable: Variable, init: bytes) -> str:
    """The initialiser with one level of braces a dimension."""
    size = TYPE_BYTES[variable.type]
    references = {reference.at: reference for reference in variable.references}
    texts: list[str] = []
    for at in range(0, len(init), size):
        reference = references.get(at)
        if reference is None:
            texts.append(_element_text(init[at : at + size], variable.type))
            continue
        name = f"generic({reference.name})" if reference.generic else reference.name
        name += f"+{reference.addend}" if reference.addend else ""
        texts.append(name if reference.mask is None else f"0x{reference.mask:X}({name})")
    inner = (variable.vector,) if variable.vector > 1 else ()
    for extent in reversed(variable.shape + inner):
        rows = range(0, len(texts), extent) if extent else range(0)
        texts = ["{" + ", ".join(texts[row : row + extent]) + "}" for row in rows]
    return texts[0] if texts else "{}"


def _element_text(data: bytes, element_type: str) -> str:
    bits = int.from_bytes(data, "little")
    if element_type == "f32":
        return f"0f{bits:08X}"
    return f"0d{bits:016X}" if element_type == "f64" else str(bits)
