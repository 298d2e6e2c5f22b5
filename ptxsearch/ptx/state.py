"""Lint of module variables: state that would outlive a launch is refused.

A forward data flow finds which registers, parameters and local memory may hold the address of a
module variable. It ignores the order of instructions, so it misses no path; addresses are followed
through arithmetic, calls and local memory. An address that reaches other memory, or code that is
not in the module, is reported, because from there it could be written through unseen.
"""

from __future__ import annotations

from collections.abc import Iterator

from ptxsearch.ptx.finding import Finding
from ptxsearch.ptx.syntax import (
    Address,
    Function,
    Group,
    Instruction,
    Module,
    Name,
    Operand,
    Pair,
    Register,
    Variable,
    Vector,
)

PRINTING = frozenset({"vprintf", "__assertfail"})
_LOADS = frozenset({"ld", "ldu", "ldmatrix", "tex", "tld4", "suld", "txq", "suq"})
_HARMLESS = frozenset({"prefetch", "prefetchu", "isspacep", "setp", "brx", "bra"})

Addresses = frozenset[str]
_Step = tuple[Function, Instruction]
_NOTHING: Addresses = frozenset()
_LOCAL = "(local)"
_ANY = "(any)"
_TOLD_APART = 64
_STACK = ("", _LOCAL)


def module_state(module: Module) -> tuple[Finding, ...]:
    """Why the variables of a module are more than constant tables; none if they are not."""
    variables = _persistent(module)
    if not variables:
        return ()
    # nvcc 13 declares a helper variable for atomicExch that nothing uses.
    used = _mentioned(module)
    unset = [v for v in variables.values() if v.init is None and v.name in used]
    pointers = {
        name: v for name, v in module.variables.items() if v.space == "const" and v.references
    }
    return (*map(_unset, unset), *_Flow(module, variables | pointers).findings())


def _persistent(module: Module) -> dict[str, Variable]:
    """The variables whose contents outlive a launch: every `.global` one."""
    found = {name: v for name, v in module.variables.items() if v.space == "global"}
    for function in module.functions.values():
        found |= {v.name: v for v in function.variables if v.space == "global"}
    return found


def _mentioned(module: Module) -> frozenset[str]:
    """Every name that an instruction or an initialiser uses."""
    found: set[str] = set()
    for function in module.functions.values():
        for instruction in function.instructions:
            for operand in instruction.operands:
                found |= set(_names(operand.base if isinstance(operand, Address) else operand))
        found |= {r.name for variable in function.variables for r in variable.references}
    found |= {r.name for variable in module.variables.values() for r in variable.references}
    return frozenset(found)


def _unset(variable: Variable) -> Finding:
    return Finding(
        "module-state",
        variable.line,
        f"module variable '{variable.name}' has no initialiser; only constant tables are allowed "
        "in .global, pass memory that a kernel writes as a scratch argument",
    )


