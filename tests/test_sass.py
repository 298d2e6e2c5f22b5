"""SASS facts, against nvdisasm's listings and ptxas's figures for the same cubins."""

from __future__ import annotations

import re
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from ptxsearch.elf import read
from ptxsearch.sass import UNKNOWN, Facts, facts
from ptxsearch.toolchain.find import machine_toolchain
from tests.cubins import assembled
from tests.ptx_corpus import CASES, entry, source

ARCHES = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120", "sm_121")
LISTED = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)")


def one(ptx: str, arch: str = "sm_90") -> Facts:
    """The facts of the only entry of a module."""
    (found,) = facts(assembled(ptx, arch)).values()
    return found


def for_arch(name: str, arch: str) -> str:
    """A corpus kernel with its target lowered to what `arch` assembles."""
    return re.sub(r"\.target sm_90\b", f".target {min(arch, 'sm_90', key=_number)}", source(name))


def _number(arch: str) -> int:
    return int(arch.removeprefix("sm_"))


def disassembled(cubin: bytes, folder: Path) -> list[str]:
    """Mnemonics with their modifiers, in order, from nvdisasm; skips without one."""
    ptxas = machine_toolchain().ptxas
    tool = ptxas.parent / "nvdisasm" if ptxas else Path("nvdisasm")
    if not tool.exists():
        pytest.skip("no nvdisasm on this machine")
    path = folder / "k.cubin"
    path.write_bytes(cubin)
    done = subprocess.run([str(tool), "-c", str(path)], capture_output=True, text=True, check=True)
    names = LISTED.findall(done.stdout)
    while names and names[-1] == "NOP":
        names.pop()
    return names


def compare(name: str, arch: str, folder: Path) -> None:
    """Opcode counts and access widths of one kernel equal those in nvdisasm's listing."""
    cubin = assembled(for_arch(name, arch), arch)
    (found,) = facts(cubin).values()
    listed = disassembled(cubin, folder)
    assert dict(found.opcodes) == Counter(word.split(".")[0] for word in listed)
    assert found.instructions == len(listed)
    for mnemonic in ("LDG", "STG", "LDS", "STS", "LDGSTS", "LDL", "STL"):
        widths = Counter(width(word) for word in listed if word.split(".")[0] == mnemonic)
        assert found.widths.get(mnemonic, {}) == widths, mnemonic


def width(word: str) -> int:
    """Bits of an access as nvdisasm writes it; 32 are not written."""
    sizes = {"U8": 8, "S8": 8, "U16": 16, "S16": 16, "64": 64, "128": 128, "256": 256}
    return next((sizes[part] for part in word.split(".")[1:] if part in sizes), 32)


@pytest.mark.parametrize("arch", ARCHES)
def test_opcodes_and_widths_are_those_of_nvdisasm(arch: str, tmp_path: Path) -> None:
    """On each calibrated architecture counts and widths equal the disassembler's."""
    for name in ("matmul_tiled", "pipeline3_float4"):
        compare(name, arch, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHES)
def test_counts_never_contradict_nvdisasm(arch: str, tmp_path: Path) -> None:
    """On a third of the corpus what is not unknown is as nvdisasm says, and 97 % is known."""
    newer = {name for name in CASES if re.search(r"cluster|mbarrier|wgmma|\.bulk", source(name))}
    unknown = total = 0
    for name in sorted(CASES.keys() - newer - {"debug_dot", "assert_guard"})[::3]:
        cubin = assembled(for_arch(name, arch), arch)
        (found,) = facts(cubin).values()
        listed = Counter(word.split(".")[0] for word in disassembled(cubin, tmp_path))
        known = Counter({n: count for n, count in found.opcodes.items() if n != UNKNOWN})
        assert known <= listed, name
        unknown += found.opcodes.get(UNKNOWN, 0)
        total += found.instructions
    assert unknown <= 0.03 * total


