"""Kernels that a language model wrote, judged again: `python benchmarks/model_kernels.py OUT.json`.

`--device cuda` judges on the GPU, `emulated` (the default) on the emulator; names of tasks choose
among `tests/data/llm/loop/`. Each recorded run becomes the children of a baseline in a new run and
takes the way of machines that share only files: ask writes proposals, `evaluate --batch` answers
them, tell brings the results home. Printed are recorded and new status and time of every kernel.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ptxsearch.budget import Budget
from ptxsearch.config import make_evaluator
from ptxsearch.evaluation import Evaluation
from ptxsearch.exchange import answer_batch, ask_file, tell_file
from ptxsearch.kernel import Edit, Kernel, Proposal
from ptxsearch.policy import Policy
from ptxsearch.protocols import Evaluator
from ptxsearch.search import Search
from ptxsearch.store import SQLiteStore
from ptxsearch.taskfile import load_task
from ptxsearch.tasks import Task
from ptxsearch.tree import Node, TreeView

LOOPS = Path(__file__).resolve().parents[1] / "tests" / "data" / "llm" / "loop"
POLICY = Policy(rule="best_of_n", tune_share=0.0, end_share=0.0, window=1000)
SEED = 0


@dataclass(frozen=True)
class Tried:
    """One recorded trial of the model: what was said of it then, and the kernel."""

    number: int
    edit: Edit
    kernel: Kernel
    status: str
    seconds: float | None

    @classmethod
    def of(cls, trial: dict[str, Any]) -> Tried:
        return cls(
            trial["number"],
            Edit(trial["strategy"], f"#{trial['number']} {trial['summary']}"),
            Kernel.from_dict(trial["kernel"]),
            trial["status"],
            trial["seconds"],
        )


class Recorded:
    """Proposes the recorded kernels in their order as children of the baseline."""

    def __init__(self, trials: Sequence[Tried]) -> None:
        self._left = list(trials)

    def propose(
        self, view: TreeView, node: Node, n: int, rng: np.random.Generator
    ) -> list[Proposal]:
        given, self._left = self._left[:n], self._left[n:]
        return [Proposal("", node.id, tried.kernel, tried.edit, kind="draft") for tried in given]


def model_trials(recorded: dict[str, Any]) -> list[Tried]:
    """The model's kernels of a recorded run: neither its baseline nor the tuner's."""
    return [
        Tried.of(trial)
        for trial in recorded["trials"]
        if trial["parent"] >= 0 and trial["kind"] != "tune" and trial["kernel"] is not None
    ]


def judged(
    task: Task, trials: Sequence[Tried], evaluator: Evaluator, folder: Path
) -> dict[str, Evaluation]:
    """Verdicts by the summary of the edit, each of which went by ask, evaluate and tell."""
    path = folder / "run.db"
    run: dict[str, Any] = {
        "policy": POLICY,
        "budget": Budget(trials=len(trials) + 1),
        "seed": SEED,
    }
    proposers = (Recorded(trials),)
    for turn in ("baseline", "kernels"):
        with SQLiteStore(path) as store:
            search = Search(task, proposers=proposers, store=store, **run)
            count = len(search.ask(1 if turn == "baseline" else len(trials)))
        proposals, results = folder / f"{turn}.jsonl", folder / f"{turn}-results.jsonl"
        # What was asked and never told is what the file holds.
        ask_file(task, proposals, n=count, store=path, **run)
        answer_batch(task, proposals, results, evaluator)
        told = tell_file(task, results, store=path, **run)
        if told.accepted != count or told.refused or told.missing:
            raise SystemExit(f"{task.name}, {turn}: {told}")
    names = {line["id"]: line["proposal"]["edit"]["summary"] for line in lines(proposals)}
    return {names[line["id"]]: Evaluation.from_dict(line["evaluation"]) for line in lines(results)}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def rows(trials: Sequence[Tried], verdicts: dict[str, Evaluation]) -> list[dict[str, Any]]:
    """Recorded and new verdict of each kernel."""
    found = []
    for tried in trials:
        verdict = verdicts[tried.edit.summary]
        found.append(
            {
                "number": tried.number,
                "strategy": tried.edit.strategy,
                "summary": tried.edit.summary.partition(" ")[2],
                "language": tried.kernel.language,
                "recorded_status": tried.status,
                "recorded_us": None if tried.seconds is None else tried.seconds * 1e6,
                "status": verdict.status,
                "message": verdict.message,
                "us": verdict.seconds * 1e6 if verdict.ok else None,
                "source": verdict.source,
            }
        )
    return found


def summary(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Statuses then and now, and how far the orders of the times agree."""
    both = [(r["recorded_us"], r["us"]) for r in found if r["recorded_us"] and r["us"]]
    ranks = stats.spearmanr([a for a, _ in both], [b for _, b in both]).statistic
    return {
        "kernels": len(found),
        "recorded": dict(Counter(r["recorded_status"] for r in found)),
        "now": dict(Counter(r["status"] for r in found)),
        "rank_correlation": None if len(both) < 3 or np.isnan(ranks) else float(ranks),
        "time_over_recorded": float(np.median([b / a for a, b in both])) if both else None,
    }


def show(name: str, found: Sequence[dict[str, Any]], over: dict[str, Any]) -> None:
    def time(value: float | None) -> str:
        return "-" if value is None else f"{value:.1f}"

    print(f"\n{name}\n{'#':>3} {'recorded':12} {'us':>8}  {'now':12} {'us':>8}  kernel")
    for row in found:
        print(
            f"{row['number']:>3} {row['recorded_status']:12} {time(row['recorded_us']):>8}  "
            f"{row['status']:12} {time(row['us']):>8}  [{row['language']}] {row['summary'][:70]}"
        )
    print(over)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("tasks", nargs="*", help="such as sum; all that are recorded by default")
    parser.add_argument("--device", default="emulated", choices=("cuda", "emulated"))
    given = parser.parse_args()
    evaluator = make_evaluator(given.device)
    document: dict[str, Any] = {"device": given.device, "tasks": {}}
    for path in sorted(LOOPS.glob("*.json")):
        if given.tasks and path.stem not in given.tasks:
            continue
        recorded = json.loads(path.read_text("utf-8"))
        task, trials = load_task(recorded["task"]), model_trials(recorded)
        with tempfile.TemporaryDirectory() as folder:
            found = rows(trials, judged(task, trials, evaluator, Path(folder)))
        over = summary(found)
        document["tasks"][task.name] = {"summary": over, "kernels": found}
        show(task.name, found, over)
        given.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
