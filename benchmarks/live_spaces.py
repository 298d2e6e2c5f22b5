"""The recorded spaces searched live: `python benchmarks/live_spaces.py OUT.json FOLDER`.

FOLDER holds the recorded tables (*_H200.npz) and their kernels (src/*.cu). On each the tuner gets
60 evaluations on this GPU: compile, two input sets against numpy, seven rounds beside the recorded
optimum. In the end the best found and the recorded optimum are timed in sixty fresh rounds. The
four searches run side by side and share the GPU's lock.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ptxsearch.evaluation import Array, Built, Failure, Inputs
from ptxsearch.gpu import CudaDevice
from ptxsearch.interchange import Table, read
from ptxsearch.kernel import Kernel, Launch, Scratch
from ptxsearch.race import hopeless
from ptxsearch.tasks import Workload
from ptxsearch.toolchain import build
from ptxsearch.tuner import Tuner

EVALUATIONS = 60
N, BYTES, EDGE, SIDE = 1 << 26, 1 << 26, 8192, 1024


@dataclass(frozen=True)
class Case:
    """How one recorded kernel is called, on what, what `out` must be, and how close."""

    arguments: tuple[str, ...]
    make: Callable[[np.random.Generator], dict[str, Any]]
    roles: Mapping[str, str]
    want: Callable[[Mapping[str, Any]], Array]
    rtol: float = 0.0
    atol: float = 0.0
    scratch: tuple[Scratch, ...] = ()

    def is_right(self, got: Array, want: Array) -> bool:
        """Whether every element is within the tolerance that the recording used."""
        if not self.rtol:
            return np.array_equal(got, want)
        return bool(np.all(np.abs(got - want) <= self.atol + self.rtol * np.abs(want)))


CASES: Mapping[str, Case] = {
    "reduce_sum": Case(
        ("x", "out", "partial", "ticket", "n"),
        lambda rng: {
            "x": rng.random(N, np.float32),
            "out": np.zeros(1, np.float32),
            "n": np.int32(N),
        },
        {"x": "in", "out": "inout", "n": "scalar"},
        lambda values: np.array([values["x"].sum(dtype=np.float64)]),
        rtol=2e-5,
        scratch=(
            Scratch("partial", "f32", ("132 * GRIDM",)),
            Scratch("ticket", "u32", ("1",), "zeros"),
        ),
    ),
    "transpose": Case(
        ("x", "out"),
        lambda rng: {
            "x": rng.standard_normal((EDGE, EDGE), np.float32),
            "out": np.empty((EDGE, EDGE), np.float32),
        },
        {"x": "in", "out": "out"},
        lambda values: np.ascontiguousarray(values["x"].T),
    ),
    "histogram": Case(
        ("x", "out"),
        lambda rng: {
            "x": rng.integers(0, 256, (4, BYTES), np.uint8).mean(0, np.float32).astype(np.uint8),
            "out": np.zeros(256, np.uint32),
        },
        {"x": "in", "out": "inout"},
        lambda values: np.bincount(values["x"], minlength=256),
    ),
    "matmul": Case(
        ("a", "b", "out"),
        lambda rng: {
            "a": rng.uniform(-1, 1, (SIDE, SIDE)).astype(np.float32),
            "b": rng.uniform(-1, 1, (SIDE, SIDE)).astype(np.float32),
            "out": np.empty((SIDE, SIDE), np.float32),
        },
        {"a": "in", "b": "in", "out": "out"},
        lambda values: values["a"].astype(np.float64) @ values["b"],
        rtol=1e-5,
        atol=1e-4,
    ),
}


class Judge:
    """Verdicts on configurations of one recorded kernel, on this GPU."""

    def __init__(self, name: str, folder: Path) -> None:
        self.case = CASES[name]
        self.table: Table = read(folder / f"{name}_H200.npz")
        self.device = CudaDevice()
        self.workload = Workload("full", {"size": 1})
        meta = self.table.meta
        grid, block = tuple(meta["grid"]), tuple(meta["block"])
        launch = Launch(meta["entry"], self.case.arguments, grid, block)
        self.kernel = Kernel(
            (folder / "src" / f"{name}.cu").read_text(),
            "cuda",
            (launch,),
            scratch=self.case.scratch,
        )
        self.sets = []
        for seed in (1, 2):
            values = self.case.make(np.random.default_rng(seed))
            inputs = Inputs(values, self.case.roles, {"size": 1}, f"seed {seed}")
            self.sets.append((inputs, self.case.want(values)))
        self.best = self.table.space.values(self.table.rows[int(np.nanargmin(self.table.seconds))])
        made = self._right(self.best)
        if not isinstance(made, Built):
            raise RuntimeError(f"the recorded optimum of {name} fails: {made}")
        self.optimum = made

    def _right(self, values: Mapping[str, Any]) -> Built | str:
        """The kernel built and right on both sets, or why not."""
        made = build(self.kernel.with_values(**values), self.device.arch)
        if not isinstance(made, Built):
            return made.message
        for inputs, want in self.sets:
            left = self.device.run(made, self.workload, inputs, timeout=5.0)
            if isinstance(left, Failure):
                return left.message
            if left.inputs_changed or not self.case.is_right(left.arrays["out"], want):
                return "wrong"
        return made

    def seconds(self, values: Mapping[str, Any]) -> float | None:
        """The median of seven rounds, of three for one half as fast as the optimum; None if bad."""
        made = self._right(values)
        if not isinstance(made, Built):
            return None
        samples = self.device.time([made, self.optimum], self.workload, 3)
        if not isinstance(samples, Failure) and not hopeless(samples):
            more = self.device.time([made, self.optimum], self.workload, 4)
            samples = more if isinstance(more, Failure) else np.concatenate([samples, more])
        return None if isinstance(samples, Failure) else float(np.median(samples[:, 0]))

    def compared(self, values: Mapping[str, Any]) -> dict[str, float]:
        """The configuration and the recorded optimum in sixty rounds of three fresh groups."""
        made = self._right(values)
        assert isinstance(made, Built)
        samples = self.device.time([made, self.optimum], self.workload, 60)
        if isinstance(samples, Failure):
            raise RuntimeError(samples.message)
        return {
            "best_us": 1e6 * float(np.median(samples[:, 0])),
            "optimum_us": 1e6 * float(np.median(samples[:, 1])),
            "ratio": float(np.exp(np.median(np.log(samples[:, 0] / samples[:, 1])))),
        }


def search(name: str, folder: Path, seed: int) -> dict[str, Any]:
    """One live search; its evaluations and how close its best came to the recorded optimum."""
    judge = Judge(name, folder)
    started = time.perf_counter()
    tuner = Tuner(judge.table.space, budget=EVALUATIONS, seed=seed)
    while asked := tuner.ask():
        tuner.tell(asked[0], judge.seconds(asked[0]))
    seconds = time.perf_counter() - started
    assert tuner.best is not None
    places = {tuple(map(int, row)): i for i, row in enumerate(judge.table.rows)}
    place = places[tuple(map(int, judge.table.space.row(tuner.best.values)))]
    times = np.sort(judge.table.seconds[np.isfinite(judge.table.seconds)])
    found = {
        "space": name,
        "seed": seed,
        "evaluations": len(tuner.history),
        "failed": sum(told.seconds is None for told in tuner.history),
        "seconds": seconds,
        "values": dict(tuner.best.values),
        "recorded_ratio": float(judge.table.seconds[place] / times[0]),
        "recorded_rank": int(np.searchsorted(times, judge.table.seconds[place])) + 1,
        "curve_us": [1e6 * (told.seconds or np.nan) for told in tuner.history],
        **judge.compared(tuner.best.values),
    }
    judge.device.close()
    return found


def main(arguments: list[str]) -> None:
    """Search every recorded space at once and write one row each."""
    out, folder = Path(arguments[0]), Path(arguments[1])
    names = arguments[2:] or list(CASES)
    with ProcessPoolExecutor(len(names), get_context("spawn")) as pool:
        jobs = {name: pool.submit(search, name, folder, 0) for name in names}
        rows = []
        for name, job in jobs.items():
            rows.append(job.result())
            row = rows[-1]
            print(
                f"{name:11} {row['evaluations']} evaluations in {row['seconds']:.0f} s: "
                f"{row['best_us']:.1f} us, the recorded optimum {row['optimum_us']:.1f} us, ratio "
                f"{row['ratio']:.3f}; recorded rank {row['recorded_rank']}, ratio "
                f"{row['recorded_ratio']:.3f}",
                flush=True,
            )
            out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
