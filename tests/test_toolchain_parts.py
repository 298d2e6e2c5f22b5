"""The toolchain's parts alone: cache, limits, messages, prelude, and which compilers are found."""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxsearch.errors import ToolchainError
from ptxsearch.evaluation import Resources
from ptxsearch.toolchain import Cache, Compiled, cache_folder, compile_kernel, find
from ptxsearch.toolchain.cache import key
from ptxsearch.toolchain.diagnostics import errors, excerpt, scrub, warnings
from ptxsearch.toolchain.limits import entries, refuse_ptx, refuse_text
from ptxsearch.toolchain.prelude import prepare
from ptxsearch.toolchain.ptxas import usage
from ptxsearch.toolchain.result import Assembled, CompileFailure, pack, unpack


def stored(folder: Path) -> Path:
    """The one file in a cache's folder."""
    (path,) = (path for path in folder.rglob("*") if path.is_file())
    return path


@given(st.binary(max_size=2000))
def test_a_cache_returns_what_was_put(data: bytes) -> None:
    """Any bytes come back from memory as they went in."""
    cache = Cache()
    cache.put("name", data)
    assert cache.get("name") == data
    assert cache.get("other") is None


def test_a_cache_on_disk_outlives_its_object(tmp_path: Path) -> None:
    """What one cache wrote another reads; what was not lasting is gone."""
    first = Cache(tmp_path)
    first.put("ab12", b"x" * 1000)
    first.put("cd34", b"gone", lasting=False)
    second = Cache(tmp_path)
    assert second.get("ab12") == b"x" * 1000
    assert second.get("cd34") is None


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "foreign", "swap"])
def test_a_damaged_entry_is_not_there(damage: str, tmp_path: Path) -> None:
    """An entry cut short, altered or foreign is treated as absent and can be written anew."""
    Cache(tmp_path).put("ab12", b"the compiled bytes" * 20)
    path = stored(tmp_path)
    raw = path.read_bytes()
    damaged = {
        "cut": raw[: len(raw) // 2],
        "flip": raw[:-5] + bytes([raw[-5] ^ 1]) + raw[-4:],
        "empty": b"",
        "foreign": b"#!/bin/sh\n",
        "swap": raw[: -len(raw) // 3] + zlib.compress(b"other"),
    }
    path.write_bytes(damaged[damage])
    cache = Cache(tmp_path)
    assert cache.get("ab12") is None
    cache.put("ab12", b"again")
    assert Cache(tmp_path).get("ab12") == b"again"


def test_a_folder_that_cannot_be_written_only_forgets(tmp_path: Path) -> None:
    """A cache whose folder is a file works in memory and raises nothing."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    cache = Cache(blocked)
    cache.put("ab12", b"data")
    assert cache.get("ab12") == b"data"
    assert Cache(blocked).get("ab12") is None


def test_memory_is_bounded_and_the_oldest_goes_first() -> None:
    """Beyond its bytes the cache drops what was used longest ago."""
    cache = Cache(memory_bytes=1000)
    for n in range(10):
        cache.put(f"n{n}", bytes(300))
        cache.get("n0")
    assert cache.get("n0") is not None
    assert cache.get("n9") is not None
    assert cache.get("n5") is None


def test_the_folder_is_bounded_and_the_oldest_goes_first(tmp_path: Path) -> None:
    """A cache that finds its folder too full keeps what was written last."""
    full = Cache(tmp_path)
    for n in range(8):
        full.put(f"a{n}x", bytes(range(256)) * 8 + bytes([n]))
        os.utime(tmp_path / f"a{n}" / "x", (n, n))
    size = (tmp_path / "a0" / "x").stat().st_size
    Cache(tmp_path, folder_bytes=4 * size).put("b0x", b"new")
    left = sorted(path.parent.name for path in tmp_path.glob("??/x"))
    assert left == ["a6", "a7", "b0"]


def test_writers_at_once_leave_one_whole_entry(tmp_path: Path) -> None:
    """Threads that write one name together leave it readable and no scraps beside it."""
    data = b"payload" * 5000
    threads = [threading.Thread(target=Cache(tmp_path).put, args=("ab12", data)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stored(tmp_path).name == "12"
    assert Cache(tmp_path).get("ab12") == data


def test_the_cache_folder_follows_xdg() -> None:
    """The folder is below XDG_CACHE_HOME, and below ~/.cache where that is unset or relative."""
    assert cache_folder({"XDG_CACHE_HOME": "/c", "HOME": "/h"}) == Path("/c/ptxsearch/compiled")
    assert cache_folder({"HOME": "/h"}) == Path("/h/.cache/ptxsearch/compiled")
    assert cache_folder({"XDG_CACHE_HOME": "c", "HOME": "/h"}) == Path(
        "/h/.cache/ptxsearch/compiled"
    )


@given(st.lists(st.text(max_size=5), max_size=4), st.lists(st.text(max_size=5), max_size=4))
def test_keys_differ_where_parts_differ(first: list[str], second: list[str]) -> None:
    """Two lists of parts have one key only where they are equal."""
    assert (key(*first) == key(*second)) == (first == second)


def test_records_survive_the_cache() -> None:
    """A result and its bytes are the same after packing and unpacking."""
    made = Assembled("log", {"k": Resources(registers=12, static_shared=4096)})
    assert unpack(pack(made, b"\n\x00cubin\n")) == (made, b"\n\x00cubin\n")
    failed = CompileFailure("ptxas", "no", ("> 1 | x",), "log", "ptx")
    assert unpack(pack(failed)) == (failed, b"")


LOG = """ptxas info    : 3 bytes gmem, 8 bytes cmem[4]
ptxas info    : Compiling entry function 'first' for 'sm_90'
ptxas info    : Function properties for first
    48 bytes stack frame, 44 bytes spill stores, 40 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 48 bytes cumulative stack, 33280 bytes smem
ptxas info    : Compile time = 20.1 ms
ptxas info    : Compiling entry function 'second' for 'sm_90'
ptxas info    : Function properties for second
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers
"""


def test_usage_is_read_entry_by_entry() -> None:
    """Registers, spills, stack, barriers and shared bytes are those the log names."""
    assert usage(LOG) == {
        "first": Resources(255, 44, 40, 48, 33280, barriers=1),
        "second": Resources(10),
    }


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (".reg .b32 %r<2000000000>;", "virtual registers exceed"),
        (f".reg .b32 %r<{'9' * 5000}>;", "virtual registers exceed"),
        (".shared .align 16 .b8 s[1000000000000];", ".shared array of 1000000000000 bytes"),
        (".shared .f32 s[1024][1024];", ".shared array of 4194304 bytes"),
        (".local .b64 s[0xfffff];", ".local array of 8388600 bytes"),
        ("ret;" * 60000, "60000 PTX statements exceed"),
        ("".join(f".entry a{i}(){{}}" for i in range(70)), "70 entries exceed"),
    ],
)  # fmt: skip
def test_sizes_beyond_any_kernel_are_refused(body: str, reason: str) -> None:
    """Each size that hangs or fools ptxas is refused with the number that was got."""
    assert reason in refuse_ptx(body)


@pytest.mark.parametrize(
    "body",
    [".reg .b32 %r<90000>;", ".shared .align 16 .b8 s[232448];", ".extern .shared .b8 s[];",
     ".global .f32 big[100000000];", "// .shared .b8 s[1000000000000];\nret;"],
)  # fmt: skip
def test_sizes_a_kernel_may_have_pass(body: str) -> None:
    """Large but real sizes, and numbers in comments, are no reason to refuse."""
    assert refuse_ptx(body) == ""


def test_entries_are_listed_in_order_without_comments() -> None:
    """Every defined kernel is named once; one in a comment is none."""
    text = (
        "// .entry no(\n.visible .entry b(.param .u64 p){}\n/* .entry no2 */ .weak .entry a$1 (){}"
    )
    assert entries(text) == ("b", "a$1")


def test_text_limits_name_the_size() -> None:
    """A source of 50 MB is refused at once with its size."""
    assert "52428800 bytes exceeds" in refuse_text("x " * (25 << 20))
    assert refuse_text("__global__ void k() {}") == ""


def test_a_scrubbed_log_is_short_and_holds_no_folder() -> None:
    """Folders vanish, a line of a megabyte and an endless log are cut and say so."""
    log = "/home/me/work/kernel.cu(3): error: bad\n" + "y" * 10**6 + "\n" + "z\n" * 10**5
    got = scrub(log, ["/home/me/work"])
    assert got.startswith("kernel.cu(3): error: bad\n")
    assert "[1000000 characters]" in got
    assert len(got) < 4300
    assert "cut:" in got


def test_a_scrubbed_log_keeps_names_inside_a_library() -> None:
    """A relative include path is no path of this machine."""
    assert scrub('could not open "cuda/std/type_traits"') == 'could not open "cuda/std/type_traits"'
    assert scrub("in /opt/x/lib/a.h and /usr/lib/b.h: a/b") == "in a.h and b.h: a/b"


def test_errors_and_warnings_are_told_apart() -> None:
    """Errors carry their line in either compiler's form; warnings are listed once."""
    log = (
        'kernel.cu(7): error: identifier "q" is undefined\n  q;\n'
        "kernel.cu(9): warning #177-D: variable never referenced\n"
        "kernel.cu(9): warning #177-D: variable never referenced\n"
        "ptxas kernel.ptx, line 12; error   : Unknown symbol 'x'\n"
        "kernel.cu(2): catastrophic error: cannot open\n"
    )
    assert errors(log) == [
        (7, 'identifier "q" is undefined'), (12, "Unknown symbol 'x'"), (2, "cannot open"),
    ]  # fmt: skip
    assert warnings(log) == ("kernel.cu(9): warning #177-D: variable never referenced",)


def test_an_excerpt_marks_errors_among_their_neighbours() -> None:
    """Errors are marked, neighbours are shown once, gaps are shown as gaps."""
    source = "\n".join(f"line{n}" for n in range(1, 31))
    assert excerpt(source, [(1, "first"), (20, "second")], around=1) == (
        ">     1 | line1", "        ^ first", "      2 | line2", "  ...",
        "     19 | line19", ">    20 | line20", "        ^ second", "     21 | line21",
    )  # fmt: skip
    assert excerpt(source, [(99, "outside")]) == ()


def test_host_includes_are_blanked_line_by_line() -> None:
    """Standard headers vanish, CUDA's stay, and every line keeps its number."""
    source = "#include <cstdio>\n#include <cuda_fp16.h>\n  # include <vector> // why\nint x;\n"
    got = prepare(source, find.machine_toolchain().headers, {})
    assert got.text == "\n#include <cuda_fp16.h>\n\nint x;\n"
    assert got.dropped == ("cstdio", "vector")
    assert got.refused == ""


@pytest.mark.parametrize("name", ["torch/extension.h", "/etc/passwd", "../x.h", "mma.h/../../x"])
def test_other_includes_are_refused_by_name(name: str) -> None:
    """An include that is not CUDA's is refused with what may be included."""
    got = prepare(f"#include <{name}>\n", (), {})
    assert name in got.refused
    assert "cuda_fp16.h" in got.refused


NAMES = (
    "INFINITY NAN HUGE_VALF HUGE_VAL FLT_MAX FLT_MIN FLT_EPSILON DBL_MAX DBL_EPSILON INT_MAX "
    "INT_MIN UINT_MAX LLONG_MIN ULLONG_MAX INT8_MIN UINT16_MAX INT64_MAX UINT64_MAX SIZE_MAX "
    "CHAR_BIT M_PI"
)


def test_names_of_the_standard_headers_are_there() -> None:
    """Limits, INFINITY, NAN and fixed-width types compile without a header, each of its size."""
    sizes = {"int8_t": 1, "uint16_t": 2, "int32_t": 4, "uint64_t": 8, "uintptr_t": 8, "size_t": 8}
    checks = "".join(f'static_assert(sizeof({t}) == {n}, "");\n' for t, n in sizes.items())
    sums = " + ".join(f"(double)({name})" for name in NAMES.split())
    source = f'{checks}extern "C" __global__ void k(double* y) {{ *y = {sums}; }}'
    assert isinstance(compile_kernel(source, "cuda", {}, arch="sm_90", entries=("k",)), Compiled)


@pytest.mark.parametrize(
    "own",
    ["typedef unsigned long long uint64_t;", "using uint = unsigned int;", "#define INFINITY 1e30f",
     "typedef unsigned int uint32_t;\ntypedef signed char int8_t;", "#define M_PI 3.0"],
)  # fmt: skip
def test_a_source_may_define_those_names_itself(own: str) -> None:
    """A definition of the source's own neither fails nor warns."""
    source = f'{own}\nextern "C" __global__ void k(float* y) {{ *y = 1.f; }}'
    made = compile_kernel(source, "cuda", {}, arch="sm_90", entries=("k",))
    assert isinstance(made, Compiled)
    assert made.warnings == ()


PTXAS = """#!/bin/sh
echo 'Cuda compilation tools, release {release}, V{release}.7'
echo 'Build cuda_{release}.r{release}/compiler.1_0'
"""


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of wheels in place of the installed ones, and nothing on PATH."""
    monkeypatch.setattr(find, "_wheel_folders", lambda: [tmp_path / "nvidia"])
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    find.toolchain_for.cache_clear()
    yield tmp_path
    find.toolchain_for.cache_clear()


def put_ptxas(folder: Path, release: str) -> Path:
    """A program that answers as the ptxas of `release`."""
    folder.mkdir(parents=True)
    path = folder / "ptxas"
    path.write_text(PTXAS.format(release=release))
    path.chmod(0o755)
    return path


def put_nvrtc(folder: Path, release: str) -> None:
    """The files that an NVRTC of `release` installs."""
    folder.mkdir(parents=True)
    (folder / f"libnvrtc.so.{release.partition('.')[0]}").touch()
    (folder / f"libnvrtc-builtins.so.{release}").touch()


@pytest.mark.parametrize(
    ("driver", "line", "isa"), [(None, 13, "9.0"), (13000, 13, "9.0"), (12040, 12, "8.8")]
)
def test_the_driver_chooses_the_line(wheels: Path, driver: int, line: int, isa: str) -> None:
    """With both lines installed a CUDA 12 driver gets the 12 tools, any other the 13 ones."""
    put_ptxas(wheels / "nvidia" / "cu13" / "bin", "13.0")
    put_nvrtc(wheels / "nvidia" / "cu13" / "lib", "13.0")
    put_ptxas(wheels / "nvidia" / "cuda_nvcc" / "bin", "12.9")
    put_nvrtc(wheels / "nvidia" / "cuda_nvrtc" / "lib", "12.9")
    got = find.toolchain_for(driver)
    assert (line, isa, f"{line}.{0 if line == 13 else 9}.7") == (
        got.line, got.isa, got.ptxas_version,
    )  # fmt: skip
    assert got.require_nvrtc().name == f"libnvrtc.so.{line}"


def test_a_cuda_13_driver_runs_cuda_12_tools_where_only_they_are(wheels: Path) -> None:
    """The older line serves a newer driver."""
    put_ptxas(wheels / "nvidia" / "cuda_nvcc" / "bin", "12.9")
    assert find.toolchain_for(13000).line == 12


def test_a_cuda_12_driver_gets_no_cuda_13_tools(wheels: Path) -> None:
    """Cubins of the newer line would not load: the tools count as missing, and 12's are named."""
    put_ptxas(wheels / "nvidia" / "cu13" / "bin", "13.0")
    with pytest.raises(ToolchainError, match=r"ptxas was not found.*\.\[cu12\]"):
        find.toolchain_for(12080).require_ptxas()


def test_path_serves_where_no_wheel_is(wheels: Path) -> None:
    """A ptxas on PATH is used where the wheels have none."""
    path = put_ptxas(wheels / "path", "13.2")
    got = find.toolchain_for(None)
    assert (path, "13.2.7", "9.2") == (got.ptxas, got.ptxas_version, got.isa)


def test_a_ptxas_that_does_not_run_counts_as_missing(wheels: Path) -> None:
    """A broken program is not chosen."""
    path = put_ptxas(wheels / "nvidia" / "cu13" / "bin", "13.0")
    path.write_text("not a program")
    assert find.toolchain_for(None).ptxas is None


def test_a_driver_older_than_cuda_12_counts_as_none(wheels: Path) -> None:
    """What no compiler of ours can serve does not keep the emulator from running."""
    put_ptxas(wheels / "nvidia" / "cu13" / "bin", "13.0")
    assert find.toolchain_for(11080) == find.toolchain_for(None)


def test_isa_is_the_newest_version_ptxas_accepts() -> None:
    """The found ptxas assembles its own ISA version."""
    isa = find.machine_toolchain().isa
    ptx = f".version {isa}\n.target sm_90\n.address_size 64\n.visible .entry k() {{ ret; }}\n"
    assert isinstance(compile_kernel(ptx, "ptx", {}, arch="sm_90", entries=("k",)), Compiled)
