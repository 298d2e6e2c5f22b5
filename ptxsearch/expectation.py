"""What outputs a task expects: its reference's values, the scale of errors, the tolerance.

References run on the host, before any launch of the kernel they judge, on read-only inputs.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxsearch.deviation import Relative, Scale
from ptxsearch.errors import TaskError
from ptxsearch.evaluation import Array, Built, Inputs, Outputs
from ptxsearch.inputs import distributions, make_inputs
from ptxsearch.kernel import Kernel
from ptxsearch.param import FLOATS, Param, limits
from ptxsearch.protocols import Device
from ptxsearch.tasks import Reference, Task, Workload
from ptxsearch.toolchain import CompileFailure

_UNKNOWN_TOLERANCE = 1e-5
_BASELINE_SECONDS = 60.0
_BIG = 1 << 20
_THREADS = min(8, len(os.sched_getaffinity(0)))
# What a reference may raise: its author's mistakes, each reported as the task's.
_MISTAKES = (
    ArithmeticError, AssertionError, AttributeError, BufferError, ImportError, LookupError,
    MemoryError, NameError, OSError, RuntimeError, TypeError, ValueError,
)  # fmt: skip
Measure = Callable[[Inputs], Mapping[str, Array]]


@dataclass(frozen=True)
class Expected:
    """What one set of inputs must give, by output: values, scales that broadcast to them, c.

    `scales` holds None for exact outputs, and a `Relative` where the scale is the value. Where the
    workload is hidden a message tells no sizes, positions or values.
    """

    arrays: Mapping[str, Array]
    scales: Mapping[str, Scale | None]
    tolerances: Mapping[str, float]
    inputs: Inputs
    workload: Workload

    @property
    def nbytes(self) -> int:
        """Memory held by the arrays."""
        held = [
            *self.arrays.values(),
            *(s for s in self.scales.values() if isinstance(s, np.ndarray)),
        ]
        return sum(array.nbytes for array in held + list(self.inputs.named("in", "inout").values()))


def expected(
    task: Task, workload: Workload, inputs: Inputs, *, measure: Measure | None = None
) -> Expected:
    """What `task` expects of a kernel on `inputs`, computed on the host before any launch.

    `measure` runs the baseline where that is the reference (`task.reference` is None). Raises
    TaskError where the reference fails or returns something else than the declared outputs.
    """
    if task.reference is not None:
        arrays = call(task, task.reference, inputs, what="reference")
    elif measure is not None:
        arrays = {name: np.array(array) for name, array in measure(inputs).items()}
    else:
        raise TaskError(
            f"task {task.name!r} takes its baseline as the reference",
            "give it a reference, or a device that runs the baseline first",
        )
    scales: dict[str, Scale | None] = {}
    magnitudes: Mapping[str, Array] = {}
    if any(task.scale_of(param.name) == "sum" for param in task.outputs) and task.magnitude:
        magnitudes = call(task, task.magnitude, inputs, what="magnitude")
    for param in task.outputs:
        if param.dtype in FLOATS:
            scales[param.name] = _scale(
                task.scale_of(param.name), arrays[param.name], magnitudes.get(param.name), param
            )
        else:
            scales[param.name] = None
    name = inputs.label.split(",")[0]
    tolerances = {p.name: tolerance(task, p.name, workload, name) for p in task.outputs}
    return Expected(arrays, scales, tolerances, inputs, workload)


def measure_baseline(
    task: Task, device: Device, build: Callable[[Kernel], Built | CompileFailure]
) -> Measure | None:
    """How a task without a reference gets its expected outputs: its baseline runs on `device`.

    None where the task has a reference. The measure raises TaskError where the baseline fails.
    """
    if task.reference is not None:
        return None

    def measure(inputs: Inputs) -> Mapping[str, Array]:
        built = build(task.baseline)
        workload = next(w for w in task.workloads if dict(w.sizes) == dict(inputs.sizes))
        got = (
            device.run(built, workload, inputs, timeout=_BASELINE_SECONDS)
            if isinstance(built, Built)
            else built
        )
        if isinstance(got, Outputs):
            return got.arrays
        why = got.text if isinstance(got, CompileFailure) else got.message
        raise TaskError(
            f"the baseline of {task.name!r}, which is its reference, fails ({why})", "mend it"
        )

    return measure


def arguments(function: Reference, inputs: Inputs) -> dict[str, Any]:
    """Keyword arguments for a task's function: input arrays, scalars that are no size, sizes.

    Where the function takes fewer names, only those; a buffer is passed as the kernel sees it.
    """
    offered: dict[str, Any] = dict(inputs.named("in", "inout"))
    offered |= {n: v for n, v in inputs.values.items() if inputs.roles[n] == "scalar"}
    offered |= dict(inputs.sizes)
    code = getattr(function, "__code__", None)
    if code is None or code.co_flags & 0x08:
        return offered
    accepted = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return {name: value for name, value in offered.items() if name in accepted}


def call(task: Task, function: Reference, inputs: Inputs, *, what: str) -> dict[str, Array]:
    """The outputs of a task's function by name, checked against the declared shapes and kinds."""
    try:
        with np.errstate(all="ignore"):
            result = function(**arguments(function, inputs))
    except _MISTAKES as error:
        raise TaskError(
            f"the {what} of {task.name!r} failed on {dict(inputs.sizes)} "
            f"({type(error).__name__}: {error})",
            f"mend {what}(...) in the task",
        ) from error
    named = _named(task, result, what)
    return {
        param.name: _checked(task, param, named[param.name], inputs.sizes, what)
        for param in task.outputs
    }


