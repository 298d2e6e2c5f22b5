"""What kernels take on every architecture, without a GPU: resources, occupancy, refused features.

    python benchmarks/compile_matrix.py [PATH ...] [--arch sm_80 ...] [--threads N] [--json]

A PATH is a bundled task, a task's folder, a kernel file (.cu or .ptx), or a folder of kernel files;
without one, every bundled task. A task's kernel is built with the values and launches of its
baseline at its largest public workload; a plain file with `--threads` threads a block, or the
bound that it declares. Exits 1 where a kernel compiles for no architecture at all.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ptxsearch.arch import ARCHES, occupancy
from ptxsearch.evaluation import Resources
from ptxsearch.kernel import BoundLaunch, Value
from ptxsearch.taskfile import bundled, load_task
from ptxsearch.tasks import Task
from ptxsearch.toolchain import CompileFailure, Compiler, machine_toolchain

_BOUND = re.compile(r"\.entry\s+([\w$]+)\s*\([^)]*\)\s*((?:\.\w+[^{]*?)?)\{", re.DOTALL)
_THREADS = re.compile(r"\.(?:max|req)ntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")


@dataclass(frozen=True)
class Subject:
    """A kernel to compile: its source, values, and threads and dynamic shared bytes by entry."""

    name: str
    source: str
    language: str
    values: Mapping[str, Value]
    launches: Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class Row:
    """One entry on one architecture; `refused` says why there is no code."""

    kernel: str
    entry: str
    arch: str
    target: str = ""
    registers: int | None = None
    spills: int | None = None
    stack: int | None = None
    shared: int | None = None
    threads: int | None = None
    blocks_per_sm: int | None = None
    occupancy: float | None = None
    limiter: str = ""
    refused: str = ""


def subjects(paths: Sequence[str]) -> Iterator[Subject]:
    """The kernels that the paths name."""
    for path in paths or bundled():
        place = Path(path)
        if path in bundled() or (place / "task.yaml").is_file():
            yield from _of_task(load_task(path))
        elif place.is_file():
            yield _of_file(place)
        else:
            found = sorted(p for p in place.rglob("*") if p.suffix in (".cu", ".ptx"))
            if not found:
                raise SystemExit(f"{path}: no task and no .cu or .ptx file; give a kernel file")
            yield from map(_of_file, found)


def _of_task(task: Task) -> Iterator[Subject]:
    kernel = task.baseline
    if kernel.language == "recorded":
        return
    largest = max(
        (workload for workload in task.workloads if workload.public),
        key=lambda workload: sum(workload.sizes.values()),
    )
    bound: tuple[BoundLaunch, ...] = kernel.bind(
        largest.sizes, frozenset(param.name for param in task.params)
    )
    launches = {launch.entry: (launch.threads, launch.shared_bytes) for launch in bound}
    yield Subject(task.name, kernel.source, kernel.language, kernel.values, launches)


def _of_file(path: Path) -> Subject:
    language = "cuda" if path.suffix == ".cu" else "ptx"
    name = path.parent.name if path.stem == "kernel" else path.stem
    return Subject(f"{name} ({language})", path.read_text(errors="replace"), language, {}, {})


def rows(subject: Subject, arch: str, *, compiler: Compiler, threads: int) -> list[Row]:
    """One row for each entry of a kernel on `arch`."""
    made = compiler.compile(
        subject.source, subject.language, subject.values, arch=arch, entries=tuple(subject.launches)
    )
    if isinstance(made, CompileFailure):
        return [Row(subject.name, "", arch, refused=f"{made.stage}: {made.message}")]
    bounds = declared_threads(made.ptx)
    return [
        _row(
            Row(subject.name, entry, arch, made.target),
            resources,
            subject.launches.get(entry, (min(threads, bounds.get(entry, threads)), 0)),
        )
        for entry, resources in made.resources.items()
    ]


def _row(base: Row, resources: Resources, launch: tuple[int, int]) -> Row:
    threads, dynamic = launch
    shared = resources.static_shared + dynamic
    held = occupancy(base.arch, threads, resources.registers, shared)
    return Row(
        base.kernel, base.entry, base.arch, base.target,
        registers=resources.registers,
        spills=resources.spill_stores + resources.spill_loads,
        stack=resources.stack_bytes,
        shared=shared,
        threads=threads,
        blocks_per_sm=held.blocks_per_sm,
        occupancy=round(held.fraction, 4),
        limiter=held.limiter,
        refused="" if held.blocks_per_sm else f"launch: too many {held.limiter}",
    )  # fmt: skip


def declared_threads(ptx: str) -> dict[str, int]:
    """The most threads a block may have, for each entry that declares it."""
    found = {}
    for entry, directives in _BOUND.findall(ptx):
        if match := _THREADS.search(directives):
            x, y, z = (int(part or 1) for part in match.groups())
            found[entry] = x * y * z
    return found


def table(found: Sequence[Row]) -> str:
    """The rows as text, one line an entry and architecture."""
    head = ("kernel", "entry", "target", "regs", "spill", "stack", "shared", "threads", "blocks",
            "occupancy", "limiter / refused")  # fmt: skip
    lines: list[tuple[str, ...]] = [head]
    for row in found:
        cells = (row.registers, row.spills, row.stack, row.shared, row.threads, row.blocks_per_sm)
        shown = ("-" if cell is None else str(cell) for cell in cells)
        share = "-" if row.occupancy is None else f"{row.occupancy:.0%}"
        why = row.refused[:100] or row.limiter
        lines.append((row.kernel, row.entry, row.target or row.arch, *shown, share, why))
    widths = [max(len(line[column]) for line in lines) for column in range(len(head) - 1)]
    return "\n".join(
        "  ".join(
            [*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]]
        )
        for line in lines
    )


def main() -> int:
    """Print the matrix; 1 where a kernel compiled for no architecture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("paths", nargs="*", metavar="PATH")
    parser.add_argument("--arch", action="append", choices=sorted(ARCHES))
    parser.add_argument("--threads", type=int, default=256)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    compiler = Compiler(machine_toolchain())
    arches = arguments.arch or list(ARCHES)
    found: list[Row] = []
    failed = 0
    for subject in subjects(arguments.paths):
        mine = [
            row
            for arch in arches
            for row in rows(subject, arch, compiler=compiler, threads=arguments.threads)
        ]
        failed += all(row.registers is None for row in mine)
        found += mine
    compiler.close()
    if arguments.json:
        made = {"toolchain": compiler.toolchain.name, "rows": [asdict(row) for row in found]}
        sys.stdout.write(json.dumps(made, indent=1) + "\n")
    else:
        sys.stdout.write(f"{compiler.toolchain.name}\n{table(found)}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
