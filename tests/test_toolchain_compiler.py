"""Compilation end to end, against what ptxas reported when the kernels were recorded."""

from __future__ import annotations

import gzip
import hashlib
import json
import struct
import threading
from pathlib import Path
from typing import Any

import pytest

from ptxsearch.errors import ToolchainError, UsageError
from ptxsearch.evaluation import Built, Resources
from ptxsearch.kernel import Kernel, Launch
from ptxsearch.toolchain import (
    Cache,
    Compiled,
    CompileFailure,
    Compiler,
    Toolchain,
    build,
    compile_kernel,
    machine_toolchain,
)


def data(name: str) -> dict[str, Any]:
    """A recording of tests/data/toolchain."""
    path = Path(__file__).with_name("data") / "toolchain" / f"{name}.json.gz"
    return dict(json.loads(gzip.decompress(path.read_bytes())))


CORPUS, SPACES = data("corpus"), data("spaces")
SAMPLE = (
    "matmul_tiled", "reduce_cg_tiles", "cluster_dsmem_sum", "mma_bf16_ldmatrix", "half2_axpy",
    "bulk_copy_mbarrier", "pipeline3_float4", "saxpy", "struct_param",
)  # fmt: skip
SAXPY = """extern "C" __global__ void saxpy(int n, float a, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
"""
EMPTY_PTX = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() { ret; }\n"


def compiled(source: str, language: str = "cuda", entry: str = "k", **values: Any) -> Compiled:
    """What compiles; the test fails with the compiler's words where it does not."""
    result = compile_kernel(source, language, values, arch="sm_90", entries=(entry,))
    assert isinstance(result, Compiled), result.text
    return result


def failure(source: str, language: str = "cuda", entry: str = "k", **values: Any) -> CompileFailure:
    """Why it does not compile."""
    result = compile_kernel(source, language, values, arch="sm_90", entries=(entry,))
    assert isinstance(result, CompileFailure)
    return result


def recorded(case: dict[str, Any]) -> Resources:
    """The resources that ptxas reported when the case was recorded."""
    said = case["ptxas"]
    return Resources(
        registers=said["registers"],
        stack_bytes=said["stack_frame"],
        spill_stores=said["spill_stores"],
        spill_loads=said["spill_loads"],
        static_shared=said["static_shared"],
        barriers=said["barriers"],
    )


def test_resources_of_every_kernel_are_those_recorded() -> None:
    """All 100 modules of PTX take the registers, stack, spills, shared bytes, barriers recorded."""
    for name, case in CORPUS.items():
        made = compiled(case["ptx"], "ptx", case["entry"])
        got = made.resources[case["entry"]]
        assert recorded(case) == Resources(
            got.registers, got.spill_stores, got.spill_loads, got.stack_bytes, got.static_shared,
            barriers=got.barriers,
        ), name  # fmt: skip
        assert made.cubin.startswith(b"\x7fELF")
        assert case["ptxas"]["arch"] == made.target


@pytest.mark.parametrize("name", SAMPLE)
def test_cuda_takes_the_registers_recorded_for_its_ptx(name: str) -> None:
    """NVRTC's PTX of a kernel gets the registers and shared bytes that nvcc's got."""
    case = CORPUS[name]
    got = compiled(case["cuda"], "cuda", case["entry"]).resources[case["entry"]]
    assert case["ptxas"]["static_shared"] == got.static_shared
    assert abs(case["ptxas"]["registers"] - got.registers) <= 2


def machine_code(cubin: bytes) -> str:
    """The first digits of the hash of a cubin's code, as the recordings have it."""
    (sections,) = struct.unpack_from("<Q", cubin, 40)
    count, names = struct.unpack_from("<HH", cubin, 60)
    headers = [struct.unpack_from("<IIQQQQ", cubin, sections + 64 * n) for n in range(count)]
    start = headers[names][4]
    code = {}
    for name, _, _, _, offset, size in headers:
        word = cubin[start + name : cubin.index(b"\0", start + name)]
        if word.startswith(b".text"):
            code[word] = cubin[offset : offset + size]
    return hashlib.sha256(b"".join(code[word] for word in sorted(code))).hexdigest()[:16]


