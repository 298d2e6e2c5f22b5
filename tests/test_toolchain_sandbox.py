"""The bounded children: limits hold, deaths are survived, nothing is left behind, nothing leaks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ptxsearch.toolchain import Compiled, CompileFailure, Compiler, Limits, machine_toolchain
from ptxsearch.toolchain.sandbox import Job, Sandbox

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p) {\n"
EMPTY = f"{HEAD}ret;\n}}\n"


def branches(count: int) -> str:
    """PTX whose many branches take ptxas time quadratic in their number."""
    body = [
        f"setp.eq.u32 %p, %r, {i};\n@%p bra L{i};\nadd.u32 %r, %r, {i};\nL{i}:"
        for i in range(count)
    ]
    lines = "\n".join(body)
    return f"{HEAD}.reg .pred %p;\n.reg .u32 %r;\nmov.u32 %r, %tid.x;\n{lines}\nret;\n}}\n"


SLOW = branches(9000)


def run(compiler: Compiler, source: str, language: str = "ptx") -> Compiled | CompileFailure:
    """What `compiler` makes of a kernel named k."""
    return compiler.compile(source, language, {}, arch="sm_90", entries=("k",))


def processes_under(root: str) -> list[int]:
    """The processes whose command line or working folder lies in `root`."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().decode("utf-8", "replace")
            place = os.readlink(entry / "cwd")
        except OSError:
            continue
        if root in words or place.startswith(root):
            found.append(int(entry.name))
    return found


def test_wall_time_ends_a_job() -> None:
    """A compilation past its wall time is killed and is a failure that says so."""
    compiler = Compiler(machine_toolchain(), limits=Limits(wall=0.5))
    started = time.monotonic()
    got = run(compiler, SLOW)
    took = time.monotonic() - started
    compiler.close()
    assert isinstance(got, CompileFailure)
    assert got.stage == "limits"
    assert "did not end within 0.5 s" in got.message
    assert took < 5


def test_cpu_time_ends_a_job() -> None:
    """A compilation past its CPU seconds is ended by the system."""
    compiler = Compiler(machine_toolchain(), limits=Limits(wall=20, cpu=1))
    got = run(compiler, SLOW)
    compiler.close()
    assert isinstance(got, CompileFailure)
    assert got.stage == "limits"
    assert "CPU seconds" in got.message


def test_memory_ends_a_job() -> None:
    """A compilation past its memory is a failure, and the next one works."""
    compiler = Compiler(machine_toolchain(), limits=Limits(memory=256 << 20))
    got = run(compiler, SLOW)
    after = run(compiler, EMPTY)
    compiler.close()
    assert isinstance(got, CompileFailure)
    assert got.stage == "limits"
    assert "memory" in got.message
    assert isinstance(after, Compiled)


def test_output_size_is_bounded(tmp_path: Path) -> None:
    """A program that writes without end is stopped at the file limit."""
    sandbox = Sandbox()
    with sandbox.folder() as folder:
        outcome = sandbox.run(Job("exec", ["/bin/sh", "-c", "yes"]), folder, Limits(output=1 << 20))
        size = (folder / "log").stat().st_size
    sandbox.close()
    assert outcome.code != 0
    assert size <= 1 << 20


def test_a_job_reads_nothing_and_knows_nothing() -> None:
    """Standard input is empty and the environment holds no more than the locale and a folder."""
    sandbox = Sandbox()
    with sandbox.folder() as folder:
        sandbox.run(Job("exec", ["/bin/sh", "-c", "cat; env; ulimit -c"]), folder, Limits())
        log = (folder / "log").read_text().splitlines()
    sandbox.close()
    names = {line.partition("=")[0] for line in log if "=" in line}
    assert names <= {"LC_ALL", "TMPDIR", "PWD", "_", "SHLVL", "OLDPWD"}
    assert log[-1] == "0"


def test_grandchildren_die_with_their_job() -> None:
    """What a job starts in its session is killed with it when it is late."""
    sandbox = Sandbox()
    with sandbox.folder() as folder:
        job = Job("exec", ["/bin/sh", "-c", "sleep 300 & sleep 300"])
        outcome = sandbox.run(job, folder, Limits(wall=0.3))
        time.sleep(0.2)
        left = processes_under(str(folder))
    sandbox.close()
    assert outcome.late
    assert left == []