def _named(task: Task, result: Any, what: str) -> Mapping[str, Any]:
    names = [param.name for param in task.outputs]
    if not isinstance(result, Mapping):
        if len(names) != 1:
            raise TaskError(
                f"the {what} of {task.name!r} returns one value for {len(names)} outputs",
                f"return a dict with the keys {', '.join(names)}",
            )
        return {names[0]: result}
    if set(result) != set(names):
        raise TaskError(
            f"the {what} of {task.name!r} returns the keys {', '.join(map(str, result))}",
            f"return {', '.join(names)}",
        )
    return result


def _checked(task: Task, param: Param, value: Any, sizes: Mapping[str, int], what: str) -> Array:
    array = np.asarray(value)
    shape = param.extents(sizes)
    if array.shape != shape:
        raise TaskError(
            f"the {what} of {task.name!r} returns {param.name!r} of shape {array.shape}",
            f"return shape {shape}, as the task declares for {dict(sizes)}",
        )
    if param.dtype in FLOATS or what != "reference":
        exact = what == "reference" and task.scale_of(param.name) == "exact"
        return array.astype(param.numpy_dtype if exact else np.float64, copy=False)
    if array.dtype.kind not in "iub":
        raise TaskError(
            f"the {what} of {task.name!r} returns {array.dtype} for the integers {param.name!r}",
            "return an exact integer array",
        )
    limits = np.iinfo(param.numpy_dtype)
    if array.size and not limits.min <= int(array.min()) <= int(array.max()) <= limits.max:
        raise TaskError(
            f"the {what} of {task.name!r} returns values outside {param.dtype} for {param.name!r}",
            "reduce them as the kernel's arithmetic does",
        )
    return array.astype(param.numpy_dtype, copy=False)


def _scale(kind: str, values: Array, magnitude: Array | None, param: Param) -> Scale | None:
    if kind == "exact":
        return None
    if kind == "relative":
        return Relative(_tiny(param))
    if kind == "sum" and magnitude is not None:
        return magnitude
    axes = tuple(int(axis) for axis in kind[4:-1].split(",") if axis.strip())
    finite = np.where(np.isfinite(values), values, 0.0)
    mean = np.mean(np.square(finite), axis=axes or None, keepdims=True)
    return np.asarray(np.sqrt(mean), dtype=np.float64)


