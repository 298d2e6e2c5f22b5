"""Searches without a GPU: a `Recording` of a measured space answers in place of a device.

`load` gives a task and a recording that judges its kernel: free, fast, deterministic, failures
with their recorded reason, times drawn anew from the recorded samples.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxsearch.errors import RecordingError
from ptxsearch.evaluation import Counters, Evaluation, Fault, Resources, Timing
from ptxsearch.interchange import Table, read, write_t4
from ptxsearch.kernel import Kernel
from ptxsearch.space import Rows, Space, Value, Values
from ptxsearch.tasks import Param, Task, Workload
from ptxsearch.trial import Trial

__all__ = ["Recording", "export_t4", "load"]

WORKLOAD = "recorded"

_RESOURCES: Mapping[str, str] = {
    "registers": "registers", "spill_store_bytes": "spill_stores",
    "spill_load_bytes": "spill_loads", "stack_bytes": "stack_bytes",
    "local_bytes": "stack_bytes", "static_shared_bytes": "static_shared",
    "shared_bytes": "static_shared", "barriers": "barriers",
    "max_threads_per_block": "max_threads", "threads_per_block": "threads",
    "blocks_per_sm": "blocks_per_sm",
}  # fmt: skip
_COUNTERS: Mapping[str, str] = {
    "dram__bytes_read.sum": "dram_read_bytes",
    "dram__bytes_write.sum": "dram_write_bytes",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": "global_load_requests",
    "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum": "global_store_requests",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": "global_load_sectors",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": "global_store_sectors",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": "shared_load_wavefronts",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum": "shared_store_wavefronts",
    "lts__t_sectors_op_read.sum": "l2_read_sectors",
    "lts__t_sectors_op_write.sum": "l2_write_sectors",
    "smsp__inst_executed.sum": "sass_warp_instructions",
}  # fmt: skip


class Recording:
    """An Evaluator over a table of measurements.

    A time is the median of as many samples as were stored, drawn again with replacement: the n-th
    evaluation of a configuration is the same in every run with the same `seed`. `noise` False
    gives the recorded median itself.
    """

    source = "recorded"

    def __init__(self, table: Table, *, seed: int = 0, noise: bool = True) -> None:
        self.table = table
        self.seed = seed
        self.noise = noise
        self._index = {tuple(map(int, row)): i for i, row in enumerate(table.rows)}
        self._repeats: dict[int, int] = {}

    @property
    def name(self) -> str:
        """The device the measurements were made on."""
        meta = self.table.meta
        return str(meta.get("device_name") or meta.get("gpu") or self.table.name)

    @property
    def space(self) -> Space:
        """The space whose legal configurations are recorded."""
        return self.table.space

    @property
    def best_seconds(self) -> float:
        """The recorded time of the fastest configuration."""
        return float(np.nanmin(self.table.seconds))

    def find(self, values: Values) -> int | None:
        """The table's row of a configuration, None where it breaks a restriction."""
        chosen = {name: values[name] for name in self.space.names if name in values}
        if not self.space.is_legal(chosen):
            return None
        return self._index.get(self.space.row(chosen))

    def features(self, rows: Rows, *, names: tuple[str, ...] = ("registers",)) -> NDArray[Any]:
        """Recorded compile-time resources of `rows` as columns, nan where there is no code.

        Compiling is not an evaluation, so a tuner may know them before it measures.
        """
        places = [self._index.get(tuple(map(int, row)), -1) for row in rows]
        columns = [self.table.resources[name] for name in names if name in self.table.resources]
        found = np.column_stack([*columns, np.full(len(self.table.rows), np.nan)])
        found = np.vstack([found, np.full((1, found.shape[1]), np.nan)])
        return found[places, :-1]

    def evaluate(
        self,
        task: Task,
        kernel: Kernel,
        *,
        baseline: Kernel | None = None,
        rival: Kernel | None = None,
    ) -> Evaluation:
        """The recorded verdict on a kernel of the recorded template; others are UNSUPPORTED."""
        if kernel.language != "recorded" or kernel.source != self.table.name:
            return self._verdict(
                "UNSUPPORTED", "lint", "only kernels of the recorded template can be replayed"
            )
        i = self.find(kernel.values)
        if i is None:
            return self._verdict("REJECTED", "lint", f"{dict(kernel.values)} is not in the space")
        status, stage, message = self.table.verdicts[i]
        if status != "OK":
            return self._verdict(status, stage, message, i)
        return Evaluation(
            status="OK",
            stage="quick",
            key=self._key(i),
            device=self.name,
            source="recorded",
            resources=self._resources(i),
            times={WORKLOAD: self._timing(i)},
            counters=self._counters(i),
        )

    def _verdict(self, status: Any, stage: Any, message: str, i: int | None = None) -> Evaluation:
        faults: tuple[Fault, ...] = ()
        if status == "CRASHED":
            faults = (Fault("launch_failure", message),)
        elif status == "TIMEOUT":
            faults = (Fault("timeout", message),)
        return Evaluation(
            status=status,
            stage=stage,
            message=message,
            key="" if i is None or status == "COMPILE_ERROR" else self._key(i),
            device=self.name,
            source="recorded",
            resources={} if i is None else self._resources(i),
            faults=faults,
        )

    def _timing(self, i: int) -> Timing:
        repeat = self._repeats.get(i, 0)
        self._repeats[i] = repeat + 1
        table = self.table
        if not self.noise or table.samples is None:
            seconds = float(table.seconds[i])
            return Timing(median=seconds, mean=seconds, p95=seconds, samples=1)
        samples = table.samples[i][np.isfinite(table.samples[i])]
        if not len(samples):
            samples = table.seconds[i : i + 1]
        key = np.array([self.seed & (2**64 - 1), i << 32 | repeat], dtype=np.uint64)
        rng = np.random.Generator(np.random.Philox(key=key))
        return Timing.of(rng.choice(samples, size=len(samples)))

    def _key(self, i: int) -> str:
        """Equal for equal machine code with equal launch and run-time values."""
        table = self.table
        text = f"{table.name} {tuple(map(int, table.rows[i]))}"
        if table.code and table.code[i]:
            values = table.space.values(table.rows[i])
            launch = table.space.derive(values)
            free = {name: values[name] for name in table.meta.get("not_compiled_in", ())}
            text = f"{table.name} {table.code[i]} {sorted({**launch, **free}.items())}"
        return hashlib.sha256(text.encode()).hexdigest()

    def _resources(self, i: int) -> dict[str, Resources]:
        found: dict[str, Any] = {
            field: int(column[i])
            for name, column in self.table.resources.items()
            if (field := _RESOURCES.get(name)) and np.isfinite(column[i])
        }
        if "registers" not in found:
            return {}
        return {str(self.table.meta.get("entry", "kernel")): Resources(**found)}

    def _counters(self, i: int) -> dict[str, Counters]:
        counted = {
            name: float(column[i])
            for name, column in self.table.counters.items()
            if np.isfinite(column[i])
        }
        if not counted:
            return {}
        known: dict[str, Any] = {
            _COUNTERS[name]: v for name, v in counted.items() if name in _COUNTERS
        }
        extra = {name: value for name, value in counted.items() if name not in _COUNTERS}
        return {WORKLOAD: Counters(source="recorded", extra=extra, **known)}


