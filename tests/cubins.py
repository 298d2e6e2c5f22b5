"""Cubins for tests, assembled by the ptxas of this machine."""

from __future__ import annotations

import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

from ptxsearch.toolchain.find import machine_toolchain


@cache
def assembled(ptx: str, arch: str = "sm_90", options: tuple[str, ...] = ()) -> bytes:
    """The cubin of a PTX text; skips the test where there is no ptxas."""
    ptxas = machine_toolchain().ptxas
    if ptxas is None:
        pytest.skip("no ptxas on this machine")
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "k.ptx"), Path(folder, "k.cubin")
        source.write_text(ptx)
        command = [str(ptxas), f"-arch={arch}", *options, str(source), "-o", str(cubin)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return cubin.read_bytes()
