"""Case files: input data from its description, launches in order, mistakes named."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

from ptxsearch.emulator.case import run_case
from ptxsearch.emulator.inputs import make
from ptxsearch.errors import UsageError
from tests.emulator_cases import CASES, text

BUFFERS = [
    (name, run["id"], argument)
    for name, case in CASES.items()
    for run in case["runs"]
    for argument in run["args"]
    if "sha256" in argument
]


def test_input_data() -> None:
    """Every recorded buffer is made with the bytes that were recorded."""
    assert len(BUFFERS) > 300
    for name, run, argument in BUFFERS:
        data = make(argument["init"], argument["dtype"], argument["shape"])
        digest = hashlib.sha256(np.ascontiguousarray(data).tobytes()).hexdigest()
        assert digest == argument["sha256"], (name, run, argument["name"])


@pytest.mark.parametrize(
    ("init", "dtype", "words"),
    [({"gen": "noise"}, "f32", "noise"), ({"gen": "zeros"}, "f33", "f33")],
)
def test_unknown_data(init: dict[str, Any], dtype: str, words: str) -> None:
    """An unknown generator or dtype is the caller's mistake."""
    with pytest.raises(UsageError, match=words):
        make(init, dtype, (4,))


def test_a_report_for_each_launch() -> None:
    """A case gives one report for each launch of each run, memory kept within a run."""
    reports = run_case(text("reduce_last_block"), CASES["reduce_last_block"])
    assert [report.status for report in reports] == ["ok", "ok"]
    reports = run_case(text("cheat_unchanged_probe"), CASES["cheat_unchanged_probe"])
    assert len(reports) == 6


def test_case_without_runs() -> None:
    """A case that lacks a field is the caller's mistake."""
    with pytest.raises(UsageError, match="runs"):
        run_case(text("saxpy"), {"entry": "saxpy"})


def test_argument_of_unknown_kind() -> None:
    """An argument of an unknown kind is the caller's mistake."""
    case = {
        "entry": "saxpy",
        "runs": [
            {
                "id": "one",
                "grid": [1],
                "block": [32],
                "args": [{"name": "x", "kind": "texture"}],
            }
        ],
    }
    with pytest.raises(UsageError, match="texture"):
        run_case(text("saxpy"), case)
