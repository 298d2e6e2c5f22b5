"""What a kernel must compute and how it is judged: `Task` with its parameters and workloads."""

from __future__ import annotations

import hashlib
import inspect
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any, Literal

import numpy as np

from ptxsearch.errors import TaskError
from ptxsearch.expression import evaluate
from ptxsearch.kernel import Kernel, Value
from ptxsearch.kernelfile import read_kernel
from ptxsearch.param import DTYPES, FLOATS, Param, Role
from ptxsearch.record import Record

__all__ = [
    "DTYPES",
    "FLOATS",
    "Calibration",
    "Param",
    "Reference",
    "Task",
    "Workload",
    "Wrong",
    "task",
]

Reference = Callable[..., Any]
_BASELINE_TOLERANCE = 1e-5
_SCALE = re.compile(r"(sum|relative|exact|rms\(\s*(-?\d+\s*(,\s*-?\d+\s*)*)?\))\Z")


@dataclass(frozen=True)
class Workload(Record):
    """One problem size. Public ones are shown to proposers, hidden ones never; either is timed."""

    name: str
    sizes: Mapping[str, int]
    public: bool = True
    timed: bool = False

    @property
    def elements(self) -> int:
        """A measure of its size: the product of its sizes."""
        return math.prod(self.sizes.values())


@dataclass(frozen=True)
class Calibration(Record):
    """What separates honest from lowered precision on one output, workload and distribution.

    `honest` is the largest error of honest orders of operations, `downgraded` the smallest median
    error over lower precisions, both over the output's scale. Where they are not separable,
    `tolerance` judges function only.
    """

    honest: float
    downgraded: float
    tolerance: float
    separable: bool


@dataclass(frozen=True)
class Wrong:
    """A kernel that must not pass, or is slow for a reason: the evidence that the task judges.

    `status` is the failing status expected; where it is OK, `counter` must reach `at_least`.
    """

    name: str
    kernel: Kernel
    status: str
    reason: str
    counter: str = ""
    at_least: float = 0.0


@dataclass(frozen=True)
class Task:
    """A task: parameters, workloads, reference, tolerance, baseline.

    `reference(**inputs, **sizes)` returns the expected outputs in float64 or exact integers, as a
    dict by name or a single array; None means that the baseline's outputs are the reference.
    `scale` says what an error is measured against, by output: "sum" (the task's `magnitude`
    function gives sum|a||b|), "rms(axes)" (of the expected values, "rms()" over all), "relative",
    or "exact". `variant(arithmetic, ...)` computes like the reference in a given arithmetic, for
    `calibration`, which is keyed "output workload distribution". `tolerance` by output overrides
    it; `calibrated_at` gives smaller sizes, with as many terms a result, to calibrate large
    workloads at. `flops_min`, `bytes_in` and `bytes_out` are expressions of sizes.
    """

    name: str
    level: int
    description: str
    params: tuple[Param, ...]
    workloads: tuple[Workload, ...]
    reference: Reference | None
    baseline: Kernel
    provenance: str = ""
    distributions: tuple[str, ...] = ()
    scale: Mapping[str, str] = field(default_factory=dict)
    magnitude: Reference | None = None
    variant: Reference | None = None
    tolerance: Mapping[str, float] = field(default_factory=dict)
    calibration: Mapping[str, Calibration] = field(default_factory=dict)
    calibrated_at: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    allow: frozenset[str] = frozenset()
    flops_min: str = "0"
    bytes_in: str = "0"
    bytes_out: str = "0"
    wrong: tuple[Wrong, ...] = ()
    notes: Mapping[str, Value] = field(default_factory=dict)
    digest: str = ""

    def __post_init__(self) -> None:
        if not any(p.role in ("out", "inout") for p in self.params):
            raise TaskError(f"task {self.name!r} has no output", "declare an out or inout param")
        if not self.workloads:
            raise TaskError(f"task {self.name!r} has no workload", "declare at least one")
        for what, names in (
            ("parameter", [param.name for param in self.params]),
            ("workload", [workload.name for workload in self.workloads]),
        ):
            repeated = sorted({name for name in names if names.count(name) > 1})
            if repeated:
                raise TaskError(
                    f"task {self.name!r} names {what} {repeated[0]!r} twice", "rename one"
                )
        self._check_scales()
        if not self.digest:
            object.__setattr__(self, "digest", _digest(self))

    def _check_scales(self) -> None:
        outputs = [param.name for param in self.outputs]
        for name, scale in self.scale.items():
            if name not in outputs:
                raise TaskError(
                    f"task {self.name!r} scales {name!r}, which is no output",
                    f"use {', '.join(outputs)}",
                )
            if not _SCALE.match(scale):
                raise TaskError(
                    f"task {self.name!r} has scale {scale!r} for {name!r}",
                    "use sum, rms(axes), relative or exact",
                )
            if scale == "sum" and self.magnitude is None:
                raise TaskError(
                    f"task {self.name!r} has scale sum for {name!r} and no magnitude function",
                    "define magnitude(**inputs, **sizes) beside the reference",
                )

    @classmethod
    def from_kernel(
        cls,
        baseline: Kernel | str | os.PathLike[str],
        *,
        inputs: Mapping[str, Any],
        outputs: Sequence[str] = (),
        updates: Sequence[str] = (),
        name: str = "",
    ) -> Task:
        """A task from a kernel that works: its outputs are the reference, whatever they are.

        `baseline` is a kernel or the path of one (with its launches in the JSON beside it).
        `inputs` are example arguments in the entry's order: arrays (their shapes and dtypes are
        kept, data is drawn anew) and numbers (passed by value). `outputs` names the arrays that
        the kernel fills; left out, they are the pointers that its CUDA C++ does not call const.
        `updates` names those that it also reads.
        """
        if not isinstance(baseline, Kernel):
            baseline = read_kernel(Path(baseline))
        outputs = tuple(outputs) or _written(baseline, inputs)
        roles: dict[str, Role] = {
            **dict.fromkeys(outputs, "out"),
            **dict.fromkeys(updates, "inout"),
        }
        unknown = sorted(set(roles) - set(inputs))
        if unknown:
            raise TaskError(f"output {unknown[0]!r} is no argument", f"use {', '.join(inputs)}")
        return cls(
            name=name or baseline.launches[0].entry,
            level=1,
            description="Compute what the baseline kernel computes: it is the reference.",
            params=tuple(
                _param(argument, value, roles.get(argument, "in"))
                for argument, value in inputs.items()
            ),
            workloads=(Workload("given", {}, timed=True),),
            reference=None,
            baseline=baseline,
            tolerance=dict.fromkeys(roles, _BASELINE_TOLERANCE),
        )

    @property
    def outputs(self) -> tuple[Param, ...]:
        """The parameters a kernel writes, in order."""
        return tuple(param for param in self.params if param.role in ("out", "inout"))

    def param(self, name: str) -> Param:
        """The parameter called `name`. Raises TaskError where there is none."""
        for param in self.params:
            if param.name == name:
                return param
        raise TaskError(
            f"task {self.name!r} has no parameter {name!r}", f"use {', '.join(sorted(self.names))}"
        )

    def workload(self, name: str) -> Workload:
        """The workload called `name`. Raises TaskError where there is none."""
        for workload in self.workloads:
            if workload.name == name:
                return workload
        raise TaskError(
            f"task {self.name!r} has no workload {name!r}",
            f"use {', '.join(workload.name for workload in self.workloads)}",
        )

    def scale_of(self, output: str) -> str:
        """What errors of `output` are measured against; integers are always exact."""
        if self.param(output).dtype not in FLOATS:
            return "exact"
        return self.scale.get(output, "rms()")

    @property
    def smallest(self) -> Workload:
        """The public workload that is emulated first."""
        public = [workload for workload in self.workloads if workload.public]
        return min(public or self.workloads, key=lambda workload: workload.elements)

    @property
    def timed(self) -> tuple[Workload, ...]:
        """The workloads whose time counts; the largest where none is marked."""
        marked = tuple(workload for workload in self.workloads if workload.timed)
        return marked or (max(self.workloads, key=lambda workload: workload.elements),)

    @property
    def names(self) -> frozenset[str]:
        """The parameter names launches may pass."""
        return frozenset(param.name for param in self.params)

    def amount(self, what: Literal["flops_min", "bytes_in", "bytes_out"], of: Workload) -> float:
        """The least FLOPs or bytes a correct kernel needs for a workload."""
        return float(evaluate(getattr(self, what), of.sizes))


