"""The emulator as a Device: true outputs and faults, exact counters, a modelled time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ptxsearch.arch import Gpu, occupancy, typical_gpu
from ptxsearch.emulator.independence import independent_loads
from ptxsearch.emulator.report import Report
from ptxsearch.emulator.sequence import (
    COUNTED,
    Launched,
    Sequenced,
    added,
    failure,
    parsed,
    scaled,
)
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
from ptxsearch.evaluation import Array, Built, Counters, Failure, Inputs, Outputs
from ptxsearch.kernel import BoundLaunch
from ptxsearch.tasks import Task, Workload

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
        buffers = Sequenced(built, inputs)
        reports: list[Report] = []
        for done in buffers.run(self.arch, max_steps=self.max_steps, checks=True):
            if not done.report.ok:
                return failure(done.report)
            reports.append(done.report)
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
        buffers = Sequenced(built, inputs, blank=True)
        for array in inputs.named("out"):
            buffers.arrays[array].reshape(-1).view(np.uint8)[:] = 0xFF
        counts, distinct, least = Counters(), 0.0, 1.0
        steps = self.max_steps
        for done in buffers.run(self.arch, max_steps=steps, checks=False, blocks=blocks):
            if not done.report.ok:
                return failure(done.report, partial=done.partial)
            ran = len(done.blocks or ())
            share = done.launch.blocks / ran
            counts = added(counts, scaled(done.report.counters, share))
            distinct += share * SECTOR * sum(t.by_block for t in done.report.touched.values())
            least = min(least, ran / done.launch.blocks)
        arrays = {name: buffers.arrays[name] for name in inputs.named("out", "inout")}
        return Part(arrays, inputs, counts, distinct, least)

    def _prepared(self, workload: Workload) -> Inputs:
        inputs = self._inputs.get(workload.name)
        if inputs is None:
            raise DeviceError(
                f"no inputs for workload {workload.name!r}", "call prepare(task, workload, inputs)"
            )
        return inputs

    def _model(self, built: Built, workload: Workload) -> tuple[float, Counters] | Failure:
        buffers = Sequenced(built, self._prepared(workload), blank=True)
        total, counted = LAUNCH_SECONDS - NEXT_LAUNCH_SECONDS, Counters()
        sums: dict[str, float] = {}
        steps = self.max_steps
        for done in buffers.run(self.arch, max_steps=steps, checks=False, blocks=sampled_blocks):
            if not done.report.ok:
                return failure(done.report, partial=done.partial)
            sample, grid = self._sample(built, done, buffers), self._grid(built, done.launch)
            breakdown = model(sample, grid, self.gpu)
            total += breakdown.seconds + NEXT_LAUNCH_SECONDS
            share = done.launch.blocks / sample.blocks
            counted = added(counted, scaled(done.report.counters, share))
            moved = dict(
                zip(("dram_read", "dram_write", "l2_bytes"), traffic(sample, grid), strict=True)
            )
            spent = {f"modelled_{part}": took for part, took in breakdown.parts.items()}
            for name, amount in {**moved, **spent}.items():
                sums[name] = sums.get(name, 0.0) + amount
        return total, _with_traffic(counted, total, sums)

    def _grid(self, built: Built, launch: BoundLaunch) -> Grid:
        took = built.resources.get(launch.entry)
        shared = launch.shared_bytes + (took.static_shared if took else 0)
        registers = took.registers if took else 32
        fits = occupancy(self.arch, launch.threads, registers, shared)
        return Grid(launch.blocks, warps_of(launch.threads), fits)

    def _sample(self, built: Built, done: Launched, buffers: Sequenced) -> Sample:
        launch, report = done.launch, done.report
        count = len(done.blocks or ())
        names = [arg for arg in launch.args if isinstance(arg, str) and arg in buffers.arrays]
        return Sample(
            counters=report.counters,
            blocks=count,
            warps=count * warps_of(launch.threads),
            read={n: t.together * SECTOR for n, t in report.touched.items() if n in names},
            fetched={n: t.by_block * SECTOR for n, t in report.touched.items() if n in names},
            written={n: report.bytes_stored.get(n, 0) for n in names},
            extent={name: buffers.arrays[name].nbytes for name in names},
            independent=independent_loads(parsed(built.ptx).functions[launch.entry]),
        )


def sampled_blocks(launch: BoundLaunch) -> list[int]:
    """Linear numbers of the blocks that stand for the grid, evenly spread over it."""
    count = max(_FEWEST_BLOCKS, min(_SAMPLED_BLOCKS, _SAMPLED_THREADS // launch.threads))
    count = min(count, launch.blocks)
    return sorted({int((i + 0.5) * launch.blocks / count) for i in range(count)})


def _with_traffic(counters: Counters, seconds: float, more: Mapping[str, float]) -> Counters:
    values: dict[str, Any] = {name: getattr(counters, name) for name in COUNTED}
    values |= {
        "duration": seconds,
        "dram_read_bytes": more.get("dram_read", 0.0),
        "dram_write_bytes": more.get("dram_write", 0.0),
        "l2_read_sectors": math.ceil(more.get("l2_bytes", 0.0) / SECTOR),
    }
    parts = {name: value for name, value in more.items() if name.startswith("modelled_")}
    return Counters(extra=parts, **values)