@pytest.mark.parametrize("kernel", sorted(SPACES))
def test_configurations_become_the_machine_code_recorded(kernel: str) -> None:
    """A tunable kernel with its values is, byte for byte, the code that was measured."""
    for row in SPACES[kernel]["rows"]:
        made = compiled(SPACES[kernel]["source"], "cuda", kernel, **row["values"])
        got = made.resources[kernel]
        assert (row["registers"], row["static_shared"], row["spill_stores"]) == (
            got.registers, got.static_shared, got.spill_stores,
        )  # fmt: skip
        assert row["code"] == machine_code(made.cubin)


@pytest.mark.slow
def test_all_cuda_kernels_compile() -> None:
    """Every CUDA C++ kernel of the corpus, CUDA's own headers included, compiles."""
    for name, case in CORPUS.items():
        if "cuda" in case:
            assert compiled(case["cuda"], "cuda", case["entry"]).ptx, name


def test_a_second_compilation_gives_the_same_bytes() -> None:
    """Two compilers that share nothing make one cubin, and it holds no path of this machine."""
    cubins = []
    for _ in range(2):
        compiler = Compiler(machine_toolchain())
        result = compiler.compile(SAXPY, "cuda", {}, arch="sm_90", entries=("saxpy",))
        compiler.close()
        assert isinstance(result, Compiled)
        cubins.append(result.cubin)
    assert cubins[0] == cubins[1]
    assert b"/tmp" not in cubins[0]


def test_values_become_macros() -> None:
    """A value decides a shared array's size as a macro of the same name would."""
    source = (
        'extern "C" __global__ void k(float* y) {\n'
        "    __shared__ T tile[N];\n    tile[threadIdx.x] = y[threadIdx.x];\n"
        "    __syncthreads();\n    y[threadIdx.x] = tile[N - 1 - threadIdx.x] + FLAG;\n}\n"
    )
    for n in (64, 256):
        made = compiled(source, N=n, T="double", FLAG=True)
        assert made.resources["k"].static_shared == 8 * n


def test_values_fill_the_holes_of_ptx() -> None:
    """`${NAME}` in PTX is replaced by the value."""
    ptx = EMPTY_PTX.replace("{ ret; }", "{ .shared .b8 tile[${N}]; .reg .b32 %r; "
                            "mov.u32 %r, tile; st.shared.u32 [%r], ${N}; ret; }")  # fmt: skip
    assert compiled(ptx, "ptx", N=512).resources["k"].static_shared == 512


def test_a_hole_without_value_names_those_there_are() -> None:
    """A `${NAME}` that no value fills is a failure that lists the values."""
    got = failure(EMPTY_PTX.replace("ret;", "// ${MISSING}\nret;"), "ptx", TILE=4)
    assert got.stage == "limits"
    assert "${MISSING} has no value; the values are TILE" in got.message


@pytest.mark.parametrize(("name", "value"), [("a-b", 1), ("N", "1\n#error"), ("N", "x" * 9000)])
def test_values_that_are_no_macros_are_a_failure(name: str, value: Any) -> None:
    """A name or text that could escape its macro never reaches a compiler."""
    result = compile_kernel(SAXPY, "cuda", {name: value}, arch="sm_90", entries=("saxpy",))
    assert isinstance(result, CompileFailure)
    assert result.stage == "limits"


def test_an_error_comes_with_its_line_and_neighbours() -> None:
    """NVRTC's error is quoted with the source line it is in and two lines around it."""
    got = failure(SAXPY.replace("y[i] = a", "z[i] = a"), entry="saxpy")
    assert got.stage == "nvrtc"
    assert 'identifier "z" is undefined' in got.message
    assert any(line.startswith(">     3 |") and "z[i]" in line for line in got.lines)
    assert any(line.startswith("      2 |") for line in got.lines)


@pytest.mark.parametrize(
    ("body", "header"),
    [
        ("half h = y[0];", "cuda_fp16.h"), ("__nv_bfloat16 b = y[0];", "cuda_bf16.h"),
        ("wmma::fragment<int> f;", "mma.h"), ("__pipeline_commit();", "cuda_pipeline.h"),
        ("cooperative_groups::sync(y);", "cooperative_groups.h"),
    ],
)  # fmt: skip
def test_a_missing_header_is_named(body: str, header: str) -> None:
    """An error over a name that one of CUDA's headers declares says which."""
    got = failure(f'extern "C" __global__ void k(float* y) {{ {body} }}')
    assert f"#include <{header}>" in got.message
    assert "include" not in failure('extern "C" __global__ void k(float* y) { q; }').message


