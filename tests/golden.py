"""Comparison with golden files; UPDATE_GOLDEN=1 writes them anew."""

from __future__ import annotations

import os
from pathlib import Path


def matches(path: Path, text: str) -> None:
    """Assert that `text` is the content of `path`, or write it where an update is asked for."""
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    assert path.is_file(), f"{path} is missing: run with UPDATE_GOLDEN=1 and read it"
    assert path.read_text("utf-8") == text
