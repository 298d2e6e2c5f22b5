"""One entry of a module with all that it can call, laid out in memory and translated on demand."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from ptxsearch.emulator.code import Code, Place
from ptxsearch.emulator.halt import Refused
from ptxsearch.emulator.instructions import builder_of
from ptxsearch.emulator.memory import CODE_WINDOW, Allocation
from ptxsearch.emulator.operation import Array
from ptxsearch.emulator.translate import Translator, entry_parameters, parameter_address
from ptxsearch.ptx.syntax import Function, Instruction, Module, Name, Variable
from ptxsearch.ptx.syntax import Group as Operands

SHARED_GAP = 256
"""Bytes between shared variables that belong to none; a multiple of 128 keeps the banks."""

_LOCAL_SYMBOL = re.compile(r"_ZZ.*E(\d+)(?=[A-Za-z_])")


class Program:
    """The code of an entry. `globals` are the allocations of module variables by name."""

    def __init__(self, module: Module, entry: Function, globals_: Mapping[str, Allocation]) -> None:
        self.module = module
        self.entry = entry
        self.globals = globals_
        self.parameters, self.parameter_bytes = entry_parameters(entry)
        self.places: list[Place] = []
        self.dynamic: list[str] = []
        self.static_shared = 0
        self._shared: dict[str, int] = {}
        self._codes: dict[str, Code] = {}
        self._order = list(module.functions)
        self._lay_out_shared()

    def _reachable(self) -> list[Function]:
        """The entry and every function it may call; all of them where a call is indirect."""
        seen, work = {self.entry.name}, [self.entry]
        while work:
            function = work.pop()
            for instruction in function.instructions:
                for name in _functions_named(instruction):
                    if name in self.module.functions and name not in seen:
                        seen.add(name)
                        work.append(self.module.functions[name])
        return [self.module.functions[name] for name in self._order if name in seen]

    def _lay_out_shared(self) -> None:
        """Place static shared variables with gaps, then the dynamic ones at one address."""
        functions = self._reachable()
        variables = [v for f in functions for v in f.variables if v.space == "shared"]
        used = {name for f in functions for i in f.instructions for name in _names(i)}
        variables += [
            v for v in self.module.variables.values() if v.space == "shared" and v.name in used
        ]
        at = real = 0
        for variable in variables:
            if _unsized(variable):
                self.dynamic.append(variable.name)
                continue
            align = max(variable.align, 16)
            at = -(-at // align) * align
            self._shared[variable.name] = at
            self.places.append(Place(source_name(variable.name), "shared", at, variable.size))
            at += -(-(variable.size + SHARED_GAP) // 128) * 128
            real = -(-real // variable.align) * variable.align + variable.size
        self.static_shared = real
        self.dynamic_start = -(-at // 128) * 128
        for name in self.dynamic:
            self._shared[name] = self.dynamic_start

    def address(self, name: str, function: Function) -> int:
        """The address of a variable in its space, of a parameter or of a function."""
        if function.is_entry and name in self.parameters:
            return parameter_address(self.parameters[name])
        if name in self._shared:
            return self._shared[name]
        found = self.globals.get(name)
        if found is not None:
            return found.base
        if name in self.module.functions:
            return CODE_WINDOW + 16 * (self._order.index(name) + 1)
        raise Refused(f"{name} is no variable or function of this module")

    def function_at(self, address: int) -> Function | None:
        """The function with that address."""
        at, rest = divmod(address - CODE_WINDOW, 16)
        if rest or not 1 <= at <= len(self._order):
            return None
        function = self.module.functions[self._order[at - 1]]
        return None if function.declared else function

    def code(self, function: Function) -> Code:
        """The function translated."""
        found = self._codes.get(function.name)
        if found is None:
            found = Translator(self, function).translate(builder_of)
            self._codes[function.name] = found
        return found

    def forget(self) -> None:
        """Drop what was found out about addresses."""
        for code in self._codes.values():
            code.patterns.clear()

    def unused_shared(self, size: int, dynamic: int) -> Array:
        """A bool for each of a block's shared bytes that no variable covers."""
        unused = np.ones(size, np.bool_)
        for place in self.places:
            unused[place.start : place.start + place.size] = False
        unused[self.dynamic_start : self.dynamic_start + dynamic] = False
        return unused


def source_name(symbol: str) -> str:
    """The name of a variable in the source: C++ compilers decorate those local to a function."""
    found = _LOCAL_SYMBOL.match(symbol)
    if found is None:
        return symbol
    length = int(found.group(1))
    rest = symbol[found.end() :]
    return rest[:length] if length <= len(rest) else symbol


def function_addresses(module: Module) -> dict[str, int]:
    """The address of every function of a module."""
    return {name: CODE_WINDOW + 16 * (at + 1) for at, name in enumerate(module.functions)}


def _unsized(variable: Variable) -> bool:
    return variable.size == 0 or 0 in variable.shape


def _names(instruction: Instruction) -> list[str]:
    out: list[str] = []
    work = list(instruction.operands)
    while work:
        operand = work.pop()
        if isinstance(operand, Name):
            out.append(operand.name)
        elif isinstance(operand, Operands):
            work += operand.elements
        elif hasattr(operand, "base") and isinstance(operand.base, Name):
            out.append(operand.base.name)
        elif hasattr(operand, "elements"):
            work += operand.elements
    return out


def _functions_named(instruction: Instruction) -> list[str]:
    return _names(instruction)
