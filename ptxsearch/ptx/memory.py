"""Lint of memory sizes: what a launch asks for that the hardware has not got."""

from __future__ import annotations

from collections.abc import Iterator

from ptxsearch.arch import STATIC_SHARED, Arch
from ptxsearch.ptx.finding import Finding
from ptxsearch.ptx.syntax import Address, Function, Module, Name, Operand, Vector

_LOCAL_LIMIT = 512 * 1024
_CONST_LIMIT = 64 * 1024
_PARAM_LIMIT = 32764


def called(module: Module, entry: Function) -> tuple[Function, ...]:
    """The functions that may run when `entry` does: itself and all it names, directly or not."""
    found = {entry.name: entry}
    waiting = [entry]
    while waiting:
        function = waiting.pop()
        names = [name for table in function.tables.values() for name in table]
        for instruction in function.instructions:
            names += [o.name for o in instruction.operands if isinstance(o, Name)]
        for name in names:
            callee = module.functions.get(module.aliases.get(name, name))
            if callee is not None and callee.name not in found:
                found[callee.name] = callee
                waiting.append(callee)
    return tuple(found.values())


def shared_bytes(module: Module, entry: Function) -> int:
    """Static shared memory of a block at least: variables of all functions that may run."""
    total = 0
    named: set[str] = set()
    for function in called(module, entry):
        total += sum(v.size for v in function.variables if v.space == "shared")
        for instruction in function.instructions:
            for operand in instruction.operands:
                named.update(_named(operand))
    return total + sum(
        variable.size
        for variable in module.variables.values()
        if variable.space == "shared" and variable.name in named
    )


def _named(operand: Operand) -> Iterator[str]:
    match operand:
        case Name(name) | Address(Name(name)):
            yield name
        case Vector(elements):
            for element in elements:
                yield from _named(element)


def memory_sizes(
    module: Module, entry: Function, dynamic: int, limits: Arch | None
) -> Iterator[Finding]:
    """Findings on shared, local and parameter memory of a launch with `dynamic` shared bytes."""

    def finding(message: str) -> Finding:
        return Finding("memory", entry.line, f"entry '{entry.name}': {message}")

    static = shared_bytes(module, entry)
    if static > STATIC_SHARED:
        yield finding(
            f"{static} bytes of static shared memory exceed {STATIC_SHARED}; "
            "declare '.extern .shared x[]' and ask for dynamic bytes in the launch"
        )
    if limits is not None and static + dynamic > limits.shared_per_block:
        yield finding(
            f"{static} static and {dynamic} dynamic bytes of shared memory exceed "
            f"{limits.shared_per_block} on {limits.name}; use smaller tiles"
        )
    local = sum(
        variable.size
        for function in called(module, entry)
        for variable in function.variables
        if variable.space == "local"
    )
    if local > _LOCAL_LIMIT:
        yield finding(f"{local} bytes of local memory a thread exceed {_LOCAL_LIMIT}; use less")
    params = sum(param.size for param in entry.params)
    if params > _PARAM_LIMIT:
        yield finding(f"{params} bytes of parameters exceed {_PARAM_LIMIT}; pass a buffer instead")
    const = sum(v.size for v in module.variables.values() if v.space == "const")
    if const > _CONST_LIMIT:
        yield finding(f"{const} bytes of .const exceed {_CONST_LIMIT}; move tables to .global")
