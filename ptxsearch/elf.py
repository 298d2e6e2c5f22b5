"""The sections, symbols and relocations of a cubin: a small ELF64 reader.

    cubin = read(data)                       # ToolchainError where data are no ELF file
    section = cubin.section(".text.kernel")  # Section or None: name, type, flags, info, data, size
    cubin.symbols[4].name                    # Symbol: name, kind, entry, section, value, size
    cubin.relocations(section)               # those that patch it: offset, type, symbol, addend
    for attribute in cubin.attributes(".nv.info.kernel"): ...   # (code, payload) of .nv.info

A section without bits in the file (`.nv.shared.kernel`) has a size and empty data.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from ptxsearch.errors import ToolchainError

_MAGIC = b"\x7fELF\x02\x01"
_HEADER = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELA, _REL = struct.Struct("<QQq"), struct.Struct("<QQ")
_SYMTAB, _RELA_TYPE, _NOBITS, _REL_TYPE = 2, 4, 8, 9
_ENTRY = 0x10


@dataclass(frozen=True, slots=True)
class Section:
    """One section; `info` and `link` mean what ELF says for its type."""

    index: int
    name: str
    type: int
    flags: int
    link: int
    info: int
    align: int
    size: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Symbol:
    """One symbol: `kind` is ELF's type (1 object, 2 function, 3 section), `section` 0 if undefined.

    `entry` tells a kernel from a device function.
    """

    name: str
    kind: int
    entry: bool
    section: int
    value: int
    size: int


@dataclass(frozen=True, slots=True)
class Relocation:
    """A place in a section that the loader fills with the address of a symbol."""

    offset: int
    type: int
    symbol: int
    addend: int


@dataclass(frozen=True)
class Cubin:
    """What `read` found."""

    flags: int
    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]

    @property
    def entries(self) -> tuple[str, ...]:
        """Names of the kernels that can be launched."""
        return tuple(symbol.name for symbol in self.symbols if symbol.entry)

    @property
    def arch(self) -> str:
        """The architecture the code is for, `sm_90`."""
        return f"sm_{(self.flags >> 8 if self.flags >> 24 else self.flags) & 0xFF}"

    def section(self, name: str) -> Section | None:
        """The section with a name."""
        return next((section for section in self.sections if section.name == name), None)

    def relocations(self, section: Section) -> tuple[Relocation, ...]:
        """The relocations that apply to a section, by offset."""
        found: list[Relocation] = []
        for table in self.sections:
            if table.type in (_RELA_TYPE, _REL_TYPE) and table.info == section.index:
                form = _RELA if table.type == _RELA_TYPE else _REL
                usable = len(table.data) // form.size * form.size
                for offset, info, *addend in form.iter_unpack(table.data[:usable]):
                    found.append(
                        Relocation(offset, info & 0xFFFFFFFF, info >> 32, (addend or [0])[0])
                    )
        return tuple(sorted(found, key=lambda relocation: relocation.offset))

    def attributes(self, name: str) -> Iterator[tuple[int, bytes]]:
        """The code and payload of each attribute in a `.nv.info` section."""
        section = self.section(name)
        data = section.data if section else b""
        at = 0
        while at + 4 <= len(data):
            form, code, short = struct.unpack_from("<BBH", data, at)
            size = short if form == 4 else 0
            yield code, data[at + 4 : at + 4 + size] if form == 4 else data[at + 2 : at + 4]
            at += 4 + size


def read(data: bytes) -> Cubin:
    """The cubin in `data`. Raises ToolchainError where it is damaged or no ELF file."""
    try:
        return _read(data)
    except (struct.error, IndexError, ValueError) as error:
        raise _damaged(str(error)) from error


def _damaged(reason: str) -> ToolchainError:
    return ToolchainError(f"not a cubin: {reason}", "compile the kernel again")


def _read(data: bytes) -> Cubin:
    if not data.startswith(_MAGIC):
        raise _damaged(f"it begins with {data[:6].hex() or 'nothing'}, not with an ELF header")
    (offset,) = struct.unpack_from("<Q", data, 40)
    (flags,) = struct.unpack_from("<I", data, 48)
    step, count, names = struct.unpack_from("<HHH", data, 58)
    headers = [_HEADER.unpack_from(data, offset + step * number) for number in range(count)]
    if any(h[1] != _NOBITS and h[4] + h[5] > len(data) for h in headers):
        raise _damaged("a section lies outside the file")
    sections = tuple(
        Section(
            index=index,
            name=_text(data, headers[names], header[0]),
            type=header[1],
            flags=header[2],
            link=header[6],
            info=header[7],
            align=header[8],
            size=header[5],
            data=b"" if header[1] == _NOBITS else data[header[4] : header[4] + header[5]],
        )
        for index, header in enumerate(headers)
    )
    symbols = tuple(
        Symbol(
            name=_text(data, headers[table.link], name),
            kind=info & 0xF,
            entry=info & 0xF == 2 and bool(other & _ENTRY),
            section=section,
            value=value,
            size=size,
        )
        for table in sections
        if table.type == _SYMTAB
        for name, info, other, section, value, size in _SYMBOL.iter_unpack(table.data)
    )
    return Cubin(flags, sections, symbols)


def _text(data: bytes, header: tuple[int, ...], offset: int) -> str:
    """The name at an offset of a string table."""
    start = header[4] + offset
    end = data.index(b"\0", start)
    return data[start:end].decode("utf-8", "replace")
