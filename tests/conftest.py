"""What every test gets: a folder of its own for temporary files, lock files of made-up GPUs too."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """TMPDIR is a folder that pytest removes, for this process and those it starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("t")))
        patch.setattr(tempfile, "tempdir", None)
        yield
