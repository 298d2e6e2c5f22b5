"""Search policies at equal cost: `python benchmarks/ablation.py [--source bank|trees] [--json F]`.

`bank` searches the six level-1 tasks over a closed set of proposals (menu edits and kernels that
a language model wrote) with verdicts of the emulated device kept in tests/data/ablation. `trees`
searches drawn worlds. Every run makes the same number of decisions, whatever becomes of them. The
figure of a run is the log speedup of its best kernel; policies are compared with `greedy` on equal
(task, seed). Intervals are 95 % bootstraps over the pairs, and over whole tasks.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import ablation_bank
import ablation_trees
import numpy as np
from numpy.typing import NDArray

from ptxsearch.budget import Budget
from ptxsearch.policy import Policy
from ptxsearch.protocols import Evaluator, Proposer
from ptxsearch.reward import log_speedup
from ptxsearch.search import Search
from ptxsearch.tasks import Task

GATE = -0.01
RESAMPLES = 10_000
REFERENCE = "greedy"
Floats = NDArray[np.float64]

POLICIES: Mapping[str, Mapping[str, Any]] = {
    "mcts": {},
    "greedy": {"rule": "greedy"},
    "beam": {"rule": "beam"},
    "best_of_n": {"rule": "best_of_n"},
    "random": {"rule": "random"},
}
SWITCHES: Mapping[str, Mapping[str, Any]] = {
    "c 0": {"exploration": 0.0},
    "c .03": {"exploration": 0.03},
    "c .3": {"exploration": 0.3},
    "c 1": {"exploration": 1.0},
    "priors off": {"prior_weight": 0.0},
    "priors .2": {"prior_weight": 0.2},
    "widening .2": {"widening": 0.2},
    "widening .5": {"widening": 0.5},
    "least children 2": {"least_children": 2},
    "least children 10": {"least_children": 10},
    "window 1": {"window": 1},
    "window 16": {"window": 16},
    "greedy, window 1": {"rule": "greedy", "window": 1},
    "beam, window 1": {"rule": "beam", "window": 1},
    "family share .5": {"family_share": 0.5},
    "end share 0": {"end_share": 0.0},
    "tuner off": {"tune_share": 0.0},
    "tuner first": {"tune_share": 1.0},
    "greedy, tuner off": {"rule": "greedy", "tune_share": 0.0},
    "transpositions off": {"transpositions": False},
}


class World(NamedTuple):
    """Where a search runs: its task, who proposes, who judges."""

    task: Task
    proposer: Proposer
    evaluator: Evaluator


@dataclass(frozen=True)
class Run:
    """A finished run: best log speedup after each decision, and its proposals in order.

    `proposals` holds (node, template) of every child that was proposed.
    """

    curve: Floats
    proposals: tuple[tuple[int, str], ...]
    statuses: tuple[str, ...]


def search(world: World, policy: Policy, *, decisions: int, seed: int) -> Run:
    """One run of exactly `decisions` decisions after the baseline, fewer where ideas end."""
    run = Search(
        world.task,
        proposers=[world.proposer],
        policy=policy,
        budget=Budget(trials=decisions + 1, proposals=decisions + 1),
        seed=seed,
    )
    while run.progress.decisions <= decisions and (batch := run.ask(1)):
        for proposal in batch:
            assert proposal.kernel is not None
            verdict = world.evaluator.evaluate(world.task, proposal.kernel)
            run.tell([(proposal.id, verdict)])
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
    return Run(curve, proposals, tuple(t.evaluation.status for t in trials))


def repeats(runs: Sequence[Run], *, most: int = 12) -> list[dict[str, float]]:
    """How often the j-th idea at a node repeats an earlier one there, or one anywhere."""
    counts: dict[int, list[tuple[bool, bool]]] = defaultdict(list)
    for run in runs:
        here: dict[int, list[str]] = defaultdict(list)
        everywhere: set[str] = set()
        for node, template in run.proposals:
            place = len(here[node]) + 1
            counts[place].append((template in here[node], template in everywhere))
            here[node].append(template)
            everywhere.add(template)
    table = []
    for place in sorted(j for j in counts if j <= most):
        at_node, anywhere = np.mean(np.array(counts[place], dtype=float), axis=0)
        table.append(
            {"j": place, "ideas": len(counts[place]), "at node": at_node, "anywhere": anywhere}
        )
    return table


def interval(differences: Mapping[str, Floats], *, by_task: bool, seed: int = 0) -> list[float]:
    """The 95 % bootstrap interval of the mean difference; `by_task` resamples tasks first."""
    rng = np.random.default_rng(seed)
    tasks = list(differences)
    if not by_task:
        pooled = np.concatenate([differences[task] for task in tasks])
        drawn = pooled[rng.integers(len(pooled), size=(RESAMPLES, len(pooled)))]
        means = drawn.mean(axis=1)
    else:
        sums = np.zeros(RESAMPLES)
        for _ in tasks:
            chosen = rng.integers(len(tasks), size=RESAMPLES)
            for number, task in enumerate(tasks):
                picked = chosen == number
                values = differences[task]
                index = rng.integers(len(values), size=(int(picked.sum()), len(values)))
                sums[picked] += values[index].mean(axis=1)
        means = sums / len(tasks)
    return [float(q) for q in np.quantile(means, [0.025, 0.975])]


def compared(
    curves: Mapping[str, Mapping[str, Floats]], *, reference: str = REFERENCE
) -> list[dict[str, Any]]:
    """One row an arm: mean log speedup, at the end and on the way, and its lead on `reference`.

    `curves` holds for every arm and task the curves of all seeds, shape (seeds, decisions).
    """
    rows = []
    for arm, tasks in curves.items():
        final = {task: values[:, -1] for task, values in tasks.items()}
        lead = {task: final[task] - curves[reference][task][:, -1] for task in tasks}
        way = {t: (tasks[t] - curves[reference][t]).mean(axis=1) for t in tasks}
        rows.append(
            {
                "arm": arm,
                "runs": sum(len(values) for values in final.values()),
                "log speedup": float(np.mean(np.concatenate(list(final.values())))),
                "lead": float(np.mean(np.concatenate(list(lead.values())))),
                "interval": interval(lead, by_task=False),
                "by task": interval(lead, by_task=True),
                "lead on the way": float(np.mean(np.concatenate(list(way.values())))),
                "way interval": interval(way, by_task=False),
                "tasks": {task: float(np.mean(values)) for task, values in lead.items()},
            }
        )
    return rows


def bank_world(task: str, seed: int, *, tuned: bool = True, transpositions: bool = True) -> World:
    """A level-1 task over its bank; seeds differ in what is drawn alone."""
    bank, memo = _bank(task, tuned)
    return World(bank.task, ablation_bank.BankProposer(bank), memo)


@cache
def _bank(task: str, tuned: bool) -> tuple[ablation_bank.Bank, ablation_bank.Memo]:
    bank = ablation_bank.Bank(task, tuned=tuned)
    memo = ablation_bank.Memo(bank, live=False)
    bank.cut(memo.records)
    return bank, memo


def drawn_world(task: str, seed: int, *, transpositions: bool = True) -> World:
    """A drawn world of the family `task`; every seed is another world."""
    world = ablation_trees.World(task, seed, transpositions=transpositions)
    return World(world.task, world, world)


def run_arms(
    arms: Mapping[str, Mapping[str, Any]],
    tasks: Sequence[str],
    make: Callable[..., World],
    *,
    seeds: Sequence[int],
    decisions: int,
    common: Mapping[str, Any],
) -> tuple[dict[str, dict[str, Floats]], dict[str, list[Run]]]:
    """The curves of every arm, task and seed, and the runs themselves by arm."""
    curves: dict[str, dict[str, Floats]] = {arm: {} for arm in arms}
    runs: dict[str, list[Run]] = {arm: [] for arm in arms}
    for task in tasks:
        for arm, settings in arms.items():
            own = {"stop_within": 0.0, **common, **settings}
            apart = not own.pop("transpositions", True)
            found = [
                search(
                    make(task, seed, transpositions=not apart),
                    Policy(**own),
                    decisions=decisions,
                    seed=seed,
                )
                for seed in seeds
            ]
            curves[arm][task] = np.array([run.curve for run in found])
            runs[arm] += found
    return curves, runs


def show(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print one table."""
    print(f"\n{title}")
    head = ("log speedup", "lead on greedy", "95 %", "95 % by task", "lead on the way")
    print(f"{'':20} {head[0]:>11} {head[1]:>14} {head[2]:>18} {head[3]:>18} {head[4]:>16}")
    for row in rows:
        spans = [f"{low:+.3f} .. {high:+.3f}" for low, high in (row["interval"], row["by task"])]
        print(
            f"{row['arm']:20} {row['log speedup']:11.3f} {row['lead']:+14.3f} {spans[0]:>18} "
            f"{spans[1]:>18} {row['lead on the way']:+16.3f}"
        )


