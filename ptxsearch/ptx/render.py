"""`render`: a module as PTX text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from ptxsearch.ptx.statement import instruction_text, variable_text
from ptxsearch.ptx.syntax import Function, Group, Module, Name, Source, Variable

_Item = tuple[int, str]


def render(module: Module, *, keep_lines: bool = True) -> str:
    """PTX text that parses to an equal module.

    Debug sections are no part of a module: the text of one with `.target ..., debug` has none.
    With `keep_lines` every statement stands on the line its record names; without, each stands
    on a line of its own, so that the text depends on no line number.
    """
    files = _files(module)
    head = [f".version {module.version[0]}.{module.version[1]}"]
    head.append(f".target {', '.join((module.target, *module.options))}")
    head.append(f".address_size {module.address_size}")
    head += [f'.file {number} "{name}"' for name, number in files.items()]
    head += [f'.pragma "{text}";' for text in module.pragmas]
    items: list[_Item] = [(0, line) for line in head]
    items += [(0, "\n".join(t for _, t in _header(f)) + ";") for f in _forward(module)]
    for _, block in sorted(_blocks(module, files), key=lambda block: block[0]):
        items += block
    items += [(0, f".alias {alias}, {name};") for alias, name in module.aliases.items()]
    return _laid_out(items) if keep_lines else "\n".join(text for _, text in items) + "\n"


def _laid_out(items: Iterable[_Item]) -> str:
    """The items each on its line; an item with a smaller line follows on the current one."""
    parts: list[str] = []
    current = 1
    for line, text in items:
        parts.append("\n" * (line - current) if line > current else " ")
        parts.append(text.replace("\n", " "))
        current = max(current, line)
    return "".join(parts).lstrip(" ") + "\n"


def _files(module: Module) -> dict[str, int]:
    """The files that instructions come from, numbered from 1 in order of appearance."""
    numbers: dict[str, int] = {}
    for function in module.functions.values():
        for instruction in function.instructions:
            if instruction.source is not None:
                numbers.setdefault(instruction.source.file, len(numbers) + 1)
    return numbers


def _blocks(module: Module, files: dict[str, int]) -> Iterator[tuple[tuple[int, int], list[_Item]]]:
    """Variables and functions with a sort key that follows the source's order."""
    for variable in module.variables.values():
        yield (variable.line, 1), [(variable.line, variable_text(variable) + ";")]
    for function in module.functions.values():
        if function.declared:
            header = _header(function)
            yield (function.line, 0), [*header[:-1], (header[-1][0], header[-1][1] + ";")]
        else:
            yield (function.line, 2), [*_header(function), *_body(function, files)]


def _forward(module: Module) -> Iterator[Function]:
    """Functions that are named ahead of their definition and so need a prototype."""
    first = {ref.name: -1 for var in module.variables.values() for ref in var.references}
    for position, function in enumerate(module.functions.values()):
        for name in _named(function):
            first.setdefault(name, position)
    for position, function in enumerate(module.functions.values()):
        if not function.declared and first.get(function.name, position) < position:
            yield function


def _named(function: Function) -> Iterator[str]:
    """Names that a function's body mentions."""
    for instruction in function.instructions:
        yield from (operand.name for operand in instruction.operands if isinstance(operand, Name))
    for table in function.tables.values():
        yield from table


def _header(function: Function) -> list[_Item]:
    words = [f".{function.linkage}"] if function.linkage else []
    words.append(f".{function.kind}")
    if function.attributes:
        words.append(f".attribute({', '.join(function.attributes)})")
    items: list[_Item] = [(function.line, " ".join(words))]
    if function.returns:
        items += _formals(function.returns)
    items.append((0, function.name))
    items += _formals(function.params)
    for name, values in function.directives.items():
        items.append((0, f".{name} {', '.join(map(str, values))}".rstrip()))
    items += [(0, f'.pragma "{text}";') for index, text in function.pragmas if index < 0]
    return items


def _formals(variables: tuple[Variable, ...]) -> list[_Item]:
    items: list[_Item] = [(0, "(")]
    for position, variable in enumerate(variables):
        comma = "," if position + 1 < len(variables) else ""
        items.append((variable.line, variable_text(variable) + comma))
    return [*items, (0, ")")]


def _body(function: Function, files: dict[str, int]) -> Iterator[_Item]:
    yield 0, "{"
    formal = {variable.name for variable in (*function.params, *function.returns)}
    declared = [(kind, name) for name, kind in function.registers.items() if name not in formal]
    for kind, group in groupby(sorted(declared), key=lambda pair: pair[0]):
        yield 0, f".reg .{kind.replace('.', ' .')} {', '.join(name for _, name in group)};"
    calls = any(i.operands and isinstance(i.operands[0], Group) for i in function.instructions)
    for label, names in function.tables.items():
        local = not calls or all(name in function.labels for name in names)
        word = "branchtargets" if local else "calltargets"
        yield 0, f"{label}: .{word} {', '.join(names)};"
    yield from _statements(function, files)
    yield 0, "}"


def _statements(function: Function, files: dict[str, int]) -> Iterator[_Item]:
    """Labels, pragmas, declarations and instructions in source order."""
    labels: dict[int, list[str]] = {}
    for label, index in function.labels.items():
        labels.setdefault(index, []).append(f"{label}:")
    for index, text in function.pragmas:
        labels.setdefault(index, []).append(f'.pragma "{text}";')
    declarations = sorted(_declarations(function), key=lambda item: item[0])[::-1]
    source: Source | None = None
    for index, instruction in enumerate(function.instructions):
        while declarations and declarations[-1][0] <= instruction.line:
            yield declarations.pop()
        yield from ((instruction.line, text) for text in labels.get(index, ()))
        if instruction.source != source and instruction.source is not None:
            source = instruction.source
            yield instruction.line, f".loc {files[source.file]} {source.line} 0"
        yield instruction.line, instruction_text(instruction)
    yield from reversed(declarations)
    yield from ((0, text) for text in labels.get(len(function.instructions), ()))


def _declarations(function: Function) -> Iterator[_Item]:
    for variable in function.variables:
        yield variable.line, variable_text(variable) + ";"
    for label, (returns, params) in function.prototypes.items():
        parts = []
        for formals in (returns, params):
            parts.append(f"({', '.join(variable_text(v) for v in formals)})" if formals else "")
        line = min((v.line for v in (*returns, *params)), default=0)
        yield line, f"{label}: .callprototype {parts[0]} _ {parts[1]};"
