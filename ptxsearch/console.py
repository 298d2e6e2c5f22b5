"""What the command line shows: trials as they come, verdicts, tasks, checks."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ptxsearch.batch import Row
from ptxsearch.doctor import Check
from ptxsearch.emulator.case import CaseLaunch
from ptxsearch.emulator.report import Report
from ptxsearch.evaluation import NEVER_CHARGED, Evaluation
from ptxsearch.pipeline import Pipeline
from ptxsearch.plural import plural
from ptxsearch.protocols import Evaluator
from ptxsearch.tasklint import Complaint
from ptxsearch.tasks import Task
from ptxsearch.trial import Result, Trial
from ptxsearch.verification import Verification

_COLOURS = {"OK": "green", "UNSUPPORTED": "yellow", "INFRA": "yellow", "PAUSED": "yellow"}


def microseconds(seconds: float) -> str:
    """Seconds as microseconds with three digits."""
    return f"{seconds * 1e6:.4g} us"


def announce(screen: Console, task: Task, evaluator: Evaluator, store: Path | None) -> None:
    """The first lines of a run."""
    device = evaluator.device if isinstance(evaluator, Pipeline) else None
    where = f"{device.name}, times are {device.source}" if device else type(evaluator).__name__
    screen.print(f"{task.name} on {where}", markup=False)
    if store is not None:
        screen.print(f"journal: {store}", markup=False)


def show_trial(screen: Console, trial: Trial) -> None:
    """One line: number, status, time, reward, what was changed."""
    verdict = trial.evaluation
    took = microseconds(verdict.seconds) if verdict.ok and verdict.times else "-"
    status = verdict.status if verdict.ok else f"{verdict.status} at {verdict.stage}"
    colour = _COLOURS.get(verdict.status, "red")
    gain = f"{trial.reward:+.3f}" if verdict.ok else ""
    screen.print(
        f"{trial.id:>4}  [{colour}]{status:<22}[/] {took:>12}  {gain:>7}  ",
        end="",
        soft_wrap=True,
    )
    what = f"{trial.proposal.edit.strategy}: {trial.proposal.edit.summary}"
    free = "" if trial.charged else f"  (free: {_free(trial)})" if trial.id else "  (free)"
    screen.print(f"{what[:100]}{free}", markup=False, soft_wrap=True)


def _free(trial: Trial) -> str:
    """Why an evaluation is no trial of the budget."""
    status = trial.evaluation.status
    if trial.id == 0:
        return "baseline"
    if status == "NO_KERNEL":
        return "empty answer"
    return "unjudged kernel" if status in NEVER_CHARGED else "known kernel"


def _counted(result: Result, shown: Sequence[Trial]) -> str:
    """The trials of a run, the free evaluations beside them, and how many came earlier."""
    text = plural(result.spend.trials, "trial")
    numbers = {trial.id for trial in shown}
    earlier = sum(trial.charged and trial.id not in numbers for trial in result.trials)
    if earlier:
        text += f", {earlier} of them before this start"
    free = Counter(_free(trial) for trial in result.trials if not trial.charged)
    kinds = [plural(count, kind) for kind, count in free.items()]
    return f"{text}; free: {', '.join(kinds)}" if kinds else text


def show_result(
    screen: Console,
    result: Result,
    *,
    shown: Sequence[Trial],
    folder: Path | None,
    store: Path | None,
) -> None:
    """Where the run ended: the best kernel, its speedup, its files; `shown` were its lines."""
    end = f"\n{result.state}: {result.reason}; {_counted(result, shown)}"
    screen.print(end, markup=False, soft_wrap=True)
    if result.best is None or result.baseline is None:
        screen.print("no kernel passed, the baseline included", markup=False)
        if result.baseline is not None:
            found = f"baseline: {result.baseline.status} {result.baseline.message}"
            screen.print(found, markup=False)
        return
    best = result.best
    screen.print(
        f"best: trial {best.trial.id}, {microseconds(best.seconds)} {best.evaluation.source}, "
        f"{result.speedup:.2f}x the baseline ({microseconds(result.baseline.seconds)})",
        markup=False,
    )
    values = ", ".join(f"{name}={value}" for name, value in best.kernel.values.items())
    screen.print(f"values: {values or 'none'}", markup=False, soft_wrap=True)
    if folder is not None:
        suffix = "ptx" if best.kernel.language == "ptx" else "cu"
        screen.print(f"kernel: {folder / f'kernel.{suffix}'}", markup=False, soft_wrap=True)
    if store is not None:
        screen.print(f"journal: {store}", markup=False, soft_wrap=True)


def show_evaluation(screen: Console, verdict: Evaluation) -> None:
    """A verdict in full."""
    colour = _COLOURS.get(verdict.status, "red")
    screen.print(f"[{colour}]{verdict.status}[/] at {verdict.stage} on {verdict.device}")
    if verdict.message:
        screen.print(verdict.message, markup=False)
    for name, timing in verdict.times.items():
        screen.print(f"{name}: {microseconds(timing.median)} {verdict.source}", markup=False)
    for entry, took in verdict.resources.items():
        screen.print(
            f"{entry}: {plural(took.registers, 'register')}, "
            f"{plural(took.static_shared, 'byte')} shared, "
            f"{plural(took.spill_stores + took.spill_loads, 'byte')} spilled",
            markup=False,
        )
    for fault in verdict.faults:
        if fault.message not in verdict.message:
            screen.print(fault.message, markup=False)


def show_tasks(screen: Console, tasks: Sequence[Task]) -> None:
    """A table of tasks."""
    table = Table("task", "timed", "what it computes", box=None)
    for task in tasks:
        sizes = "; ".join(
            " x ".join(str(size) for size in workload.sizes.values()) for workload in task.timed
        )
        table.add_row(*map(Text, (task.name, sizes, task.description)))
    screen.print(table)


def show_complaints(screen: Console, task: Task, found: Sequence[Complaint]) -> None:
    """What a task's lint found."""
    for complaint in found:
        screen.print(f"{complaint.severity}: {complaint.rule}: {complaint.message}", markup=False)
    errors = sum(complaint.severity == "error" for complaint in found)
    verdict = (
        "can judge kernels" if not errors else f"cannot judge kernels: {plural(errors, 'error')}"
    )
    screen.print(f"{task.name} {verdict}", markup=False)