@pytest.mark.parametrize("name", sorted(CASES))
def test_resources_are_those_ptxas_reported(name: str) -> None:
    """Registers, stack, static shared memory and barriers equal ptxas 13.0.88's report."""
    told = CASES[name]["ptxas"]
    if not machine_toolchain().ptxas_version.startswith("13.0"):
        pytest.skip("the figures were recorded with ptxas 13.0")
    found = facts(assembled(source(name), told["arch"]))[CASES[name]["entry"]]
    assert found.registers == told["registers"]
    assert found.stack_bytes == told["stack_frame"]
    assert found.static_shared == told["static_shared"]
    assert found.barriers == told["barriers"]


def test_vector_loads_and_tensor_instructions_are_seen() -> None:
    """The widest global access and the use of tensor cores follow from the kernel's source."""
    assert one(source("scale_float4")).global_load_bits == 128
    assert one(source("scale_float4")).global_store_bits == 128
    assert one(source("saxpy")).global_load_bits == 32
    assert one(source("saxpy")).tensor is False
    assert one(source("wmma_bf16")).tensor is True
    assert one(source("wgmma_bf16"), "sm_90a").tensor is True
    copies = len(re.findall(r"cp\.async\.c[ag]", source("matmul_cpasync")))
    assert sum(one(source("matmul_cpasync")).widths["LDGSTS"].values()) >= copies > 0


def test_wide_accesses_of_blackwell() -> None:
    """A 256-bit load and store on sm_100 count with their width."""
    registers = ", ".join(f"%f{i}" for i in range(8))
    text = entry(
        ".reg .f32 %f<8>; .reg .b64 p; ld.param.u64 p, [x];\n"
        f"ld.global.v8.f32 {{{registers}}}, [p]; st.global.v8.f32 [p+64], {{{registers}}}; ret;",
        ".param .u64 x",
    )
    text = text.replace(".version 8.0", ".version 8.8").replace("sm_90", "sm_100")
    found = one(text, "sm_100")
    assert (found.global_load_bits, found.global_store_bits) == (256, 256)


def test_launch_bounds_and_cluster_are_read() -> None:
    """`.maxntid`, `.reqntid` and the cluster shape come out as declared."""
    assert one(entry("ret;", directives=".maxntid 64, 2")).max_threads == 128
    assert one(entry("ret;", directives=".reqntid 96")).max_threads == 96
    assert one(entry("ret;", directives=".reqnctapercluster 2")).cluster == (2, 1, 1)
    assert one(entry("ret;")).max_threads is None
    assert one(entry("ret;", ".param .u64 x, .param .u32 n")).param_bytes == 12


def test_unknown_architecture_gives_resources_only() -> None:
    """Where the codes were not calibrated, counts are empty and nothing is guessed."""
    text = source("saxpy").replace("sm_90", "sm_75")
    found = one(text, "sm_75")
    assert found.registers > 0
    assert found.instructions > 0
    assert dict(found.opcodes) == {}
    assert found.tensor is None
    assert found.global_load_bits is None
    assert read(assembled(text, "sm_75")).arch == "sm_75"


def test_unseen_codes_count_as_unknown() -> None:
    """A code that no calibration saw is counted as unknown, not dropped."""
    data = bytearray(assembled(source("saxpy")))
    code = read(bytes(data)).section(".text.saxpy")
    assert code is not None
    at = bytes(data).index(code.data)
    data[at : at + 2] = b"\xff\x0f"
    found = facts(bytes(data))["saxpy"]
    assert found.opcodes[UNKNOWN] == 1
    assert sum(found.opcodes.values()) == found.instructions


def test_reading_a_kernel_takes_about_a_millisecond() -> None:
    """The facts of a kernel of 120 instructions cost less than 3 ms of CPU."""
    cubin = assembled(source("matmul_tiled"))
    start = time.process_time()
    for _ in range(20):
        facts(cubin)
    assert (time.process_time() - start) / 20 < 0.003