def _tiny(param: Param) -> float:
    """The smallest normal number of a type."""
    return float(limits(param.numpy_dtype).smallest_normal)


def tolerance(task: Task, output: str, workload: Workload, distribution: str) -> float:
    """The c of `output`: as the task states it, as calibrated, or 0 for exact outputs.

    A workload that was never calibrated borrows the largest tolerance of its distribution.
    """
    if output in task.tolerance:
        return task.tolerance[output]
    if task.scale_of(output) == "exact":
        return 0.0
    found = task.calibration.get(f"{output} {workload.name} {distribution}")
    if found is not None:
        return found.tolerance
    related = [
        calibration.tolerance
        for key, calibration in task.calibration.items()
        if key.split()[0] == output and key.split()[2] == distribution
    ]
    return max(related, default=_UNKNOWN_TOLERANCE)


def standard_sets(
    task: Task, workload: Workload, *, seed: int = 0, least: int = 4
) -> tuple[tuple[int, str], ...]:
    """(seed, distribution) of the prepared sets: every distribution once, and at least `least`.

    Another `seed` gives other data: checks of one candidate rotate through several.
    """
    names = distributions(task)
    count = max(least, len(names))
    return tuple((seed * 1000 + i, names[i % len(names)]) for i in range(count))


def measured_memory() -> int:
    """Bytes that the sets of a measured device may take: a quarter of what is free, 12 GB at least.

    Its largest problems are checked whole, and a set that was dropped costs seconds to make again.
    """
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(12 << 30, free // 4)


class References:
    """Prepared sets of one task: inputs and what they must give, kept within `limit` bytes."""

    def __init__(
        self, task: Task, *, measure: Measure | None = None, limit: int = 512 << 20
    ) -> None:
        self.task = task
        self._measure = measure
        self._limit = limit
        self._kept: OrderedDict[tuple[str, int, str], Expected] = OrderedDict()

    def get(self, workload: Workload, seed: int, distribution: str) -> Expected:
        """The set of `workload`; its inputs are in `Expected.inputs`."""
        key = (workload.name, seed, distribution)
        if key not in self._kept:
            self._keep(key, self._made(workload, seed, distribution))
        self._kept.move_to_end(key)
        return self._kept[key]

    def prepare(self, workload: Workload, sets: Sequence[tuple[int, str]]) -> None:
        """Make those of the (seed, distribution) sets that are missing, big ones side by side.

        Nothing is done where they would not all be kept.
        """
        missing = [pair for pair in sets if (workload.name, *pair) not in self._kept]
        if len(missing) < 2 or self._measure is not None or workload.elements < _BIG:
            return
        first = self.get(workload, *missing[0])
        if first.nbytes * len(sets) > self._limit:
            return
        with ThreadPoolExecutor(min(len(missing) - 1, _THREADS)) as pool:
            made = pool.map(lambda pair: self._made(workload, *pair), missing[1:])
            for pair, expect in zip(missing[1:], made, strict=True):
                self._keep((workload.name, *pair), expect)

    def of(self, inputs: Inputs) -> Expected:
        """The set that `inputs` are those of, made again where it is no longer kept."""
        sizes = dict(inputs.sizes)
        workload = next(w for w in self.task.workloads if dict(w.sizes) == sizes)
        distribution, seed = inputs.label.split(", seed ")
        return self.get(workload, int(seed), distribution)

    def _made(self, workload: Workload, seed: int, distribution: str) -> Expected:
        inputs = make_inputs(self.task, workload, seed=seed, distribution=distribution)
        return expected(self.task, workload, inputs, measure=self._measure)

    def _keep(self, key: tuple[str, int, str], expect: Expected) -> None:
        self._kept[key] = expect
        while len(self._kept) > 1 and self._held() > self._limit:
            self._kept.popitem(last=False)

    def _held(self) -> int:
        return sum(kept.nbytes for kept in self._kept.values())