def test_a_killed_child_is_replaced() -> None:
    """After the child that forks was killed the next job runs as if nothing had been."""
    compiler = Compiler(machine_toolchain())
    assert isinstance(run(compiler, EMPTY), Compiled)
    child = compiler._assemblers._child
    assert child is not None
    os.kill(child.process.pid, signal.SIGKILL)
    assert isinstance(run(compiler, EMPTY.replace("ret;", "ret; ret;")), Compiled)
    compiler.close()


def test_a_child_killed_at_work_costs_one_retry() -> None:
    """A job whose child is killed half way is run again and ends well."""
    sandbox = Sandbox()
    with sandbox.folder() as folder:
        job = Job("exec", ["/bin/sh", "-c", "echo begun >> times; sleep 0.7"])
        child = sandbox._child
        assert child is not None
        victim = child.process.pid

        def kill_when_begun() -> None:
            while not (folder / "times").exists():
                time.sleep(0.02)
            os.kill(victim, signal.SIGKILL)

        threading.Thread(target=kill_when_begun, daemon=True).start()
        outcome = sandbox.run(job, folder, Limits())
        times = (folder / "times").read_text().split()
    sandbox.close()
    assert outcome.code == 0
    assert times == ["begun", "begun"]


def test_the_death_of_the_parent_leaves_no_orphan(tmp_path: Path) -> None:
    """After kill -9 of a process in the middle of a compilation nothing of it runs on."""
    script = tmp_path / "parent.py"
    script.write_text(
        "from ptxsearch.toolchain.sandbox import Sandbox, Job, Limits\n"
        "sandbox = Sandbox()\n"
        "with sandbox.folder() as folder:\n"
        "    print(folder.parent, flush=True)\n"
        "    sandbox.run(Job('exec', ['/bin/sh', '-c', 'sleep 300']), folder, Limits(wall=300))\n"
    )
    root = Path(__file__).parents[1]
    parent = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )  # fmt: skip
    assert parent.stdout is not None
    folder = parent.stdout.readline().strip()
    for _ in range(100):
        if len(processes_under(folder)) >= 2:
            break
        time.sleep(0.05)
    assert len(processes_under(folder)) >= 2
    parent.kill()
    parent.wait()
    parent.stdout.close()
    for _ in range(100):
        if not processes_under(folder) and not Path(folder).exists():
            break
        time.sleep(0.05)
    assert processes_under(folder) == []
    assert not Path(folder).exists()


def test_a_thread_that_ends_does_not_take_the_child_along() -> None:
    """A child started by a thread serves others after that thread has ended."""
    compiler = Compiler(machine_toolchain())
    thread = threading.Thread(target=run, args=(compiler, EMPTY))
    thread.start()
    thread.join()
    child = compiler._assemblers._child
    assert isinstance(run(compiler, EMPTY.replace("ret;", "ret; ret;")), Compiled)
    assert compiler._assemblers._child is child
    compiler.close()


