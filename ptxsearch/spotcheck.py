"""Work and outputs at a size too large to emulate whole: what randomly chosen blocks did there.

A kernel may be right on every size that is checked in full and do less on the one that is timed.
Blocks that its author cannot foresee are run over poisoned outputs: scaled to the grid they must
read, write and compute what the task needs, and what they stored must be right.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ptxsearch.correctness import check
from ptxsearch.deviation import Relative, Scale
from ptxsearch.emulator.device import EmulatedDevice, Part
from ptxsearch.evaluation import Array, Built, Counters, Failure, Inputs
from ptxsearch.expectation import Expected, expected
from ptxsearch.kernel import BoundLaunch
from ptxsearch.ptx import SyntaxFault, parse
from ptxsearch.tasks import Task, Workload

_SAMPLED_THREADS = 8192
_BLOCKS = (2, 24)
_POINTS = 1 << 21
# A sample of equal blocks is exact but for those at the edge of the data.
_SLACK = 0.9
# Below this share of the work of random blocks, the blocks that were timed stand for nothing.
_UNTYPICAL = 0.7
_SECOND_SAMPLE = 4
# Elements that should have changed before half of them tells anything.
_FEWEST_CHANGES = 32
# What 24 blocks store tells nothing of an output that one block writes at the end.
_SMALL_OUTPUT = 1 << 16
_AFFORDABLE_INSTRUCTIONS = 2e9
_LANES = 32


@dataclass(frozen=True)
class Remark:
    """What a spot check found: a failing status with its reason, or how much was compared."""

    status: Literal["OK", "WRONG", "DISHONEST", "UNSUPPORTED"]
    message: str = ""
    compared: int = 0


@dataclass(frozen=True)
class _Points:
    """Some elements of one output, by flat position, with what they must be.

    `changes` is the share of them that is not what it was before the launches.
    """

    at: Array
    want: Array
    scale: Array | None
    changes: float = 1.0


class SpotChecker:
    """Checks kernels on workloads whose outputs are not computed in full, by blocks chosen anew.

    The blocks depend on `seed` and on the kernel's own code, so that no kernel can name them.
    """

    def __init__(self, device: EmulatedDevice, *, seed: int = 0) -> None:
        self._device, self._seed = device, seed
        self._kept: dict[str, tuple[Expected, dict[str, _Points]]] = {}
        self._lock = threading.Lock()

    def judge(
        self, task: Task, workload: Workload, built: Built, timed: Counters | None
    ) -> Remark | Failure:
        """The remark on `built`; `timed` are the counters of the blocks whose time was taken."""
        part = self._part(built, workload, 1)
        if isinstance(part, Failure):
            return part
        short = _short(task, workload, part)
        if short:
            return self._confirm(task, workload, built, part, short)
        if timed is not None and _untypical(timed, part):
            return _uneven(workload, "the blocks that were timed do less than others")
        if not (part.complete or _separate(built)):
            return Remark("OK")
        return self._compare(task, workload, part)

    def _part(self, built: Built, workload: Workload, times: int) -> Part | Failure:
        key = hashlib.sha256(f"{self._seed} {times} {built.ptx}".encode()).digest()
        rng = np.random.Generator(np.random.Philox(key=int.from_bytes(key[:16], "little")))
        return self._device.part(built, workload, lambda launch: _blocks(launch, times, rng))

    def _confirm(
        self, task: Task, workload: Workload, built: Built, part: Part, short: str
    ) -> Remark | Failure:
        """Less work was seen than is needed: all blocks tell, or a larger sample where too many."""
        if (part.scaled.ptx_thread_instructions or 0.0) <= _AFFORDABLE_INSTRUCTIONS:
            whole = self._device.part(built, workload, lambda launch: range(launch.blocks))
            if isinstance(whole, Failure):
                return whole
            proof = _short(task, workload, whole)
            if proof:
                return Remark("DISHONEST", proof)
            verdict = self._compare(task, workload, whole)
            return verdict if verdict.status != "OK" else _uneven(workload, short)
        more = self._part(built, workload, _SECOND_SAMPLE)
        if isinstance(more, Failure):
            return more
        again = _short(task, workload, more)
        return Remark("DISHONEST", again) if again else _uneven(workload, short)

    def _compare(self, task: Task, workload: Workload, part: Part) -> Remark:
        """Whether elements that the blocks stored are right; all elements where all blocks ran."""
        if task.reference is None:
            return Remark("OK")
        with self._lock:
            expect, points = self._expected(task, workload, part)
        wanted, scales, got = {}, {}, {}
        for name, some in points.items():
            values = part.arrays[name].reshape(-1)[some.at]
            chosen = np.full(values.size, True) if part.complete else part.written(name, some.at)
            got[name], wanted[name] = values[chosen], some.want[chosen]
            scales[name] = None if some.scale is None else some.scale[chosen]
            if values[chosen].size < _fewest(part, some) / 2:
                return Remark("WRONG", f"on {dict(workload.sizes)} elements of {name} are left as "
                              "they were, though smaller sizes are right")  # fmt: skip
        count = sum(values.size for values in got.values())
        verdict = check(task, got, replace(expect, arrays=wanted, scales=scales))
        if verdict.passed:
            return Remark("OK", compared=count)
        return Remark(
            "WRONG",
            f"on {dict(workload.sizes)} {1 - verdict.share_right:.3g} of {count} sampled output "
            "elements are wrong, though smaller sizes are right; look for an index that overflows "
            "or work that is left out at large sizes",
            count,
        )

    def _expected(
        self, task: Task, workload: Workload, part: Part
    ) -> tuple[Expected, dict[str, _Points]]:
        key = f"{task.name}:{task.digest}:{workload.name}"
        if key not in self._kept:
            whole = expected(task, workload, part.inputs)
            rng = np.random.Generator(np.random.Philox(key=self._seed))
            points = {
                n: _changes(_points(whole.arrays[n], whole.scales[n], rng), part.inputs, n)
                for n in whole.arrays
            }
            # Gigabytes in full: only the points stay.
            self._kept[key] = replace(whole, arrays={}, scales={}), points
        return self._kept[key]


def _blocks(launch: BoundLaunch, times: int, rng: np.random.Generator) -> Sequence[int]:
    """One random block of each of equal stretches of the grid."""
    least, most = _BLOCKS
    count = max(least, min(most, _SAMPLED_THREADS // launch.threads)) * times
    if count >= launch.blocks:
        return range(launch.blocks)
    edges = [i * launch.blocks // count for i in range(count + 1)]
    return [int(rng.integers(a, b)) for a, b in itertools.pairwise(edges)]


def _points(want: Array, scale: Scale | None, rng: np.random.Generator) -> _Points:
    step = max(1, want.size // _POINTS)
    at = np.arange(0, want.size - step + 1, step)
    at = at + rng.integers(0, step, at.size)
    some = want.reshape(-1)[at]
    if isinstance(scale, Relative):
        return _Points(at, some, scale.of(some))
    spread = None if scale is None else np.broadcast_to(scale, want.shape).flat[at]
    return _Points(at, some, spread)


def _changes(points: _Points, inputs: Inputs, name: str) -> _Points:
    """`points` with the share of them that a right kernel changes."""
    if inputs.roles[name] == "out" or not points.at.size:
        return points
    before = np.asarray(inputs.values[name]).reshape(-1)[points.at]
    return replace(points, changes=float(np.mean(points.want.astype(before.dtype) != before)))


def _fewest(part: Part, points: _Points) -> float:
    """About how many of `points` blocks that do equal work must have changed; 0 if too few."""
    if part.complete:
        return 0.0
    count = part.share * points.at.size * points.changes
    return count if count >= _FEWEST_CHANGES else 0.0


def _needs(task: Task, workload: Workload, counters: Counters) -> Mapping[str, float]:
    needs = {"reads": task.amount("bytes_in", workload)}
    if (out := task.amount("bytes_out", workload)) >= _SMALL_OUTPUT:
        needs["writes"] = out
    if not counters.tensor_instructions:
        needs["computes"] = task.amount("flops_min", workload)
    return needs


def _short(task: Task, workload: Workload, part: Part) -> str:
    """What the blocks do too little of, scaled to the grid; empty where they do enough."""
    counters = part.scaled
    loaded = (counters.global_load_bytes or 0.0) + (counters.async_copy_bytes or 0.0)
    added = _LANES * (counters.global_atomic_requests or 0.0)
    stored = (counters.global_store_bytes or 0.0) + 8 * added
    added += _LANES * (counters.shared_atomic_requests or 0.0)
    done = {
        # Reading an element twice in a block is reading it once.
        "reads": min(loaded, part.distinct_bytes) if part.distinct_bytes else loaded,
        "writes": stored,
        "computes": (counters.flops or 0.0) + added,
    }
    for what, least in _needs(task, workload, counters).items():
        if done[what] < _SLACK * least:
            unit = "operations" if what == "computes" else "bytes"
            return (
                f"it {what} about {done[what]:.4g} {unit} on {workload.name} where {least:.4g} "
                "are needed: work is left out at the size that is timed"
            )
    return ""


def _untypical(timed: Counters, part: Part) -> bool:
    if part.complete:
        return False
    pairs = (
        (timed.ptx_thread_instructions, part.scaled.ptx_thread_instructions),
        (timed.global_load_bytes, part.scaled.global_load_bytes),
    )
    return any(a is not None and b and a < _UNTYPICAL * b for a, b in pairs)


def _uneven(workload: Workload, short: str) -> Remark:
    return Remark(
        "UNSUPPORTED",
        f"blocks do unequal work on {workload.name}, so that its time cannot be modelled from a "
        f"sample ({short}); spread the work evenly over the grid",
    )


def _separate(built: Built) -> bool:
    """Whether blocks cannot add to what other blocks store: one launch, no global atomics."""
    module = parse(built.ptx)
    if len(built.kernel.launches) != 1 or isinstance(module, SyntaxFault):
        return False
    return not any(
        instruction.opcode in ("atom", "red", "multimem")
        and not any(part.startswith("shared") for part in instruction.modifiers)
        for function in module.functions.values()
        for instruction in function.instructions
    )
