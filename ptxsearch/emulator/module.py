"""A loaded module: its variables live as long as it does, its entries can be launched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any

import numpy as np

from ptxsearch.emulator.arguments import Buffers, parameter_block
from ptxsearch.emulator.halt import Refused, Unable
from ptxsearch.emulator.launch import MAX_STEPS, Launch
from ptxsearch.emulator.memory import (
    PARAM_WINDOW,
    Allocation,
    Memory,
    variable_bytes,
)
from ptxsearch.emulator.operation import Array
from ptxsearch.emulator.program import Program, function_addresses, source_name
from ptxsearch.emulator.report import Report, Triple, Unsupported
from ptxsearch.emulator.setting import Setting
from ptxsearch.errors import UsageError
from ptxsearch.ptx import Module as Parsed
from ptxsearch.ptx import SyntaxFault, parse

GRID_LIMIT = (2**31 - 1, 65535, 65535)
BLOCK_LIMIT = (1024, 1024, 64)
THREAD_LIMIT = 1024
SHARED_LIMIT = 227 * 1024


class Module:
    """PTX loaded for emulation.

    A text that is no PTX gives a module whose launches report `invalid`; `fault` says why.
    """

    def __init__(self, ptx: str | bytes | Parsed, arch: str = "sm_90") -> None:
        parsed = ptx if isinstance(ptx, Parsed) else parse(ptx)
        self.arch = arch
        self.fault: SyntaxFault | None = parsed if isinstance(parsed, SyntaxFault) else None
        self.parsed: Parsed | None = parsed if isinstance(parsed, Parsed) else None
        self._memory = Memory()
        self._globals: dict[str, Allocation] = {}
        self._buffers = Buffers(self._memory)
        self._programs: dict[str, Program] = {}
        self._launches = 0
        if self.parsed is not None:
            self._load_variables(self.parsed)

    def _load_variables(self, parsed: Parsed) -> None:
        variables = [v for v in parsed.variables.values() if v.space in ("global", "const")]
        for function in parsed.functions.values():
            variables += [v for v in function.variables if v.space in ("global", "const")]
        for variable in variables:
            data = variable_bytes(variable.size, variable.init)
            name = source_name(variable.name)
            self._globals[variable.name] = self._memory.add(name, variable.space, data)
        functions = function_addresses(parsed)
        for variable in variables:
            data = self._globals[variable.name].data
            for reference in variable.references:
                target = self._globals.get(reference.name)
                address = target.base if target else functions.get(reference.name, 0)
                raw = (address + reference.addend).to_bytes(8, "little", signed=False)
                if reference.mask is not None:
                    shift = (reference.mask & -reference.mask).bit_length() - 1
                    raw = ((address + reference.addend) >> shift & 255).to_bytes(1, "little")
                part = np.frombuffer(raw[: reference.size], np.uint8)
                data[reference.at : reference.at + part.size] = part

    def _variable(self, name: str) -> Allocation:
        found = self._globals.get(name)
        if found is None:
            known = ", ".join(sorted(self._globals)) or "none"
            raise UsageError(f"no module variable {name!r}", f"this module has: {known}")
        return found

    def read_global(self, name: str) -> Array:
        """A copy of the bytes of a module variable."""
        return self._variable(name).data.copy()

    def write_global(self, name: str, array: Array) -> None:
        """Fill a module variable from its start with the array's bytes."""
        found = self._variable(name)
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        if raw.size > found.size:
            raise UsageError(
                f"{raw.size} bytes for {name!r}, which has {found.size}", "pass at most its size"
            )
        found.data[: raw.size] = raw

    def launch(
        self,
        entry: str,
        *,
        grid: Sequence[int] | int,
        block: Sequence[int] | int,
        cluster: Sequence[int] = (1, 1, 1),
        shared_bytes: int = 0,
        args: Sequence[Any] | Mapping[str, Any] = (),
        max_steps: int | None = None,
        checks: bool = True,
        blocks: Sequence[int] | Array | None = None,
        seconds: float | None = None,
    ) -> Report:
        """Run an entry and report what happened; arrays among `args` are changed in place.

        `args` are arrays (buffers), numpy scalars, numbers and bytes in the order of the
        parameters; a mapping gives them names for reports. `blocks` selects blocks by linear
        number; the others do not run. Without `checks` races, undefined reads and what was read
        are not looked for. `max_steps` bounds the instructions of one thread, `seconds` the time
        that the whole launch may take.
        """
        try:
            program = self._program(entry)
            setting = Setting(
                grid=_triple("grid", grid),
                block=_triple("block", block),
                dynamic_shared=_whole("shared_bytes", shared_bytes),
                max_steps=MAX_STEPS if max_steps is None else max_steps,
                checks=checks,
                blocks=_chosen(_triple("grid", grid), blocks),
                deadline=None if seconds is None else monotonic() + seconds,
                number=self._launches + 1,
            )
            _check_shape(program, setting)
            if _triple("cluster", cluster) != (1, 1, 1):
                raise Unable(Unsupported("cluster launch", program.entry.line, "clusters"))
            launch = self._prepare(program, setting, args)
        except Refused as refused:
            return Report("invalid", message=str(refused))
        except Unable as unable:
            return Report("unsupported", unsupported=unable.what, message=str(unable))
        return launch.run()

    def _prepare(
        self, program: Program, setting: Setting, args: Sequence[Any] | Mapping[str, Any]
    ) -> Launch:
        """The launch with its arguments in memory."""
        for allocation in self._memory:
            allocation.begin()
        data, views = parameter_block(program, args, self._buffers)
        name = program.entry.name
        self._memory.parameters = Allocation(name, "param", PARAM_WINDOW, data)
        self._launches += 1
        return Launch(program, self._memory, views, setting)

    def _program(self, entry: str) -> Program:
        if self.parsed is None:
            raise Refused(str(self.fault))
        found = self._programs.get(entry)
        if found is None:
            function = self.parsed.functions.get(entry)
            if function is None or not function.is_entry:
                known = ", ".join(self.parsed.entries) or "none"
                raise Refused(f"no entry {entry!r}; the module has: {known}")
            found = self._programs[entry] = Program(self.parsed, function, self._globals)
        return found


