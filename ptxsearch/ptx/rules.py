"""`lint`: what ptxas lets pass but a launch of ours must refuse."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol

from ptxsearch.arch import ARCHES, Arch
from ptxsearch.plural import plural
from ptxsearch.ptx.alignment import misaligned
from ptxsearch.ptx.directives import idle_directives
from ptxsearch.ptx.finding import Finding
from ptxsearch.ptx.memory import memory_sizes
from ptxsearch.ptx.state import PRINTING, module_state
from ptxsearch.ptx.syntax import Function, Module, Name, Variable
from ptxsearch.ptx.vocabulary import TYPE_BYTES

_FLOATS = frozenset({"f16", "f32", "f64", "bf16", "f16x2"})
_GRID_LIMITS = (2**31 - 1, 65535, 65535)
_BLOCK_LIMITS = (1024, 1024, 64)


class LaunchFacts(Protocol):
    """What lint reads of a launch with evaluated numbers; an argument is a name or a number."""

    @property
    def entry(self) -> str:
        """The entry's name."""

    @property
    def args(self) -> tuple[str | int, ...]:
        """The arguments in order."""

    @property
    def grid(self) -> tuple[int, int, int]:
        """Blocks."""

    @property
    def block(self) -> tuple[int, int, int]:
        """Threads of a block."""

    @property
    def cluster(self) -> tuple[int, int, int]:
        """Blocks of a cluster."""

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory."""


def lint(
    module: Module,
    launches: Sequence[LaunchFacts],
    *,
    allow: Collection[str] = (),
    sizes: Mapping[str, int] | None = None,
    arch: str = "",
) -> tuple[Finding, ...]:
    """Every reason to refuse the module for these launches, in rule order; none if it passes.

    `sizes` gives the bytes of each named argument (8 for a buffer, 128 for a tensor map); without
    it only their number is checked. `allow` may hold "griddepcontrol". `arch` is the device's,
    by default the module's target.
    """
    limits = ARCHES.get((arch or module.target).rstrip("af"))
    found: list[Finding] = [*_entries(module, launches)]
    for launch in launches:
        entry = module.functions.get(launch.entry)
        if entry is not None and entry.is_entry:
            found += _arguments(entry, launch, sizes or {})
            found += _shape(entry, launch, limits)
            found += memory_sizes(module, entry, launch.shared_bytes, limits)
    found += module_state(module)
    found += _outside(module, allow)
    for function in module.functions.values():
        found += misaligned(module, function)
        found += idle_directives(function, limits)
    return tuple(dict.fromkeys(found))


def _entries(module: Module, launches: Sequence[LaunchFacts]) -> Iterator[Finding]:
    wanted = dict.fromkeys(launch.entry for launch in launches)
    there = ", ".join(module.entries) or "none"
    for name in wanted:
        if name not in module.entries:
            message = f"no entry '{name}' is defined, the module has {there}"
            yield Finding("entries", 0, f"{message}; name the launch after the .visible .entry")
    for name in module.entries:
        if name not in wanted:
            line = module.functions[name].line
            message = f"entry '{name}' is launched by nothing; remove it or declare its launch"
            yield Finding("entries", line, message)


def _arguments(entry: Function, launch: LaunchFacts, sizes: Mapping[str, int]) -> Iterator[Finding]:
    if len(launch.args) != len(entry.params):
        yield Finding(
            "arguments",
            entry.line,
            f"entry '{entry.name}' takes {plural(len(entry.params), 'parameter')}, its launch "
            f"gives {len(launch.args)}; list one argument for each parameter in order",
        )
        return
    for position, (param, argument) in enumerate(zip(entry.params, launch.args, strict=True)):
        reason = _mismatch(param, argument, sizes)
        if reason:
            yield Finding(
                "arguments",
                param.line,
                f"parameter {position} of '{entry.name}', {param.name}, {reason}",
            )


def _mismatch(param: Variable, argument: str | int, sizes: Mapping[str, int]) -> str:
    """Why an argument does not fit its parameter, or nothing."""
    if isinstance(argument, int):
        if param.shape or param.type in _FLOATS:
            return f"is .{param.type}, its argument {argument} an integer; declare it .u32 or .u64"
        bits = 8 * TYPE_BYTES[param.type]
        if not -(1 << (bits - 1)) <= argument < 1 << bits:
            return f"has {bits} bits, its argument {argument} does not fit; widen the parameter"
        return ""
    wanted = sizes.get(argument)
    if wanted is None or wanted == param.size:
        return ""
    return (
        f"has {plural(param.size, 'byte')}, its argument '{argument}' {wanted}; "
        "match the order and the types of the launch's arguments"
    )


def _shape(entry: Function, launch: LaunchFacts, limits: Arch | None) -> Iterator[Finding]:
    def finding(message: str) -> Finding:
        return Finding("shape", entry.line, f"launch of '{entry.name}': {message}")

    threads = math.prod(launch.block)
    most = limits.threads_per_block if limits else 1024
    if threads > most:
        yield finding(f"a block of {threads} threads exceeds {most}; use a smaller block")
    for what, extents, bounds in (
        ("grid", launch.grid, _GRID_LIMITS),
        ("block", launch.block, _BLOCK_LIMITS),
    ):
        if any(not 1 <= extent <= bound for extent, bound in zip(extents, bounds, strict=True)):
            yield finding(f"the {what} is {extents}, allowed are 1 to {bounds}; reshape it")
    required = entry.directives.get("reqntid")
    if required is not None and required != tuple(launch.block):
        yield finding(f".reqntid asks for {required}, the block is {launch.block}; make them equal")
    allowed = math.prod(entry.directives.get("maxntid", (most,)))
    if threads > allowed:
        yield finding(f".maxntid allows {allowed} threads, the block has {threads}; raise it")
    yield from map(finding, _cluster(entry, launch, limits))


def _cluster(entry: Function, launch: LaunchFacts, limits: Arch | None) -> Iterator[str]:
    declared = entry.directives.get("reqnctapercluster")
    cluster = tuple(launch.cluster)
    if declared is not None and cluster not in ((1, 1, 1), declared):
        yield f".reqnctapercluster is {declared}, the launch's cluster {cluster}; make them equal"
    shape = declared or cluster
    blocks = math.prod(shape)
    most = limits.cluster_blocks if limits else 8
    if blocks > most:
        yield f"a cluster of {blocks} blocks exceeds {most}; use a smaller cluster"
    if blocks > 1 and any(g % c for g, c in zip(launch.grid, shape, strict=True) if c):
        yield f"the grid {launch.grid} is no multiple of the cluster {shape}; round it up"


def _outside(module: Module, allow: Collection[str]) -> Iterator[Finding]:
    """Calls of code that is not in the module, and control over other grids."""
    for function in module.functions.values():
        for instruction in function.instructions:
            if instruction.opcode == "griddepcontrol" and "griddepcontrol" not in allow:
                message = f"{instruction.mnemonic} overlaps launches, which this task forbids"
                yield Finding("griddepcontrol", instruction.line, f"{message}; remove it")
            for operand in instruction.operands:
                if not isinstance(operand, Name) or operand.name in PRINTING:
                    continue
                callee = module.functions.get(operand.name)
                if callee is not None and callee.declared:
                    yield Finding(
                        "outside-code",
                        instruction.line,
                        f"'{operand.name}' is not defined in the module; only vprintf and "
                        "__assertfail may be called from outside (no device-side launches, no "
                        "device heap), write the function out",
                    )
