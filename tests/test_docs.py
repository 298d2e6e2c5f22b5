"""The documents: their examples run as they stand, their links lead somewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from ptxsearch.batch import read_suite
from ptxsearch.calibration import calibrate, store
from ptxsearch.emulation import emulate
from ptxsearch.emulator import EmulatedDevice
from ptxsearch.emulator.inputs import GENERATORS
from ptxsearch.errors import KernelError, UsageError
from ptxsearch.kernelfile import read_kernel
from ptxsearch.pipeline import Pipeline
from ptxsearch.taskfile import load_task
from ptxsearch.tasklint import lint
from ptxsearch.toolchain import CompileFailure

ROOT = Path(__file__).resolve().parents[1]
TASKS = (ROOT / "docs" / "tasks.md").read_text()
KERNELS = (ROOT / "docs" / "kernels.md").read_text()


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """A folder with the files that docs/kernels.md shows."""
    for name, text in re.findall(r"^`([\w.]+)`:\n```\w+\n(.*?)^```", KERNELS, re.M | re.S):
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_case_of_the_document_gives_the_values_it_shows(example: Path) -> None:
    """Y = 0.5 x + 1 over 0, 1, 2, ... in float32."""
    launches = emulate(example / "my.cu", example / "case.json")
    assert not isinstance(launches, CompileFailure)
    assert [launch.report.status for launch in launches] == ["ok"]
    expected = 0.5 * np.arange(100) + 1
    assert np.array_equal(launches[0].buffers["y"], expected)
    shown = ", ".join(f"{value:.6g}" for value in expected[:8])
    assert f"y: {shown}, ..." in KERNELS


def test_the_launches_of_the_document_are_a_kernel_of_the_task(example: Path) -> None:
    """`my.json` binds to level1/saxpy: one thread an element at every size."""
    kernel, task = read_kernel(example / "my.cu"), load_task("level1/saxpy")
    for workload in task.workloads:
        (launch,) = kernel.bind(workload.sizes, frozenset(param.name for param in task.params))
        assert launch.grid[0] == -(-workload.sizes["n"] // 256)
        assert launch.block == (256, 1, 1)


@pytest.fixture
def rms(tmp_path: Path) -> Path:
    """The folder of the task that docs/tasks.md shows."""
    for name, text in re.findall(r"^`(rms/[\w.]+)`:\n```\w+\n(.*?)^```", TASKS, re.M | re.S):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path / "rms"


def test_the_task_of_the_document_is_healthy_once_it_is_calibrated(rms: Path) -> None:
    """Before, lint says how to calibrate; after, only wrong kernels to show it are missing."""
    pipeline = Pipeline(EmulatedDevice())
    (before,) = lint(load_task(str(rms)))
    assert (before.rule, before.severity) == ("calibration", "error")
    store(calibrate(load_task(str(rms)), sets=4), rms / "calibration.json")
    after = lint(load_task(str(rms)), evaluate=pipeline.evaluate)
    assert [(found.rule, found.severity) for found in after] == [("wrong", "warning")]


def test_the_suite_of_the_document_is_eight_runs(tmp_path: Path) -> None:
    """Two tasks, two policies, one proposer, two seeds."""
    (text,) = re.findall(r"^`suite.yaml`:\n```yaml\n(.*?)^```", TASKS, re.M | re.S)
    (tmp_path / "suite.yaml").write_text(text)
    suite = read_suite(tmp_path / "suite.yaml")
    assert len(list(suite.runs())) == 8
    assert suite.budget == {"tokens": 500_000, "wall_seconds": 3600}


def test_every_generator_of_inputs_is_described() -> None:
    """The document names what the emulator can make."""
    row = next(line for line in KERNELS.splitlines() if line.startswith("| `args[].init`"))
    assert set(GENERATORS) <= set(re.findall(r"`(\w+)`", row))


def test_cuda_that_does_not_compile_is_a_value_with_its_lines(example: Path) -> None:
    """The compiler's message comes back, with the line it is about."""
    (example / "my.cu").write_text((example / "my.cu").read_text().replace("float a", "flot a"))
    failure = emulate(example / "my.cu", example / "case.json")
    assert isinstance(failure, CompileFailure)
    assert "flot" in failure.text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"entry": None}, "`entry` names the kernel"),
        ({"runs": 3}, "`runs` lists its runs"),
        ({"runs": [{"grid": 1, "block": 32}]}, "run 0 of the case lacks 'args'"),
        ({"runs": [{"grid": 1, "block": 32, "args": [7]}]}, "run 0 of the case is malformed"),
        ({"values": [1]}, "values is"),
    ],
)
def test_a_case_that_is_none_says_what_is_missing(
    example: Path, change: dict[str, object], words: str
) -> None:
    """One error names the field and what a case needs."""
    case = json.loads((example / "case.json").read_text()) | change
    (example / "case.json").write_text(json.dumps(case))
    with pytest.raises(UsageError, match=re.escape(words)):
        emulate(example / "my.cu", example / "case.json")


def test_a_file_of_another_kind_is_refused_by_name(example: Path) -> None:
    """Only the two languages are kernels."""
    (example / "my.cpp").write_text("int main() {}")
    with pytest.raises(KernelError, match="neither PTX nor CUDA"):
        emulate(example / "my.cpp", example / "case.json")


@pytest.mark.parametrize("document", sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/*.md")))
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    """Every relative link names a file of the repository."""
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", document.read_text())
    assert [t for t in targets if not (document.parent / t).exists()] == []