def task(
    *, baseline: Kernel, params: Sequence[Param], workloads: Sequence[Workload], **facts: Any
) -> Callable[[Reference], Task]:
    """A decorator that makes a numpy function the reference of a task of its name.

    The description is the function's docstring; `facts` are further fields of `Task`.
    """

    def define(reference: Reference) -> Task:
        fields = {
            "name": reference.__name__,
            "level": 1,
            "description": inspect.getdoc(reference) or "",
            **facts,
        }
        return Task(
            params=tuple(params),
            workloads=tuple(workloads),
            reference=reference,
            baseline=baseline,
            **fields,
        )

    return define


def _param(name: str, value: Any, role: Role) -> Param:
    array = np.asarray(value)
    kinds = {kind: dtype for dtype, kind in DTYPES.items()}
    if array.ndim == 0 and not isinstance(value, np.generic | np.ndarray):
        dtype = "f32" if isinstance(value, float) else "s32"
        return Param(name, "scalar", dtype, init=repr(value))
    if array.dtype not in kinds:
        raise TaskError(f"argument {name!r} has dtype {array.dtype}", f"use {', '.join(DTYPES)}")
    if array.ndim == 0:
        return Param(name, "scalar", kinds[array.dtype], init=repr(array.item()))
    return Param(name, role, kinds[array.dtype], tuple(str(extent) for extent in array.shape))


def _written(kernel: Kernel, inputs: Mapping[str, Any]) -> tuple[str, ...]:
    """The array arguments whose pointers the entry's signature does not call const."""
    if len(kernel.launches) > 1:
        raise TaskError(
            f"which arrays {len(kernel.launches)} launches write is not known",
            "name them as outputs=[...]",
        )
    entry = re.escape(kernel.launches[0].entry)
    signature = re.search(rf"\b{entry}\s*\(([^)]*)\)", kernel.source)
    if kernel.language != "cuda" or signature is None:
        raise TaskError("which arrays the kernel writes is not known", "name them as outputs=[...]")
    pointers = signature[1].split(",")
    return tuple(
        name
        for name, part in zip(inputs, pointers, strict=False)
        if "*" in part and "const" not in part.split("*")[0]
    )


def _digest(task: Task) -> str:
    """A sha256 of what decides expected outputs: parameters, workloads, distributions, code."""
    facts = [task.name, task.params, task.workloads, task.distributions, sorted(task.scale.items())]
    facts += [_code(getattr(task.reference, "__code__", None))]
    facts += [_code(getattr(task.magnitude, "__code__", None))]
    facts.append(task.baseline.source if task.reference is None else "")
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _code(code: Any) -> Any:
    # Nested functions are constants whose repr holds an address: they are followed instead.
    if isinstance(code, CodeType):
        return code.co_code.hex(), code.co_names, [_code(constant) for constant in code.co_consts]
    return repr(code)
