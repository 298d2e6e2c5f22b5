"""Search policies at equal cost: `python benchmarks/ablation.py [--source bank|trees] [--json F]`.

`bank` searches the six level-1 tasks over a closed set of proposals (menu edits and kernels that
a language model wrote) with verdicts of the emulated device kept in tests/data/ablation. `trees`
searches drawn worlds. Every run makes the same number of decisions, whatever becomes of them. The
figure of a run is the log speedup of its best kernel; policies are compared with `greedy`, or with
another reference, on equal (task, seed). Intervals are 95 % bootstraps over the pairs, and over
whole tasks.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import ablation_bank
import ablation_trees
import numpy as np
from ablation_arms import POLICIES, SWITCHES, Arm
from ablation_run import Floats, Run, World, search

from ptxsearch.policy import Policy

GATE = -0.01
RESAMPLES = 10_000
REFERENCE = "greedy"
_WIDTHS = (22, 13, 24, 20, 20, 12, 9)


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


def bank_world(task: str, seed: int, *, tuned: bool = True) -> World:
    """A level-1 task over its bank; seeds differ in what is drawn alone."""
    bank, memo = _bank(task, tuned)
    return World(bank.task, ablation_bank.BankProposer(bank), memo)


@cache
def _bank(task: str, tuned: bool) -> tuple[ablation_bank.Bank, ablation_bank.Memo]:
    bank = ablation_bank.Bank(task, tuned=tuned)
    memo = ablation_bank.Memo(bank, live=False)
    bank.cut(memo.records)
    return bank, memo


def drawn_world(task: str, seed: int) -> World:
    """A drawn world of the family `task`; every seed is another world."""
    world = ablation_trees.World(task, seed)
    return World(world.task, world, world)


def run_arms(
    arms: Mapping[str, Arm],
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
        for name, arm in arms.items():
            policy = Policy(**{"stop_within": 0.0, **common, **arm.settings})
            found = [
                search(
                    make(task, seed),
                    policy,
                    decisions=decisions,
                    seed=seed,
                    workers=arm.workers,
                    parts=arm.parts,
                )
                for seed in seeds
            ]
            curves[name][task] = np.array([run.curve for run in found])
            runs[name] += found
    return curves, runs


def show(title: str, rows: Sequence[Mapping[str, Any]], *, reference: str) -> None:
    """Print one table."""
    print(f"\n{title}")
    head = ("log speedup", f"lead on {reference}", "95 %", "95 % by task", "on the way", "elapsed")
    print("".join(f"{text:>{width}}" for text, width in zip(("", *head), _WIDTHS, strict=True)))
    for row in rows:
        spans = [f"{low:+.3f} .. {high:+.3f}" for low, high in (row["interval"], row["by task"])]
        cells = (
            *(row["arm"], f"{row['log speedup']:.3f}", f"{row['lead']:+.3f}"),
            *(*spans, f"{row['lead on the way']:+.3f}", f"{row['elapsed']:.1f}"),
        )
        print("".join(f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=True)))


def chosen_arms(options: argparse.Namespace) -> dict[str, Arm]:
    """The arms that were asked for, the reference first."""
    known = {**POLICIES, **SWITCHES}
    names = options.arms or [*POLICIES, *(SWITCHES if options.switches else ())]
    return {name: known[name] for name in dict.fromkeys([options.reference, *names])}


def report(options: argparse.Namespace) -> dict[str, Any]:
    """Run what was asked for, print it, and give it as JSON types."""
    drawn = options.source == "trees"
    tasks = options.tasks or list(ablation_trees.FAMILIES if drawn else ablation_bank.TASKS)
    common = {
        name: getattr(options, name)
        for name in ("tune_share", "window")
        if getattr(options, name) is not None
    }
    curves, runs = run_arms(
        chosen_arms(options),
        tasks,
        drawn_world if drawn else partial(bank_world, tuned=options.tune_share != 0),
        seeds=range(options.first, options.first + options.seeds),
        decisions=options.decisions,
        common=common,
    )
    rows = compared(curves, reference=options.reference)
    for row in rows:
        row["elapsed"] = float(np.mean([run.elapsed for run in runs[row["arm"]]]))
    title = f"{options.source}: {len(tasks)} x {options.seeds}, {options.decisions} decisions"
    show(title, rows, reference=options.reference)
    statuses = [status for found in runs.values() for run in found for status in run.statuses]
    return {
        "source": options.source,
        "seeds": [options.first, options.first + options.seeds],
        "decisions": options.decisions,
        "common": common,
        "reference": options.reference,
        "rows": rows,
        "repeats": {arm: repeats(runs[arm]) for arm in ("mcts", REFERENCE) if arm in runs},
        "failed": 1 - statuses.count("OK") / len(statuses),
    }


def conclude(found: Mapping[str, Any]) -> None:
    """Print how often ideas repeat, and whether `mcts` passes the gate."""
    for arm, table in found["repeats"].items():
        shares = " ".join(f"{row['at node']:.2f}" for row in table)
        print(f"{arm}: the j-th idea at a node repeats one there, j = 1, 2, ..: {shares}")
    for row in found["rows"]:
        if row["arm"] == "mcts" and found["reference"] == REFERENCE:
            passed = row["interval"][0] > GATE
            print(f"gate (lower bound > {GATE}): {'passed' if passed else 'FAILED'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", choices=("bank", "trees"), default="bank")
    parser.add_argument("--tasks", nargs="*", default=[])
    parser.add_argument("--arms", nargs="*", default=[], choices=[*POLICIES, *SWITCHES])
    parser.add_argument("--reference", default=REFERENCE, choices=[*POLICIES, *SWITCHES])
    parser.add_argument("--switches", action="store_true")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--decisions", type=int, default=24)
    parser.add_argument("--tune-share", type=float)
    parser.add_argument("--window", type=int)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = report(options)
    conclude(found)
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