class _Flow:
    """The fixed point: which module variables each (function, holder) may hold the address of."""

    def __init__(self, module: Module, variables: dict[str, Variable]) -> None:
        self.module = module
        self.variables = variables
        self.holds: dict[tuple[str, str], Addresses] = {}
        self.local = {
            (function.name, variable.name)
            for function in module.functions.values()
            for variable in function.variables
            if variable.space == "local"
        }
        self.names = {name: name if len(variables) <= _TOLD_APART else _ANY for name in variables}
        self.pointed: dict[str, Addresses] = {}
        for name, variable in variables.items():
            targets = {self.names.get(reference.name, "") for reference in variable.references}
            known = self.pointed.get(self.names[name], _NOTHING)
            self.pointed[self.names[name]] = known | (targets - {""})
        self.found: dict[tuple[int, str], Finding] = {}
        self.stack_escapes: dict[int, Instruction] = {}
        self._readers: dict[tuple[str, str], list[_Step]] = {}
        self._waiting: list[_Step] = []

    def findings(self) -> tuple[Finding, ...]:
        """Every write to a module variable and every escape of an address of one."""
        for function in self.module.functions.values():
            for instruction in function.instructions:
                self._waiting.append((function, instruction))
                for holder in self._reads(function, instruction):
                    self._readers.setdefault(holder, []).append((function, instruction))
        self._waiting.reverse()
        while self._waiting:
            self._step(*self._waiting.pop())
        for instruction in self.stack_escapes.values():
            self._escapes(instruction, self.holds.get(_STACK, _NOTHING), "memory")
        return tuple(self.found[key] for key in sorted(self.found))

    def _reads(self, function: Function, instruction: Instruction) -> Iterator[tuple[str, str]]:
        """The holders whose change makes an instruction worth another look."""
        for operand in instruction.operands:
            for name in _names(operand.base if isinstance(operand, Address) else operand):
                yield function.name, name
        if instruction.opcode == "call":
            for possible in self._possible(instruction):
                yield from ((possible.name, formal.name) for formal in possible.returns)
        elif instruction.opcode in _LOADS:
            yield _STACK

    def _add(self, function: str, holder: str, addresses: Addresses) -> None:
        known = self.holds.get((function, holder), _NOTHING)
        if not addresses <= known:
            self.holds[function, holder] = known | addresses
            self._waiting += self._readers.get((function, holder), ())

    def _of(self, function: Function, operand: Operand | None) -> Addresses:
        """What an operand may be the address of."""
        match operand:
            case Register(name):
                return self.holds.get((function.name, name), _NOTHING)
            case Name(name):
                if (function.name, name) in self.local:
                    return frozenset({_LOCAL})
                own = frozenset({self.names[name]}) if name in self.names else _NOTHING
                return own | self.holds.get((function.name, name), _NOTHING)
            case Address(base):
                return self._of(function, base)
            case Vector(elements) | Group(elements):
                return _NOTHING.union(*(self._of(function, element) for element in elements))
        return _NOTHING

    def _step(self, function: Function, instruction: Instruction) -> None:
        opcode, operands = instruction.opcode, instruction.operands
        if opcode in _HARMLESS or not operands:
            return
        if opcode == "call":
            self._call(function, instruction)
        elif opcode == "st":
            self._store(function, instruction)
        elif opcode in _LOADS or (opcode == "wmma" and instruction.modifiers[:1] == ("load",)):
            self._load(function, instruction)
        elif opcode in ("mov", "cvta") or not _memory(operands):
            sources = _NOTHING.union(*(self._of(function, source) for source in operands[1:]))
            self._write(function, operands[0], sources)
        else:
            self._other(function, instruction)

    def _write(self, function: Function, destination: Operand, addresses: Addresses) -> None:
        if addresses:
            for name in _names(destination):
                self._add(function.name, name, addresses)

    def _load(self, function: Function, instruction: Instruction) -> None:
        source = _NOTHING.union(*(self._of(function, o) for o in instruction.operands[1:]))
        contents: Addresses = source if "param" in _spaces(instruction) else _NOTHING
        if _LOCAL in source or "local" in instruction.modifiers:
            contents |= self.holds.get(_STACK, _NOTHING)
        self._write(function, instruction.operands[0], contents | self._referenced(source))

    def _referenced(self, names: Addresses) -> Addresses:
        """Module variables whose addresses stand in the initialisers of `names`."""
        return _NOTHING.union(*(self.pointed.get(name, _NOTHING) for name in names))

    def _store(self, function: Function, instruction: Instruction) -> None:
        target = self._of(function, instruction.operands[0])
        values = _NOTHING.union(*(self._of(function, o) for o in instruction.operands[1:]))
        address = instruction.operands[0]
        base = address.base if isinstance(address, Address) else None
        if "param" in _spaces(instruction) and isinstance(base, Name):
            self._add(function.name, base.name, values)
            return
        self._writes(instruction, target)
        if "local" in instruction.modifiers or target == {_LOCAL}:
            self._add(*_STACK, values)
        else:
            self._escapes(instruction, values, "memory")

    def _call(self, function: Function, instruction: Instruction) -> None:
        returns, target, arguments, *_ = instruction.operands
        if not isinstance(returns, Group) or not isinstance(arguments, Group):
            return
        name = target.name if isinstance(target, Name) else ""
        callee = self._callee(instruction)
        if callee is not None:
            for formal, argument in zip(callee.params, arguments.elements, strict=False):
                self._add(callee.name, formal.name, self._of(function, argument))
        elif name not in PRINTING:
            passed = self._of(function, arguments)
            self._escapes(instruction, passed, f"a call of '{name or 'a pointer'}'")
        for possible in self._possible(instruction):
            for formal, result in zip(possible.returns, returns.elements, strict=False):
                held = self.holds.get((possible.name, formal.name), _NOTHING)
                self._write(function, result, held)

    def _possible(self, instruction: Instruction) -> list[Function]:
        """The functions whose results a call may give: one, or any for a call by pointer."""
        if isinstance(instruction.operands[1], Register):
            return [f for f in self.module.functions.values() if f.returns and not f.declared]
        callee = self._callee(instruction)
        return [] if callee is None else [callee]

    def _callee(self, instruction: Instruction) -> Function | None:
        """The function that a call runs, if the module defines it."""
        target = instruction.operands[1] if len(instruction.operands) > 1 else None
        if not isinstance(target, Name):
            return None
        name = self.module.aliases.get(target.name, target.name)
        callee = self.module.functions.get(name)
        return None if callee is None or callee.declared else callee

    def _other(self, function: Function, instruction: Instruction) -> None:
        """Atomics, copies, barriers, matrix stores: all but a copy's source is written."""
        copies = instruction.opcode == "cp"
        for position, operand in enumerate(instruction.operands):
            addresses = self._of(function, operand)
            if not isinstance(operand, Address | Group) and not position:
                continue
            if not isinstance(operand, Address):
                self._escapes(instruction, addresses, "memory")
            elif copies and position == 1:
                self._escapes(instruction, self._referenced(addresses), "memory")
            else:
                self._writes(instruction, addresses)

    def _writes(self, instruction: Instruction, addresses: Addresses) -> None:
        for name in sorted(addresses - {_LOCAL}):
            message = (
                f"{instruction.mnemonic} may write to module variable '{name}', which keeps its "
                "value between launches; module variables may only be read, pass memory that the "
                "kernel writes as a scratch argument"
            )
            self.found[instruction.line, message] = Finding(
                "module-state", instruction.line, message
            )

    def _escapes(self, instruction: Instruction, addresses: Addresses, where: str) -> None:
        if _LOCAL in addresses:
            self.stack_escapes[id(instruction)] = instruction
        for name in sorted(addresses - {_LOCAL}):
            message = (
                f"{instruction.mnemonic} lets the address of module variable '{name}' escape to "
                f"{where}, so that it could be written unseen; use the address only to load from"
            )
            self.found[instruction.line, message] = Finding(
                "module-state", instruction.line, message
            )


def _spaces(instruction: Instruction) -> set[str]:
    """The state spaces among the modifiers, without the part behind `::`."""
    return {modifier.split("::")[0] for modifier in instruction.modifiers}


def _memory(operands: tuple[Operand, ...]) -> bool:
    return any(isinstance(operand, Address) for operand in operands)


def _names(operand: Operand | None) -> Iterator[str]:
    """Names of what an operand writes where it is a destination."""
    match operand:
        case Register(name) | Name(name):
            yield name
        case Vector(elements) | Group(elements):
            for element in elements:
                yield from _names(element)
        case Pair(first, second):
            yield from _names(first)
            yield from _names(second)
