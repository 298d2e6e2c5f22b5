"""The emulator as a Device: true outputs and faults, exact counters, a modelled time."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

from ptxsearch.arch import Gpu, occupancy, typical_gpu
from ptxsearch.emulator.arguments import Undefined, undefined
from ptxsearch.emulator.independence import independent_loads
from ptxsearch.emulator.module import load
from ptxsearch.emulator.report import Fault as EmulatedFault
from ptxsearch.emulator.report import Report
from ptxsearch.emulator.timemodel import (
    LAUNCH_SECONDS,
    NEXT_LAUNCH_SECONDS,
    SECTOR,
    Grid,
    Sample,
    model,
    traffic,
    warps_of,
)
from ptxsearch.errors import DeviceError
from ptxsearch.evaluation import Array, Built, Counters, Failure, Fault, Inputs, Outputs
from ptxsearch.kernel import BoundLaunch
from ptxsearch.ptx import Module, SyntaxFault, parse
from ptxsearch.tasks import DTYPES, Task, Workload

_SAMPLED_THREADS = 8192
_SAMPLED_BLOCKS = 24
_FEWEST_BLOCKS = 2


@dataclass(frozen=True)
class Part:
    """What some blocks did: outputs over bytes of 0xff, counters scaled to the whole grid.

    `distinct_bytes` sums over the blocks the memory each one read, repeats counted once; `share`
    is the smallest share of a launch's blocks that ran.
    """

    arrays: Mapping[str, Array]
    inputs: Inputs
    scaled: Counters
    distinct_bytes: float
    share: float

    @property
    def complete(self) -> bool:
        """Whether all blocks ran."""
        return self.share == 1

    def written(self, name: str, at: Array) -> Array:
        """Which elements of an output, by flat position, differ from before the launches."""
        now = self.arrays[name].reshape(-1)[at]
        raw = now.view(np.uint8).reshape(at.size, -1)
        if self.inputs.roles[name] == "out":
            return np.asarray((raw != 0xFF).any(axis=1))
        before = np.asarray(self.inputs.values[name]).reshape(-1)[at]
        return np.asarray((raw != before.view(np.uint8).reshape(at.size, -1)).any(axis=1))


class EmulatedDevice:
    """A GPU of `arch` on the CPU. Its times are modelled, everything else is exact."""

    source: Literal["measured", "modelled"] = "modelled"

    def __init__(self, arch: str = "sm_90", *, max_steps: int | None = None) -> None:
        gpu = typical_gpu(arch)
        if gpu is None:
            raise DeviceError(f"no GPU stands for {arch}", "use sm_80, sm_86, sm_89, sm_90, ...")
        self.arch, self.max_steps = arch, max_steps
        self.gpu: Gpu = gpu
        self.name = f"emulated {gpu.name} ({arch})"
        self._inputs: dict[str, Inputs] = {}
        self._task = ("", "")

    def prepared(self, task: Task, workload: Workload) -> bool:
        """Whether `prepare` gave the inputs of this task's workload last."""
        return workload.name in self._inputs and self._task == (task.name, task.digest)

    def prepare(self, task: Task, workload: Workload, inputs: Inputs) -> None:
        """The inputs that `time` and `profile` use for `workload`."""
        if self._task != (task.name, task.digest):
            self._inputs, self._task = {}, (task.name, task.digest)
        self._inputs[workload.name] = inputs

    def run(
        self, built: Built, workload: Workload, inputs: Inputs, *, timeout: float
    ) -> Outputs | Failure:
        """The outputs of one launch sequence with every check on, or its first fault."""
        buffers = _Buffers(built, inputs)
        reports: list[Report] = []
        for report in self._launches(built, workload, buffers, checks=True):
            if not report.ok:
                return _failure(report)
            reports.append(report)
        return buffers.outputs(reports)

    def time(self, builts: Sequence[Built], workload: Workload, rounds: int) -> Array | Failure:
        """Modelled seconds of shape (rounds, len(builts)); every round is the same."""
        row = []
        for built in builts:
            modelled = self._model(built, workload)
            if isinstance(modelled, Failure):
                return modelled
            row.append(modelled[0])
        return np.tile(np.array(row), (rounds, 1))

    def profile(self, built: Built, workload: Workload) -> Counters:
        """The counters of the whole grid, scaled from the sampled blocks."""
        modelled = self._model(built, workload)
        return Counters() if isinstance(modelled, Failure) else modelled[1]

    def part(
        self, built: Built, workload: Workload, blocks: Callable[[BoundLaunch], Sequence[int]]
    ) -> Part | Failure:
        """What chosen blocks of each launch leave on the prepared inputs, without checks."""
        inputs = self._prepared(workload)
        buffers = _Buffers(built, inputs, blank=True)
        for array in inputs.named("out"):
            buffers.arrays[array].reshape(-1).view(np.uint8)[:] = 0xFF
        module = load(built.ptx, arch=self.arch)
        scaled, distinct, least = Counters(), 0.0, 1.0
        for launch in built.kernel.bind(workload.sizes, frozenset(buffers.values)):
            chosen = blocks(launch)
            report = module.launch(
                launch.entry,
                grid=launch.grid,
                block=launch.block,
                cluster=launch.cluster,
                shared_bytes=launch.shared_bytes,
                args=buffers.arguments(launch, _parsed(built.ptx)),
                max_steps=self.max_steps,
                checks=False,
                blocks=chosen,
            )
            if not report.ok:
                return _failure(report)
            share = launch.blocks / len(chosen)
            scaled = _added(scaled, _scaled(report.counters, share))
            distinct += share * SECTOR * sum(t.by_block for t in report.touched.values())
            least = min(least, len(chosen) / launch.blocks)
        arrays = {name: buffers.arrays[name] for name in inputs.named("out", "inout")}
        return Part(arrays, inputs, scaled, distinct, least)

    def _prepared(self, workload: Workload) -> Inputs:
        inputs = self._inputs.get(workload.name)
        if inputs is None:
            raise DeviceError(
                f"no inputs for workload {workload.name!r}", "call prepare(task, workload, inputs)"
            )
        return inputs

    def _launches(
        self, built: Built, workload: Workload, buffers: _Buffers, *, checks: bool
    ) -> Any:
        module = load(built.ptx, arch=self.arch)
        for launch in built.kernel.bind(workload.sizes, frozenset(buffers.values)):
            yield module.launch(
                launch.entry,
                grid=launch.grid,
                block=launch.block,
                cluster=launch.cluster,
                shared_bytes=launch.shared_bytes,
                args=buffers.arguments(launch, _parsed(built.ptx)),
                max_steps=self.max_steps,
                checks=checks,
            )

    def _model(self, built: Built, workload: Workload) -> tuple[float, Counters] | Failure:
        buffers = _Buffers(built, self._prepared(workload), blank=True)
        module = load(built.ptx, arch=self.arch)
        total, counted = LAUNCH_SECONDS - NEXT_LAUNCH_SECONDS, Counters()
        seconds: dict[str, float] = {}
        for launch in built.kernel.bind(workload.sizes, frozenset(buffers.values)):
            chosen = sampled_blocks(launch)
            report = module.launch(
                launch.entry,
                grid=launch.grid,
                block=launch.block,
                cluster=launch.cluster,
                shared_bytes=launch.shared_bytes,
                args=buffers.arguments(launch, _parsed(built.ptx)),
                max_steps=self.max_steps,
                checks=False,
                blocks=chosen,
            )
            if not report.ok:
                return _failure(report)
            sample = self._sample(built, launch, report, chosen, buffers)
            grid = self._grid(built, launch)
            breakdown = model(sample, grid, self.gpu)
            total += breakdown.seconds + NEXT_LAUNCH_SECONDS
            counted = _added(counted, _scaled(report.counters, launch.blocks / len(chosen)))
            read, written, through = traffic(sample, grid)
            for name, amount in (("read", read), ("write", written)):
                seconds[f"dram_{name}"] = seconds.get(f"dram_{name}", 0.0) + amount
            seconds["l2_bytes"] = seconds.get("l2_bytes", 0.0) + through
            for part, spent in breakdown.parts.items():
                seconds[f"modelled_{part}"] = seconds.get(f"modelled_{part}", 0.0) + spent
        return total, _with_traffic(counted, total, seconds)

    def _grid(self, built: Built, launch: BoundLaunch) -> Grid:
        took = built.resources.get(launch.entry)
        shared = launch.shared_bytes + (took.static_shared if took else 0)
        registers = took.registers if took else 32
        fits = occupancy(self.arch, launch.threads, registers, shared)
        return Grid(launch.blocks, warps_of(launch.threads), fits)

    def _sample(
        self,
        built: Built,
        launch: BoundLaunch,
        report: Report,
        chosen: Sequence[int],
        buffers: _Buffers,
    ) -> Sample:
        names = [arg for arg in launch.args if isinstance(arg, str) and arg in buffers.arrays]
        return Sample(
            counters=report.counters,
            blocks=len(chosen),
            warps=len(chosen) * warps_of(launch.threads),
            read={n: t.together * SECTOR for n, t in report.touched.items() if n in names},
            fetched={n: t.by_block * SECTOR for n, t in report.touched.items() if n in names},
            written={n: report.bytes_stored.get(n, 0) for n in names},
            extent={name: buffers.arrays[name].nbytes for name in names},
            independent=independent_loads(_parsed(built.ptx).functions[launch.entry]),
        )