def report(options: argparse.Namespace) -> dict[str, Any]:
    """Run what was asked for, print it, and give it as JSON types."""
    drawn = options.source == "trees"
    tasks = options.tasks or list(ablation_trees.FAMILIES if drawn else ablation_bank.TASKS)
    arms = {**POLICIES, **(SWITCHES if options.switches else {})}
    if not drawn:
        arms.pop("transpositions off", None)
    arms = {arm: arms[arm] for arm in arms if not options.arms or arm in options.arms}
    common = {} if options.tune_share is None else {"tune_share": options.tune_share}
    curves, runs = run_arms(
        {REFERENCE: POLICIES[REFERENCE], **arms},
        tasks,
        drawn_world if drawn else partial(bank_world, tuned=options.tune_share != 0),
        seeds=range(options.first, options.first + options.seeds),
        decisions=options.decisions,
        common=common,
    )
    rows = compared(curves)
    show(f"{options.source}: {len(tasks)} x {options.seeds}, {options.decisions} decisions", rows)
    everything = [run for found in runs.values() for run in found]
    statuses = [status for run in everything for status in run.statuses]
    found = {
        "source": options.source,
        "seeds": [options.first, options.first + options.seeds],
        "decisions": options.decisions,
        "common": common,
        "rows": rows,
        "repeats": {arm: repeats(runs[arm]) for arm in ("mcts", REFERENCE) if arm in runs},
        "failed": 1 - statuses.count("OK") / len(statuses),
    }
    for arm, table in found["repeats"].items():
        shares = " ".join(f"{row['at node']:.2f}" for row in table)
        print(f"{arm}: the j-th idea at a node repeats one there, j = 1, 2, ..: {shares}")
    for row in rows:
        if row["arm"] == "mcts":
            passed = row["interval"][0] > GATE
            print(f"gate (lower bound > {GATE}): {'passed' if passed else 'FAILED'}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", choices=("bank", "trees"), default="bank")
    parser.add_argument("--tasks", nargs="*", default=[])
    parser.add_argument("--arms", nargs="*", default=[])
    parser.add_argument("--switches", action="store_true")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--decisions", type=int, default=24)
    parser.add_argument("--tune-share", type=float)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = report(options)
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