def test_too_much_static_shared_memory_is_told_in_bytes() -> None:
    """Ptxas's hexadecimal becomes bytes declared, bytes allowed, and the way out."""
    source = (
        'extern "C" __global__ void k(float* y) { __shared__ float s[20000];\n'
        "s[threadIdx.x] = *y; __syncthreads(); *y = s[threadIdx.x ^ 1]; }"
    )
    got = failure(source)
    assert "80000 bytes" in got.message
    assert "49152 are allowed" in got.message
    assert "shared_bytes" in got.message


def test_what_nvcc_takes_of_the_standard_library_compiles() -> None:
    """std::min, numeric_limits, math, traits, and functions without a side work as under nvcc."""
    made = compiled(
        "#include <algorithm>\n#include <limits>\n#include <cmath>\n#include <type_traits>\n"
        "constexpr int twice(int n) { return 2 * n; }\n"
        "static inline float half_of(float x) { return x / 2; }\n"
        'extern "C" __global__ void k(float* y) {\n'
        "    __shared__ float tile[twice(32)];\n    tile[threadIdx.x] = half_of(*y);\n"
        "    __syncthreads();\n    float least = std::numeric_limits<float>::infinity();\n"
        "    for (int i = 0; i < twice(32); ++i) least = std::min(least, std::exp(tile[i]));\n"
        "    if (std::is_same<int, int>::value) y[threadIdx.x] = std::isnan(least) ? 0 : least;\n"
        "    y[0] = std::max<int>(std::numeric_limits<int>::lowest(), threadIdx.x);\n}\n"
    )
    assert made.resources["k"].static_shared == 256


def test_a_tensor_map_may_be_a_parameter() -> None:
    """CUtensorMap is there without the driver's header, 128 bytes aligned to 64."""
    made = compiled(
        "#include <cuda.h>\nstatic_assert(sizeof(CUtensorMap) == 128);\n"
        "static_assert(alignof(CUtensorMap) == 64);\n"
        'extern "C" __global__ void k(const __grid_constant__ CUtensorMap map) {}\n'
    )
    assert ".param .align 64 .b8 k_param_0[128]" in made.ptx


def test_a_ptx_error_comes_with_its_line() -> None:
    """Ptxas's error is placed in the PTX, not in a file name of this machine."""
    got = failure(EMPTY_PTX.replace("ret;", "\nadd.s33 %r1, %r2, %r3;\nret;"), "ptx")
    assert (got.stage, got.language) == ("ptxas", "ptx")
    assert any(line.startswith(">     5 |") for line in got.lines)
    assert "/" not in got.log


@pytest.mark.parametrize("language", ["cuda", "ptx"])
def test_an_absent_entry_lists_those_defined(language: str) -> None:
    """Asking for an entry the module lacks names the ones it has."""
    source = EMPTY_PTX if language == "ptx" else 'extern "C" __global__ void k() {}'
    got = failure(source, language, "other")
    assert "entry 'other' is not defined; the module defines k" in got.message


def test_a_mangled_entry_is_told_about_linkage() -> None:
    """A kernel without extern "C" is told how to declare it."""
    assert 'extern "C" __global__' in failure("__global__ void k() {}").message


@pytest.mark.parametrize("source", ["", "  \n", "a\x00b", "\ud800", "x" * (1 << 21), "w" * 2000])
@pytest.mark.parametrize("language", ["cuda", "ptx"])
def test_what_is_no_source_is_refused(source: str, language: str) -> None:
    """Empty, binary, huge and endless-word inputs are refused before a compiler runs."""
    assert failure(source, language).stage == "limits"


@pytest.mark.parametrize(
    ("directive", "threads"),
    [("", 1024), (".maxntid 96", 96), (".reqntid 16, 8, 2", 256), (".maxntid 64, 4, 1", 256)],
)
def test_declared_threads_are_read_from_the_cubin(directive: str, threads: int) -> None:
    """The most threads of a block are those of the entry's directive."""
    ptx = EMPTY_PTX.replace("k() {", f"k()\n{directive}\n{{")
    assert compiled(ptx, "ptx").resources["k"].max_threads == threads


