"""Run one module of this package without importing the rest: `python bare.py MODULE ARGUMENT...`.

A GPU's process starts again after every crash, and the tools start one for each look at a kernel;
the packages' own `__init__` would load the search, the emulator and scipy first, for a second.
"""

from __future__ import annotations

import runpy
import sys
import types
from pathlib import Path


def package(name: str, folder: Path) -> None:
    """Make a package importable whose `__init__` is not run."""
    made = types.ModuleType(name)
    made.__path__ = [str(folder)]
    sys.modules[name] = made


if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    # The script's own folder would shadow standard modules of the same names.
    sys.path[0] = str(here.parents[1])
    package("ptxsearch", here.parent)
    package("ptxsearch.gpu", here)
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
