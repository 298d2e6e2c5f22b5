"""The benchmark of search efficiency: what it counts and what it writes."""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
COULOMB = ROOT / "tests" / "data" / "spaces" / "ktt_coulomb3d_RTX_2080_Ti_counters.npz"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    """The benchmark as a module."""
    path = ROOT / "benchmarks" / "search_efficiency.py"
    spec = importlib.util.spec_from_file_location("search_efficiency", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_running_time_counts_failed_runs(benchmark: ModuleType) -> None:
    """Runs of 3, 1 and (without success) 4 evaluations, two of them there: 8 / 2."""
    curves = [np.array(c) for c in ([9.0, 8.0, 5.0, 5.0], [5.0, 5.0], [9.0, 9.0, 9.0, 9.0])]
    assert benchmark.expected_running_time(curves, 5.0) == 4.0
    assert math.isinf(benchmark.expected_running_time(curves, 1.0))


def test_best_so_far_ignores_failures(benchmark: ModuleType) -> None:
    """A failure (nan) leaves the best as it was, infinite before the first success."""
    seconds = np.array([np.nan, 3.0, 2.0, 4.0])
    found = benchmark.best_so_far(seconds, [0, 3, 1, 0, 2])
    assert found.tolist() == [math.inf, 4.0, 3.0, 3.0, 2.0]


def test_json_has_the_promised_fields(
    benchmark: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--json --no-peers` prints a list with one entry a space, ours named ptxsearch."""
    arguments = ["--space", str(COULOMB), "--seeds", "2", "--budgets", "5,50", "--no-peers"]
    assert benchmark.main([*arguments, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["space"], found["strategy"], found["seeds"]) == (COULOMB.stem, "ptxsearch", 2)
    assert 1 <= found["ert5"] <= found["ert1"] <= 210
    assert set(found["fraction"]) == {"5", "50"}
    assert 0 < found["fraction"]["5"] <= found["fraction"]["50"] <= 1
