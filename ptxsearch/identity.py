"""When two compiled kernels are the same: one key for machine code and launches that agree.

The key covers what the GPU executes and how it is launched, and nothing else. Names, debug data
and line information are left out, so renaming and reordering the source leave it equal; static
shared size, cluster shape, constant tables and launch values are in, because they differ under
equal machine code.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ptxsearch.elf import Cubin, Relocation, Section, Symbol, read
from ptxsearch.evaluation import Built
from ptxsearch.kernel import BoundLaunch, Kernel
from ptxsearch.ptx import SyntaxFault, normalise, parse

_OBJECT, _FUNCTION = 1, 2
# Attributes that begin with a symbol's index, and those that are nothing but such indices.
_SYMBOL_FIRST = frozenset({0x0A, 0x11, 0x12, 0x23, 0x2F})
_SYMBOLS_ONLY = frozenset({0x0F})
_SHARED_TABLES = (".nv.constant3", ".nv.constant4")


def identity(
    built: Built,
    launches: Iterable[tuple[str, Sequence[BoundLaunch]]],
    *,
    arch: str,
    toolchain: str = "",
) -> str:
    """The key of a compiled kernel under its evaluated launches of each workload, by name.

    Without a cubin the code is known by its normalised PTX.
    """
    sequences = [(name, list(sequence)) for name, sequence in launches]
    entries = {launch.entry for _, sequence in sequences for launch in sequence}
    codes = {entry: code_identity(built.cubin, entry) for entry in entries if built.cubin}
    for entry in entries - codes.keys():
        codes[entry] = _ptx_identity(built.ptx, entry)
    buffers = _Buffers(built.kernel)
    facts = [
        (name, [_launch_facts(launch, codes[launch.entry], buffers) for launch in sequence])
        for name, sequence in sequences
    ]
    return _digest(("kernel", arch, toolchain, facts))


def code_identity(cubin: bytes, entry: str) -> str:
    """The key of one entry's machine code and of everything it can reach.

    An entry that the cubin has not got is known by its name alone.
    """
    code = _Code(read(cubin))
    symbol = next((s for s in code.cubin.symbols if s.entry and s.name == entry), None)
    return _digest(("absent", entry)) if symbol is None else code.function(symbol)


def _ptx_identity(ptx: str, entry: str) -> str:
    module = parse(ptx)
    if isinstance(module, SyntaxFault):
        return _digest(("text", ptx, entry))
    return _digest(("ptx", normalise(module, entry=entry)))


def _launch_facts(launch: BoundLaunch, code: str, buffers: _Buffers) -> tuple[Any, ...]:
    return (
        code,
        tuple(launch.grid),
        tuple(launch.block),
        tuple(launch.cluster),
        launch.shared_bytes,
        tuple(buffers.argument(argument) for argument in launch.args),
    )


class _Buffers:
    """Arguments by what they are: scratch and tensor maps by their declaration, never their name.

    Their extents are expressions; the values those may use are part of the declaration.
    """

    def __init__(self, kernel: Kernel) -> None:
        derived: Mapping[str, str] = kernel.space.derived if kernel.space else {}
        values = (sorted(kernel.values.items()), sorted(derived.items()))
        self.facts: dict[str, tuple[Any, ...]] = {}
        for buffer in kernel.scratch:
            place = len(self.facts)
            self.facts[buffer.name] = (
                "scratch", place, buffer.dtype, buffer.shape, buffer.init, values,
            )  # fmt: skip
        for tensor in kernel.tensor_maps:
            of = self.argument(tensor.buffer)
            shape = (tensor.dims, tensor.strides, tensor.box, tensor.swizzle)
            self.facts[tensor.name] = ("map", of, tensor.dtype, shape, values)

    def argument(self, argument: str | int) -> tuple[Any, ...]:
        if isinstance(argument, int):
            return ("value", argument)
        return self.facts.get(argument, ("parameter", argument))


class _Code:
    """Digests of the functions and objects of one cubin."""

    def __init__(self, cubin: Cubin) -> None:
        self.cubin = cubin
        self.frames = self._frames()
        self._open: list[Symbol] = []
        self._done: dict[Symbol, str] = {}

    def function(self, symbol: Symbol) -> str:
        """The digest of a function; a function inside its own digest stands for its depth."""
        if symbol in self._done:
            return self._done[symbol]
        if symbol in self._open:
            return f"recursive {len(self._open) - self._open.index(symbol)}"
        self._open.append(symbol)
        name = self.cubin.sections[symbol.section].name.removeprefix(".text.")
        digest = _digest(
            (
                "function",
                self._contents(self.cubin.sections[symbol.section]),
                symbol.value,
                sorted(self._attributes(name)),
                self.frames.get(symbol.section, ()),
                [self._named(f".nv.constant{bank}.{name}") for bank in (0, 2)],
                [self._size(f".nv.{space}.{name}") for space in ("shared", "local")],
                [self._named(table) for table in _SHARED_TABLES],
                self._globals(),
            )
        )
        self._open.pop()
        if not self._open:
            self._done[symbol] = digest
        return digest

    def _contents(self, section: Section) -> tuple[Any, ...]:
        """Bytes and relocations, each with what its target holds."""
        relocations = [
            (r.offset, r.type, r.addend, self._target(r)) for r in self.cubin.relocations(section)
        ]
        return (section.data, section.size, relocations)

    def _named(self, name: str) -> tuple[Any, ...]:
        section = self.cubin.section(name)
        return () if section is None else self._contents(section)

    def _size(self, name: str) -> int:
        section = self.cubin.section(name)
        return 0 if section is None else section.size

    def _target(self, relocation: Relocation) -> str:
        symbol = self.cubin.symbols[relocation.symbol]
        if symbol.section == 0 or symbol.section >= len(self.cubin.sections):
            return f"outside {symbol.name}"
        if symbol.kind == _FUNCTION:
            return self.function(symbol)
        section = self.cubin.sections[symbol.section]
        if symbol.kind == _OBJECT:
            return _digest(("object", *self._object(section, symbol)))
        return _digest(("section", section.size, section.data))

    def _object(self, section: Section, symbol: Symbol) -> tuple[Any, ...]:
        end = symbol.value + symbol.size
        inside = [r for r in self.cubin.relocations(section) if symbol.value <= r.offset < end]
        pointers = [
            (r.offset - symbol.value, r.type, r.addend, self.cubin.symbols[r.symbol].size)
            for r in inside
        ]
        return (symbol.size, section.data[symbol.value : end], pointers)

    def _globals(self) -> tuple[Any, ...]:
        """Every global object, in an order that names do not touch."""
        found = []
        for section in self.cubin.sections:
            if section.name in (".nv.global", ".nv.global.init"):
                objects = [
                    self._object(section, symbol)
                    for symbol in self.cubin.symbols
                    if symbol.section == section.index and symbol.kind == _OBJECT
                ]
                found.append((section.name, section.size, sorted(objects)))
        return tuple(found)

    def _attributes(self, name: str) -> Iterable[tuple[int, bytes]]:
        """What `.nv.info.NAME` says, without symbols' indices."""
        for code, payload in self.cubin.attributes(f".nv.info.{name}"):
            if code in _SYMBOLS_ONLY:
                indices = [i for (i,) in struct.iter_unpack("<I", payload)]
                names = sorted(self.cubin.symbols[i].name for i in indices)
                yield code, ",".join(names).encode()
            else:
                yield code, payload[4:] if code in _SYMBOL_FIRST else payload

    def _frames(self) -> dict[int, tuple[Any, ...]]:
        """Registers and stack of the functions in each section, by their place in it."""
        found: dict[int, list[tuple[int, int, bytes]]] = {}
        for code, payload in self.cubin.attributes(".nv.info"):
            if code in _SYMBOL_FIRST and len(payload) >= 4:
                symbol = self.cubin.symbols[int.from_bytes(payload[:4], "little")]
                found.setdefault(symbol.section, []).append((symbol.value, code, payload[4:]))
        return {section: tuple(sorted(frames)) for section, frames in found.items()}


def _digest(parts: tuple[Any, ...]) -> str:
    """The sha256 of nested tuples of texts, numbers and bytes; `repr` writes each in one way."""
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()
