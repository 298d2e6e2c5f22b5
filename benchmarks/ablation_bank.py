"""A closed set of proposals for a task, with verdicts that are judged once and kept on disk.

A bank holds the baseline and the kernels that a language model wrote for it (tests/data/llm), each
with every set of the built-in menu's edits that applies. An idea at a node adds an edit or puts
another kernel under the edits made so far. `python benchmarks/ablation_bank.py TASK...` judges on
the emulated device what is not on disk yet.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ptxsearch.emulator.device import EmulatedDevice
from ptxsearch.evaluation import Evaluation, Timing
from ptxsearch.kernel import Edit, Kernel, Proposal, Value
from ptxsearch.menu import EDITS
from ptxsearch.pipeline import Pipeline
from ptxsearch.proposer.ideas import worth
from ptxsearch.reply import parse_implementation, parse_plan
from ptxsearch.space import Space
from ptxsearch.taskfile import load_task
from ptxsearch.tasks import Task
from ptxsearch.tree import Node, TreeView

ROOT = Path(__file__).parent.parent
REPLIES = ROOT / "tests" / "data" / "llm" / "replies"
VERDICTS = ROOT / "tests" / "data" / "ablation"
TASKS = ("saxpy", "sum", "softmax", "transpose", "matmul", "histogram")
BASELINE = "baseline"
_ROWS = 3

Made = tuple[str, frozenset[str]]


@dataclass(frozen=True)
class Base:
    """A kernel that edits start from: a model's, or the baseline, and the prior it came with."""

    kernel: Kernel
    prior: float


@dataclass(frozen=True)
class Drawn:
    """An idea at a node: its name, what it leads to, its prior."""

    name: str
    made: Made
    prior: float


class Bank:
    """The templates of a task by (base, edits made), each with a handful of configurations.

    Without `tuned` a template stands for its first configuration alone.
    """

    def __init__(self, name: str, *, tuned: bool = True) -> None:
        self.name = name
        self.task = load_task(ROOT / "benchmarks" / "level1" / name)
        self.bases = _bases(self.task, name)
        self.kernels: dict[Made, Kernel] = {}
        self.known: dict[str, Made] = {}
        for base in self.bases:
            self._close(base)
        self._tuned = dict(sorted(self.kernels.items(), key=lambda item: len(item[0][1])))
        self.kernels = dict(self._tuned)
        for made, kernel in self._tuned.items() if not tuned else ():
            self.kernels[made] = replace(kernel, space=None)
            self.known[self.kernels[made].template] = made
        self.task = replace(self.task, baseline=self.kernels[(BASELINE, frozenset())])

    def ideas(self, made: Made) -> list[Drawn]:
        """What may be tried on a template: one more edit, or another base under its edits."""
        base, edits = made
        found = [
            Drawn(edit.strategy, child, edit.prior)
            for edit in EDITS
            if (child := (base, edits | {edit.strategy})) in self.kernels and child != made
        ]
        for other, entry in self.bases.items():
            if other not in (base, BASELINE):
                found.append(Drawn(other, (other, self._ported(other, edits)), entry.prior))
        return found

    def cut(self, names: Container[str]) -> None:
        """Leave out the templates that `names` does not hold."""
        kept = {m: k for m, k in self.kernels.items() if self.fingerprint(k) in names}
        self.kernels = kept

    def fingerprint(self, kernel: Kernel) -> str:
        """The name of a kernel of the bank with its values, whether it may be tuned or not."""
        template = self._tuned[self.known[kernel.template]].template
        values = json.dumps(dict(kernel.values), sort_keys=True)
        return hashlib.sha256(f"{template}{values}".encode()).hexdigest()[:24]

    def configurations(self) -> Iterator[Kernel]:
        """Every kernel of the bank: all templates as written first, then their other values."""
        yield from self.kernels.values()
        for kernel in self.kernels.values():
            for values in _legal(kernel):
                if any(kernel.values[name] != value for name, value in values.items()):
                    yield kernel.with_values(**values)

    def _close(self, base: str) -> None:
        pending = [frozenset[str]()]
        while pending:
            edits = pending.pop(0)
            kernel = self._build(base, edits)
            if kernel is None or (base, edits) in self.kernels or kernel.template in self.known:
                continue
            self.kernels[(base, edits)] = kernel
            self.known[kernel.template] = (base, edits)
            pending += [edits | {e.strategy} for e in EDITS if e.strategy not in edits]

    def _build(self, base: str, edits: frozenset[str]) -> Kernel | None:
        kernel: Kernel | None = self.bases[base].kernel
        for edit in EDITS:
            if edit.strategy in edits and kernel is not None:
                kernel = edit.apply(kernel)
        return None if kernel is None else narrowed(kernel, self.bases[base].kernel)

    def _ported(self, base: str, edits: frozenset[str]) -> frozenset[str]:
        kept = frozenset[str]()
        for edit in EDITS:
            if edit.strategy in edits and (base, kept | {edit.strategy}) in self.kernels:
                kept = kept | {edit.strategy}
        return kept