def test_a_forked_copy_compiles_with_children_of_its_own() -> None:
    """A fork of this process compiles, and so does this process after it."""
    compiler = Compiler(machine_toolchain())
    assert isinstance(run(compiler, EMPTY), Compiled)
    pid = os.fork()
    if pid == 0:
        made = run(compiler, EMPTY.replace("ret;", "ret; ret;"))
        compiler.close()
        os._exit(0 if isinstance(made, Compiled) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert isinstance(run(compiler, EMPTY.replace("ret;", "ret; ret; ret;")), Compiled)
    compiler.close()


def test_closing_removes_folders_and_children() -> None:
    """After close there is neither a process nor a folder left."""
    sandbox = Sandbox()
    with sandbox.folder() as folder:
        root = folder.parent
        sandbox.run(Job("exec", ["/bin/true"]), folder, Limits())
    sandbox.close()
    assert processes_under(str(root)) == []
    assert not root.exists()


KERNEL = '\nextern "C" __global__ void k() {}\n'


@pytest.mark.parametrize(
    "source",
    [
        '#include "SECRET"', "#include <SECRET>", '#define F "SECRET"\n#include F',
        '#inc\\\nlude "SECRET"', '%:include "SECRET"', '#include_next "SECRET"',
        '#include "mma.h/../../../../../../../../../../..SECRET"', '#import "SECRET"',
        '#if __has_include("SECRET")\n#include "SECRET"\n#endif',
        '#include "SECRET" // <cstdint>', '/**/#include "SECRET"', '#include\t/**/"SECRET"',
        'const char text[] = {\n#embed "SECRET"\n};', '_Pragma("include \\"SECRET\\"")',
        'extern "C" __global__ void f() { asm volatile(".include \\"SECRET\\""); }',
        'extern "C" __global__ void f() { asm volatile(".file 1 \\"SECRET\\""); }',
    ],
)  # fmt: skip
def test_no_file_of_the_machine_can_be_read(source: str, tmp_path: Path) -> None:
    """Whatever way a source asks for a file, neither log nor PTX nor cubin holds its text."""
    secret = tmp_path / "secret"
    secret.write_text("int the_hidden_word = unknown_type;\n")
    compiler = Compiler(machine_toolchain())
    got = run(compiler, source.replace("SECRET", str(secret)) + KERNEL, "cuda")
    compiler.close()
    if isinstance(got, CompileFailure):
        assert "the_hidden_word" not in got.log + got.message + "".join(got.lines)
    else:
        assert "the_hidden_word" not in got.ptx + got.log
        assert b"the_hidden_word" not in got.cubin


NESTED = "".join(f"for (int i{d} = 0; i{d} < n; ++i{d}) {{\n" for d in range(220))
BOMBS = {
    "branches": ("ptx", branches(12000)),
    "straight line": (
        "ptx",
        f"{HEAD}.reg .f32 %f<500>;\n"
        + "".join(f"fma.rn.f32 %f{i % 400}, %f{i * 7 % 400}, %f{i * 13 % 400}, %f{i * 3 % 400};\n"
                  for i in range(20000))
        + "ret;\n}\n",
    ),
    "registers": ("ptx", f"{HEAD}.reg .b32 %r<2000000000>;\nret;\n}}\n"),
    "shared wrap": ("ptx", f"{HEAD}.shared .b8 s[1000000000000];\nret;\n}}\n"),
    "shared hex": ("ptx", f"{HEAD}.shared .b64 s[0xffff][0xffffff];\nret;\n}}\n"),
    "braces": ("ptx", f"{HEAD}{'{' * 100000}"),
    "parentheses": ("ptx", f"{HEAD}add.u32 {'(' * 400000}"),
    "entries": ("ptx", ".version 8.0\n.target sm_90\n.address_size 64\n"
                + "".join(f".visible .entry k{i}() {{ ret; }}\n" for i in range(3000))
                + ".visible .entry k() { ret; }\n"),
    "identifier": ("ptx", f"{HEAD}{'a' * 500000}: ret;\n}}\n"),
    "laughs": ("cuda", "#define A0 x=x*x+1.f;\n"
               + "".join(f"#define A{i + 1} A{i} A{i} A{i} A{i}\n" for i in range(14))
               + 'extern "C" __global__ void k(float* y) { float x = *y; A14 *y = x; }'),
    "templates": ("cuda", "template <int N, int M> struct F { static const int v = "
                  "F<N - 1, 2 * M>::v + F<N - 1, 2 * M + 1>::v; };\n"
                  "template <int M> struct F<0, M> { static const int v = M; };\n"
                  'extern "C" __global__ void k(int* y) { *y = F<30, 0>::v; }'),
    "array": ("cuda", "__device__ char big[1 << 30] = {1};\n"
              'extern "C" __global__ void k(char* y) { *y = big[threadIdx.x]; }'),
    "nested loops": ("cuda", 'extern "C" __global__ void k(float* y, int n) {\n' + NESTED
                     + "*y += 1.f;\n" + "}" * 220 + "}"),
    "unroll": ("cuda", 'extern "C" __global__ void k(float* y) {\n#pragma unroll\n'
               "for (int i = 0; i < 300; ++i) {\n#pragma unroll\nfor (int j = 0; j < 300; ++j)\n"
               "y[i * j] = y[i + j] * y[j]; } }"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(BOMBS))
def test_a_bomb_ends_within_its_bounds(name: str) -> None:
    """Inputs that take a compiler minutes or gigabytes end in time, and the next one works."""
    language, source = BOMBS[name]
    compiler = Compiler(machine_toolchain(), limits=Limits(wall=6.0))
    started = time.monotonic()
    got = run(compiler, source, language)
    took = time.monotonic() - started
    after = run(compiler, EMPTY)
    compiler.close()
    assert took < 15
    assert isinstance(got, CompileFailure | Compiled)
    if isinstance(got, CompileFailure):
        assert len(got.log) < 5000
        assert got.message
    assert isinstance(after, Compiled)