def _whole(name: str, value: Any) -> int:
    if not isinstance(value, int | np.integer) or value < 0:
        raise Refused(f"{name} is {value!r}; it must be an integer of at least 0")
    return int(value)


def _triple(name: str, value: Any) -> Triple:
    parts = tuple(value) if isinstance(value, Sequence | np.ndarray) else (value,)
    whole = all(isinstance(part, int | np.integer) and part >= 1 for part in parts)
    if not 1 <= len(parts) <= 3 or not whole:
        raise Refused(f"{name} is {value!r}; it must be one to three integers of at least 1")
    padded = [int(part) for part in parts] + [1] * (3 - len(parts))
    return padded[0], padded[1], padded[2]


def _chosen(grid: Triple, blocks: Sequence[int] | Array | None) -> range | Array:
    """The linear numbers of the blocks that run."""
    total = grid[0] * grid[1] * grid[2]
    if blocks is None:
        return range(total)
    chosen = np.asarray(blocks, np.int64)
    if chosen.size and (int(chosen.min()) < 0 or int(chosen.max()) >= total):
        raise Refused(f"blocks must lie in 0..{total - 1}")
    return chosen


def _check_shape(program: Program, setting: Setting) -> None:
    grid, block = setting.grid, setting.block
    threads = block[0] * block[1] * block[2]
    if threads > THREAD_LIMIT or any(b > m for b, m in zip(block, BLOCK_LIMIT, strict=True)):
        raise Refused(f"block {block} exceeds {THREAD_LIMIT} threads or {BLOCK_LIMIT}")
    if any(g > m for g, m in zip(grid, GRID_LIMIT, strict=True)):
        raise Refused(f"grid {grid} exceeds {GRID_LIMIT}")
    if program.static_shared + setting.dynamic_shared > SHARED_LIMIT:
        raise Refused(
            f"{program.static_shared} + {setting.dynamic_shared} bytes of shared memory exceed "
            f"{SHARED_LIMIT}"
        )
    directives = program.entry.directives
    required = directives.get("reqntid")
    if required and tuple(required) + (1,) * (3 - len(required)) != block:
        raise Refused(f"block {block} is not the required {tuple(required)}")
    most = directives.get("maxntid")
    if most:
        limit = 1
        for part in most:
            limit *= part
        if threads > limit:
            raise Refused(f"block of {threads} threads exceeds .maxntid {limit}")


def load(ptx: str | bytes | Parsed, arch: str = "sm_90") -> Module:
    """The module of a PTX text; its variables keep their contents between launches."""
    return Module(ptx, arch)


def emulate(ptx: str | bytes | Parsed, *, entry: str, arch: str = "sm_90", **launch: Any) -> Report:
    """The report of one launch in a freshly loaded module."""
    return load(ptx, arch).launch(entry, **launch)
