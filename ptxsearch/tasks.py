"""What a kernel must compute and how it is judged: `Task` with its parameters and workloads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import ml_dtypes
import numpy as np

from ptxsearch.errors import TaskError
from ptxsearch.expression import evaluate, evaluate_integer
from ptxsearch.kernel import Kernel, Value
from ptxsearch.record import Record

Role = Literal["in", "out", "inout", "scalar"]
Reference = Callable[..., Any]
DTYPES: Mapping[str, np.dtype[Any]] = {
    "f64": np.dtype(np.float64), "f32": np.dtype(np.float32), "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16), "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "s64": np.dtype(np.int64), "s32": np.dtype(np.int32), "s16": np.dtype(np.int16),
    "s8": np.dtype(np.int8), "u64": np.dtype(np.uint64), "u32": np.dtype(np.uint32),
    "u16": np.dtype(np.uint16), "u8": np.dtype(np.uint8),
}  # fmt: skip
FLOATS = frozenset({"f64", "f32", "f16", "bf16", "e4m3", "e5m2"})


@dataclass(frozen=True)
class Param(Record):
    """One entry parameter in order. `shape` holds expressions of sizes; a scalar has none.

    `init` is the value of a scalar (an expression of sizes) or of an inout buffer before every
    launch sequence. `domain` says what inputs mean: any, positive, index(n), sorted, csr, bytes.
    """

    name: str
    role: Role
    dtype: str
    shape: tuple[str, ...] = ()
    init: str | None = None
    domain: str = "any"

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise TaskError(
                f"parameter {self.name!r} has dtype {self.dtype!r}", f"use {', '.join(DTYPES)}"
            )
        object.__setattr__(self, "shape", tuple(str(extent) for extent in self.shape))

    def extents(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape for `sizes`."""
        return tuple(evaluate_integer(extent, sizes) for extent in self.shape)


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
    dict by name or a single array. `scale` says what an error is measured against, by output:
    "sum" (the task's `magnitude` function gives sum|a||b|), "rms(axes)", or "relative".
    `flops_min`, `bytes_in` and `bytes_out` are expressions of sizes.
    """

    name: str
    level: int
    description: str
    params: tuple[Param, ...]
    workloads: tuple[Workload, ...]
    reference: Reference
    baseline: Kernel
    provenance: str = ""
    distributions: tuple[str, ...] = ()
    scale: Mapping[str, str] = field(default_factory=dict)
    magnitude: Reference | None = None
    tolerance: Mapping[str, float] = field(default_factory=dict)
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

    @property
    def smallest(self) -> Workload:
        """The workload that is emulated first."""
        return min(self.workloads, key=lambda workload: workload.elements)

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
