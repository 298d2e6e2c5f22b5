"""What a device says of a kernel, and the verdict: statuses, stages, times, counters, faults.

A bad kernel is a value: `Evaluation.status` with the stage it failed at and a message its author
can act on. Times are seconds, sizes bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ptxsearch.kernel import Kernel
from ptxsearch.record import Record

Array = NDArray[Any]
Status = Literal[
    "OK", "NO_KERNEL", "REJECTED", "COMPILE_ERROR", "PRUNED", "TIMEOUT", "CRASHED", "WRONG",
    "DISHONEST", "UNSUPPORTED", "INFRA", "PAUSED",
]  # fmt: skip
Stage = Literal[
    "proposal", "lint", "compile", "prune", "identity", "smoke", "correctness", "honesty",
    "quick", "race", "profile", "final",
]  # fmt: skip
Origin = Literal["measured", "modelled", "recorded"]
FaultKind = Literal[
    "data_race", "out_of_bounds_read", "out_of_bounds_write", "uninitialised_read",
    "misaligned_access", "divergent_barrier", "barrier_deadlock", "infinite_loop",
    "illegal_instruction", "trap", "input_written", "guard_written", "non_deterministic",
    "launch_failure", "out_of_memory", "timeout", "machine",
]  # fmt: skip
NEVER_CHARGED: frozenset[str] = frozenset({"UNSUPPORTED", "INFRA", "PAUSED"})

STATUS_OF_FAULT: Mapping[str, Status] = {
    "data_race": "WRONG",
    "uninitialised_read": "WRONG",
    "divergent_barrier": "WRONG",
    "non_deterministic": "WRONG",
    "input_written": "WRONG",
    "out_of_bounds_read": "CRASHED",
    "out_of_bounds_write": "CRASHED",
    "guard_written": "CRASHED",
    "misaligned_access": "CRASHED",
    "illegal_instruction": "CRASHED",
    "trap": "CRASHED",
    "launch_failure": "CRASHED",
    "out_of_memory": "CRASHED",
    "infinite_loop": "TIMEOUT",
    "barrier_deadlock": "TIMEOUT",
    "timeout": "TIMEOUT",
    "machine": "INFRA",
}


@dataclass(frozen=True)
class Fault(Record):
    """One fault of a kernel: where it happened and, for a race, the other side in `message`.

    `line` is of the PTX, `source_line` of the CUDA C++ it came from; None where unknown.
    """

    kind: FaultKind
    message: str
    space: str = ""
    line: int | None = None
    source_line: int | None = None
    block: tuple[int, int, int] | None = None
    thread: tuple[int, int, int] | None = None
    address: int | None = None
    object: str = ""


@dataclass(frozen=True)
class Resources(Record):
    """What one entry takes on a multiprocessor, from ptxas and the cubin.

    Bytes are per thread for spills and stack, per block for shared memory (static, without the
    1,024 that the driver reserves). `occupancy` is a fraction of the resident warps and `limiter`
    what bounds it, for the launch it was built for. `opcodes` counts static SASS instructions.
    """

    registers: int
    spill_stores: int = 0
    spill_loads: int = 0
    stack_bytes: int = 0
    static_shared: int = 0
    dynamic_shared: int = 0
    barriers: int = 0
    max_threads: int | None = None
    threads: int | None = None
    blocks_per_sm: int | None = None
    occupancy: float | None = None
    limiter: str = ""
    instructions: int | None = None
    opcodes: Mapping[str, int] = field(default_factory=dict)
    global_load_bits: int | None = None
    global_store_bits: int | None = None
    tensor: bool | None = None


@dataclass(frozen=True)
class Counters(Record):
    """What one launch sequence did, from the emulator or the hardware; None where not counted.

    Requests are warp instructions, sectors 32-byte pieces, wavefronts passes of shared memory.
    `ptx_*` count PTX instructions, `sass_*` machine instructions: they are never compared.
    Operations are per thread, a fused multiply-add counts once. Times are seconds.
    """

    source: Literal["emulated", "ncu", "recorded"] = "emulated"
    ptx_warp_instructions: float | None = None
    ptx_thread_instructions: float | None = None
    sass_warp_instructions: float | None = None
    sass_thread_instructions: float | None = None
    global_load_requests: float | None = None
    global_load_sectors: float | None = None
    global_load_bytes: float | None = None
    global_store_requests: float | None = None
    global_store_sectors: float | None = None
    global_store_bytes: float | None = None
    global_atomic_requests: float | None = None
    global_atomic_sectors: float | None = None
    local_load_requests: float | None = None
    local_load_sectors: float | None = None
    local_store_requests: float | None = None
    local_store_sectors: float | None = None
    shared_load_requests: float | None = None
    shared_load_wavefronts: float | None = None
    shared_load_bytes: float | None = None
    shared_store_requests: float | None = None
    shared_store_wavefronts: float | None = None
    shared_store_bytes: float | None = None
    shared_atomic_requests: float | None = None
    shared_wavefronts_ideal: float | None = None
    bank_conflicts: float | None = None
    async_copy_requests: float | None = None
    async_copy_sectors: float | None = None
    async_copy_bytes: float | None = None
    fp16_add: float | None = None
    fp16_mul: float | None = None
    fp16_fma: float | None = None
    fp32_add: float | None = None
    fp32_mul: float | None = None
    fp32_fma: float | None = None
    fp64_add: float | None = None
    fp64_mul: float | None = None
    fp64_fma: float | None = None
    special_functions: float | None = None
    integer_operations: float | None = None
    tensor_instructions: float | None = None
    branches: float | None = None
    divergent_branches: float | None = None
    barriers: float | None = None
    dram_read_bytes: float | None = None
    dram_write_bytes: float | None = None
    l2_read_sectors: float | None = None
    l2_write_sectors: float | None = None
    achieved_occupancy: float | None = None
    duration: float | None = None
    extra: Mapping[str, float] = field(default_factory=dict)

    def known(self) -> dict[str, float]:
        """The counters that were counted, by name."""
        named = {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if f.name not in ("source", "extra") and getattr(self, f.name) is not None
        }
        return {**named, **self.extra}

    @property
    def flops(self) -> float | None:
        """Floating-point operations, a fused multiply-add as two; None where not counted."""
        parts = [
            (getattr(self, f"{kind}_{operation}"), weight)
            for kind in ("fp16", "fp32", "fp64")
            for operation, weight in (("add", 1), ("mul", 1), ("fma", 2))
        ]
        counted = [value * weight for value, weight in parts if value is not None]
        return sum(counted) if counted else None


@dataclass(frozen=True)
class Timing(Record):
    """Seconds of one launch sequence on one workload over `samples` samples."""

    median: float
    mean: float
    p95: float
    samples: int

    @classmethod
    def of(cls, seconds: Array) -> Timing:
        """The timing of a column of samples in seconds."""
        return cls(
            median=float(np.median(seconds)),
            mean=float(np.mean(seconds)),
            p95=float(np.quantile(seconds, 0.95)),
            samples=len(seconds),
        )


@dataclass(frozen=True)
class Evaluation(Record):
    """The verdict on one kernel: status, the stage that decided, and everything that supports it.

    `key` is the identity (EVALUATION section 3), empty before the kernel compiled. `times` and
    `counters` are by workload name, `resources` by entry. `cost` is in seconds by stage.
    `evidence` holds named facts that a reader can check: errors against tolerances, race results.
    """

    status: Status
    stage: Stage
    message: str = ""
    key: str = ""
    device: str = ""
    source: Origin = "measured"
    resources: Mapping[str, Resources] = field(default_factory=dict)
    times: Mapping[str, Timing] = field(default_factory=dict)
    counters: Mapping[str, Counters] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    evidence: Mapping[str, Any] = field(default_factory=dict)
    cost: Mapping[str, float] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether every gate passed."""
        return self.status == "OK"

    @property
    def seconds(self) -> float:
        """Geometric mean of the median seconds over the timed workloads; nan where not timed."""
        medians = [timing.median for timing in self.times.values()]
        return float(np.exp(np.mean(np.log(medians)))) if medians else float("nan")


