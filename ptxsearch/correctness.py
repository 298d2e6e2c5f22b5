"""Whether outputs are right: expected values, errors on the task's scale, and a verdict in words.

An element passes where |got - ref| <= rtol |ref| + c * scale, with rtol one ulp of the output's
type and c the calibrated tolerance. The scale comes from the task: sum|a||b| for contractions, the
root mean square along declared axes, or the expected value itself ("relative"). Every element of
every output counts; NaN equals only an expected NaN; integers and "exact" outputs bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ptxsearch import pattern
from ptxsearch.deviation import Rounding, Scale, deviation
from ptxsearch.evaluation import Array, Outputs
from ptxsearch.expectation import Expected
from ptxsearch.param import Param, limits
from ptxsearch.pattern import Mismatch
from ptxsearch.record import Record
from ptxsearch.tasks import Task


@dataclass(frozen=True)
class Verdict(Record):
    """The judgement of one run: `errors` are worst errors over tolerance by output (<= 1 passes).

    `share_right` is over all elements of all outputs, `pattern` a class of `ptxsearch.pattern`,
    `message` a text that the kernel's author can act on, empty where the run passed.
    """

    passed: bool
    share_right: float
    errors: Mapping[str, float] = field(default_factory=dict)
    mismatches: tuple[Mismatch, ...] = ()
    pattern: str = ""
    message: str = ""


def error(got: Array, want: Array, scale: Scale, *, dtype: np.dtype[Any]) -> float:
    """The largest |got - want| / scale, what is calibrated; inf where NaNs or infinities differ.

    A difference of at most the smallest normal number is none: flushing to zero is honest.
    """
    rounding = Rounding.of(dtype, rtol=0.0)
    return deviation(got, want, scale, rounding=rounding).worst


def check(
    task: Task,
    outputs: Outputs | Mapping[str, Array],
    expect: Expected,
    *,
    poison: int | None = None,
) -> Verdict:
    """The verdict on one run's outputs: shape, dtype and every element of every output.

    `poison` is the byte that outputs were filled with before the run, where it was one.
    """
    arrays = outputs.arrays if isinstance(outputs, Outputs) else outputs
    wrong, total, errors, texts = 0, 0, {}, []
    kept: list[Mismatch] = []
    kind = ""
    for param in task.outputs:
        want = expect.arrays[param.name]
        total += want.size
        mistake = _form(param, arrays.get(param.name), want)
        if mistake:
            return Verdict(False, 0.0, {param.name: math.inf}, pattern="form", message=mistake)
        got = arrays[param.name]
        # A fill pattern may be a signalling NaN, which numpy warns of when it is converted.
        with np.errstate(all="ignore"):
            bad, errors[param.name] = _bad(param, got, want, expect)
            found = pattern.describe(got, want, bad, expect.inputs, poison=poison)
        if found is not None:
            wrong += found.count
            kind = kind or found.kind
            kept += found.mismatches(param.name)
            texts.append(_text(param, found, errors[param.name], want.size, expect))
    share = 1.0 - wrong / total if total else 1.0
    if not expect.workload.public:
        kept = []
    return Verdict(not wrong, share, errors, tuple(kept), kind, "; ".join(texts))


def _form(param: Param, got: Array | None, want: Array) -> str:
    if got is None:
        return f"output {param.name} is missing; write every declared output"
    if got.dtype != param.numpy_dtype:
        return f"output {param.name} is {got.dtype}, the task declares {param.dtype}"
    if got.shape != want.shape:
        return f"output {param.name} has shape {got.shape}, the task declares {want.shape}"
    return ""


def _bad(param: Param, got: Array, want: Array, expect: Expected) -> tuple[Array, float]:
    """Flat positions of wrong elements in order, and the worst error over tolerance."""
    scale = expect.scales[param.name]
    if scale is None:
        flat = _unequal(got.reshape(-1), want.reshape(-1))
        bad = np.flatnonzero(flat)
        return bad, math.inf if bad.size else 0.0
    limit = expect.tolerances[param.name]
    rounding = Rounding.of(param.numpy_dtype, rtol=float(limits(param.numpy_dtype).eps))
    found = deviation(got, want, scale, rounding=rounding, limit=limit)
    worst = found.worst / limit if limit else (math.inf if found.worst else 0.0)
    return found.over, worst


def _unequal(got: Array, want: Array) -> Array:
    """Which elements differ: by bits, but any NaN equals an expected NaN."""
    raw = np.dtype(f"u{got.dtype.itemsize}")
    differs: Array = got.view(raw) != want.view(raw)
    if got.dtype.kind not in "iub" and differs.any():
        where = np.flatnonzero(differs)
        both = np.isnan(got[where].astype(np.float64)) & np.isnan(want[where].astype(np.float64))
        differs[where[both]] = False
    return differs


def _text(
    param: Param, found: pattern.Description, worst: float, size: int, expect: Expected
) -> str:
    if not expect.workload.public:
        return (
            f"{param.name} is wrong on a hidden workload (pattern: {found.kind}); every size must "
            "work, odd and prime ones too"
        )
    over = f", worst error {worst:.3g} times the tolerance" if 1 < worst < math.inf else ""
    first = ", ".join(
        f"{param.name}{list(m.index)} = {m.got} where {m.expected} is expected"
        for m in found.mismatches(param.name)[:4]
    )
    on = f"on {dict(expect.inputs.sizes)} ({expect.inputs.label})"
    share = "its one element" if size == 1 else f"{found.count} of {size} elements"
    return f"{param.name}: {share} wrong {on}{over}; {found.hint}; {first}"
