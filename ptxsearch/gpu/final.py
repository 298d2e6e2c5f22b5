"""Stage 10: the numbers that are reported, with the evidence that supports them.

The finalists are timed again in fresh processes; the winner is chosen on the even rounds and
reported from the odd ones, so that luck in the choice is not in the report. Then the winner is
examined, profiled, stressed. A `Certificate` is one JSON document; `differences` compares two.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ptxsearch.correctness import check
from ptxsearch.errors import UsageError
from ptxsearch.evaluation import (
    Array,
    Built,
    Counters,
    Failure,
    Fault,
    Inputs,
    Outputs,
    Timing,
)
from ptxsearch.expectation import (
    Expected,
    References,
    measured_memory,
    standard_sets,
)
from ptxsearch.gpu.device import CudaDevice
from ptxsearch.record import Record
from ptxsearch.tasks import Task, Workload

__all__ = ["Certificate", "certify_task", "differences"]

PROCESSES = 5
ROUNDS = 20
LEAST_LAUNCHES = 1000
STRESS_LAUNCHES = 10_000
CONFIDENCE_Z = 1.96
TOLERANCE = 0.02
DRIFT_LIMIT = 0.05
FIRST_SECONDS = 10.0

Wrong = Callable[[Inputs, Outputs], str]


@dataclass(frozen=True)
class Certificate(Record):
    """What was measured of the winner, on what, and what the tools said.

    Times are seconds. `speedup` is the baseline's time over the winner's in the same rounds with
    its 95 % interval; `warm` stands apart: caches warm, launches from a graph. `findings` counts
    compute-sanitizer's by tool (-1: the tool could not run), `problems` says what speaks against
    the winner, `faults` what forbids reporting it: launches that failed or left wrong outputs.
    """

    device: str
    driver: int
    toolchain: str
    cubin: str
    workload: str
    winner: int
    timing: Timing
    baseline: Timing
    interval: tuple[float, float]
    speedup: float
    speedup_interval: tuple[float, float]
    processes: tuple[float, ...]
    launches: int
    warm: float | None = None
    drift: float | None = None
    findings: Mapping[str, int] = field(default_factory=dict)
    counters: Counters | None = None
    profile: str = ""
    problems: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


def certify_task(
    device: CudaDevice,
    task: Task,
    finalists: Sequence[Built],
    baseline: Built,
    *,
    toolchain: str = "",
    seed: int = 0,
    memory: int | None = None,
) -> dict[str, Certificate] | Failure:
    """A certificate for each timed workload of a task: of one winner, the finalist fastest overall.

    The finalists are checked on fresh inputs first; `seed` should be one the search did not use.
    `memory` bounds the bytes of references kept on the host, by default as the search's. A Failure
    where a finalist fails or is wrong, named by its fault's `object`: builts[0] is the first.
    """
    if not finalists:
        raise UsageError("no finalist to certify", "give at least one kernel")
    sides = [*finalists, baseline]
    references = References(task, limit=memory or measured_memory())
    # The search's input sets, and what it left, are not this examination's.
    device.forget()
    device.audit()
    rounds: dict[str, tuple[Array, int]] = {}
    checked = [w for w in task.workloads if w is task.smallest or w in task.timed]

    def fresh(workload: Workload) -> list[Expected]:
        sets = standard_sets(task, workload, seed=seed)
        references.prepare(workload, sets)
        return [references.get(workload, *pair) for pair in sets]

    for workload in checked:
        known = fresh(workload)
        # The baseline brings every set to the device; who loses the race need not see them all.
        for number, side in enumerate(sides):
            some = known if side is baseline else known[:1]
            failure = _checked(device, task, number, side, some)
            if failure is not None:
                return failure
        if workload in task.timed:
            sampled = _sample(device, sides, workload)
            if isinstance(sampled, Failure):
                return sampled
            rounds[workload.name] = sampled

    def wrong(inputs: Inputs, left: Outputs) -> str:
        return check(task, left, references.of(inputs)).message

    chosen = [
        np.log(np.median(samples[:, 0::2, :-1], axis=(0, 1))) for samples, _ in rounds.values()
    ]
    winner = int(np.argmin(np.sum(chosen, axis=0)))
    for workload in checked:
        failure = _checked(device, task, winner, finalists[winner], fresh(workload)[1:])
        if failure is not None:
            return failure
    faults = _audited(device, winner, wrong)
    findings = _findings(device, finalists[winner], task.smallest)
    made = {}
    for workload in task.timed:
        samples, launches = rounds[workload.name]
        evidence = _Evidence(device, finalists[winner], workload, wrong, toolchain)
        made[workload.name] = evidence.certificate(
            winner, samples[:, 1::2], launches, findings=findings, faults=faults
        )
    return made


@dataclass(frozen=True)
class _Evidence:
    """What is found out about a winner on one workload."""

    device: CudaDevice
    built: Built
    workload: Workload
    wrong: Wrong
    toolchain: str

    def certificate(
        self,
        winner: int,
        samples: Array,
        launches: int,
        *,
        findings: Mapping[str, int],
        faults: Sequence[str],
    ) -> Certificate:
        """The certificate from the samples (processes, rounds, sides) that did not choose."""
        device = self.device
        mine, base = samples[..., winner], samples[..., -1]
        drift, problems, after = _stress(device, self.built, self.workload, self.wrong)
        warm = device.warm(self.built, self.workload)
        counters = device.profile(self.built, self.workload)
        assert device.last_profile is not None
        logs = np.log(base / mine)
        return Certificate(
            device=device.name,
            driver=device.properties.driver,
            toolchain=self.toolchain,
            cubin=hashlib.sha256(self.built.cubin).hexdigest(),
            workload=self.workload.name,
            winner=winner,
            timing=Timing.of(mine.ravel()),
            baseline=Timing.of(base.ravel()),
            interval=_interval(mine),
            speedup=float(np.exp(np.median(logs))),
            speedup_interval=_interval(np.exp(logs)),
            processes=tuple(float(m) for m in np.median(mine, axis=1)),
            launches=launches,
            warm=None if isinstance(warm, Failure) else float(np.median(warm)),
            drift=drift,
            findings=findings,
            counters=counters,
            profile=device.last_profile.outcome,
            problems=problems + tuple(_found(findings)),
            faults=tuple(dict.fromkeys([*faults, *after])),
        )


def _checked(
    device: CudaDevice, task: Task, number: int, built: Built, known: Sequence[Expected]
) -> Failure | None:
    """How a side fails or is wrong on sets; None where it is right on all."""
    cases = [(expect.workload, expect.inputs) for expect in known]
    results = device.run_all(built, cases, timeout=FIRST_SECONDS)
    for expect, left in zip(known, results, strict=False):
        if isinstance(left, Failure):
            return left.of_side(number)
        verdict = check(task, left, expect)
        if not verdict.passed:
            text = f"wrong on fresh inputs of {expect.workload.name}: {verdict.message}"
            return Failure(Fault("non_deterministic", text)).of_side(number)
    return None


def _sample(
    device: CudaDevice, sides: Sequence[Built], workload: Workload
) -> tuple[Array, int] | Failure:
    """Samples of shape (processes, rounds, sides) and how many launches each side had."""
    parts: list[Array] = []
    launches, rounds = 0, ROUNDS
    for _ in range(PROCESSES):
        device.restart()
        made = device.time(sides, workload, rounds)
        if isinstance(made, Failure):
            return made
        assert device.last_times is not None
        repeats = min(device.last_times.repeats)
        launches += rounds * repeats
        if not parts:
            # Another process may find the kernel a little slower and repeat it less.
            least = math.ceil(LEAST_LAUNCHES / (PROCESSES * max(1, repeats - 1)))
            more = device.time(sides, workload, least - rounds) if least > rounds else made[:0]
            if isinstance(more, Failure):
                return more
            launches += len(more) * repeats
            rounds = max(rounds, least)
            made = np.concatenate([made, more])
        parts.append(made)
    return np.stack(parts), launches


def _interval(values: Array) -> tuple[float, float]:
    """The 95 % interval of the median over processes, each process one observation."""
    medians = np.median(values, axis=1)
    centre = float(np.median(values))
    error = 1.253 * float(medians.std(ddof=1)) / math.sqrt(len(medians))
    return centre - CONFIDENCE_Z * error, centre + CONFIDENCE_Z * error


def _audited(device: CudaDevice, winner: int, wrong: Wrong) -> tuple[str, ...]:
    """What is wrong with outputs of the winner's timed launches."""
    texts = [wrong(inputs, left) for side, inputs, left in device.audit() if side == winner]
    return tuple(dict.fromkeys(f"a timed launch: {text}" for text in texts if text))


