"""Every labelled cheat gets one of its statuses, every honest odd kernel passes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ptxsearch.emulator.device import EmulatedDevice
from ptxsearch.pipeline import Pipeline
from ptxsearch.taskfile import load_task
from ptxsearch.tasks import Task
from tests.cheats import Cheat, cheats

# These take more than a few seconds each on the emulator.
SLOW = frozenset({"sleeper", "huge_grid", "compile_bomb", "one_thread_row", "few_blocks"})
# These only show on the timed workload.
TIMED = frozenset({"skip_full_size"} | {c.name for c in cheats() if c.name.startswith("full_")})


@pytest.fixture(scope="module")
def pipeline() -> Pipeline:
    """One pipeline for all, so that references are computed once."""
    return Pipeline(EmulatedDevice("sm_90"))


def judged_on(cheat: Cheat) -> Task:
    """The kernel's task, without its timed workloads unless the cheat lies there."""
    task = load_task(cheat.task)
    if cheat.name in TIMED:
        return task
    return replace(task, workloads=tuple(w for w in task.workloads if not w.timed))


def cases() -> list[object]:
    """Every labelled kernel, the slow ones marked."""
    return [
        pytest.param(c, id=c.name, marks=[pytest.mark.slow] if c.name in SLOW | TIMED else [])
        for c in cheats()
    ]


@pytest.mark.parametrize("cheat", cases())
def test_a_labelled_kernel_gets_its_status(pipeline: Pipeline, cheat: Cheat) -> None:
    """The status is among those of the label, and a failure says why."""
    found = pipeline.evaluate(judged_on(cheat), cheat.kernel)
    assert found.status in cheat.statuses, f"{cheat.why}: {found.message}"
    assert found.ok or found.message


def test_as_many_kinds_of_cheats_as_are_known_are_labelled() -> None:
    """Each kind that a kernel can play is there, and many honest kernels stand against them."""
    labelled = cheats()
    kinds = {cheat.row for cheat in labelled if not cheat.honest}
    assert {1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 13, 14, 15, 16, 17, 18, 21, 22, 24} <= kinds
    assert sum(cheat.honest for cheat in labelled) >= 25
    assert all(cheat.statuses == {"OK"} for cheat in labelled if cheat.honest)
