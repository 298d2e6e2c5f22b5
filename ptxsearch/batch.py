"""Many runs under one budget: tasks x policies x models x seeds, resumable, one summary.

A suite is a YAML file:

    tasks: [level1/sum, level1/transpose]
    policies: [default, greedy]
    models: [menu, "openai:MODEL"]       # "menu" is the built-in proposer alone
    seeds: [0, 1]
    trials: 40                           # of each run
    budget: {dollars: 5, wall_seconds: 3600}   # of all runs together
    device: emulated
"""

from __future__ import annotations

import csv
import io
import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ptxsearch.api import optimize
from ptxsearch.budget import Budget, Spend
from ptxsearch.config import load_policy, make_evaluator, read_yaml
from ptxsearch.errors import UsageError
from ptxsearch.export import write_file
from ptxsearch.protocols import Evaluator
from ptxsearch.record import Record
from ptxsearch.taskfile import load_task
from ptxsearch.trial import Result
from ptxsearch.verification import read_result

MENU = "menu"
_CAPS = ("tokens", "dollars", "device_seconds", "wall_seconds", "proposals")


@dataclass(frozen=True)
class Suite(Record):
    """What a batch runs. `budget` caps all runs together, `trials` each of them."""

    tasks: tuple[str, ...]
    policies: tuple[str, ...] = ("default",)
    models: tuple[str, ...] = (MENU,)
    seeds: tuple[int, ...] = (0,)
    trials: int = 40
    budget: Mapping[str, float] = field(default_factory=dict)
    device: str | None = None

    def __post_init__(self) -> None:
        unknown = sorted(set(self.budget) - set(_CAPS))
        if unknown:
            raise UsageError(f"budget caps {', '.join(unknown)}", f"use {', '.join(_CAPS)}")
        for name in ("tasks", "policies", "models", "seeds"):
            if not getattr(self, name):
                raise UsageError(f"a suite without {name}", f"list at least one of {name}")

    def runs(self) -> Iterator[Run]:
        """Every combination, tasks outermost."""
        for combination in itertools.product(self.tasks, self.policies, self.models, self.seeds):
            yield Run(*combination)


@dataclass(frozen=True)
class Run(Record):
    """One run of a suite."""

    task: str
    policy: str
    model: str
    seed: int

    @property
    def name(self) -> str:
        """A file name for it."""
        text = f"{self.task}-{self.policy}-{self.model}-{self.seed}"
        return "".join(c if c.isalnum() or c in "-_." else "_" for c in text)


@dataclass(frozen=True)
class Row(Record):
    """One line of the summary; seconds are nan-free: None where nothing passed.

    `passed` of the `trials` passed: the baseline and known kernels are neither.
    """

    task: str
    policy: str
    model: str
    seed: int
    state: str
    reason: str
    trials: int
    passed: int
    baseline_seconds: float | None
    best_seconds: float | None
    speedup: float
    tokens: int
    dollars: float


def read_suite(path: str | os.PathLike[str]) -> Suite:
    """The suite in a YAML file. Raises PolicyError or RecordingError where it is malformed."""
    return Suite.from_dict(read_yaml(Path(path)))


def run_suite(
    suite: Suite,
    folder: str | os.PathLike[str],
    *,
    evaluator: Evaluator | None = None,
    on_row: Callable[[Row], None] | None = None,
) -> tuple[Row, ...]:
    """Run what `folder` does not hold yet and return the summary, also written there.

    Each run has its journal `NAME.store` and, once ended, `NAME.json`; a killed batch goes on
    where it stopped. Runs that the budget no longer allows are left out of the summary.
    """
    target = Path(folder)
    judge = evaluator or make_evaluator(suite.device)
    for run in suite.runs():
        load_task(run.task), load_policy(run.policy)
    rows: list[Row] = []
    spent = Spend()
    started = time.monotonic()
    for run in suite.runs():
        done = target / f"{run.name}.json"
        if done.is_file():
            result = read_result(done)
        else:
            left = _left(suite, spent, time.monotonic() - started)
            if left is None:
                break
            result = _run(run, target, left, judge)
            if result.state in ("done", "budget"):
                result.save(done)
        spent += result.spend
        rows.append(_row(run, result))
        write_summary(rows, target)
        if on_row is not None:
            on_row(rows[-1])
        if result.state == "interrupted":
            break
    return tuple(rows)


def _run(run: Run, folder: Path, budget: Budget, evaluator: Evaluator) -> Result:
    folder.mkdir(parents=True, exist_ok=True)
    return optimize(
        load_task(run.task),
        None if run.model == MENU else run.model,
        policy=load_policy(run.policy),
        budget=budget,
        device=evaluator,
        store=folder / f"{run.name}.store",
        seed=run.seed,
    )


def _left(suite: Suite, spent: Spend, seconds: float) -> Budget | None:
    """What is left for one more run; None where a cap of the suite is reached."""
    used = replace(spent, wall_seconds=seconds)
    caps: dict[str, Any] = {}
    for name, cap in suite.budget.items():
        rest = cap - getattr(used, name)
        if rest <= 0:
            return None
        caps[name] = int(rest) if name in ("tokens", "proposals") else rest
        if not caps[name]:
            return None
    return Budget(trials=suite.trials, **caps)


def _row(run: Run, result: Result) -> Row:
    baseline = result.baseline
    timed = baseline is not None and baseline.ok
    return Row(
        task=run.task,
        policy=run.policy,
        model=run.model,
        seed=run.seed,
        state=result.state,
        reason=result.reason,
        trials=result.spend.trials,
        passed=sum(trial.charged and trial.evaluation.ok for trial in result.trials),
        baseline_seconds=baseline.seconds if baseline is not None and timed else None,
        best_seconds=result.best.seconds if result.best is not None else None,
        speedup=result.speedup,
        tokens=result.spend.tokens,
        dollars=result.spend.dollars,
    )


def write_summary(rows: Sequence[Row], folder: Path) -> None:
    """`summary.csv` and `summary.md` in `folder`."""
    names = [f.name for f in fields(Row)]
    text = io.StringIO()
    table = csv.writer(text)
    table.writerow(names)
    table.writerows([getattr(row, name) for name in names] for row in rows)
    write_file(folder / "summary.csv", text.getvalue().encode())
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(_cell(getattr(row, name)) for name in names) + " |" for row in rows]
    write_file(folder / "summary.md", ("\n".join(lines) + "\n").encode())


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("|", "/")
