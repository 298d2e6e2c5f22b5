"""The cubin reader, against what nvdisasm and ptxas say of the same files."""

from __future__ import annotations

import pytest

from ptxsearch.elf import read
from ptxsearch.errors import ToolchainError
from tests.cubins import assembled
from tests.ptx_corpus import CASES, source


@pytest.mark.parametrize("name", ["saxpy", "matmul_tiled", "assert_guard", "noinline_calls"])
def test_entry_code_and_shared_memory(name: str) -> None:
    """The entry is found with its code, whole instructions, and ptxas's static shared size."""
    cubin = read(assembled(source(name)))
    entry = CASES[name]["entry"]
    assert cubin.entries == (entry,)
    assert cubin.arch == "sm_90"
    code = cubin.section(f".text.{entry}")
    assert code is not None
    assert len(code.data) == code.size > 0
    assert code.size % 16 == 0
    shared = cubin.section(f".nv.shared.{entry}")
    reserved = 1024
    static = CASES[name]["ptxas"]["static_shared"]
    assert (shared.size - reserved if shared else 0) == static


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_architecture_is_read_from_the_header(arch: str) -> None:
    """A cubin knows the architecture it was made for."""
    text = source("saxpy").replace("sm_90", "sm_80")
    assert read(assembled(text, arch)).arch == arch


def test_relocations_name_their_targets() -> None:
    """The table of addresses of a kernel with assertions points at its strings and at printing."""
    cubin = read(assembled(source("assert_guard")))
    table = cubin.section(".nv.constant4")
    assert table is not None
    targets = {cubin.symbols[r.symbol].name for r in cubin.relocations(table)}
    assert {"__assertfail", "$str", "$str$1", "$str$2", "__unnamed_1"} == targets


def test_register_attribute_is_what_ptxas_printed() -> None:
    """EIATTR_REGCOUNT (0x2f) of each kernel holds ptxas's number of registers."""
    for name in ("saxpy", "matmul_tiled", "softmax_rows"):
        payloads = [p for code, p in read(assembled(source(name))).attributes(".nv.info")
                    if code == 0x2F]  # fmt: skip
        assert [int.from_bytes(p[4:], "little") for p in payloads] == [
            CASES[name]["ptxas"]["registers"]
        ]


@pytest.mark.parametrize("damage", [b"", b"\x7fELF", b"MZ" * 100])
def test_other_data_are_refused(damage: bytes) -> None:
    """What is no ELF file raises an error that says so."""
    with pytest.raises(ToolchainError, match="not a cubin"):
        read(damage)


def test_damaged_cubins_are_refused_or_read() -> None:
    """A cubin cut short or with a byte changed never raises anything but ToolchainError."""
    data = assembled(source("assert_guard"))
    for at in range(0, len(data), 97):
        for damaged in (data[:at], data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]):
            try:
                cubin = read(damaged)
            except ToolchainError:
                continue
            for section in cubin.sections:
                cubin.relocations(section)
                list(cubin.attributes(section.name))
