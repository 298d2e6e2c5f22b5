"""How long a kernel takes through lint, compile, prune and identity: new, and seen before.

    python benchmarks/toolchain_speed.py [--repeats 15] [--json]

Asked for: less than 150 ms for new PTX of 200 lines, less than 1 ms from the cache. Wall
milliseconds, median and least; on a busy machine the least is nearer the truth. "again" runs
every stage anew on a kernel seen before, "cached" is the compiler's part of it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from ptxsearch.arch import occupancy
from ptxsearch.evaluation import Built
from ptxsearch.identity import identity
from ptxsearch.kernel import BoundLaunch, Kernel
from ptxsearch.ptx import Module, lint, parse
from ptxsearch.taskfile import bundled, load_task
from ptxsearch.tasks import Task
from ptxsearch.toolchain import CompileFailure, Compiler, build, machine_toolchain

T = TypeVar("T")
ARCH = "sm_90"
NEW_LIMIT, SEEN_LIMIT = 150.0, 1.0


class Stages:
    """The stages of one kernel, each timed."""

    def __init__(self, task: Task, compiler: Compiler) -> None:
        self.task, self.compiler = task, compiler
        self.spent: dict[str, list[float]] = {}

    def run(self, kernel: Kernel) -> str:
        """The identity of a kernel that passes every stage."""
        launches = self.timed("bind", lambda: kernel.bind(self.sizes, self.names))
        built = self.timed("compile", lambda: self.build(kernel))
        module = self.timed("parse", lambda: self.parse(built))
        self.timed("lint", lambda: lint(module, launches, allow=self.task.allow))
        self.timed("prune", lambda: prune(built, launches))
        return self.timed("identity", lambda: identity(built, [("w", launches)], arch=ARCH))

    @property
    def sizes(self) -> Mapping[str, int]:
        """The sizes of the first workload."""
        return self.task.workloads[0].sizes

    @property
    def names(self) -> frozenset[str]:
        """The task's parameters."""
        return frozenset(param.name for param in self.task.params)

    def build(self, kernel: Kernel) -> Built:
        """The compiled kernel; the script ends where it does not compile."""
        built = build(kernel, ARCH, compiler=self.compiler)
        if isinstance(built, CompileFailure):
            raise SystemExit(built.text)
        return built

    def parse(self, built: Built) -> Module:
        """The module of its PTX; the script ends where it is none."""
        module = parse(built.ptx)
        if not isinstance(module, Module):
            raise SystemExit(str(module))
        return module

    def timed(self, stage: str, work: Callable[[], T]) -> T:
        """What `work` gives, its milliseconds kept under `stage`."""
        started = time.perf_counter()
        result = work()
        self.spent.setdefault(stage, []).append(1e3 * (time.perf_counter() - started))
        return result


def prune(built: Built, launches: tuple[BoundLaunch, ...]) -> None:
    """Whether each launch fits on a multiprocessor."""
    for launch in launches:
        took = built.resources[launch.entry]
        occupancy(ARCH, launch.threads, took.registers, took.static_shared + launch.shared_bytes)


def measure(name: str, repeats: int, compiler: Compiler) -> dict[str, Any]:
    """Milliseconds by stage of a task's baseline as PTX, each time with a text never seen."""
    task = load_task(name)
    stages = Stages(task, compiler)
    base = stages.build(task.baseline)
    kernel = replace(task.baseline, source=base.ptx, language="ptx", space=None)
    stages.run(kernel)
    stages.spent.clear()
    for number in range(repeats):
        stages.run(replace(kernel, source=f"{base.ptx}\n// {time.time_ns()} {number}\n"))
    total = [sum(parts) for parts in zip(*stages.spent.values(), strict=True)]
    by_stage = {stage: statistics.median(times) for stage, times in stages.spent.items()}
    stages.spent.clear()
    for _ in range(3 * repeats):
        stages.run(kernel)
    again = [sum(parts) for parts in zip(*stages.spent.values(), strict=True)]
    return {
        "task": name,
        "lines": len(base.ptx.splitlines()),
        "new_median": statistics.median(total),
        "new_least": min(total),
        "again_median": statistics.median(again),
        "again_least": min(again),
        "cached": statistics.median(stages.spent["compile"]),
        "stages": by_stage,
    }


def main() -> int:
    """Print the table; 1 where a figure asked for is missed by a kernel of at most 400 lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    compiler = Compiler(machine_toolchain())
    found = [measure(name, arguments.repeats, compiler) for name in bundled()]
    compiler.close()
    if arguments.json:
        sys.stdout.write(json.dumps(found, indent=1) + "\n")
    else:
        for row in found:
            parts = "  ".join(f"{stage} {ms:.2f}" for stage, ms in row["stages"].items())
            sys.stdout.write(
                f"{row['task']:18} {row['lines']:4} lines  new {row['new_median']:6.1f} ms "
                f"(least {row['new_least']:.1f})  "
                f"again {row['again_median']:.2f} ms (least {row['again_least']:.2f}, "
                f"cached {row['cached']:.3f})  [{parts}]\n"
            )
    missed = [
        row
        for row in found
        if row["lines"] <= 400 and (row["new_least"] > NEW_LIMIT or row["cached"] > SEEN_LIMIT)
    ]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
