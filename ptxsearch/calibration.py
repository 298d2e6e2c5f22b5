"""Tolerances from measurement: what honest 32-bit arithmetic errs, and what lower precision errs.

A task's `variant(arithmetic, ...)` computes its outputs in a given `Arithmetic`. Over many input
sets, H is the largest error of honest orders (sequential chains of 8 to 16384 terms, the last as
one thread adds a row, then pairwise, or the last 4096 partial sums in order; fused or separate
multiply-add; exact or approximate exponential) and L the smallest, over lowered precisions (tf32,
bf16, fp16 inputs; fp16 accumulation), of the median error. Where L >= 8 H the tolerance is their
geometric mean sqrt(H L), as far from either in factors; elsewhere the pair is not separable and 4 H
judges function only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ptxsearch.correctness import error
from ptxsearch.errors import TaskError
from ptxsearch.evaluation import Array, Inputs
from ptxsearch.expectation import call, expected
from ptxsearch.inputs import distributions, make_inputs
from ptxsearch.param import FLOATS, Param, limits
from ptxsearch.tasks import Calibration, Task, Workload

Format = Literal["f32", "tf32", "bf16", "f16"]
_KEPT_BITS: Mapping[str, int] = {"f32": 23, "tf32": 10, "bf16": 7, "f16": 10}
_LOG2E = np.float32(math.log2(math.e))
_SEED = 7_000_000


@dataclass(frozen=True)
class Arithmetic:
    """How a kernel may compute: the format of its inputs, of its accumulator, its order.

    `chain` terms are added one after the other before partial sums are added in pairs; the last
    `tail` partial sums are added one after the other again, as atomics of so many blocks are.
    """

    name: str
    inputs: Format = "f32"
    accumulator: Literal["f32", "f16"] = "f32"
    chain: int = 8
    tail: int = 1
    fused: bool = True
    approximate: bool = False

    def load(self, values: Any) -> Array:
        """Values as the kernel holds them: rounded to its input format, stored as float32."""
        wide = np.asarray(values, dtype=np.float32)
        if self.inputs == "f16":
            with np.errstate(over="ignore"):
                return wide.astype(np.float16).astype(np.float32)
        return wide if self.inputs == "f32" else _rounded(wide, _KEPT_BITS[self.inputs])

    def round(self, values: Any) -> Array:
        """Values rounded to the accumulator's format, stored as float32."""
        with np.errstate(over="ignore"):
            narrow = np.asarray(values).astype(np.dtype(self.accumulator.replace("f", "float")))
        return narrow.astype(np.float32)

    def exp(self, values: Array) -> Array:
        """The exponential of float32 values: correctly rounded, or as 2^(x log2 e)."""
        if not self.approximate:
            return self.round(np.exp(values.astype(np.float64)))
        power = np.exp2((values.astype(np.float32) * _LOG2E).astype(np.float64))
        return self.round(power * (1 + 2.0**-22))

    def fma(self, a: Array, b: Array, c: Array) -> Array:
        """The fused a b + c, or the product rounded first."""
        product = a.astype(np.float64) * b.astype(np.float64)
        if not self.fused:
            product = self.round(product).astype(np.float64)
        return self.round(product + c.astype(np.float64))

    def sum(self, values: Array, axis: int | None = None) -> Array:
        """The sum over an axis, or over everything, in this order."""
        terms = values.reshape(-1) if axis is None else np.moveaxis(values, axis, 0)
        return self._pairwise(self._chains(terms))

    def dot(self, a: Array, b: Array) -> Array:
        """The matrix product of a (m x k) and b (k x n), each element in this order."""
        length = min(self.chain, a.shape[1])
        groups = -(-a.shape[1] // length)
        short = groups * length - a.shape[1]
        left = np.pad(a, ((0, 0), (0, short))).reshape(len(a), groups, length)
        right = np.pad(b, ((0, short), (0, 0))).reshape(groups, length, b.shape[1])
        total = np.zeros((groups, len(a), b.shape[1]), dtype=np.float32)
        for step in range(length):
            columns = left[:, :, step].T[:, :, None]
            total = self.fma(columns, right[:, step][:, None, :], total)
        return self._pairwise(total)

    def _chains(self, terms: Array) -> Array:
        """Partial sums over `chain` terms each, a stride apart as a grid's threads take them."""
        length = min(self.chain, len(terms))
        stride = -(-len(terms) // length)
        total = np.zeros((stride, *terms.shape[1:]), dtype=np.float32)
        for step in range(length):
            part = terms[step * stride : (step + 1) * stride]
            total[: len(part)] = self._add(total[: len(part)], part)
        return total

    def _pairwise(self, terms: Array) -> Array:
        while len(terms) > self.tail:
            half = len(terms) // 2
            joined = self._add(terms[:half], terms[half : 2 * half])
            terms = np.concatenate([joined, terms[2 * half :]]) if len(terms) % 2 else joined
        total = np.asarray(terms[0])
        for part in terms[1:]:
            total = np.asarray(self._add(total, part))
        return total

    def _add(self, a: Array, b: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            return self.round(a + b) if self.accumulator != "f32" else a + b


def _rounded(values: Array, kept: int) -> Array:
    """float32 values rounded to `kept` fraction bits, ties to even."""
    bits = values.view(np.uint32)
    drop = 23 - kept
    even = (bits >> np.uint32(drop)) & np.uint32(1)
    up = bits + np.uint32((1 << (drop - 1)) - 1) + even
    return (up & np.uint32(0xFFFFFFFF << drop & 0xFFFFFFFF)).view(np.float32)


HONEST: tuple[Arithmetic, ...] = (
    Arithmetic("chains of 8", chain=8),
    Arithmetic("chains of 64, separate", chain=64, fused=False),
    Arithmetic("chains of 512, approximate", chain=512, approximate=True),
    Arithmetic("chains of 4096", chain=4096),
    Arithmetic("chains of 8, the last 4096 in order", tail=4096),
    Arithmetic("chains of 4096, separate", chain=4096, fused=False, approximate=True),
    Arithmetic("chains of 16384", chain=1 << 14),
)
DOWNGRADES: tuple[Arithmetic, ...] = (
    Arithmetic("tf32 inputs", inputs="tf32"),
    Arithmetic("bf16 inputs", inputs="bf16"),
    Arithmetic("fp16 inputs", inputs="f16"),
    Arithmetic("fp16 accumulation", accumulator="f16"),
)


def calibrate(
    task: Task, *, sets: int = 16, workloads: tuple[Workload, ...] = ()
) -> dict[str, Calibration]:
    """Calibrations by "output workload distribution" over `sets` input sets each.

    Workloads that the task lists in `calibrated_at` are calibrated at those sizes: what errs is
    the same, only fewer independent rows. Exact outputs need none. Raises TaskError where a float
    output has neither a `variant` function to calibrate with nor a stated tolerance.
    """
    floats = [p for p in task.outputs if p.dtype in FLOATS and task.scale_of(p.name) != "exact"]
    if task.variant is None:
        floats = [param for param in floats if param.name not in task.tolerance]
    if not floats:
        return {}
    if task.variant is None:
        raise TaskError(
            f"task {task.name!r} has no variant function to calibrate {floats[0].name} with",
            "write variant(arithmetic, **inputs) in reference.py, or state in task.yaml "
            f"`tolerance: {{{floats[0].name}: 1e-6}}` (docs/tasks.md)",
        )
    found = {}
    for workload in workloads or task.workloads:
        sizes = task.calibrated_at.get(workload.name, workload.sizes)
        at = Workload(workload.name, sizes)
        for distribution in distributions(task):
            for param, calibration in _calibrate(task, floats, at, distribution, sets):
                found[f"{param.name} {workload.name} {distribution}"] = calibration
    return found


def _calibrate(
    task: Task, params: list[Param], workload: Workload, distribution: str, sets: int
) -> Iterator[tuple[Param, Calibration]]:
    errors = {param.name: np.zeros((sets, len(HONEST) + len(DOWNGRADES))) for param in params}
    for number in range(sets):
        inputs = make_inputs(task, workload, seed=_SEED + number, distribution=distribution)
        want = expected(task, workload, inputs)
        for column, arithmetic in enumerate(HONEST + DOWNGRADES):
            got = _variant(task, arithmetic, inputs)
            for param in params:
                scale = want.scales[param.name]
                if scale is not None:
                    errors[param.name][number, column] = error(
                        got[param.name], want.arrays[param.name], scale, dtype=param.numpy_dtype
                    )
    for param in params:
        table = errors[param.name]
        honest = float(table[:, : len(HONEST)].max())
        downgraded = float(np.median(table[:, len(HONEST) :], axis=0).min())
        yield param, separate(honest, downgraded, eps=float(limits(param.numpy_dtype).eps))


def _variant(task: Task, arithmetic: Arithmetic, inputs: Inputs) -> dict[str, Array]:
    def function(**arguments: Any) -> Any:
        return task.variant(arithmetic, **arguments) if task.variant is not None else None

    return call(task, function, inputs, what="variant")


def separate(honest: float, downgraded: float, *, eps: float) -> Calibration:
    """The calibration of H and L: sqrt(H L) where L >= 8 H, else 4 H and not separable.

    An H of 0 (sums that happen to be exact) counts as a sixteenth of half an ulp.
    """
    least = honest or eps / 32
    if math.isfinite(least) and downgraded >= 8 * least:
        ceiling = downgraded if math.isfinite(downgraded) else 1.0
        return Calibration(honest, downgraded, math.sqrt(least * ceiling), True)
    return Calibration(honest, downgraded, 4 * max(least, eps / 4), False)


def store(calibrations: Mapping[str, Calibration], path: Path) -> None:
    """Write calibrations to a task's `calibration.json`, rounded to four digits, in order.

    Raises TaskError where the file cannot be written.
    """
    entries = {
        key: {
            "honest": float(f"{value.honest:.4g}"),
            "downgraded": float(f"{value.downgraded:.4g}"),
            "tolerance": float(f"{value.tolerance:.4g}"),
            "separable": value.separable,
        }
        for key, value in sorted(calibrations.items())
    }
    lines = ",\n".join(
        f"  {json.dumps(key)}: {json.dumps(entry)}" for key, entry in entries.items()
    )
    try:
        path.write_text('{"entries": {\n' + lines + "\n}}\n", encoding="utf-8")
    except OSError as error:
        raise TaskError(
            f"{path} cannot be written ({error.strerror})", "copy the task's folder and lint that"
        ) from error