def test_machine_code_tells_widths_and_tensor_instructions() -> None:
    """A float4 kernel loads and stores 128 bits at once, a wmma kernel uses tensor cores."""
    wide = compiled(CORPUS["scale_float4"]["ptx"], "ptx", "scale_float4").resources["scale_float4"]
    assert (wide.global_load_bits, wide.global_store_bits, wide.tensor) == (128, 128, False)
    assert wide.opcodes["LDG"] == 1
    narrow = compiled(SAXPY, entry="saxpy").resources["saxpy"]
    assert (narrow.global_load_bits, narrow.opcodes["FFMA"]) == (32, 1)
    tensor = CORPUS["mma_bf16_ldmatrix"]
    assert compiled(tensor["ptx"], "ptx", tensor["entry"]).resources[tensor["entry"]].tensor


def test_wgmma_is_assembled_for_the_specific_target() -> None:
    """PTX for sm_90a is assembled for it when the device is an sm_90."""
    assert compiled(EMPTY_PTX.replace("sm_90", "sm_90a"), "ptx").target == "sm_90a"
    source = (
        'extern "C" __global__ void k() {\n'
        '    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");\n}\n'
    )
    assert compiled(f"{source}// setmaxnreg").target == "sm_90a"


def test_warnings_are_kept() -> None:
    """A compiler's warning about code that compiles is there to read."""
    made = compiled('extern "C" __global__ void k(float* y) { int unused; y[0] = 1; }')
    assert any("unused" in warning for warning in made.warnings)


def test_a_newer_ptx_version_is_a_clear_failure() -> None:
    """A `.version` beyond this ptxas is said with both versions."""
    got = failure(EMPTY_PTX.replace("8.0", "9.9"), "ptx")
    assert got.stage == "ptxas"
    assert "9.9" in got.log
    assert machine_toolchain().isa in got.log


