"""What a kernel may ask of a machine before anything runs: launches, threads, scratch, stack."""

from __future__ import annotations

import math

from ptxsearch.errors import KernelError
from ptxsearch.evaluation import Resources
from ptxsearch.kernel import ELEMENT_BYTES, Kernel
from ptxsearch.ptx import Module
from ptxsearch.tasks import Task, Workload

MODELLED_SCRATCH, MEASURED_SCRATCH = 2 << 30, 16 << 30
MOST_LAUNCHES, MOST_STACK = 1024, 1 << 16
MOST_THREADS, MOST_VARIABLES = 1 << 28, 64 << 20


def check_launches(task: Task, kernel: Kernel, *, whole: int, scratch: int) -> None:
    """Raises KernelError where launches cannot be bound, or ask for more than any machine has.

    Workloads of up to `whole` elements are run thread by thread. `scratch` bounds its bytes.
    """
    if len(kernel.launches) > MOST_LAUNCHES:
        raise KernelError(f"{len(kernel.launches)} launches", f"use at most {MOST_LAUNCHES}")
    for workload in task.workloads:
        for launch in kernel.bind(workload.sizes, task.names):
            threads = launch.blocks * launch.threads
            if threads > MOST_THREADS and workload.elements <= whole:
                raise KernelError(
                    f"a launch of {threads} threads on a small workload",
                    f"use at most {MOST_THREADS}",
                )
        _check_scratch(task, kernel, workload, most=scratch)


def _check_scratch(task: Task, kernel: Kernel, workload: Workload, *, most: int) -> None:
    """Raises KernelError where scratch hides a parameter or is larger than the device."""
    shapes = kernel.scratch_shapes(workload.sizes)
    if hidden := sorted(task.names & {*shapes, *(t.name for t in kernel.tensor_maps)}):
        raise KernelError(f"{hidden[0]!r} names a parameter of the task", "rename the scratch")
    total = sum(math.prod(shapes[b.name]) * ELEMENT_BYTES[b.dtype] for b in kernel.scratch)
    if total > most:
        raise KernelError(f"{total} bytes of scratch", f"use at most {most}")


def excess_stack(entry: str, took: Resources) -> str:
    """Why a thread's local memory is too large, empty where it is not."""
    if took.stack_bytes <= MOST_STACK:
        return ""
    return (
        f"a thread of {entry} has {took.stack_bytes} bytes of local memory, more than "
        f"{MOST_STACK}; keep large arrays in shared memory or scratch"
    )


def excess_variables(module: Module) -> str:
    """Why the variables of a module are too large, empty where they are not."""
    inner = [v for function in module.functions.values() for v in function.variables]
    held = [v for v in [*module.variables.values(), *inner] if v.space in ("global", "const")]
    total = sum(variable.size for variable in held)
    if total <= MOST_VARIABLES:
        return ""
    return f"module variables of {total} bytes, more than {MOST_VARIABLES}; use scratch"
