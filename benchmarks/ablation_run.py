"""One run of the ablation: a world, so many decisions, workers whose verdicts take drawn times."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from ptxsearch.budget import Budget
from ptxsearch.evaluation import Evaluation
from ptxsearch.policy import Policy
from ptxsearch.protocols import Evaluator, Proposer
from ptxsearch.reward import log_speedup
from ptxsearch.search import Search
from ptxsearch.tasks import Task

Floats = NDArray[np.float64]


class World(NamedTuple):
    """Where a search runs: its task, who proposes, who judges."""

    task: Task
    proposer: Proposer
    evaluator: Evaluator


@dataclass(frozen=True)
class Run:
    """A finished run: best log speedup after each decision, and its proposals in order.

    `proposals` holds (node, template) of every child that was proposed; `elapsed` is when the last
    verdict came, in times that a verdict takes on average.
    """

    curve: Floats
    proposals: tuple[tuple[int, str], ...]
    statuses: tuple[str, ...]
    elapsed: float = 0.0


def search(
    world: World,
    policy: Policy,
    *,
    decisions: int,
    seed: int,
    workers: int = 1,
    parts: Mapping[str, Any] | None = None,
) -> Run:
    """One run of exactly `decisions` decisions after the baseline, fewer where ideas end.

    `parts` names what of the library is replaced meanwhile, and by what.
    """
    with ExitStack() as replaced:
        for name, part in (parts or {}).items():
            replaced.enter_context(mock.patch(name, part))
        run = Search(
            world.task,
            proposers=[world.proposer],
            policy=policy,
            budget=Budget(trials=decisions + 1, proposals=decisions + 1),
            seed=seed,
        )
        elapsed = _drive(run, world, decisions=decisions, workers=workers)
        run.stop("done", "the decisions are made")
    trials = run.progress.trials[1:]
    base = run.progress.trials[0].evaluation
    gains = [log_speedup(t.evaluation, base) if t.evaluation.ok else 0.0 for t in trials]
    curve = np.maximum.accumulate([0.0, *gains, *[0.0] * (decisions - len(gains))])[1:]
    proposals = tuple(
        (t.proposal.parent, t.proposal.kernel.template)
        for t in trials
        if t.proposal.kind != "tune" and t.proposal.kernel is not None
    )
    return Run(curve, proposals, tuple(t.evaluation.status for t in trials), elapsed)


def _drive(run: Search, world: World, *, decisions: int, workers: int) -> float:
    """Ask and tell until the decisions are made; a verdict takes an exponential time of mean 1."""
    flying: list[tuple[float, int, Evaluation]] = []
    clock = 0.0
    while True:
        left = decisions + 1 - run.progress.decisions
        for proposal in run.ask(min(workers - len(flying), left)):
            assert proposal.kernel is not None
            verdict = world.evaluator.evaluate(world.task, proposal.kernel)
            number = int(proposal.id)
            took = np.random.default_rng([run.seed, number]).exponential()
            heapq.heappush(flying, (clock + took, number, verdict))
        if not flying:
            return clock
        clock, number, verdict = heapq.heappop(flying)
        run.tell([(str(number), verdict)])