def test_threads_share_one_compiler() -> None:
    """Eight threads that compile different kernels at once each get their own."""
    compiler = Compiler(machine_toolchain())
    got: dict[int, int] = {}

    def work(n: int) -> None:
        source = (
            'extern "C" __global__ void k(float* y) { __shared__ float t[N];\n'
            "t[threadIdx.x] = y[threadIdx.x]; __syncthreads(); y[0] = t[threadIdx.x ^ 1]; }"
        )
        made = compiler.compile(source, "cuda", {"N": n}, arch="sm_90", entries=("k",))
        assert isinstance(made, Compiled), made.text
        got[n] = made.resources["k"].static_shared

    threads = [threading.Thread(target=work, args=(32 * n,)) for n in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    compiler.close()
    assert got == {32 * n: 128 * n for n in range(1, 9)}


def test_build_gives_what_a_device_runs() -> None:
    """A kernel record becomes PTX, cubin and resources of the entries it launches."""
    launch = Launch("saxpy", ("n", "a", "x", "y"), ("n // 256", "1", "1"), ("256", "1", "1"))
    kernel = Kernel(SAXPY, "cuda", (launch,))
    built = build(kernel, "sm_90")
    assert isinstance(built, Built)
    assert built.kernel is kernel
    assert built.cubin.startswith(b"\x7fELF")
    assert ".entry saxpy" in built.ptx
    assert set(built.resources) == {"saxpy"}


def test_ptx_without_ptxas_still_gives_ptx() -> None:
    """Where no ptxas is installed PTX passes with an empty cubin and no resources."""
    made = Compiler(Toolchain()).compile(EMPTY_PTX, "ptx", {}, arch="sm_90", entries=("k",))
    assert isinstance(made, Compiled)
    assert (made.cubin, dict(made.resources), made.ptx) == (b"", {}, EMPTY_PTX)


def test_cuda_without_nvrtc_says_what_to_install() -> None:
    """Where NVRTC is missing CUDA C++ is one error with the command that mends it."""
    with pytest.raises(ToolchainError, match=r"NVRTC, which was not found.*pip install"):
        Compiler(Toolchain()).compile(SAXPY, "cuda", {}, arch="sm_90", entries=("saxpy",))


def test_nvrtc_newer_than_ptxas_names_both() -> None:
    """An NVRTC whose PTX this ptxas cannot read is refused with both versions."""
    mixed = Toolchain(
        line=13, ptxas=Path("/ptxas"), ptxas_version="13.0.88", nvrtc=Path("/nvrtc"),
        nvrtc_version="13.5",
    )  # fmt: skip
    with pytest.raises(ToolchainError, match=r"NVRTC 13.5 is newer than ptxas 13.0.88"):
        Compiler(mixed).compile(SAXPY, "cuda", {}, arch="sm_90", entries=("saxpy",))


def test_compilers_that_do_not_run_are_a_fault_of_the_machine(tmp_path: Path) -> None:
    """A damaged library and a program that cannot be executed are errors with their reason."""
    damaged = tmp_path / "libnvrtc.so.13"
    damaged.write_text("no library")
    program = tmp_path / "ptxas"
    program.write_text("no program")
    broken = Toolchain(line=13, ptxas=program, ptxas_version="13.0.88", nvrtc=damaged,
                       nvrtc_version="13.0")  # fmt: skip
    compiler = Compiler(broken)
    with pytest.raises(ToolchainError, match=r"ended 4 times in a row.*file too short"):
        compiler.compile(SAXPY, "cuda", {}, arch="sm_90", entries=("saxpy",))
    with pytest.raises(ToolchainError, match=r"ptxas cannot be run.*pip install"):
        compiler.compile(EMPTY_PTX, "ptx", {}, arch="sm_90", entries=("k",))
    compiler.close()


@pytest.mark.parametrize("language", ["cuda", "ptx"])
def test_comments_may_be_in_any_script(language: str) -> None:
    """Text beyond ASCII in a comment is no reason to fail."""
    source = EMPTY_PTX if language == "ptx" else 'extern "C" __global__ void k() {}\n'
    assert compiled(f"{source}// größer als 漢字 😀\n", language).cubin


def test_carriage_returns_keep_line_numbers() -> None:
    """A source with Windows line ends has its errors on the lines an editor shows."""
    got = failure(SAXPY.replace("y[i] = a", "z[i] = a").replace("\n", "\r\n"), entry="saxpy")
    assert "line 3" in got.message


def test_a_module_for_a_newer_architecture_says_which() -> None:
    """PTX whose .target is above the device's names both."""
    result = compile_kernel(EMPTY_PTX, "ptx", {}, arch="sm_80", entries=("k",))
    assert isinstance(result, CompileFailure)
    assert ".target sm_90 is newer than sm_80" in result.message


def test_unknown_arch_and_language_and_options_are_mistakes_of_the_caller() -> None:
    """What a caller passes wrong is an exception, unlike a bad kernel."""
    compiler = Compiler(machine_toolchain())
    with pytest.raises(UsageError, match="unknown architecture"):
        compiler.compile(SAXPY, "cuda", {}, arch="sm_12", entries=("saxpy",))
    with pytest.raises(UsageError, match="language 'fortran'"):
        compiler.compile(SAXPY, "fortran", {}, arch="sm_90", entries=("saxpy",))
    with pytest.raises(UsageError, match="is not allowed"):
        compiler.compile(
            EMPTY_PTX, "ptx", {}, arch="sm_90", entries=("k",), ptxas_options=("-o/etc/x",)
        )


def test_a_cached_result_survives_the_process_in_its_folder(tmp_path: Path) -> None:
    """A second compiler finds the first one's work on disk and starts no child for it."""
    first = Compiler(machine_toolchain(), cache=Cache(tmp_path))
    made = first.compile(SAXPY, "cuda", {}, arch="sm_90", entries=("saxpy",))
    first.close()
    second = Compiler(machine_toolchain(), cache=Cache(tmp_path))
    again = second.compile(SAXPY, "cuda", {}, arch="sm_90", entries=("saxpy",))
    assert isinstance(made, Compiled)
    assert isinstance(again, Compiled)
    assert (again.cubin, again.resources) == (made.cubin, made.resources)
    assert again.seconds < 0.02


@pytest.mark.parametrize("option", ["-maxrregcount=32", "-O1"])
def test_assembler_options_reach_ptxas(option: str) -> None:
    """An option changes the code that ptxas makes."""
    case = CORPUS["matmul_tiled"]
    compiler = Compiler(machine_toolchain())
    plain, tuned = (
        compiler.compile(
            case["ptx"], "ptx", {}, arch="sm_90", entries=(case["entry"],), ptxas_options=options
        )
        for options in ((), (option,))
    )
    compiler.close()
    assert isinstance(plain, Compiled)
    assert isinstance(tuned, Compiled)
    assert plain.cubin != tuned.cubin
