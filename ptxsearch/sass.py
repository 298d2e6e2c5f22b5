"""What a cubin says of its kernels without a GPU: resources, opcode counts, access widths.

Each SASS instruction has 16 bytes. Its low 12 bits name the mnemonic, and bits 73 to 75 the width
of a load or store; both were calibrated against nvdisasm (see `opcodes`). Where an architecture
was not, the resources are still read and the rest is unknown.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from ptxsearch.elf import Cubin, Section, read
from ptxsearch.opcodes import OPCODES

UNKNOWN = "unknown"
_RESERVED_SHARED = 1024
_REGISTERS, _FRAME = 0x2F, 0x11
_MAX_THREADS, _REQUIRED_THREADS, _BARRIERS = 0x05, 0x10, 0x4C
_PARAM_BYTES, _CLUSTER = 0x19, 0x3D
_NOP = 0x918

_WIDTHS = {0: 8, 1: 8, 2: 16, 3: 16, 4: 32, 5: 64, 6: 128}
_COPY_WIDTHS = {8: {4: 32, 5: 64, 6: 128}, 10: {0: 32, 2: 64, 4: 128}}
_WIDE_CODES = frozenset({0x97E, 0x97F})
_SIZED = frozenset({"LDG", "STG", "LDS", "STS", "LDL", "STL", "LD", "ST"})
_TENSOR = frozenset({"HMMA", "IMMA", "DMMA", "BMMA", "QMMA", "HGMMA", "IGMMA", "QGMMA", "UTCHMMA"})


@dataclass(frozen=True, slots=True)
class Facts:
    """One entry of a cubin; bytes are per thread for the stack, per block for shared memory.

    `static_shared` leaves out the 1,024 bytes the driver reserves. `opcodes` counts instructions
    by mnemonic, `widths` accesses of a mnemonic by bits; both are empty and `tensor` None on an
    architecture that was not calibrated. A code never seen counts as "unknown".
    """

    registers: int
    stack_bytes: int
    static_shared: int
    barriers: int
    param_bytes: int
    instructions: int
    max_threads: int | None = None
    cluster: tuple[int, int, int] | None = None
    opcodes: Mapping[str, int] = field(default_factory=dict)
    widths: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    tensor: bool | None = None

    @property
    def global_load_bits(self) -> int | None:
        """The widest load from global memory; None where there is none or it is unknown."""
        return max((*self.widths.get("LDG", ()), *self.widths.get("LDGSTS", ())), default=None)

    @property
    def global_store_bits(self) -> int | None:
        """The widest store to global memory; None where there is none or it is unknown."""
        return max(self.widths.get("STG", ()), default=None)


def facts(data: bytes) -> dict[str, Facts]:
    """The facts of each entry of a cubin, by name. Raises ToolchainError where it is none."""
    cubin = read(data)
    return {entry: _entry(cubin, entry) for entry in cubin.entries}


def _entry(cubin: Cubin, entry: str) -> Facts:
    attributes = dict(cubin.attributes(f".nv.info.{entry}"))
    code = cubin.section(f".text.{entry}")
    words = _words(code)
    family = int(cubin.arch.removeprefix("sm_")) // 10
    table = OPCODES.get(family, {})
    opcodes = Counter(table.get(low & 0xFFF, UNKNOWN) for low, _ in words) if table else {}
    threads = attributes.get(_MAX_THREADS) or attributes.get(_REQUIRED_THREADS)
    return Facts(
        registers=_of_symbol(cubin, code, _REGISTERS),
        stack_bytes=_of_symbol(cubin, code, _FRAME),
        static_shared=_static_shared(cubin, entry),
        barriers=attributes.get(_BARRIERS, b"\0")[0],
        param_bytes=int.from_bytes(attributes.get(_PARAM_BYTES, b""), "little"),
        instructions=len(words),
        max_threads=_product(threads) if threads else None,
        cluster=_triple(attributes.get(_CLUSTER, b"")),
        opcodes=dict(opcodes),
        widths=_widths(words, table, family),
        tensor=any(name in _TENSOR for name in opcodes) if table else None,
    )


def _words(code: Section | None) -> list[tuple[int, int]]:
    """The instructions as two 64-bit words each, without the padding at the end."""
    data = code.data if code else b""
    words = list(struct.iter_unpack("<QQ", data[: len(data) // 16 * 16]))
    while words and words[-1][0] & 0xFFF == _NOP:
        words.pop()
    return words


def _widths(
    words: list[tuple[int, int]], table: Mapping[int, str], family: int
) -> dict[str, dict[int, int]]:
    found: dict[str, Counter[int]] = {}
    copies = _COPY_WIDTHS[10 if family >= 10 else 8]
    for low, high in words:
        name = table.get(low & 0xFFF, UNKNOWN)
        field_value = high >> 9 & 7
        if low & 0xFFF in _WIDE_CODES:
            bits: int | None = 256
        elif name == "LDGSTS":
            bits = copies.get(field_value)
        else:
            bits = _WIDTHS.get(field_value) if name in _SIZED else None
        if bits is not None:
            found.setdefault(name, Counter())[bits] += 1
    return {name: dict(counts) for name, counts in found.items()}


def _of_symbol(cubin: Cubin, code: Section | None, attribute: int) -> int:
    """An attribute of `.nv.info` that belongs to the entry's symbol."""
    for found, payload in cubin.attributes(".nv.info"):
        if found == attribute and len(payload) >= 8 and code is not None:
            symbol, value = struct.unpack_from("<II", payload)
            if symbol < len(cubin.symbols):
                owner = cubin.symbols[symbol]
                if owner.entry and owner.section == code.index:
                    return int(value)
    return 0


def _static_shared(cubin: Cubin, entry: str) -> int:
    section = cubin.section(f".nv.shared.{entry}")
    if section is None:
        return 0
    reserved = cubin.section(".nv.shared.reserved.0") is not None
    return section.size - (_RESERVED_SHARED if reserved else 0)


def _triple(payload: bytes) -> tuple[int, int, int] | None:
    if len(payload) < 12:
        return None
    x, y, z = struct.unpack_from("<III", payload)
    return x, y, z


def _product(payload: bytes) -> int:
    product = 1
    for (extent,) in struct.iter_unpack("<I", payload[: len(payload) // 4 * 4]):
        product *= extent
    return product
