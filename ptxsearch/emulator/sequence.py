"""One launch sequence on the emulator: its buffers, its launches in order, what they left."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from ptxsearch.emulator.arguments import Undefined, undefined
from ptxsearch.emulator.module import load
from ptxsearch.emulator.report import Fault as EmulatedFault
from ptxsearch.emulator.report import Report
from ptxsearch.errors import DeviceError
from ptxsearch.evaluation import Array, Built, Counters, Failure, Fault, Inputs, Outputs
from ptxsearch.kernel import BoundLaunch
from ptxsearch.ptx import Module, SyntaxFault, parse
from ptxsearch.tasks import DTYPES

Blocks = Callable[[BoundLaunch], Sequence[int]]
PATIENCE = 90.0


class Launched(NamedTuple):
    """One launch that ran: `blocks` are the linear numbers of those chosen, None where all ran."""

    launch: BoundLaunch
    report: Report
    blocks: Sequence[int] | None

    @property
    def partial(self) -> bool:
        """Whether blocks of the grid were left out."""
        return self.blocks is not None and len(self.blocks) < self.launch.blocks


@functools.lru_cache(maxsize=64)
def parsed(ptx: str) -> Module:
    """The module of a text that lint has passed. Raises DeviceError where it is none."""
    module = parse(ptx)
    if isinstance(module, SyntaxFault):
        raise DeviceError(f"PTX that cannot be parsed ({module})", "lint the kernel first")
    return module


def junk(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """What undefined memory holds: every bit set, a NaN in each float type, the same every run."""
    return np.full(math.prod(shape) * dtype.itemsize, 0xFF, np.uint8).view(dtype).reshape(shape)


class Sequenced:
    """The arrays of one launch sequence: inputs copied, outputs and scratch undefined.

    `blank` is for runs of chosen blocks without checks: inputs are not copied, outputs hold
    whatever memory held.
    """

    def __init__(self, built: Built, inputs: Inputs, *, blank: bool = False) -> None:
        self.built, self.inputs = built, inputs
        self.values: dict[str, Any] = {}
        for name, value in inputs.values.items():
            role = inputs.roles[name]
            if role == "scalar":
                self.values[name] = value
            elif role == "out":
                shape, dtype = np.shape(value), np.asarray(value).dtype
                empty = np.empty(shape, dtype) if blank else undefined(junk(shape, dtype))
                self.values[name] = empty
            else:
                self.values[name] = value if blank and role == "in" else np.array(value)
        for scratch in built.kernel.scratch:
            shape = built.kernel.scratch_shapes(inputs.sizes)[scratch.name]
            dtype = DTYPES[scratch.dtype]
            zeros = scratch.init == "zeros"
            fresh = np.zeros(shape, dtype) if zeros else undefined(junk(shape, dtype))
            self.values[scratch.name] = fresh
        self.arrays: dict[str, Array] = {
            name: value.array if isinstance(value, Undefined) else value
            for name, value in self.values.items()
            if inputs.roles.get(name) != "scalar"
        }

    def run(
        self, arch: str, *, max_steps: int | None, checks: bool, blocks: Blocks | None = None
    ) -> Iterator[Launched]:
        """Every launch in order, its report with it; it ends after the first that failed."""
        ptx = parsed(self.built.ptx)
        module = load(ptx, arch=arch)
        for launch in self.built.kernel.bind(self.inputs.sizes, frozenset(self.values)):
            chosen = blocks(launch) if blocks is not None else None
            report = module.launch(
                launch.entry,
                grid=launch.grid,
                block=launch.block,
                cluster=launch.cluster,
                shared_bytes=launch.shared_bytes,
                args=self._arguments(launch, ptx),
                max_steps=max_steps,
                checks=checks,
                blocks=chosen,
                seconds=PATIENCE,
            )
            yield Launched(launch, report, chosen)
            if not report.ok:
                return

    def _arguments(self, launch: BoundLaunch, module: Module) -> dict[str, Any]:
        """The entry's arguments by name; whole numbers at the width the entry declares."""
        params = module.functions[launch.entry].params
        found: dict[str, Any] = {}
        for number, arg in enumerate(launch.args):
            name = arg if isinstance(arg, str) and arg not in found else f"argument {number}"
            size = params[number].size if number < len(params) else 4
            found[name] = self._take(arg) if isinstance(arg, str) else _whole(arg, size)
        return found

    def _take(self, name: str) -> Any:
        # Undefined before the first launch that is passed the buffer, not before later ones.
        value = self.values[name]
        if name in self.arrays:
            self.values[name] = self.arrays[name]
        return value

    def outputs(self, reports: Sequence[Report]) -> Outputs:
        """What is in the buffers now, with what the launches read and stored."""
        inputs = self.inputs
        changed = tuple(
            name
            for name, array in inputs.named("in").items()
            if not np.array_equal(array.view(np.uint8), self.arrays[name].view(np.uint8))
        )
        counters = functools.reduce(added, (report.counters for report in reports))
        return Outputs(
            arrays={name: self.arrays[name] for name in inputs.named("out", "inout")},
            counters=counters,
            read={name: self._elements(name, reports) for name in inputs.named("in")},
            stored_bytes=tuple(sum(report.bytes_stored.values()) for report in reports),
            inputs_changed=changed,
            notes=tuple(note for report in reports for note in report.notes),
        )

    def _elements(self, name: str, reports: Sequence[Report]) -> Array:
        array = self.arrays[name]
        touched = np.zeros(array.nbytes, dtype=bool)
        for report in reports:
            if name in report.reads:
                touched |= report.reads[name].reshape(-1)[: array.nbytes]
        return np.asarray(touched.reshape(*array.shape, array.itemsize).any(axis=-1))


