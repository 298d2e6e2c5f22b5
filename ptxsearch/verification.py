"""A stored result run again: what agrees, what differs, and what changed in between.

The winning kernel is judged from scratch by every gate, timed beside the baseline; on a GPU the
final examination is made again too. A task that changed is refused; a changed toolchain or device
is named, because it explains a difference.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ptxsearch.certification import certificates, is_certifying
from ptxsearch.config import make_evaluator
from ptxsearch.errors import RecordingError
from ptxsearch.evaluation import Evaluation, Failure
from ptxsearch.gpu.final import Certificate, differences
from ptxsearch.protocols import Device, Evaluator
from ptxsearch.record import Record
from ptxsearch.taskfile import load_task
from ptxsearch.tasks import Task
from ptxsearch.trial import Result

TOLERANCE = 0.03


@dataclass(frozen=True)
class Verification(Record):
    """One line for each agreement and each difference; `drift` names what changed around them."""

    agreements: tuple[str, ...]
    differences: tuple[str, ...]
    drift: tuple[str, ...]
    evaluation: Evaluation

    @property
    def ok(self) -> bool:
        """Whether nothing differs."""
        return not self.differences


def verify(
    result: Result | str | os.PathLike[str],
    *,
    task: Task | None = None,
    device: Device | Evaluator | str | None = None,
) -> Verification:
    """Judge the best kernel of `result` (a record, or the path of its JSON) again.

    Times agree within 3 %, modelled ones exactly. Raises RecordingError where the file is no
    result, holds no kernel, or the task is not the one it was found for.
    """
    found = result if isinstance(result, Result) else read_result(result)
    wanted = task or load_task(found.task)
    if found.digest and wanted.digest != found.digest:
        raise RecordingError(
            f"task {found.task} changed since (digest {wanted.digest[:12]}, the result has "
            f"{found.digest[:12]})",
            "check out the task as it was, or search again",
        )
    if found.best is None:
        raise RecordingError(f"the result of {found.task} holds no kernel", "verify another one")
    before = found.best.evaluation
    evaluator = make_evaluator(device if device is not None else _device_of(before))
    now = evaluator.evaluate(wanted, found.best.kernel, baseline=wanted.baseline)
    stored = before.evidence.get("final", {})
    if not now.ok or not is_certifying(evaluator) or set(stored) != set(before.times):
        return compare(before, now)
    fresh = certificates([found.best.kernel], wanted, evaluator)
    if isinstance(fresh, Failure):
        failed = f"the final examination fails: {fresh.message}"
        return _joined(compare(before, now), differences=(failed,))
    times = {name: certificate.timing for name, certificate in fresh.items()}
    evidence = {**now.evidence, "final": {name: c.to_dict() for name, c in fresh.items()}}
    now = replace(now, stage="final", times=times, evidence=evidence)
    return _joined(compare(before, now), **_certified(stored, fresh))


def _certified(
    stored: Mapping[str, Any], fresh: Mapping[str, Certificate]
) -> dict[str, tuple[str, ...]]:
    """What two certificates agree and differ in beside the times, by workload."""
    agreements, differing, drift = [], [], []
    for name, certificate in fresh.items():
        before = Certificate.from_dict(stored[name])
        said = differences(before, certificate)
        changed = [line for line in said if line.split()[0] in ("device", "driver", "toolchain")]
        drift += [f"{name}: {line}" for line in changed]
        differing += [f"{name}: {line}" for line in said if line not in changed]
        if not said:
            tools = ", ".join(f"{tool} {n}" for tool, n in certificate.findings.items())
            agreements.append(
                f"{name}: {certificate.speedup:.4g} times the baseline, was {before.speedup:.4g}; "
                f"{certificate.launches} launches in {len(certificate.processes)} processes; "
                f"findings: {tools or 'not examined'}"
            )
    return {
        "agreements": tuple(agreements),
        "differences": tuple(differing),
        "drift": tuple(drift),
    }


def _joined(
    found: Verification,
    *,
    agreements: tuple[str, ...] = (),
    differences: tuple[str, ...] = (),
    drift: tuple[str, ...] = (),
) -> Verification:
    return replace(
        found,
        agreements=found.agreements + agreements,
        differences=found.differences + differences,
        drift=found.drift + drift,
    )


def compare(before: Evaluation, now: Evaluation) -> Verification:
    """What two verdicts on one kernel agree and differ in."""
    agreements: list[str] = []
    differences: list[str] = []
    drift: list[str] = []
    if now.device != before.device:
        drift.append(f"device {now.device}, the result is from {before.device}")
    for name in ("toolchain", "driver"):
        old, new = before.evidence.get(name), now.evidence.get(name)
        if old != new:
            drift.append(f"{name} {new}, the result is from {old}")
    if before.key != now.key:
        drift.append("the machine code or its launches differ")
    verdict = f"status {now.status} at {now.stage}"
    if now.status == before.status:
        agreements.append(verdict)
    else:
        differences.append(f"{verdict}, was {before.status}: {now.message}")
    for name, old_time in before.times.items():
        new_time = now.times.get(name)
        if new_time is None:
            differences.append(f"{name}: not timed, was {old_time.median * 1e6:.4g} us")
            continue
        change = new_time.median / old_time.median - 1
        line = (
            f"{name}: {new_time.median * 1e6:.4g} us {now.source}, was "
            f"{old_time.median * 1e6:.4g} us ({change:+.2%})"
        )
        allowed = 0.0 if now.source == before.source == "modelled" else TOLERANCE
        (agreements if abs(change) <= allowed + 1e-12 else differences).append(line)
    return Verification(tuple(agreements), tuple(differences), tuple(drift), now)


def read_result(path: str | os.PathLike[str]) -> Result:
    """The result in a JSON file. Raises RecordingError where it is none."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RecordingError(
            f"{os.fspath(path)} cannot be read ({error})", "give the JSON that optimize wrote"
        ) from error
    return Result.from_dict(data)


def _device_of(before: Evaluation) -> str | None:
    return "emulated" if before.source == "modelled" else None
