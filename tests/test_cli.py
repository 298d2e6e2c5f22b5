"""The command line: exit codes, one JSON document, one line of cause and one of remedy."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from ptxsearch import cli

ROOT = Path(__file__).resolve().parents[1]


class Done(NamedTuple):
    """What a command printed."""

    stdout: str
    stderr: str


Run = Callable[..., Done]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """`ptxsearch` in this process, in a folder of its own; it must end with exit code `code`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: str, code: int = 0) -> Done:
        monkeypatch.setattr(sys, "argv", ["ptxsearch", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        done = Done(*capsys.readouterr())
        assert (ended.value.code or 0) == code, done
        return done

    return call


def test_tasks_lists_what_ships(run: Run) -> None:
    """`tasks --json` is one document with every bundled task."""
    names = {entry["name"] for entry in json.loads(run("tasks", "--json").stdout)}
    assert {"level1/sum", "level1/transpose", "level1/matmul"} <= names


def test_optimize_writes_a_result(run: Run, tmp_path: Path) -> None:
    """A search prints one JSON result, and the same command with its store goes on."""
    command = ["optimize", "level1/saxpy", "--device", "emulated", "--json"]
    store = ["--store", str(tmp_path / "s"), "--out", str(tmp_path / "out")]
    first = json.loads(run(*command, *store, "--trials", "2").stdout)
    assert first["state"] == "budget"
    assert (tmp_path / "out" / "kernel.cu").is_file()
    more = json.loads(run(*command, *store, "--trials", "3").stdout)
    assert more["spend"]["trials"] == 3
    assert more["trials"][: len(first["trials"])] == first["trials"]
    exported = run("export", "level1/saxpy", "--store", str(tmp_path / "s"), "--out", "x")
    assert "kernel.cubin" in exported.stdout
    verified = run("verify", str(tmp_path / "out" / "result.json"))
    assert "agrees" in verified.stdout


def test_the_lines_of_a_run_are_the_trials_it_counts(run: Run, tmp_path: Path) -> None:
    """Every line is a trial or marked free, before and after a resume; the last line agrees."""
    command = ["optimize", "level1/saxpy", "--device", "emulated", "--store", str(tmp_path / "s")]
    counted = []
    for most in ("4", "6"):
        lines = run(*command, "--trials", most).stdout.splitlines()
        trials = [line for line in lines if re.match(r" *\d+  \w", line)]
        counted.append(sum("(free" not in line for line in trials))
        last = next(line for line in lines if line.startswith("budget: trials spent"))
        assert f"; {most} trials" in last
    assert counted == [4, 2]
    assert "6 trials, 4 of them before this start; free: 1 baseline" in last


@pytest.mark.parametrize(
    ("name", "code", "status"),
    [("good.cu", 0, "OK"), ("bad.cu", 1, "COMPILE_ERROR")],
)
def test_evaluate_exit_codes(run: Run, tmp_path: Path, name: str, code: int, status: str) -> None:
    """A verdict is exit 0 or 1, with the evaluation as JSON."""
    source = (
        ROOT / "benchmarks" / "level1" / "transpose" / "wrong" / "bank_conflicts.cu"
    ).read_text()
    kernel = tmp_path / name
    kernel.write_text(source if code == 0 else source.replace(";", "", 1))
    launches = [
        {
            "entry": "transpose",
            "args": ["x", "out", "rows", "cols"],
            "grid": ["ceil_div(cols, 32)", "ceil_div(rows, 32)"],
            "block": ["32", "8"],
        }
    ]
    kernel.with_suffix(".json").write_text(json.dumps({"launches": launches}))
    done = run(
        "evaluate", "level1/transpose", str(kernel), "--device", "emulated", "--json", code=code
    )
    assert json.loads(done.stdout)["status"] == status


OPTIMIZE, EVALUATE = "optimize level1/sum", "evaluate level1/sum"
BAD = [
    ("unknown task", "optimize level1/summ", None, 2, "level1/sum"),
    ("unknown policy", f"{OPTIMIZE} --policy mtcs", None, 2, "mcts"),
    ("unknown device", f"{OPTIMIZE} --device tpu", None, 3, "emulated"),
    ("unsupported arch", f"{OPTIMIZE} --device emulated --arch sm_35", None, 2, "sm_90"),
    ("binary kernel", f"{EVALUATE} k.cu", b"\x7fELF\x00\xff", 2, "text"),
    ("huge kernel", f"{EVALUATE} k.cu", b"x" * 50_000_000, 2, "bytes"),
    ("empty kernel", f"{EVALUATE} k.cu", b"", 2, "empty"),
    ("kernel of another kind", f"{EVALUATE} k.py", b"x = 1", 2, "PTX"),
    ("missing kernel", f"{EVALUATE} none.cu", None, 2, "none.cu"),
    ("no kernel", EVALUATE, None, 2, "kernel file"),
    ("corrupt store", f"{OPTIMIZE} --store s", b"garbage" * 99, 3, "corrupt"),
    ("unwritable store", f"{OPTIMIZE} --store /proc/none/s", None, 3, "cannot be written"),
    ("result that is none", "verify r.json", b"{}", 2, "lacks"),
    ("result that is no JSON", "verify r.json", b"{", 2, "cannot be read"),
    ("budget below nothing", f"{OPTIMIZE} --trials 0", None, 2, "positive"),
    ("no key", f"{OPTIMIZE} --llm openai:any", None, 3, "OPENAI_API_KEY"),
    ("model of another kind", f"{OPTIMIZE} --llm magic", None, 2, "openai:MODEL"),
    ("malformed suite", "batch s.yaml", b"tasks: [a\n", 2, "line"),
    ("suite with unknown keys", "batch s.yaml", b"tasks: [level1/sum]\ncolour: 1\n", 2, "colour"),
    ("case that is no JSON", "emulate c.ptx --case c.ptx", b"{", 2, "line 1"),
    ("result nested too deeply", "verify r.json", b"[" * 100_000, 2, "recursion"),
    ("policy nested too deeply", f"{OPTIMIZE} --policy p.yaml", b"[" * 9999, 2, "mend"),
    ("case nested too deeply", "emulate c.ptx --case c.ptx", b"[" * 100_000, 2, "deeply"),
    ("folder as a store", f"{OPTIMIZE} --device emulated --store .", None, 3, "folder"),
    ("store without a run", "export level1/sum --store none --out o", None, 3, "no store"),
]


@pytest.mark.parametrize(
    ("name", "command", "content", "code", "word"), BAD, ids=[case[0] for case in BAD]
)
def test_bad_input(
    run: Run,
    tmp_path: Path,
    name: str,
    command: str,
    content: bytes | None,
    code: int,
    word: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each mistake gets its exit code, its cause, what to do, and no traceback."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    if content is not None:
        (tmp_path / command.split()[-1]).write_bytes(content)
    done = run(*command.split(), code=code)
    assert "Traceback" not in done.stderr
    assert done.stderr.count("error:") == 1, done.stderr
    assert "   do: " in done.stderr
    assert word in done.stderr


def test_debug_shows_the_traceback() -> None:
    """`--debug` is for those who want to see where an error came from."""
    done = subprocess.run(
        [sys.executable, "-m", "ptxsearch", "--debug", "optimize", "level1/summ"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert "Traceback" in done.stderr