def _whole(value: int, size: int) -> np.generic:
    made: np.generic = np.dtype(f"i{size}").type(value)
    return made


def failure(report: Report, *, partial: bool = False) -> Failure:
    """What a launch that did not end well says, as a device reports it.

    `partial` says that only some blocks ran: one that waits for ever may wait for another.
    """
    waiting = next((f for f in report.faults if f.kind == "infinite_loop"), None)
    if partial and waiting is not None:
        return Failure(
            unsupported="a block waits for other blocks, which a sample of the grid lacks "
            f"({_place(waiting)})"
        )
    if report.status == "unsupported":
        return Failure(unsupported=str(report.unsupported or report.message))
    if report.status == "timeout" and not report.faults:
        # Slow to emulate is no fault of the kernel: this device cannot judge it.
        return Failure(unsupported=f"not emulated within {PATIENCE:.0f} s")
    if not report.faults:
        return Failure(Fault("launch_failure", report.message or report.status))
    faults = tuple(
        Fault(
            kind=fault.kind,  # type: ignore[arg-type]
            message=f"{fault.kind.replace('_', ' ')}: {fault.message} ({_place(fault)})",
            space=fault.space,
            line=fault.line or None,
            source_line=fault.source_line,
            block=fault.block,
            thread=fault.thread,
            address=fault.address,
            object=fault.object,
        )
        for fault in report.faults
    )
    return Failure(faults[0], faults=faults)


def _place(fault: EmulatedFault) -> str:
    lines = f"PTX line {fault.line}"
    if fault.source_line:
        lines += f", source line {fault.source_line}"
    return f"{lines}, block {fault.block}, thread {fault.thread}"


COUNTED = tuple(f.name for f in fields(Counters) if f.name not in ("source", "extra"))


def added(first: Counters, second: Counters) -> Counters:
    """Two counts together; what neither counted stays uncounted."""
    values: dict[str, Any] = {}
    for name in COUNTED:
        parts = [p for p in (getattr(first, name), getattr(second, name)) if p is not None]
        values[name] = sum(parts) if parts else None
    return Counters(**values)


def scaled(counters: Counters, scale: float) -> Counters:
    """Counts times `scale`."""
    values: dict[str, Any] = {
        name: None if (value := getattr(counters, name)) is None else value * scale
        for name in COUNTED
    }
    return Counters(**values)
