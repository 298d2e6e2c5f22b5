"""Cases of one kernel, (workload, inputs), in batches that one job of the process runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ptxsearch.errors import KernelError
from ptxsearch.evaluation import Built, Failure, Fault, Inputs
from ptxsearch.gpu.sequence import Program, program
from ptxsearch.tasks import Workload

__all__ = ["Case", "batches", "bound", "bounds"]

Case = tuple[Workload, Inputs]
RESULT_BYTES = 64 << 20
HELD_BYTES = 1 << 30


def batches(cases: Iterable[Case], *, memory: int, sets: int) -> Iterator[list[Case]]:
    """Cases in order, as many together as their results and the device's memory allow.

    The arrays of a batch take at most a quarter of `memory`, unless it is of one case; no workload
    has more than `sets` cases in it, which is how many are kept on the device.
    """
    batch: list[Case] = []
    results = held = 0
    count: Counter[str] = Counter()
    for workload, inputs in cases:
        left = sum(array.nbytes for array in inputs.named("out", "inout").values())
        whole = left + sum(array.nbytes for array in inputs.named("in").values())
        full = results + left > RESULT_BYTES or held + whole > min(HELD_BYTES, memory // 4)
        if batch and (full or count[workload.name] == sets):
            yield batch
            batch, results, held = [], 0, 0
            count.clear()
        batch.append((workload, inputs))
        results, held = results + left, held + whole
        count[workload.name] += 1
    if batch:
        yield batch


def bound(built: Built, inputs: Inputs) -> Program | Failure:
    """The program, or the failure of a kernel that has no launches at these sizes."""
    if not built.cubin:
        return Failure(unsupported="no cubin was built: ptxas is missing")
    try:
        return program(built, inputs)
    except KernelError as error:
        return Failure(Fault(kind="launch_failure", message=str(error)))


def bounds(built: Built, cases: Sequence[Case]) -> list[Program] | Failure:
    """The programs of the first cases that have one, or the failure of the very first.

    Cases of equal sizes share a program.
    """
    known: dict[Any, Program | Failure] = {}
    found: list[Program] = []
    for _, inputs in cases:
        key = tuple(inputs.sizes.items()), frozenset(inputs.values)
        if key not in known:
            known[key] = bound(built, inputs)
        made = known[key]
        if isinstance(made, Failure):
            return found or made
        found.append(made)
    return found
