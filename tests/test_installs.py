"""Wheel, sdist and editable installs in fresh environments, with and without compilers.

The slow ones download several hundred megabytes the first time; an interpreter that this machine
lacks is skipped by name.
"""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.11", "3.12", "3.13")
PROBE = """
import json, sys
import ptxsearch
from ptxsearch.errors import ToolchainError
from ptxsearch.taskfile import bundled, load_task
from ptxsearch.toolchain import Compiler, CompileFailure, toolchain_for
task = load_task("level1/sum")
driver = json.loads(sys.argv[1])
compiler = Compiler(toolchain_for(driver))
found = {"tasks": len(bundled()), "toolchain": compiler.toolchain.name, "where": ptxsearch.__file__}
for language, source in (("ptx", sys.argv[2]), ("cuda", task.baseline.source)):
    values = dict(task.baseline.values) if language == "cuda" else {}
    entries = (task.baseline.launches[0].entry,) if language == "cuda" else ("k",)
    try:
        made = compiler.compile(source, language, values, arch="sm_90", entries=entries)
        found[language] = made.text if isinstance(made, CompileFailure) else made.cubin[:9].hex()
    except ToolchainError as error:
        found[language] = str(error)
compiler.close()
print(json.dumps(found))
"""
PTX = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() { ret; }\n"
# ELF magic, class, order, version, OS ABI, ABI version: what ptxas 13.0 and 12.9 write.
CUBIN_13, CUBIN_12 = "7f454c460201014108", "7f454c460201013307"


def interpreter(version: str) -> str:
    """The path of Python `version`; skips the test where there is none."""
    candidates = [shutil.which(f"python{version}") or ""]
    candidates += map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    ask = "import sys, venv, ensurepip; print(sys.executable)"
    for path in filter(None, candidates):
        answer = subprocess.run([path, "-c", ask], capture_output=True, text=True)
        if answer.returncode == 0:
            return answer.stdout.strip()
    pytest.skip(f"no Python {version} on this machine")


