"""`normalise`: one text for all modules that differ in nothing the machine code depends on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ptxsearch.ptx.dead import live_instructions, names, registers
from ptxsearch.ptx.memory import called
from ptxsearch.ptx.render import render
from ptxsearch.ptx.syntax import (
    Address,
    Function,
    Group,
    Guard,
    Instruction,
    Module,
    Name,
    Negated,
    Operand,
    Pair,
    Register,
    Variable,
    Vector,
)


def normalise(module: Module, *, entry: str = "") -> str:
    """Text that is equal for equal kernels.

    It does not depend on names of registers, labels, variables, parameters and functions, nor on
    comments, layout, the order of declarations and functions, debug information or dead code. It
    does on every live instruction, constant, size, alignment and directive. With `entry` only
    that entry and what it calls is looked at; without it entries stand in the order of their text.
    """
    wanted = [entry] if entry else list(module.entries)
    if not wanted:
        wanted = [name for name, function in module.functions.items() if not function.declared]
    trimmed = {name: _trimmed(function) for name, function in module.functions.items()}
    module = replace(module, functions=trimmed)
    functions = [trimmed[name] for name in wanted if name in trimmed]
    return "\n".join(sorted(_entry_text(module, function) for function in functions))


def _entry_text(module: Module, entry: Function) -> str:
    """One entry with the functions and variables it uses, renamed in order of first use."""
    functions = called(module, entry)
    renaming = _Renaming(module)
    for function in functions:
        renaming.function(function)
    for function in functions:
        renaming.body(function)
    variables = [renaming.variable(module.variables[name]) for name in renaming.variables]
    return render(
        replace(
            module,
            functions={f.name: f for f in map(renaming.renamed, functions)},
            variables={variable.name: variable for variable in variables},
            aliases={},
        ),
        keep_lines=False,
    )


def _trimmed(function: Function) -> Function:
    """The function with its live instructions, without lines, sources and unused labels."""
    kept = live_instructions(function)
    place = {old: new for new, old in enumerate(kept)}
    count = len(function.instructions)
    following = [0] * (count + 1)
    following[count] = len(kept)
    for index in range(count - 1, -1, -1):
        following[index] = place.get(index, following[index + 1])
    instructions = tuple(
        replace(function.instructions[index], line=0, source=None) for index in kept
    )
    used = {name for i in instructions for operand in i.operands for name in names(operand)}
    tables = {label: table for label, table in function.tables.items() if label in used}
    used |= {name for table in tables.values() for name in table}
    return replace(
        function,
        line=0,
        instructions=instructions,
        labels={n: following[at] for n, at in function.labels.items() if n in used},
        tables=tables,
        prototypes={n: p for n, p in function.prototypes.items() if n in used},
        directives=dict(sorted(function.directives.items())),
        pragmas=tuple(
            (following[at] if at >= 0 else at, text)
            for at, text in function.pragmas
            if at < 0 or at in place or following[at] < len(kept)
        ),
    )


class _Renaming:
    """New names, given in order of first use, for everything an entry uses."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.functions: dict[str, str] = {}
        self.variables: dict[str, str] = {}
        self.locals: dict[str, dict[str, str]] = {}
        self.counts: dict[str, int] = {}

    def function(self, function: Function) -> None:
        """Name a function, its labels by place and its parameters by position."""
        name = function.name if function.declared else f"f{len(self.functions)}"
        self.functions[function.name] = name
        given: dict[str, str] = {}
        for kind, formals in (("p", function.params), ("q", function.returns)):
            for position, variable in enumerate(formals):
                given[variable.name] = f"{kind}{position}"
        places = sorted(set(function.labels.values()))
        number = {at: position for position, at in enumerate(places)}
        for label, at in function.labels.items():
            given[label] = f"$L{number[at]}"
        self.locals[function.name] = given

    def body(self, function: Function) -> None:
        """Name what the body of a function uses in the order in which it does."""
        given = self.locals[function.name]
        own = {variable.name: variable.space for variable in function.variables}
        taken = 0
        for instruction in function.instructions:
            guard = [instruction.guard.register] if instruction.guard else []
            for operand in (*guard, *instruction.operands):
                for register in registers(operand):
                    if register not in given:
                        given[register] = f"%r{taken}"
                        taken += 1
                for name in names(operand):
                    self._name(name, given, own)
        for table in function.tables.values():
            for name in table:
                self._name(name, given, own)

    def _name(self, name: str, given: dict[str, str], own: dict[str, str]) -> None:
        if name in given or name in self.functions:
            return
        if name in self.module.variables and name not in own:
            self._global(name)
        else:
            kind = own.get(name, "t")
            self.counts[kind] = self.counts.get(kind, -1) + 1
            given[name] = f"{kind}{self.counts[kind]}"

    def _global(self, name: str) -> None:
        """Name a module variable, then those that its initialiser refers to."""
        waiting = [name]
        while waiting:
            name = waiting.pop()
            if name in self.module.variables and name not in self.variables:
                self.variables[name] = f"g{len(self.variables)}"
                waiting += [r.name for r in reversed(self.module.variables[name].references)]

    def variable(self, variable: Variable, given: dict[str, str] | None = None) -> Variable:
        """A variable under its new name, without its line."""
        references = tuple(replace(r, name=self._known(r.name)) for r in variable.references)
        name = (given or {}).get(variable.name) or self._known(variable.name)
        return replace(variable, name=name, line=0, references=references)

    def _known(self, name: str) -> str:
        return self.variables.get(name) or self.functions.get(name) or name

    def renamed(self, function: Function) -> Function:
        """A function with every name in it replaced."""
        given = self.locals[function.name]

        def new(name: str) -> str:
            return given.get(name) or self._known(name)

        used = [variable for variable in function.variables if variable.name in given]
        return replace(
            function,
            name=self.functions[function.name],
            params=tuple(self.variable(v, given) for v in function.params),
            returns=tuple(self.variable(v, given) for v in function.returns),
            registers={new(n): kind for n, kind in function.registers.items() if n in given},
            variables=tuple(sorted((self.variable(v, given) for v in used), key=lambda v: v.name)),
            instructions=tuple(_replaced(i, new) for i in function.instructions),
            labels={new(name): at for name, at in sorted(function.labels.items(), key=_place)},
            tables={new(label): tuple(map(new, t)) for label, t in function.tables.items()},
            prototypes={
                new(label): (tuple(map(_anonymous, returns)), tuple(map(_anonymous, params)))
                for label, (returns, params) in function.prototypes.items()
            },
        )


def _place(item: tuple[str, int]) -> int:
    return item[1]


def _anonymous(variable: Variable) -> Variable:
    return replace(variable, name="_", line=0)


def _replaced(instruction: Instruction, new: Callable[[str], str]) -> Instruction:
    guard = instruction.guard
    if guard is not None:
        guard = Guard(replace(guard.register, name=new(guard.register.name)), guard.negated)
    return replace(
        instruction, guard=guard, operands=tuple(_operand(o, new) for o in instruction.operands)
    )


def _operand(operand: Operand, new: Callable[[str], str]) -> Operand:
    match operand:
        case Register(name, component):
            return Register(new(name), component)
        case Name(name):
            return Name(new(name))
        case Negated(Register(name, component)):
            return Negated(Register(new(name), component))
        case Address(Register(name, component), offset):
            return Address(Register(new(name), component), offset)
        case Address(Name(name), offset):
            return Address(Name(new(name)), offset)
        case Vector(elements):
            return Vector(tuple(_operand(element, new) for element in elements))
        case Group(elements):
            return Group(tuple(_operand(element, new) for element in elements))
        case Pair(first, second):
            return Pair(_operand(first, new), _operand(second, new))
    return operand
