"""What an emulated launch gives back: a report with its faults and counters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ptxsearch.emulator.footprint import Touched
from ptxsearch.evaluation import Counters

KINDS = (
    "data_race",
    "out_of_bounds_read",
    "out_of_bounds_write",
    "uninitialised_read",
    "misaligned_access",
    "divergent_barrier",
    "barrier_deadlock",
    "infinite_loop",
    "illegal_instruction",
    "trap",
)
"""Every kind of fault."""

STATUSES = ("ok", "fault", "timeout", "unsupported", "invalid")
"""Every status of a report."""

Triple = tuple[int, int, int]


@dataclass(frozen=True)
class Fault:
    """One defect of a kernel: where it happened first, and how many threads had it there.

    `line` is the line in the PTX, `source_line` that of the source where the PTX carries line
    information. `object` names the variable or buffer, `offset` the byte in it. For a race
    `other_*` tells the access it collided with.
    """

    kind: str
    space: str = ""
    line: int = 0
    source_line: int | None = None
    source_file: str = ""
    block: Triple = (0, 0, 0)
    thread: Triple = (0, 0, 0)
    address: int | None = None
    object: str = ""
    offset: int | None = None
    size: int = 0
    count: int = 1
    access: tuple[str, ...] = ()
    other_line: int | None = None
    other_block: Triple | None = None
    other_thread: Triple | None = None
    message: str = ""

    def __str__(self) -> str:
        return f"{self.kind} at line {self.line}: {self.message}"


@dataclass(frozen=True)
class Unsupported:
    """An instruction outside what the emulator executes, with the line it stands on."""

    instruction: str
    line: int
    reason: str = ""

    def __str__(self) -> str:
        return f"line {self.line}: {self.instruction} is not supported: {self.reason}"


@dataclass(frozen=True)
class Report:
    """The outcome of one launch.

    `status` is "ok", "fault", "timeout" (an endless loop or the step limit), "unsupported" or
    "invalid" (the launch itself cannot be made; `message` says why). `steps` counts the
    instructions of the thread that executed most. `reads` maps each buffer that was passed to a
    bool array over its bytes telling what was read, `bytes_stored` to the bytes written to it.
    `printed` holds what the kernel printed. `touched` counts the sectors read of each buffer where
    only some blocks ran.
    """

    status: str
    faults: tuple[Fault, ...] = ()
    counters: Counters = field(default_factory=Counters)
    steps: int = 0
    unsupported: Unsupported | None = None
    message: str = ""
    notes: tuple[str, ...] = ()
    printed: tuple[str, ...] = ()
    reads: Mapping[str, np.ndarray[Any, np.dtype[np.bool_]]] = field(default_factory=dict)
    bytes_stored: Mapping[str, int] = field(default_factory=dict)
    touched: Mapping[str, Touched] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether the launch ended without any fault."""
        return self.status == "ok"
