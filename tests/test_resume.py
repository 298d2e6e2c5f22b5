"""Runs that are killed or interrupted at every event go on to the tree they would have had."""

from __future__ import annotations

import math
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxsearch.api import drive
from ptxsearch.budget import Budget
from ptxsearch.errors import UsageError
from ptxsearch.evaluation import Timing
from ptxsearch.search import Search
from ptxsearch.space import Space
from ptxsearch.store import MemoryStore, SQLiteStore
from tests.test_search import digest
from tests.toy import ToyEvaluator, ToyProposer, toy_task, toy_verdict

# The order of names is not that of the alphabet: a tuner's choices depend on it.
SPACE = Space({"Z": (0, 1, 2, 3, 4, 5), "B": (0, 1, 2), "A": (1, 2, 4, 8)})
TRIALS = Budget(trials=24)


class KilledStore(SQLiteStore):
    """A store that sends its own process a signal around its `at`-th append."""

    at, signal, after = 0, signal.SIGKILL, True

    def append(self, event: Any) -> int:
        """Append, or die."""
        self.at -= 1
        if self.at == 0 and not self.after:
            os.kill(os.getpid(), self.signal)
        number = super().append(event)
        if self.at == 0 and self.after:
            os.kill(os.getpid(), self.signal)
        return number


def spaced_task() -> Any:
    """The toy task with three parameters."""
    task = toy_task(space=None)
    values = {"Z": 0, "B": 0, "A": 1}
    return replace(task, baseline=replace(task.baseline, space=SPACE, values=values))


class SpacedProposer(ToyProposer):
    """Children that have the three parameters."""

    def propose(self, *arguments: Any) -> Any:
        """The next child."""
        found = super().propose(*arguments)
        return [
            replace(p, kernel=replace(p.kernel, space=SPACE, values={"Z": 0, "B": 0, "A": 1}))
            for p in found
            if p.kernel is not None
        ]


def search_on(store: Any) -> Search:
    """A run of 24 trials."""
    return Search(spaced_task(), proposers=[SpacedProposer(space=None)], budget=TRIALS, store=store)


@pytest.fixture(scope="module")
def whole() -> tuple[str, int]:
    """The digest of a run that nothing stopped, and how many events it has."""
    store = MemoryStore()
    search = search_on(store)
    drive(search, ToyEvaluator())
    return digest(search), len(list(store.events()))


def _child(path: Path, at: int, number: int, after: bool) -> int:
    """Run in a process of its own that gets signal `number`; how it ended."""
    pid = os.fork()
    if pid == 0:
        with KilledStore(path) as store:
            store.at, store.signal, store.after = at, number, after  # type: ignore[assignment]
            state = drive(search_on(store), ToyEvaluator()).state
        os._exit(0 if state == "interrupted" else 9)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


# Each process imports the library anew: every event is for `make slow`, some for every day.
STEPS = [6, pytest.param(1, marks=pytest.mark.slow)]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("after", [True, False])
def test_a_run_killed_at_every_event_goes_on(
    tmp_path: Path, whole: tuple[str, int], after: bool, step: int
) -> None:
    """SIGKILL before or after each commit; the resumed tree is that of the whole run."""
    for at in range(1 + (step > 1 and after), whole[1], step):
        path = tmp_path / f"{at}"
        assert _child(path, at, signal.SIGKILL, after) == -signal.SIGKILL
        with SQLiteStore(path) as store:
            search = search_on(store)
            drive(search, ToyEvaluator())
            assert digest(search) == whole[0], f"killed at event {at}"


@pytest.mark.parametrize("step", STEPS)
def test_ctrl_c_at_every_event_ends_in_order(
    tmp_path: Path, whole: tuple[str, int], step: int
) -> None:
    """SIGINT inside each commit: the run says interrupted, and goes on to the same tree."""
    for at in range(2, whole[1] - 1, step):
        path = tmp_path / f"{at}"
        assert _child(path, at, signal.SIGINT, True) == 0, f"interrupted at event {at}"
        with SQLiteStore(path) as store:
            search = search_on(store)
            drive(search, ToyEvaluator())
            assert digest(search) == whole[0], f"interrupted at event {at}"


@pytest.mark.parametrize("workers", [4, 16])
def test_the_tree_does_not_depend_on_workers(whole: tuple[str, int], workers: int) -> None:
    """Threads that judge at once give the tree of one."""
    search = search_on(MemoryStore())
    drive(search, ToyEvaluator(), workers=workers)
    assert digest(search) == whole[0]


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf, None])
def test_an_impossible_time_is_refused_and_not_kept(seconds: float | None) -> None:
    """A verdict that could not be applied is no event: the store stays usable."""
    store = MemoryStore()
    search = search_on(store)
    (baseline,) = search.ask()
    good = toy_verdict(baseline.kernel)  # type: ignore[arg-type]
    timing = {} if seconds is None else {"only": Timing(seconds, 1e-6, 1e-6, 1)}
    with pytest.raises(UsageError, match="positive seconds"):
        search.tell([(baseline.id, replace(good, times=timing))])
    with pytest.raises(UsageError, match="not finite"):
        search.tell([(baseline.id, replace(good, evidence={"x": math.inf}))])
    search.tell([(baseline.id, good)])
    assert search_on(store).progress.trials[0].evaluation.ok


@pytest.mark.parametrize("identifier", ["²", "1" * 5000, "-0", "٣", "", "0x0"])
def test_an_id_that_is_no_number_is_refused(identifier: str) -> None:
    """Digits of other scripts and numbers without end are no proposals."""
    search = search_on(MemoryStore())
    (baseline,) = search.ask()
    with pytest.raises(UsageError, match="not waiting"):
        search.tell([(identifier, toy_verdict(baseline.kernel))])  # type: ignore[arg-type]


def test_a_store_keeps_the_order_of_keys(tmp_path: Path) -> None:
    """Names come back in the order they were written in."""
    with SQLiteStore(tmp_path / "s") as store:
        store.append({"type": "x", "space": {"z": 1, "a": np.float64(2).item()}})
        assert list(next(iter(store.events()))["space"]) == ["z", "a"]
