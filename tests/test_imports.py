"""What is imported when: heavy libraries only where they are used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("cuda", "matplotlib", "networkx", "openai", "scipy", "tenacity")


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import ptxsearch", (*HEAVY, "rich", "typer")),
        ("import ptxsearch.cli", HEAVY),
        ("import ptxsearch; ptxsearch.load_task('level1/sum')", HEAVY),
    ],
)
def test_heavy_libraries_are_not_imported_before_they_are_used(
    statement: str, absent: tuple[str, ...]
) -> None:
    """A fresh interpreter has none of them loaded afterwards."""
    show = f"{statement}; import sys; print([m for m in {absent!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", show], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.strip() == "[]"
