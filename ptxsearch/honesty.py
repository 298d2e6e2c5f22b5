"""Whether the work was done: floors of time, stored bytes, executed operations, unread inputs.

Pure functions over what a device observed. A `Finding` that is not `dishonest` is evidence for the
report; one that is shows work which a right answer needs and the kernel did not do. There is no
threshold on the share of inputs read: masks and early exits are honest, unread elements that
would change the answer are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ptxsearch.arch import Gpu, typical_gpu
from ptxsearch.correctness import check
from ptxsearch.errors import TaskError
from ptxsearch.evaluation import Array, Counters, Inputs, Outputs
from ptxsearch.expectation import Expected, expected
from ptxsearch.inputs import fill
from ptxsearch.param import FLOATS
from ptxsearch.record import Record
from ptxsearch.tasks import Task, Workload

_REDRAWS = 3
_LANES = 32
_ATOMIC_BYTES = _LANES * 8
Rule = Literal["floor", "stored", "operations", "unread", "precision"]


@dataclass(frozen=True)
class Finding(Record):
    """One fact about the work done; `dishonest` where it proves that work was skipped."""

    rule: Rule
    message: str
    dishonest: bool


@dataclass(frozen=True)
class Floor(Record):
    """The least seconds a workload can take on a GPU from cold caches, and its two bounds."""

    seconds: float
    memory_seconds: float
    compute_seconds: float


def floor(task: Task, workload: Workload, gpu: Gpu) -> Floor:
    """The speed of light of `workload` at theoretical peaks.

    Outputs may stay in L2, inputs come from memory: (bytes_in + max(0, bytes_out - L2)) over the
    bandwidth, and flops_min over the fastest dense rate of any pipe that the tolerance allows.
    """
    bytes_in, bytes_out = task.amount("bytes_in", workload), task.amount("bytes_out", workload)
    memory = (bytes_in + max(0.0, bytes_out - gpu.l2_bytes)) / gpu.bandwidth
    compute = task.amount("flops_min", workload) / fastest_rate(task, gpu)
    return Floor(max(memory, compute), memory, compute)


def floor_seconds(task: Task, workloads: Sequence[Workload], arch: str) -> dict[str, float]:
    """The floors of `workloads` by name on a GPU that stands for `arch`; empty if none is known."""
    gpu = typical_gpu(arch)
    return {} if gpu is None else {w.name: floor(task, w, gpu).seconds for w in workloads}


def fastest_rate(task: Task, gpu: Gpu) -> float:
    """Operations per second that no honest kernel for `task` exceeds.

    32-bit quality comes from three tf32 products at best, each at half the fp16 rate; 64-bit from
    the double-precision tensor pipe at twice the plain one.
    """
    kinds = {param.dtype for param in task.outputs} & FLOATS
    if "f64" in kinds:
        return 2 * gpu.fp64_peak
    if "f32" in kinds:
        return max(gpu.fp32_peak, gpu.tensor_fp16_peak / 2 / 3)
    if kinds & {"e4m3", "e5m2"}:
        return 2 * gpu.tensor_fp16_peak
    return max(gpu.tensor_fp16_peak, gpu.fp32_peak)


def below_floor(task: Task, workload: Workload, seconds: float, gpu: Gpu) -> Finding | None:
    """A suspicion where `seconds` beats the speed of light: to measure again, no proof by itself.

    Holds for cold caches only: warm numbers may keep their inputs in L2.
    """
    least = floor(task, workload, gpu)
    if seconds >= least.seconds:
        return None
    bound = "memory" if least.memory_seconds >= least.compute_seconds else "arithmetic"
    return Finding(
        "floor",
        f"{seconds * 1e6:.3g} us on {workload.name} is below the {bound} floor of "
        f"{least.seconds * 1e6:.3g} us on {gpu.name}",
        dishonest=False,
    )


def confirm(task: Task, workload: Workload, counters: Counters) -> Finding | None:
    """The proof that a time below the floor is due to skipped work, from its own counters.

    Fewer bytes read or written than the task needs; silent where neither was counted.
    """
    read = _total(counters, "global_load_bytes", "async_copy_bytes")
    written = _total(counters, "global_store_bytes")
    if written is not None and counters.global_atomic_requests:
        written += counters.global_atomic_requests * _ATOMIC_BYTES
    for what, done, least in (
        ("reads", read, task.amount("bytes_in", workload)),
        ("writes", written, task.amount("bytes_out", workload)),
    ):
        if done is not None and done < least:
            return Finding(
                "floor",
                f"it {what} {done:.6g} bytes on {workload.name} where {least:.6g} are needed",
                dishonest=True,
            )
    return None


def _total(counters: Counters, *names: str) -> float | None:
    counted = [value for name in names if (value := getattr(counters, name)) is not None]
    return sum(counted) if counted else None


def stored(task: Task, outputs: Outputs) -> Finding | None:
    """Whether the launches stored at least every byte of every `out` array."""
    if not outputs.stored_bytes:
        return None
    least = sum(outputs.arrays[p.name].nbytes for p in task.outputs if p.role == "out")
    total = sum(outputs.stored_bytes)
    if total >= least:
        return None
    return Finding(
        "stored",
        f"the launches store {total} bytes, the outputs have {least}: part is never written",
        dishonest=True,
    )


def operations(task: Task, workload: Workload, counters: Counters | None) -> Finding | None:
    """Whether as many floating-point operations ran as the best known algorithm needs.

    An atomic request may hold an addition of each lane. Silent where operations were not counted
    or tensor instructions, which hold many, were used.
    """
    least = task.amount("flops_min", workload)
    if counters is None or counters.flops is None or counters.tensor_instructions:
        return None
    atomics = (counters.global_atomic_requests or 0) + (counters.shared_atomic_requests or 0)
    if counters.flops + _LANES * atomics >= least:
        return None
    return Finding(
        "operations",
        f"{counters.flops:.6g} floating-point operations ran on {workload.name}, "
        f"the best known algorithm needs {least:.6g}: terms are skipped",
        dishonest=True,
    )


def precision(task: Task, counters: Counters | None) -> Finding | None:
    """Evidence of 16-bit arithmetic in a task without 16-bit data.

    Only for PTX counts of the emulator: machine code also loads constants with HFMA2.
    """
    if counters is None or counters.source != "emulated":
        return None
    if any(param.dtype in FLOATS - {"f32", "f64"} for param in task.params):
        return None
    half = sum(getattr(counters, f"fp16_{name}") or 0.0 for name in ("add", "mul", "fma"))
    if not half or not any(param.dtype in FLOATS for param in task.outputs):
        return None
    return Finding(
        "precision",
        f"{half:.6g} 16-bit operations ran in a task of 32-bit data: lowered precision",
        dishonest=False,
    )


def unread_inputs_matter(task: Task, expect: Expected, outputs: Outputs, *, seed: int = 0) -> str:
    """Which elements the kernel never read although they decide the answer; empty where none.

    They are drawn anew within their domain (sorted and csr inputs are left alone) and the
    reference is computed again: beyond tolerance means that work was skipped. Tasks judged by
    their baseline have no reference to ask.
    """
    missed = _missed(task, expect.inputs, outputs.read)
    if task.reference is None or not missed:
        return ""
    rng = np.random.Generator(np.random.Philox(key=seed + 1))
    for _ in range(_REDRAWS):
        changed = _redrawn(task, expect.inputs, missed, rng)
        try:
            moved = expected(task, expect.workload, changed)
        except TaskError:
            # A partly redrawn structure may break an invariant of the reference: no evidence.
            continue
        if not _is_same(task, moved, expect):
            return "never read, yet they decide the answer: " + ", ".join(
                f"{int(mask.sum())} of {mask.size} elements of {name}"
                for name, mask in missed.items()
            )
    return ""


def _missed(task: Task, inputs: Inputs, read: Mapping[str, Array]) -> dict[str, Array]:
    found = {}
    for name, array in inputs.named("in", "inout").items():
        if name in read and array.size and task.param(name).meaning[0] not in ("sorted", "csr"):
            mask = ~np.asarray(read[name], dtype=bool).reshape(array.shape)
            if mask.any():
                found[name] = mask
    return found


def _redrawn(
    task: Task, inputs: Inputs, missed: Mapping[str, Array], rng: np.random.Generator
) -> Inputs:
    distribution = inputs.label.split(",")[0]
    values = dict(inputs.values)
    for name, mask in missed.items():
        fresh = fill(task.param(name), inputs.sizes, distribution=distribution, rng=rng)
        values[name] = np.where(mask, fresh, np.asarray(inputs.values[name]))
    return replace(inputs, values=values)


def _is_same(task: Task, moved: Expected, expect: Expected) -> bool:
    """Whether a kernel that answers as before would still pass after the change."""
    answers = {
        param.name: expect.arrays[param.name].astype(param.numpy_dtype) for param in task.outputs
    }
    return check(task, answers, moved).passed


def judge(task: Task, expect: Expected, outputs: Outputs) -> list[Finding]:
    """Every finding on one run, without times."""
    mattering = unread_inputs_matter(task, expect, outputs)
    findings = [
        stored(task, outputs),
        operations(task, expect.workload, outputs.counters),
        Finding("unread", mattering, dishonest=True) if mattering else None,
        precision(task, outputs.counters),
    ]
    return [finding for finding in findings if finding is not None]
