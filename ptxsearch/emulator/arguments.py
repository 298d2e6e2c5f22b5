"""Kernel arguments: numpy arrays become buffers, scalars and bytes the parameter block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxsearch.emulator.halt import Refused
from ptxsearch.emulator.memory import Allocation, Memory
from ptxsearch.emulator.operation import Array
from ptxsearch.emulator.program import Program
from ptxsearch.plural import plural
from ptxsearch.ptx.syntax import Variable


@dataclass(frozen=True, slots=True)
class Undefined:
    """A buffer whose contents count as never written."""

    array: Array


def undefined(array: Array) -> Undefined:
    """The array as an argument whose contents are undefined before the launch."""
    return Undefined(array)


@dataclass(frozen=True, slots=True)
class View:
    """A buffer argument: where it lies in which allocation."""

    name: str
    allocation: Allocation
    offset: int
    size: int


class Buffers:
    """The allocations of base arrays; each keeps its address for the module's life."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._known: dict[int, tuple[Array, Allocation]] = {}

    def view(self, name: str, argument: Array | Undefined) -> View:
        """The buffer of an array, allocated on first sight."""
        array = argument.array if isinstance(argument, Undefined) else argument
        base = _base_of(array)
        known = self._known.get(id(base))
        if known is None:
            allocation = self._memory.add(name, "global", _flat(name, base))
            self._known[id(base)] = (base, allocation)
        else:
            allocation = known[1]
        offset = array.ctypes.data - base.ctypes.data if array.size else 0
        size = array.nbytes
        if not array.flags.c_contiguous:
            raise Refused(f"argument {name}: the array is not contiguous; pass a contiguous view")
        if base is array:
            allocation.name = name
        if isinstance(argument, Undefined):
            _undefine(allocation, offset, size)
        return View(name, allocation, offset, size)


def _undefine(allocation: Allocation, offset: int, size: int) -> None:
    if allocation.defined is None:
        allocation.defined = np.ones(allocation.size, np.bool_)
    allocation.defined[offset : offset + size] = False


def _base_of(array: Array) -> Array:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _flat(name: str, base: Array) -> Array:
    if base.dtype.hasobject:
        raise Refused(f"argument {name}: an array of objects cannot be a buffer; use numbers")
    if not base.flags.c_contiguous:
        if not base.flags.f_contiguous:
            raise Refused(f"argument {name}: the base array is not contiguous")
        base = base.T
    flat: Array = base.reshape(-1).view(np.uint8)
    return flat


def parameter_block(
    program: Program, arguments: Sequence[Any] | Mapping[str, Any], buffers: Buffers
) -> tuple[Array, list[View]]:
    """The bytes of the parameter block and the buffers among the arguments."""
    parameters = program.entry.params
    if isinstance(arguments, str | bytes) or not isinstance(arguments, Sequence | Mapping):
        raise Refused(f"args is a {type(arguments).__name__}; pass a list or a mapping")
    if len(arguments) != len(parameters):
        raise Refused(
            f"{program.entry.name} takes {plural(len(parameters), 'argument')}, "
            f"got {len(arguments)}"
        )
    named = isinstance(arguments, Mapping)
    pairs = (
        list(arguments.items())
        if isinstance(arguments, Mapping)
        else [(p.name, a) for p, a in zip(parameters, arguments, strict=True)]
    )
    block = np.zeros(max(program.parameter_bytes, 1), np.uint8)
    views: list[View] = []
    for parameter, (name, argument) in zip(parameters, pairs, strict=True):
        start = program.parameters[parameter.name]
        label = name if named else parameter.name
        if isinstance(argument, Undefined | np.ndarray):
            view = buffers.view(label, argument)
            views.append(view)
            raw = (view.allocation.base + view.offset).to_bytes(8, "little")
        else:
            raw = _scalar(label, argument, parameter)
        if len(raw) != parameter.size:
            raise Refused(
                f"argument {label}: the parameter takes {plural(parameter.size, 'byte')}, "
                f"got {len(raw)}"
            )
        block[start : start + len(raw)] = np.frombuffer(raw, np.uint8)
    return block, views


def _scalar(name: str, argument: Any, parameter: Variable) -> bytes:
    if isinstance(argument, bytes | bytearray):
        return bytes(argument)
    if isinstance(argument, np.generic):
        return argument.tobytes()
    if isinstance(argument, bool | int | float):
        if parameter.type in ("f32", "f64"):
            kind: type[np.generic[Any]] = np.float32 if parameter.type == "f32" else np.float64
            return kind(argument).tobytes()
        if isinstance(argument, float):
            raise Refused(f"argument {name}: a float for a parameter of type {parameter.type}")
        mask = (1 << 8 * parameter.size) - 1
        if not -(mask // 2 + 1) <= int(argument) <= mask:
            raise Refused(f"argument {name}: {argument} does not fit into {parameter.type}")
        return (int(argument) & mask).to_bytes(parameter.size, "little")
    raise Refused(
        f"argument {name}: got {type(argument).__name__}; pass a numpy array, a numpy scalar, a "
        "number or bytes"
    )