def _stress(
    device: CudaDevice, built: Built, workload: Workload, wrong: Wrong
) -> tuple[float | None, tuple[str, ...], tuple[str, ...]]:
    """Drift over ten thousand launches, what speaks against the kernel, and its faults."""
    found = device.stress(built, workload, STRESS_LAUNCHES)
    if isinstance(found, Failure):
        return None, (), (f"under stress: {found.message}",)
    left = found["left"]
    _, inputs = device.prepared(built, workload)
    text = wrong(inputs, Outputs(left.arrays, inputs_changed=left.changed))
    faults = [f"after {found['launches']} launches: {text}"] if text else []
    if left.changed:
        faults.append(f"after {found['launches']} launches its inputs were changed")
    drift = float(found["drift"])
    slows = f"it slows down by {100 * drift:.1f} % over {found['launches']} launches"
    return drift, (slows,) if drift > DRIFT_LIMIT else (), tuple(faults)


def _findings(device: CudaDevice, built: Built, small: Workload) -> dict[str, int]:
    examined = device.examine(built, small)
    return {name: found.count if found.outcome == "ok" else -1 for name, found in examined.items()}


def _found(findings: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(f"{name} reports {n} errors" for name, n in findings.items() if n > 0)


def differences(before: Certificate, now: Certificate) -> list[str]:
    """What differs between two certificates of one kernel, in sentences; empty: they agree.

    Times and speedup may move by 2 %, the drift that fresh processes show.
    """
    said = []
    for name in ("device", "driver", "toolchain", "cubin", "workload"):
        old, new = getattr(before, name), getattr(now, name)
        if old != new:
            said.append(f"{name} was {old}, is {new}")
    numbers: Mapping[str, tuple[Any, Any]] = {
        "time": (before.timing.median, now.timing.median),
        "speedup": (before.speedup, now.speedup),
    }
    for name, (old, new) in numbers.items():
        if abs(math.log(new / old)) > TOLERANCE:
            said.append(f"{name} was {old:.4g}, is {new:.4g} ({100 * (new / old - 1):+.1f} %)")
    for name in sorted(set(before.findings) | set(now.findings)):
        old, new = before.findings.get(name), now.findings.get(name)
        if old != new:
            said.append(f"{name} found {old}, finds {new}")
    old = (*before.problems, *before.faults)
    said += [f"new: {text}" for text in (*now.problems, *now.faults) if text not in old]
    return said