def load(path: str | Path, *, seed: int = 0, noise: bool = True) -> tuple[Task, Recording]:
    """The task of a recorded space and the recording that judges it.

    Reads .npz spaces, T4 results and Kernel Tuner caches. The baseline is the configuration of
    median time. Raises RecordingError where the file holds none, or nothing that ran.
    """
    table = read(path)
    if not np.isfinite(table.seconds).any():
        raise RecordingError(f"{path} holds no configuration that ran", "record some that do")
    recording = Recording(table, seed=seed, noise=noise)
    order = np.argsort(table.seconds, kind="stable")
    middle = order[np.isfinite(table.seconds).sum() // 2]
    baseline = Kernel(
        source=table.name,
        language="recorded",
        launches=(),
        values=table.space.values(table.rows[middle]),
        space=table.space,
    )
    described = table.meta.get("problem") or table.meta.get("kernel") or table.name
    task = Task(
        name=table.name,
        level=1,
        description=f"{described}, recorded on {recording.name}",
        params=(Param("output", "out", "f32", ("1",)),),
        workloads=(Workload(WORKLOAD, {}, timed=True),),
        reference=_no_reference,
        baseline=baseline,
        provenance=str(table.meta.get("source_repo") or Path(path).name),
    )
    return task, recording


def _no_reference(**_: Any) -> Any:
    raise RecordingError(
        "a recorded task has no reference", "evaluate its kernels with the recording it came with"
    )


def export_t4(trials: Iterable[Trial], path: str | Path) -> None:
    """Writes the trials of a run as T4 results, readable by other autotuners.

    A configuration is the values of the trial's kernel; trials without a kernel are left out.
    """
    results: list[tuple[Mapping[str, Value], float | None, Any]] = []
    for trial in trials:
        kernel, evaluation = trial.proposal.kernel, trial.evaluation
        if kernel is None:
            continue
        medians = [timing.median for timing in evaluation.times.values()]
        seconds = float(np.exp(np.mean(np.log(medians)))) if medians else None
        results.append((kernel.values, seconds if evaluation.ok else None, evaluation.status))
    write_t4(path, results)