def _bases(task: Task, name: str) -> dict[str, Base]:
    """The baseline, and the kernel of every recorded answer that holds one."""
    exchanges = json.loads((REPLIES / f"{name}.json").read_text("utf-8"))["exchanges"]
    worths: dict[str, float] = {}
    for exchange in exchanges:
        plan = parse_plan(exchange["reply"]) if exchange["purpose"] == "plan" else ()
        if isinstance(plan, tuple):
            worths |= {idea.title: worth(idea) for idea in plan}
    found = {BASELINE: Base(task.baseline, 1.0)}
    for exchange in exchanges:
        if exchange["purpose"] == "implement":
            kernel = parse_implementation(exchange["reply"], task.baseline, exchange["language"])
            if isinstance(kernel, Kernel):
                title = f"{exchange['language']}: {exchange['idea']}"
                found[title] = Base(kernel, worths.get(exchange["idea"], 0.1))
    return found


def narrowed(kernel: Kernel, base: Kernel) -> Kernel:
    """`kernel` with a space of a few configurations, the first being its own values.

    The base's values vary over at most three rows chosen by its source alone; each parameter
    that an edit added varies once. Few enough that a whole bank can be judged.
    """
    if kernel.space is None:
        return kernel
    own = dict(base.space.params) if base.space is not None else {}
    start = {name: kernel.values[name] for name in kernel.space.params}
    choices = [start]
    if base.space is not None and base.space.size > 1:
        seed = int(hashlib.sha256(base.source.encode()).hexdigest()[:8], 16)
        rows = base.space.sample(np.random.default_rng(seed), 2 * _ROWS)
        choices += [{**start, **base.space.values(row)} for row in rows]
        choices = _distinct(choices)[:_ROWS]
    for name, options in kernel.space.params.items():
        if name not in own:
            others = [value for value in options if value != kernel.values[name]]
            choices += [{**start, name: value} for value in others[-1:]]
    legal = [c for c in choices if c == start or kernel.space.is_legal(c)]
    rows = np.array([kernel.space.row(values) for values in _distinct(legal)], dtype=np.int64)
    return replace(kernel, space=Space.from_rows(kernel.space.params, rows))


def _distinct(choices: list[dict[str, Value]]) -> list[dict[str, Value]]:
    return [choice for i, choice in enumerate(choices) if choice not in choices[:i]]


def _legal(kernel: Kernel) -> list[dict[str, Value]]:
    rows = kernel.space.legal() if kernel.space is not None else None
    if rows is None or kernel.space is None:
        return []
    return [kernel.space.values(row) for row in rows]