def run(*command: str | Path, path: str = "", cwd: Path | None = None) -> str:
    """What a command prints; the test fails with its words where it fails."""
    environment: Mapping[str, str] = {"PATH": path, "HOME": str(Path.home()), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        list(map(str, command)), env=environment, cwd=cwd, text=True, capture_output=True,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def environment(folder: Path, version: str) -> Path:
    """A fresh virtual environment's Python, below a path with spaces."""
    place = folder / "env with spaces"
    run(interpreter(version), "-m", "venv", place)
    return place / "bin" / "python"


def probe(python: Path, folder: Path, driver: str = "null") -> dict[str, str]:
    """What the installed package can do, run outside the checkout with nothing on PATH."""
    import json

    answer: dict[str, str] = json.loads(run(python, "-c", PROBE, driver, PTX, cwd=folder))
    return answer


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A wheel and an sdist of this checkout, built from a copy of it."""
    folder = tmp_path_factory.mktemp("built")
    skipped = shutil.ignore_patterns(
        ".venv", ".git", "build", "*.egg-info", "__pycache__", ".*_cache"
    )
    copy = shutil.copytree(ROOT, folder / "a checkout", ignore=skipped)
    python = environment(folder, "3.11")
    run(python, "-m", "pip", "install", "-q", "build")
    run(python, "-m", "build", "-o", folder / "dist", copy, path=os.environ["PATH"])
    (wheel,) = (folder / "dist").glob("*.whl")
    (sdist,) = (folder / "dist").glob("*.tar.gz")
    return {"wheel": wheel, "sdist": sdist, "checkout": copy}


def test_every_package_is_in_the_wheel() -> None:
    """setup.cfg lists exactly the packages of the tree, so that none is left behind."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    listed = set(config["options"]["packages"].split())
    tree = {
        ".".join(folder.relative_to(ROOT).parts)
        for folder in (ROOT / "ptxsearch").rglob("*")
        if folder.is_dir() and any(folder.glob("*.py"))
    }
    assert tree | {"ptxsearch"} <= listed


def test_data_beside_the_code_is_in_the_wheel() -> None:
    """Every file of the package that is no Python matches a pattern of setup.cfg."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    patterns = {name: text.split() for name, text in config["options.package_data"].items()}
    for path in (ROOT / "ptxsearch").rglob("*"):
        if path.is_file() and path.suffix not in (".py", ".pyc"):
            package = ".".join(path.parent.relative_to(ROOT).parts)
            assert any(path.match(pattern) for pattern in patterns.get(package, [])), path


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_a_wheel_works_in_a_fresh_environment(
    version: str, built: dict[str, Path], tmp_path: Path
) -> None:
    """On each Python the wheel brings compilers, tasks and the command."""
    python = environment(tmp_path, version)
    run(python, "-m", "pip", "install", "-q", built["wheel"])
    run(python, "-m", "pip", "check")
    got = probe(python, tmp_path)
    assert (got["ptx"], got["cuda"]) == (CUBIN_13, CUBIN_13)
    assert int(got["tasks"]) >= 6
    assert "level1/sum" in run(python.with_name("ptxsearch"), "tasks", cwd=tmp_path)


@pytest.mark.slow
def test_a_source_distribution_works_as_the_wheel(built: dict[str, Path], tmp_path: Path) -> None:
    """What pip builds from the sdist has tasks and prompts, and compiles."""
    python = environment(tmp_path, "3.11")
    run(python, "-m", "pip", "install", "-q", built["sdist"], path=os.environ["PATH"])
    got = probe(python, tmp_path)
    assert (got["ptx"], got["cuda"], int(got["tasks"]) >= 6) == (CUBIN_13, CUBIN_13, True)


@pytest.mark.slow
def test_without_compilers_all_but_cuda_works(built: dict[str, Path], tmp_path: Path) -> None:
    """With no compiler wheel PTX passes unassembled and CUDA C++ says what to install."""
    python = environment(tmp_path, "3.11")
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    needed = [line for line in config["options"]["install_requires"].split("\n") if line]
    plain = [line for line in needed if not line.startswith(("cuda-", "nvidia-"))]
    run(python, "-m", "pip", "install", "-q", *plain)
    run(python, "-m", "pip", "install", "-q", "--no-deps", built["wheel"])
    got = probe(python, tmp_path)
    assert got["ptx"] == ""
    assert "NVRTC, which was not found" in got["cuda"]
    assert "pip install" in got["cuda"]


@pytest.mark.slow
def test_cuda_12_tools_stand_beside_those_of_13(built: dict[str, Path], tmp_path: Path) -> None:
    """[cu12] installs with the rest, and a CUDA 12 driver then gets its own compilers."""
    python = environment(tmp_path, "3.12")
    run(python, "-m", "pip", "install", "-q", f"{built['wheel']}[cu12]")
    run(python, "-m", "pip", "check")
    old, new = probe(python, tmp_path, "12080"), probe(python, tmp_path, "13000")
    assert (old["ptx"], old["cuda"]) == (CUBIN_12, CUBIN_12)
    assert (new["ptx"], new["cuda"]) == (CUBIN_13, CUBIN_13)


@pytest.mark.slow
def test_an_editable_install_follows_the_checkout(built: dict[str, Path], tmp_path: Path) -> None:
    """From a path with spaces, the package imported is the checkout's, with its tasks."""
    python = environment(tmp_path, f"{sys.version_info[0]}.{sys.version_info[1]}")
    run(python, "-m", "pip", "install", "-q", "--no-deps", "-e", built["checkout"],
        path=os.environ["PATH"])  # fmt: skip
    (site,) = (python.parents[1] / "lib").glob("python3*/site-packages")
    beside = Path(pytest.__file__).parents[1]
    (site / "beside.pth").write_text(f"{beside}\n")
    got = probe(python, tmp_path)
    assert str(built["checkout"]) in got["where"]
    assert (got["ptx"], got["cuda"]) == (CUBIN_13, CUBIN_13)
