"""Stage 7 and 8: quick times beside rival and baseline, then the race for the family's best.

A modelled time is exact and is taken once. A measured one is sampled in rounds that interleave
candidate, rival and baseline on the same buffers (EVALUATION section 7).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxsearch.dossier import Dossier
from ptxsearch.evaluation import Array, Built, Counters, Evaluation, Failure, Stage, Timing
from ptxsearch.inputs import make_inputs
from ptxsearch.kernel import Kernel
from ptxsearch.protocols import Device, GuardedDevice, SamplingDevice
from ptxsearch.race import Rules, combine, hopeless, race
from ptxsearch.toolchain import CompileFailure

Build = Callable[[Kernel], Built | CompileFailure]
FIRST_ROUNDS, MORE_ROUNDS = 3, 4
_TIMED_SEED = 7919


def measure(device: Device, case: Dossier, build: Build) -> Evaluation | None:
    """Fill in the times of `case`; a verdict where the kernel failed while it was timed."""
    if device.source == "modelled":
        return _model(device, case)
    return _unfit(device, case) or _quick(device, case, build)


def _unfit(device: Device, case: Dossier) -> Evaluation | None:
    """Now and then a kernel races itself; while it does not come out equal nothing is judged."""
    if not isinstance(device, GuardedDevice) or not device.guard_is_due:
        return None
    assert case.built is not None
    for workload in case.task.timed:
        found = device.guard(case.built, workload)
        if isinstance(found, Failure):
            return case.failed(found, "quick")
        case.evidence["guard"] = found.to_dict()
        if not found.ok:
            return case.verdict("INFRA", "quick", f"this GPU is not fit to judge: {found.message}")
    return None


def _blame(case: Dossier, failure: Failure, stage: Stage) -> Evaluation:
    """The verdict on a failure while sides took turns; another side's is not the candidate's."""
    if failure.side:
        return case.verdict("INFRA", stage, f"another side failed while timed: {failure.message}")
    return case.failed(failure, stage)


def _model(device: Device, case: Dossier) -> Evaluation | None:
    assert case.built is not None
    for workload in case.task.timed:
        if isinstance(device, SamplingDevice) and not device.prepared(case.task, workload):
            inputs = make_inputs(case.task, workload, seed=_TIMED_SEED)
            device.prepare(case.task, workload, inputs)
        seconds = device.time([case.built], workload, 1)
        if isinstance(seconds, Failure):
            return case.failed(seconds, "quick")
        case.times[workload.name] = Timing.of(seconds[:, 0])
        counters = device.profile(case.built, workload)
        if counters != Counters():
            case.counters[workload.name] = counters
    return None


def _quick(device: Device, case: Dossier, build: Build) -> Evaluation | None:
    """7 rounds against rival and baseline; 3 where the candidate is slower than 1.5 times."""
    assert case.built is not None
    sides = {"candidate": case.built}
    for name, kernel in (("rival", case.rival), ("baseline", case.baseline)):
        made = build(kernel) if kernel is not None else None
        if isinstance(made, Built):
            sides[name] = made
    first = _sample(device, case, sides, FIRST_ROUNDS)
    if isinstance(first, Failure):
        return _blame(case, first, "quick")
    samples = first
    if len(sides) == 1 or not hopeless(first[:, :2], rounds=FIRST_ROUNDS):
        more = _sample(device, case, sides, MORE_ROUNDS)
        if isinstance(more, Failure):
            return _blame(case, more, "quick")
        samples = np.concatenate([first, more])
    _note(case, sides, samples)
    if "rival" in sides and np.median(samples[:, 0] / samples[:, 1]) < 1:
        return _race(device, case, sides)
    if "rival" in sides:
        case.evidence["race"] = {"accepted": False, "reason": "not faster in the quick rounds"}
    return None


def _race(device: Device, case: Dossier, sides: dict[str, Built]) -> Evaluation | None:
    """The sequential test against the rival, in groups with everything placed anew."""
    seen: list[Array] = []

    def sample(rounds: int) -> Array | Failure:
        made = _sample(device, case, sides, rounds)
        if not isinstance(made, Failure):
            seen.append(made)
        return made

    decision = race(sample, Rules.incumbent())
    if isinstance(decision, Failure):
        return _blame(case, decision, "race")
    case.evidence["race"] = {"accepted": decision.accepted, **decision.to_dict()}
    # Fresh rounds replace the quick ones, whose luck sent the candidate into the race.
    _note(case, sides, np.concatenate(seen))
    return None


def _sample(device: Device, case: Dossier, sides: dict[str, Built], rounds: int) -> Array | Failure:
    """Seconds (rounds, sides): the geometric mean over the timed workloads, whose own are kept."""
    found: dict[str, Array] = {}
    for workload in case.task.timed:
        seconds = device.time(list(sides.values()), workload, rounds)
        if isinstance(seconds, Failure):
            return seconds
        found[workload.name] = seconds
        case.samples.setdefault(workload.name, []).append(seconds)
    return combine(found)


def _note(case: Dossier, sides: dict[str, Built], samples: Array) -> None:
    for name, parts in case.samples.items():
        case.times[name] = Timing.of(np.concatenate([part[:, 0] for part in parts]))
    logs = np.log(samples)
    for column, name in enumerate(sides):
        if name != "candidate":
            case.evidence[f"versus_{name}"] = versus(logs[:, column] - logs[:, 0])


def versus(logs: Array) -> dict[str, float | int]:
    """Log speedup over a side of the same rounds: median, its standard error, rounds.

    The standard error is 1.253 (1.4826 MAD) / sqrt(n): of a median under normal noise.
    """
    centre = float(np.median(logs))
    spread = 1.4826 * float(np.median(np.abs(logs - centre)))
    return {
        "log_speedup": centre,
        "standard_error": 1.253 * spread / float(np.sqrt(len(logs))),
        "rounds": len(logs),
    }
