"""The compile matrix as a user runs it, against recorded resources."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CORPUS: dict[str, Any] = json.loads(
    gzip.decompress((ROOT / "tests" / "data" / "toolchain" / "corpus.json.gz").read_bytes())
)


def matrix(*arguments: str) -> tuple[int, dict[str, Any]]:
    """The exit code and JSON of the script."""
    script = ROOT / "benchmarks" / "compile_matrix.py"
    done = subprocess.run(
        [sys.executable, str(script), *arguments, "--json"],
        cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout)


def test_a_folder_of_kernels_gives_a_row_an_entry_and_architecture(tmp_path: Path) -> None:
    """Registers on sm_90 are those recorded; what an architecture lacks is a reason, not a row."""
    for name in ("matmul_tiled", "wgmma_bf16"):
        (tmp_path / f"{name}.ptx").write_text(CORPUS[name]["ptx"])
    code, got = matrix(str(tmp_path), "--arch", "sm_80", "--arch", "sm_90", "--threads", "128")
    assert code == 0
    rows = {(row["kernel"].split()[0], row["arch"]): row for row in got["rows"]}
    for name in ("matmul_tiled", "wgmma_bf16"):
        assert CORPUS[name]["ptxas"]["registers"] == rows[name, "sm_90"]["registers"]
    assert rows["wgmma_bf16", "sm_90"]["target"] == "sm_90a"
    assert "newer than sm_80" in rows["wgmma_bf16", "sm_80"]["refused"]


def test_a_bundled_task_has_the_threads_of_its_launch() -> None:
    """A task's baseline is placed with its own launch; six resident blocks of 256 fill an sm_86."""
    code, got = matrix("level1/transpose", "--arch", "sm_86")
    assert code == 0
    (row,) = got["rows"]
    assert (row["threads"], row["blocks_per_sm"], row["occupancy"]) == (256, 6, 1.0)


def test_a_kernel_that_compiles_nowhere_is_a_failure(tmp_path: Path) -> None:
    """The exit code says that a kernel has no code for any architecture."""
    (tmp_path / "bad.cu").write_text('extern "C" __global__ void k() { x; }')
    code, got = matrix(str(tmp_path), "--arch", "sm_90")
    assert code == 1
    assert "undefined" in got["rows"][0]["refused"]