@dataclass(frozen=True)
class Built:
    """A compiled kernel: what a device runs. `cubin` is empty where no compiler was at hand."""

    cubin: bytes
    ptx: str
    kernel: Kernel
    resources: Mapping[str, Resources]


@dataclass(frozen=True)
class Inputs:
    """The arguments of one launch sequence by parameter name, as the task made them.

    Arrays are contiguous; an `out` array holds shape and dtype only, its contents are the
    device's to poison. `sizes` are the workload's, `label` tells seed and distribution.
    """

    values: Mapping[str, Array | np.generic]
    roles: Mapping[str, str]
    sizes: Mapping[str, int]
    label: str = ""

    def named(self, *roles: str) -> dict[str, Array]:
        """The arrays that play one of `roles`, in parameter order."""
        return {
            name: np.asarray(value)
            for name, value in self.values.items()
            if self.roles[name] in roles
        }


@dataclass(frozen=True)
class Outputs:
    """What a launch sequence left behind: every out and inout array, and what was observed.

    `read` maps an input to a bool array of its shape: which elements the kernel read (emulator).
    `stored_bytes` has one entry a launch. `seconds` is the wall or modelled time of the run.
    """

    arrays: Mapping[str, Array]
    counters: Counters | None = None
    read: Mapping[str, Array] = field(default_factory=dict)
    stored_bytes: tuple[int, ...] = ()
    inputs_changed: tuple[str, ...] = ()
    seconds: float | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Failure:
    """Why a launch sequence has no outputs: its first fault, or what the device cannot run."""

    fault: Fault | None = None
    unsupported: str = ""
    faults: tuple[Fault, ...] = ()

    @property
    def status(self) -> Status:
        """The status this failure stands for."""
        if self.fault is None:
            return "UNSUPPORTED"
        return STATUS_OF_FAULT[self.fault.kind]

    @property
    def message(self) -> str:
        """One line an author can act on."""
        return self.fault.message if self.fault is not None else self.unsupported

    def of_side(self, number: int) -> Failure:
        """The failure as that of one of several kernels: its fault's object starts with it."""
        if self.fault is None:
            return self
        where = f"builts[{number}] {self.fault.object}".strip()
        return replace(self, fault=replace(self.fault, object=where))

    @property
    def side(self) -> int | None:
        """Which of several kernels it is the failure of, None where it does not say."""
        named = re.match(r"builts\[(\d+)\]", self.fault.object) if self.fault else None
        return None if named is None else int(named[1])
