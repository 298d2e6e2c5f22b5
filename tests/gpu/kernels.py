"""The small kernels of tests/data/gpu/kernels: all are k(x, y, n) and mean y = 2 x."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ptxsearch.evaluation import Built, Inputs
from ptxsearch.kernel import Kernel, Launch
from ptxsearch.tasks import Workload
from ptxsearch.toolchain import CompileFailure, build

FOLDER = Path(__file__).parents[1] / "data" / "gpu" / "kernels"
GOOD = ("double_it",)
SLOW = ("bank_conflicts", "uncoalesced", "spills", "low_occupancy", "divergent")
_BLOCKS = {"double_it": "1024", "bank_conflicts": "1024", "uncoalesced": "4096"}


def workload(n: int) -> Workload:
    """A problem of n floats."""
    return Workload(f"n{n}", {"n": n})


def inputs(n: int, seed: int) -> Inputs:
    """Normal x, and y to be written."""
    x = np.random.default_rng(seed).standard_normal(n, np.float32)
    values = {"x": x, "y": np.empty(n, np.float32), "n": np.int32(n)}
    return Inputs(values, {"x": "in", "y": "out", "n": "scalar"}, {"n": n}, f"normal {seed}")


def kernel(name: str, **values: int) -> Kernel:
    """A kernel with the launch it was written for."""
    source = (FOLDER / f"{name}.cu").read_text()
    block, per_block, shared = 256, _BLOCKS.get(name, "256"), "0"
    if name == "bank_conflicts":
        block = 1024
    elif name == "uncoalesced":
        block, per_block = 128, "4096"
    elif name == "low_occupancy":
        block, per_block, shared = 32, "4096", "204800"
    elif name == "spills":
        block, per_block = 1024, "1024"
    launch = Launch(
        "k", ("x", "y", "n"), (f"ceil_div(n, {per_block})",), (str(block),), shared_bytes=shared
    )
    return Kernel(source, "cuda", (launch,), values=values)


def built(name: str, arch: str, **values: int) -> Built:
    """The compiled kernel."""
    made = build(kernel(name, **values), arch)
    assert not isinstance(made, CompileFailure), made.message
    return made
