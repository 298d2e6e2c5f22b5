"""Whether a task can judge: answers that need no work must fail, lower precision must show.

`lint` gives every complaint; an "error" means that verdicts on this task prove nothing. Labelled
wrong kernels are run where an `evaluate` is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ptxsearch.correctness import check
from ptxsearch.evaluation import Array, Evaluation, Inputs
from ptxsearch.expectation import Expected, References, expected, standard_sets
from ptxsearch.inputs import distributions, fill
from ptxsearch.kernel import Kernel
from ptxsearch.param import FLOATS
from ptxsearch.record import Record
from ptxsearch.tasks import Task, Workload, Wrong

Evaluate = Callable[[Task, Kernel], Evaluation]
_LARGEST = 1 << 20


@dataclass(frozen=True)
class Complaint(Record):
    """One weakness of a task: an "error" refuses it, a "warning" is for its author to weigh."""

    severity: Literal["error", "warning"]
    rule: str
    message: str


def lint(task: Task, *, evaluate: Evaluate | None = None) -> tuple[Complaint, ...]:
    """Every complaint on `task`. Raises TaskError where its reference fails."""
    if task.reference is None:
        found = [
            Complaint("warning", "reference", "the baseline is the reference: its mistakes pass")
        ]
    else:
        references = References(task)
        found = [*_fakes(task, references), *_dependence(task, references)]
    found += [*_distributions(task), *_calibration(task)]
    if evaluate is not None:
        found += [*_baseline(task, evaluate), *_wrongs(task, evaluate)]
    return tuple(found)


def _checked_workloads(task: Task) -> list[Workload]:
    """The workloads small enough to compute on the host several times over."""
    small = [
        workload
        for workload in task.workloads
        if sum(np.prod(p.extents(workload.sizes)) for p in task.params if p.shape) <= _LARGEST
    ]
    return small or [task.smallest]


def _sets(task: Task, workload: Workload, references: References) -> Iterator[Expected]:
    for seed, distribution in standard_sets(task, workload):
        yield references.get(workload, seed, distribution)


def _fakes(task: Task, references: References) -> Iterator[Complaint]:
    """Answers without work that pass every set of every workload."""
    survivors: dict[str, list[str]] = {}
    workloads = _checked_workloads(task)
    for workload in workloads:
        passing: set[str] | None = None
        for expect in _sets(task, workload, references):
            names = {n for n, fake in fakes(task, expect) if check(task, fake, expect).passed}
            passing = names if passing is None else passing & names
        for name in sorted(passing or ()):
            survivors.setdefault(name, []).append(workload.name)
    for name, where in survivors.items():
        if len(where) == len(workloads):
            yield Complaint("error", "fake", f"{name} passes every workload: tighten the tolerance")
        elif task.smallest.name in where:
            yield Complaint("warning", "fake", f"{name} passes the workload {task.smallest.name}")


def fakes(task: Task, expect: Expected) -> Iterator[tuple[str, dict[str, Array]]]:
    """Named answers that need no work: constants, copies, and the answer's own means."""
    shapes = {p.name: (expect.arrays[p.name].shape, p.numpy_dtype) for p in task.outputs}
    for value in (0, 1):
        yield (
            f"the constant {value}",
            {n: np.full(s, value, dtype=d) for n, (s, d) in shapes.items()},
        )
    yield "the answer's mean", _means(task, expect, None)
    dimensions = max(len(shape) for shape, _ in shapes.values())
    for axis in range(dimensions):
        if dimensions > 1:
            yield f"the answer's mean along axis {axis}", _means(task, expect, axis)
    for source, array in expect.inputs.named("in", "inout").items():
        copied = {}
        for name, (shape, dtype) in shapes.items():
            size = int(np.prod(shape))
            with np.errstate(all="ignore"):
                copied[name] = np.resize(array.reshape(-1), size).astype(dtype).reshape(shape)
        yield f"a copy of the input {source}", copied


def _means(task: Task, expect: Expected, axis: int | None) -> dict[str, Array]:
    found = {}
    for param in task.outputs:
        values = expect.arrays[param.name]
        if values.size == 1 or (axis is not None and axis >= values.ndim):
            # The mean of one element is the element: nothing is faked.
            fake = np.zeros_like(values)
        else:
            mean = np.mean(values.astype(np.float64), axis=axis, keepdims=True)
            fake = np.broadcast_to(mean, values.shape)
        found[param.name] = np.array(fake).astype(param.numpy_dtype)
    return found


def _dependence(task: Task, references: References) -> Iterator[Complaint]:
    """Inputs whose change the outputs do not show."""
    workload = task.smallest
    moved: dict[str, bool] = {}
    for expect in _sets(task, workload, references):
        label = expect.inputs.label.split(",")[0]
        rng = np.random.Generator(np.random.Philox(key=11))
        for name in expect.inputs.named("in", "inout"):
            param = task.param(name)
            if param.role == "inout" and param.init is not None:
                continue
            fresh = fill(param, workload.sizes, distribution=label, rng=rng)
            inputs = replace(expect.inputs, values={**expect.inputs.values, name: fresh})
            same = _answers_alike(task, workload, expect, inputs)
            moved[name] = moved.get(name, False) or not same
    for name, does in moved.items():
        if not does:
            yield Complaint(
                "error", "dependence", f"new data in the input {name} does not change any output"
            )


