"""How much of a multiprocessor a kernel may fill: the static facts with dynamic shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ptxsearch.arch import occupancy
from ptxsearch.errors import PtxsearchError
from ptxsearch.evaluation import Resources
from ptxsearch.kernel import Kernel
from ptxsearch.tasks import Task, Workload


def resident(
    resources: Mapping[str, Resources],
    kernel: Kernel | None,
    *,
    task: Task | None,
    workload: Workload | None,
    arch: str,
) -> Mapping[str, Resources]:
    """`resources` with dynamic shared bytes, occupancy and its limiter on `workload`.

    What is known stays; an entry that is not launched, or a kernel that does not bind, does too.
    """
    if kernel is None or task is None or workload is None or kernel.language == "recorded":
        return resources
    try:
        bound = kernel.bind(workload.sizes, task.names)
    except PtxsearchError:
        return resources
    filled = dict(resources)
    for launch in bound:
        took = resources.get(launch.entry)
        if took is None or took.occupancy is not None:
            continue
        dynamic = max(took.dynamic_shared, launch.shared_bytes)
        fits = occupancy(arch, launch.threads, took.registers, took.static_shared + dynamic)
        filled[launch.entry] = replace(
            took, dynamic_shared=dynamic, occupancy=fits.fraction, limiter=fits.limiter
        )
    return filled
