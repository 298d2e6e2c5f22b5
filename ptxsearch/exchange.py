"""ask, evaluate, tell over files: a login node with internet proposes, a GPU node judges.

Files are JSON Lines. A proposal line holds id, run and the proposal's dict; a result line holds
id, run and the evaluation's dict. `run` names the journal a proposal came from, so that foreign,
repeated, reordered, lost and truncated lines are told apart and nothing is lost.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptxsearch.api import attach, make_proposers
from ptxsearch.budget import Budget
from ptxsearch.errors import PtxsearchError, RecordingError, UsageError
from ptxsearch.evaluation import Evaluation
from ptxsearch.kernel import Kernel, Proposal
from ptxsearch.plural import plural
from ptxsearch.policy import Policy
from ptxsearch.protocols import LLM, Evaluator
from ptxsearch.record import Record
from ptxsearch.search import Search
from ptxsearch.store import SQLiteStore
from ptxsearch.tasks import Task


@dataclass(frozen=True)
class Asked(Record):
    """How many proposals were written, and why they are fewer than were asked for."""

    written: int
    why: str = ""


@dataclass(frozen=True)
class Told(Record):
    """What became of a result file: lines accepted, and each refused one with its reason."""

    accepted: int
    refused: tuple[str, ...]
    missing: tuple[str, ...]


def ask_file(
    task: Task,
    path: Path,
    *,
    n: int,
    store: str | os.PathLike[str],
    llm: LLM | str | None = None,
    policy: Policy,
    budget: Budget,
    seed: int,
) -> Asked:
    """Write up to `n` proposals to `path`, waiting ones first, and say how many."""
    with SQLiteStore(store) as opened:
        search = Search(
            task,
            proposers=make_proposers(task, llm, policy=policy, budget=budget),
            policy=policy,
            budget=budget,
            store=opened,
            seed=seed,
        )
        attach(search, None)
        run = run_of(opened)
        rival = search.rival
        batch = search.ask(n)
        lines = [
            {
                "id": proposal.id,
                "run": run,
                "proposal": proposal.to_dict(),
                "rival": None if rival is None else rival.to_dict(),
            }
            for proposal in batch
        ]
        why = _why_no_more(search) if len(lines) < n else ""
    _write(path, lines, append=False)
    return Asked(len(lines), why)


def _why_no_more(search: Search) -> str:
    progress = search.progress
    if progress.stopped is not None:
        return f"the run has ended: {progress.stopped[1]}"
    if progress.baseline is None:
        return "the baseline is judged first: evaluate it, tell its result, then ask for more"
    waiting = plural(len(progress.waiting), "result")
    return f"{waiting} to come before the search decides on: evaluate and tell, then ask for more"


def answer_batch(task: Task, proposals: Path, results: Path, evaluator: Evaluator) -> int:
    """Evaluate every proposal not yet answered in `results`; each answer is written at once."""
    answered = {(line["run"], line["id"]) for line in _read(results)} if results.exists() else set()
    count = 0
    for line in _read(proposals):
        if (line["run"], line["id"]) in answered:
            continue
        if "proposal" not in line:
            raise RecordingError(
                f"{proposals}: the line of id {line['id']!r} lacks its proposal", "ask again"
            )
        proposal = Proposal.from_dict(line["proposal"])
        rival = line.get("rival")
        if proposal.kernel is None:
            continue
        verdict = evaluator.evaluate(
            task,
            proposal.kernel,
            baseline=task.baseline,
            rival=None if rival is None else Kernel.from_dict(rival),
        )
        answer = {"id": line["id"], "run": line["run"], "evaluation": verdict.to_dict()}
        _write(results, [answer], append=True)
        answered.add((line["run"], line["id"]))
        count += 1
    return count


def tell_file(
    task: Task,
    path: Path,
    *,
    store: str | os.PathLike[str],
    policy: Policy,
    budget: Budget,
    seed: int,
) -> Told:
    """Bring the results in `path` home; a line that does not belong is refused by name."""
    with SQLiteStore(store) as opened:
        search = Search(task, proposers=(), policy=policy, budget=budget, store=opened, seed=seed)
        run = run_of(opened)
        refused: list[str] = []
        accepted = 0
        for number, line in enumerate(_read(path, refused), start=1):
            if line["run"] != run:
                refused.append(f"line {number}: of run {line['run']!r}, this store is {run!r}")
                continue
            try:
                search.tell([(line["id"], Evaluation.from_dict(line["evaluation"]))])
                accepted += 1
            except (UsageError, RecordingError, KeyError) as error:
                refused.append(f"line {number}: {_reason(error)}")
        waiting = search.progress.waiting
        missing = tuple(str(n) for n in sorted(waiting) if n not in search.progress.told)
    return Told(accepted, tuple(refused), missing)


def run_of(store: SQLiteStore) -> str:
    """The name of the run a store holds: a hash of its first event."""
    first = next(iter(store.events()), None)
    if first is None:
        raise RecordingError("the store holds no run", "ask first")
    return hashlib.sha256(json.dumps(first, sort_keys=True).encode()).hexdigest()[:16]


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, PtxsearchError) else f"lacks {error}"


def _read(path: Path, refused: list[str] | None = None) -> Iterator[dict[str, Any]]:
    """The lines of a file as objects; a broken one is noted in `refused`, or raises without it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read ({error})", "give a JSON Lines file") from error
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
            if not isinstance(data, Mapping) or not all(
                isinstance(data.get(name), str) for name in ("id", "run")
            ):
                raise ValueError("no id and run")
        except (ValueError, RecursionError) as error:
            if refused is None:
                # The last line of an interrupted write is written again.
                continue
            refused.append(f"line {number}: truncated or no result ({error})")
            continue
        yield dict(data)


def _write(path: Path, lines: list[dict[str, Any]], *, append: bool) -> None:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    try:
        if append and path.exists() and path.read_bytes()[-1:] not in (b"", b"\n"):
            text = "\n" + text
        with path.open("a" if append else "w", encoding="utf-8") as handle:
            handle.write(text)
            handle.flush()
            os.fsync(handle.fileno())
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written ({error.strerror})", "choose another"
        ) from error