def _answers_alike(task: Task, workload: Workload, expect: Expected, inputs: Inputs) -> bool:
    answers = {p.name: expect.arrays[p.name].astype(p.numpy_dtype) for p in task.outputs}
    return check(task, answers, expected(task, workload, inputs)).passed


def _distributions(task: Task) -> Iterator[Complaint]:
    """A float task needs a zero-mean distribution with full mantissas."""
    reals = [
        p for p in task.params
        if p.role in ("in", "inout") and p.dtype in ("f32", "f64") and p.meaning[0] == "any"
    ]  # fmt: skip
    if not reals:
        return
    good = []
    for name in distributions(task):
        rng = np.random.Generator(np.random.Philox(key=13))
        sample = fill(replace(reals[0], shape=("4096",)), {}, distribution=name, rng=rng)
        values = sample.astype(np.float32)
        centred = abs(float(values.mean())) < 0.1 * float(values.std())
        full = float(np.mean(values.view(np.uint32) & 0xFF != 0)) > 0.9
        if centred and full:
            good.append(name)
    if not good:
        yield Complaint(
            "error", "distribution", "no distribution has zero mean and full mantissas: add normal"
        )
    elif not _is_separable(task, good):
        yield Complaint(
            "error",
            "separable",
            f"no calibration tells lowered precision from honest on {', '.join(good)}: choose "
            "another scale or other distributions, then run ptxsearch lint --calibrate again",
        )
    if len(distributions(task)) < 4:
        yield Complaint("warning", "distribution", "fewer than 4 distributions of inputs")


def _is_separable(task: Task, names: list[str]) -> bool:
    for output in _calibrated(task):
        found = [
            value
            for key, value in task.calibration.items()
            if key.split()[0] == output and key.split()[2] in names
        ]
        if found and not any(value.separable for value in found):
            return False
    return True


def _calibrated(task: Task) -> list[str]:
    """The float outputs whose tolerance is to be measured."""
    floats = [p.name for p in task.outputs if p.dtype in FLOATS]
    return [n for n in floats if task.scale_of(n) != "exact" and n not in task.tolerance]


def _calibration(task: Task) -> Iterator[Complaint]:
    for output in _calibrated(task):
        pairs = [
            (workload.name, f"{output} {workload.name} {name}")
            for workload in task.workloads
            for name in distributions(task)
        ]
        missing = [name for name, key in pairs if key not in task.calibration]
        if len(missing) == len(pairs):
            yield Complaint("error", "calibration", _how_to_calibrate(task, output))
        elif missing:
            yield Complaint(
                "warning",
                "calibration",
                f"{output} is not calibrated on {', '.join(dict.fromkeys(missing))}: run "
                "ptxsearch lint PATH --calibrate",
            )


def _how_to_calibrate(task: Task, output: str) -> str:
    """The whole remedy for an output without a tolerance, from what the task has."""
    measure = "run `ptxsearch lint PATH --calibrate` (seconds to minutes)"
    if task.variant is None:
        measure = f"write variant(arithmetic, **inputs) in reference.py and {measure}"
    return (
        f"{output} has no tolerance: {measure}; or state one in task.yaml, such as "
        f"`tolerance: {{{output}: 1e-6}}` (docs/tasks.md)"
    )


def _baseline(task: Task, evaluate: Evaluate) -> Iterator[Complaint]:
    found = evaluate(task, task.baseline)
    if not found.ok:
        yield Complaint(
            "error", "baseline", f"the baseline is {found.status} at {found.stage}: {found.message}"
        )


def _wrongs(task: Task, evaluate: Evaluate) -> Iterator[Complaint]:
    """Labelled kernels whose verdict is another."""
    if not task.wrong:
        yield Complaint("warning", "wrong", "no wrong kernel shows that the task judges")
    for wrong in task.wrong:
        message = disagreement(wrong, evaluate(task, wrong.kernel))
        if message:
            yield Complaint("error", "wrong", message)


def disagreement(wrong: Wrong, found: Evaluation) -> str:
    """What differs between a label and an evaluation, empty where they agree."""
    if found.status == "UNSUPPORTED":
        return ""
    if found.status != wrong.status:
        return (
            f"{wrong.name} ({wrong.reason}) is {found.status} at {found.stage} instead of "
            f"{wrong.status}: {found.message}"
        )
    if wrong.counter:
        counts: Mapping[str, float] = {
            name: value
            for name, counters in found.counters.items()
            if (value := counters.known().get(wrong.counter)) is not None
        }
        if max(counts.values(), default=0.0) < wrong.at_least:
            return (
                f"{wrong.name} has {wrong.counter} = {dict(counts)}, "
                f"not at least {wrong.at_least:g}"
            )
    return ""