class BankProposer:
    """Draws ideas of a node at random; with probability `repeats` also those drawn before.

    A repeated idea is a wasted proposal, as it is when a model says the same again.
    """

    def __init__(self, bank: Bank, *, repeats: float = 0.3) -> None:
        self.bank, self.repeats = bank, repeats

    def propose(
        self, view: TreeView, node: Node, n: int, rng: np.random.Generator
    ) -> list[Proposal]:
        """One child of `node`, none once every idea was drawn."""
        if node.kernel is None:
            return []
        ideas = self.bank.ideas(self.bank.known[node.kernel.template])
        drawn = {child.edit.summary for child in view.children(node)}
        fresh = [idea for idea in ideas if idea.name not in drawn]
        if not fresh:
            return []
        pool = ideas if rng.random() < self.repeats else fresh
        idea = pool[int(rng.integers(len(pool)))]
        kernel = _inherit(self.bank.kernels[idea.made], node.kernel)
        edit = Edit(idea.name[:40], idea.name)
        return [Proposal("", node.id, kernel, edit, prior=idea.prior)]


def _inherit(kernel: Kernel, parent: Kernel) -> Kernel:
    """`kernel` with the values its parent was tuned to, where it has them and may."""
    if kernel.space is None:
        return kernel
    wanted = {n: parent.values.get(n, kernel.values[n]) for n in kernel.space.params}
    return kernel.with_values(**wanted) if wanted in _legal(kernel) else kernel


class Memo:
    """Verdicts of one task by kernel, judged once by the whole pipeline and kept in a file."""

    def __init__(self, bank: Bank, *, folder: Path = VERDICTS, live: bool = True) -> None:
        self.bank, self.live = bank, live
        self.path = folder / f"{bank.name}.json"
        self.records: dict[str, dict[str, Any]] = {}
        if self.path.exists():
            self.records = json.loads(self.path.read_text("utf-8"))
        self._pipeline: Pipeline | None = None

    def evaluate(
        self,
        task: Task,
        kernel: Kernel,
        *,
        baseline: Kernel | None = None,
        rival: Kernel | None = None,
    ) -> Evaluation:
        """The verdict on file; a kernel without one is judged if `live`, else KeyError."""
        name = self.bank.fingerprint(kernel)
        if name not in self.records:
            if not self.live:
                raise KeyError(f"{self.bank.name} has no verdict {name}; run ablation_bank.py")
            self._judge(name, kernel)
        return _verdict(self.records[name])

    def _judge(self, name: str, kernel: Kernel) -> None:
        self._pipeline = self._pipeline or Pipeline(EmulatedDevice())
        found = self._pipeline.evaluate(self.bank.task, kernel, baseline=self.bank.task.baseline)
        self.records[name] = {
            "status": found.status,
            "stage": found.stage,
            "message": found.message[:200],
            "key": found.key[:24],
            "seconds": {name: timing.median for name, timing in found.times.items()},
            "share_right": found.evidence.get("share_right", 0.0),
            "floor_seconds": found.evidence.get("floor_seconds"),
        }
        text = json.dumps(self.records, indent=0, sort_keys=True)
        fresh = self.path.with_suffix(".part")
        fresh.write_text(text + "\n", "utf-8")
        os.replace(fresh, self.path)


def _verdict(record: Mapping[str, Any]) -> Evaluation:
    evidence = {name: record[name] for name in ("share_right", "floor_seconds") if record[name]}
    return Evaluation(
        record["status"],
        record["stage"],
        record["message"],
        key=record["key"],
        source="modelled",
        times={name: Timing(s, s, s, 1) for name, s in record["seconds"].items()},
        evidence=evidence,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="*", default=TASKS)
    memos = [Memo(Bank(name)) for name in parser.parse_args().tasks]
    for whole in (False, True):
        for memo in memos:
            bank, started = memo.bank, time.process_time()
            kernels = list(bank.configurations() if whole else bank.kernels.values())
            for kernel in kernels:
                memo.evaluate(bank.task, kernel)
            spent = time.process_time() - started
            print(f"{bank.name}: {len(kernels)} kernels judged, {spent:.0f} CPU s", flush=True)


if __name__ == "__main__":
    main()