def show_checks(screen: Console, checks: Sequence[Check]) -> None:
    """The doctor's table."""
    for check in checks:
        colour = {"ok": "green", "warn": "yellow"}.get(check.state, "red")
        screen.print(f"[{colour}]{check.state:>8}[/]  ", end="")
        screen.print(f"{check.part}: {check.found}", markup=False, soft_wrap=True)
        if check.remedy:
            screen.print(f"          {check.remedy}", markup=False, soft_wrap=True)


def show_row(screen: Console, row: Row) -> None:
    """One run of a batch."""
    best = microseconds(row.best_seconds) if row.best_seconds is not None else "-"
    screen.print(
        f"{row.task} {row.policy} {row.model} seed {row.seed}: {row.state}, "
        f"{plural(row.trials, 'trial')}, {row.passed} passed, best {best}, {row.speedup:.2f}x",
        markup=False,
        soft_wrap=True,
    )


def show_verification(screen: Console, found: Verification) -> None:
    """What agrees, what differs, what changed."""
    for word, colour, lines in (
        ("agrees", "green", found.agreements),
        ("differs", "red", found.differences),
        ("changed", "yellow", found.drift),
    ):
        for line in lines:
            screen.print(f"[{colour}]{word:>8}[/]  ", end="")
            screen.print(line, markup=False, soft_wrap=True)


def show_launches(screen: Console, launches: Sequence[CaseLaunch]) -> None:
    """Emulated launches, one after another, with the first values of what they wrote."""
    for number, launch in enumerate(launches):
        report = launch.report
        screen.print(f"launch {number}: {report.status} {report.message}", markup=False)
        for name, buffer in launch.buffers.items():
            if report.bytes_stored.get(name):
                first = ", ".join(f"{value:.6g}" for value in buffer.reshape(-1)[:8])
                more = ", ..." if buffer.size > 8 else ""
                screen.print(f"  {name}: {first}{more}", markup=False, soft_wrap=True)
        for fault in report.faults:
            screen.print(f"  {fault}", markup=False)
        if report.unsupported is not None:
            screen.print(f"  {report.unsupported}", markup=False)


def report_dict(report: Report) -> dict[str, Any]:
    """A report as JSON types, without the arrays."""
    return {
        "status": report.status,
        "message": report.message,
        "steps": report.steps,
        "faults": [dataclasses.asdict(fault) for fault in report.faults],
        "unsupported": None if report.unsupported is None else str(report.unsupported),
        "counters": report.counters.known(),
        "notes": list(report.notes),
    }
