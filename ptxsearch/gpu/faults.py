"""What a driver error means for the kernel that caused it: a fault, or the machine's own failing.

Codes are those of `CUresult`. A sticky code ends the process that got it: the context is lost.
"""

from __future__ import annotations

from collections.abc import Mapping

from ptxsearch.evaluation import Failure, Fault, FaultKind
from ptxsearch.gpu.driver import DriverError

__all__ = ["STICKY", "failure_of", "is_final", "timed_out"]

KINDS: Mapping[int, tuple[FaultKind, str]] = {
    1: ("launch_failure", "the driver refused the launch: a shape, size or argument is illegal"),
    2: ("out_of_memory", "device memory ran out: use less scratch, stack or local memory"),
    98: ("launch_failure", "the kernel cannot be launched on this device"),
    200: ("launch_failure", "the cubin cannot be loaded"),
    209: ("launch_failure", "the cubin has no code for this device: compile for its architecture"),
    218: ("launch_failure", "the code cannot be loaded"),
    500: ("launch_failure", "the module has no such entry"),
    700: ("launch_failure", "a thread read or wrote an illegal address"),
    701: ("launch_failure", "too many registers, threads or shared bytes for one multiprocessor"),
    702: ("timeout", "the driver's watchdog ended the kernel"),
    710: ("trap", "an assertion in the kernel failed"),
    714: ("launch_failure", "the stack overflowed or was corrupted: recursion or a wild write"),
    715: ("illegal_instruction", "a thread reached an illegal instruction"),
    716: ("misaligned_access", "an address is not a multiple of the access size"),
    717: ("launch_failure", "an instruction used an address of the wrong memory space"),
    718: ("illegal_instruction", "a thread jumped outside the code"),
    719: ("trap", "the kernel trapped, or used an address that shared or local memory lacks"),
    720: ("launch_failure", "too many blocks for a cooperative launch"),
    912: ("launch_failure", "the cluster is larger than the device allows"),
}
STICKY = frozenset({700, 702, 710, 714, 715, 716, 717, 718, 719, 999})


def is_final(error: DriverError) -> bool:
    """Whether the process that got the error must end: its context is lost, or the machine's."""
    return error.code in STICKY or error.code not in KINDS


def failure_of(error: DriverError, what: str = "") -> Failure:
    """The failure an error stands for; `what` tells what was being done."""
    kind, text = KINDS.get(error.code, ("machine", f"the driver failed: {error.text}"))
    where = f"{what}: " if what else ""
    return Failure(Fault(kind=kind, message=f"{where}{text} ({error.name})"))


def timed_out(seconds: float, what: str = "") -> Failure:
    """The failure of a kernel that did not end within `seconds`."""
    where = f"{what}: " if what else ""
    return Failure(
        Fault(
            kind="timeout",
            message=f"{where}the kernel did not end within {seconds:.3g} s: an endless loop, a"
            " barrier that never completes, or far too slow",
        )
    )
