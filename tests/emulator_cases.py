"""The recorded kernels that tests of the emulator share: cases, outputs, counters, PTX."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ptxsearch.emulator.case import CaseLaunch, case_launches

DATA = Path(__file__).parent / "data" / "emulator"
PTX = Path(__file__).parent / "data" / "ptx" / "corpus"
CASES: dict[str, dict[str, Any]] = json.loads((DATA / "cases.json").read_text())
COUNTERS: dict[str, dict[str, dict[str, float]]] = json.loads((DATA / "counters.json").read_text())

OUT_OF_SCOPE = frozenset(
    {
        "bulk_copy_mbarrier",
        "cluster_dsmem_sum",
        "mbarrier_pingpong",
        "ptx_mbarrier_state",
        "mma_bf16_ldmatrix",
        "mma_f16_trans",
        "wgmma_bf16",
        "wmma_bf16",
        "wmma_f16_colmajor",
    }
)
IN_SCOPE = sorted(set(CASES) - OUT_OF_SCOPE)


@cache
def recorded() -> Any:
    """The outputs of the hardware, by KERNEL/RUN.LAUNCH.BUFFER."""
    return np.load(DATA / "recorded.npz")


def text(name: str) -> str:
    """The PTX of a recorded kernel."""
    return (PTX / f"{name}.ptx").read_text()


@cache
def launches(name: str) -> tuple[CaseLaunch, ...]:
    """Every launch of a recorded kernel, run once."""
    case = CASES[name]
    hidden = {
        item["name"]: recorded()[f"{name}/{run['id']}.only.{item['of']}"]
        for run in case["runs"]
        for item in run.get("hidden", ())
    }
    return tuple(case_launches(text(name), case, hidden))


def agrees(got: Any, want: Any, rule: dict[str, Any]) -> bool:
    """Whether an output equals the recorded one under the case's rule."""
    if rule["kind"] == "multiset":
        return np.array_equal(np.sort(got, axis=None), np.sort(want, axis=None))
    if rule["kind"] == "masked":
        mask = got.dtype.type(rule["mask"])
        return np.array_equal(got & mask, want & mask)
    nan = np.isnan(got) & np.isnan(want) if got.dtype.kind == "f" else np.zeros(got.shape, bool)
    if rule["kind"] == "bits":
        size = got.dtype.itemsize
        return bool(((got.view(f"u{size}") == want.view(f"u{size}")) | nan).all())
    if rule["kind"] == "close":
        with np.errstate(all="ignore"):
            limit = rule.get("atol", 0) + rule.get("rtol", 0) * np.abs(want.astype(float))
            near = np.abs(got.astype(float) - want) <= limit
        return bool((near | nan | (got == want)).all())
    return bool(((got == want) | nan).all())