def sampled_blocks(launch: BoundLaunch) -> list[int]:
    """Linear numbers of the blocks that stand for the grid, evenly spread over it."""
    count = max(_FEWEST_BLOCKS, min(_SAMPLED_BLOCKS, _SAMPLED_THREADS // launch.threads))
    count = min(count, launch.blocks)
    return sorted({int((i + 0.5) * launch.blocks / count) for i in range(count)})


@functools.lru_cache(maxsize=64)
def _parsed(ptx: str) -> Module:
    module = parse(ptx)
    if isinstance(module, SyntaxFault):
        raise DeviceError(f"PTX that cannot be parsed ({module})", "lint the kernel first")
    return module


def junk(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """What undefined memory holds: every bit set, a NaN in each float type, the same every run."""
    return np.full(math.prod(shape) * dtype.itemsize, 0xFF, np.uint8).view(dtype).reshape(shape)


class _Buffers:
    """The arrays of one launch sequence: inputs copied, outputs and scratch undefined."""

    def __init__(self, built: Built, inputs: Inputs, *, blank: bool = False) -> None:
        self.inputs = inputs
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

    def arguments(self, launch: BoundLaunch, module: Module) -> dict[str, Any]:
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
        counters = functools.reduce(_added, (report.counters for report in reports))
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


def _failure(report: Report) -> Failure:
    if report.status == "unsupported":
        return Failure(unsupported=str(report.unsupported or report.message))
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


_COUNTED = tuple(f.name for f in fields(Counters) if f.name not in ("source", "extra"))


def _added(first: Counters, second: Counters) -> Counters:
    values: dict[str, Any] = {}
    for name in _COUNTED:
        parts = [p for p in (getattr(first, name), getattr(second, name)) if p is not None]
        values[name] = sum(parts) if parts else None
    return Counters(**values)


def _scaled(counters: Counters, scale: float) -> Counters:
    values: dict[str, Any] = {
        name: None if (value := getattr(counters, name)) is None else value * scale
        for name in _COUNTED
    }
    return Counters(**values)


def _with_traffic(counters: Counters, seconds: float, more: Mapping[str, float]) -> Counters:
    values: dict[str, Any] = {name: getattr(counters, name) for name in _COUNTED}
    values |= {
        "duration": seconds,
        "dram_read_bytes": more.get("dram_read", 0.0),
        "dram_write_bytes": more.get("dram_write", 0.0),
        "l2_read_sectors": math.ceil(more.get("l2_bytes", 0.0) / SECTOR),
    }
    parts = {name: value for name, value in more.items() if name.startswith("modelled_")}
    return Counters(extra=parts, **values)
