"""How many evaluations a parameter search needs on recorded spaces, beside its peers.

    python benchmarks/search_efficiency.py --space FILE... [--seeds 25] [--no-peers] [--json]

ERT5 and ERT1 are the evaluations spent by all runs over the runs that came within 5 % and 1 % of
the recorded optimum, every run with a budget of 400. `--cache` keeps the peers' runs in a file of
JSON lines, so that they are not run again. Set OPENBLAS_NUM_THREADS=1: the matrices are small.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxsearch import replay
from ptxsearch.space import Rows, Value
from ptxsearch.tuner import Told, Tuner, carried

BUDGET = 400
RESAMPLES = 1000
OURS = "ptxsearch"
Curve = NDArray[np.float64]


def our_run(
    recording: replay.Recording, *, seed: int, elsewhere: replay.Recording | None = None
) -> list[int]:
    """The table's rows in the order in which the tuner measures them.

    `elsewhere` is the same kernel recorded on another device: its ten best are tried first and
    its times are the prior. Ends once the recorded optimum is measured: nothing that is reported
    can change after it.
    """
    table = recording.table
    best = int(np.nanargmin(table.seconds))
    tuner = Tuner(table.space, budget=BUDGET, seed=seed)
    if elsewhere is not None:
        first, prior = transfer(recording, elsewhere)
        tuner = Tuner(table.space, budget=BUDGET, seed=seed, first=first, prior=prior)
    order: list[int] = []
    while best not in order and (asked := tuner.ask()):
        place = recording.find(asked[0])
        if place is None:
            raise RuntimeError(f"{asked[0]} is not recorded")
        order.append(place)
        seconds = float(table.seconds[place])
        tuner.tell(asked[0], seconds if math.isfinite(seconds) else None)
    return order


def transfer(
    recording: replay.Recording, elsewhere: replay.Recording
) -> tuple[list[dict[str, Value]], Callable[[Rows], NDArray[np.float64]]]:
    """The best configurations of another recording that are legal here, and its log times."""
    other, space = elsewhere.table, recording.space
    fastest = np.argsort(other.seconds)[: np.isfinite(other.seconds).sum()]
    history = [
        Told(other.space.values(other.rows[i]), float(other.seconds[i])) for i in fastest[:50]
    ]
    known = {tuple(map(int, row)): i for i, row in enumerate(other.rows)}

    def prior(rows: Rows) -> NDArray[np.float64]:
        places = [known.get(tuple(map(int, row)), -1) for row in rows]
        return np.asarray(np.log(np.append(other.seconds, np.nan))[places])

    if other.space.params != space.params:
        raise RuntimeError(f"{other.name} has other parameters than {recording.table.name}")
    return carried(history, space, defaults=history[0].values), prior


def best_so_far(seconds: NDArray[np.float64], order: Sequence[int]) -> Curve:
    """The fastest time after each evaluation, infinite before the first success."""
    times = seconds[np.asarray(order, dtype=int)]
    return np.minimum.accumulate(np.where(np.isfinite(times), times, np.inf))


def expected_running_time(curves: Sequence[Curve], target: float) -> float:
    """Evaluations spent by all runs over the runs that reached `target` seconds."""
    spent = reached = 0
    for curve in curves:
        hits = np.flatnonzero(curve <= target)
        spent += int(hits[0]) + 1 if len(hits) else len(curve)
        reached += len(hits) > 0
    return spent / reached if reached else math.inf


def interval(curves: Sequence[Curve], target: float) -> list[float]:
    """The middle 90 % of the expected running time over 1,000 resamples of the runs."""
    rng = np.random.default_rng(0)
    times = [
        expected_running_time(
            [curves[i] for i in rng.integers(0, len(curves), len(curves))], target
        )
        for _ in range(RESAMPLES)
    ]
    low, high = np.quantile(times, (0.05, 0.95), method="nearest")
    return [float(low), float(high)]


def summary(curves: Sequence[Curve], best: float, budgets: Sequence[int]) -> dict[str, Any]:
    """ERT5, ERT1 and the median fraction of the optimum after each of `budgets` evaluations."""
    fraction = {}
    for budget in budgets:
        reached = [best / curve[min(budget, len(curve)) - 1] for curve in curves]
        fraction[str(budget)] = float(np.median(reached))
    return {
        "ert5": expected_running_time(curves, 1.05 * best),
        "ert1": expected_running_time(curves, 1.01 * best),
        "fraction": fraction,
        "mean_fraction_50": float(np.mean([best / c[min(50, len(c)) - 1] for c in curves])),
        "median_to_5": float(np.median([_first(c, 1.05 * best) for c in curves])),
        "ert5_interval": interval(curves, 1.05 * best),
    }


def _first(curve: Curve, target: float) -> float:
    hits = np.flatnonzero(curve <= target)
    return float(hits[0] + 1) if len(hits) else math.inf


def median_fraction(curves: Sequence[Curve], best: float) -> Curve:
    """The median over runs of the fraction of the optimum after 1 to BUDGET evaluations."""
    padded = [np.r_[c, np.full(BUDGET - len(c), c[-1])] for c in curves]
    return np.asarray(np.median(best / np.array(padded), axis=0))


def plot(curves: dict[str, list[Curve]], path: Path) -> None:
    """Draws the mean over spaces of each strategy that ran on all of them."""
    from matplotlib import pyplot

    most = max(map(len, curves.values()))
    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for strategy, own in curves.items():
        if len(own) == most:
            width = 2.5 if strategy == OURS else 1.0
            axes.plot(range(1, BUDGET + 1), np.mean(own, axis=0), label=strategy, lw=width)
    axes.set(xscale="log", xlim=(5, BUDGET), ylim=(0.5, 1.0), xlabel="evaluations")
    axes.set_ylabel("best found / optimum (median of runs, mean of spaces)")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=130)


class Cache:
    """Orders of measurement by (space, strategy, seed), kept in a file of JSON lines."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[tuple[str, str, int], list[int]] = {}
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                entry = json.loads(line)
                self._known[entry["space"], entry["strategy"], entry["seed"]] = entry["order"]

    def get(
        self, space: str, strategy: str, seed: int, make: Callable[[], list[int]] | None
    ) -> list[int] | None:
        """The order known or made now; None where it is neither."""
        key = (space, strategy, seed)
        if make is not None and (strategy == OURS or key not in self._known):
            self._known[key] = make()
            if self._path is not None and strategy != OURS:
                entry = {"space": space, "strategy": strategy, "seed": seed}
                entry["order"] = self._known[key]
                with self._path.open("a") as file:
                    file.write(json.dumps(entry) + "\n")
        return self._known.get(key)


def runs_of(
    recording: replay.Recording, strategies: Iterable[str], *, options: argparse.Namespace
) -> Iterator[tuple[str, list[Curve]]]:
    """Each strategy with its best-so-far curves on one space, ours first."""
    cache = Cache(options.cache)
    other = replay.load(options.elsewhere, noise=False)[1] if options.elsewhere else None
    run = partial(_order, recording, elsewhere=other)
    for strategy in (OURS, *strategies):
        curves = []
        for seed in range(options.seeds):
            make = None if options.cached_only else partial(run, strategy, seed)
            order = cache.get(recording.table.name, strategy, seed, make)
            if order:
                curves.append(best_so_far(recording.table.seconds, order))
        if curves:
            yield strategy, curves


def _order(
    recording: replay.Recording, strategy: str, seed: int, *, elsewhere: replay.Recording | None
) -> list[int]:
    if strategy == OURS:
        return our_run(recording, seed=seed, elsewhere=elsewhere)
    import peers

    return peers.run(strategy, recording.table, seed=seed, budget=BUDGET)


def _finite(value: Any) -> Any:
    """The same with null for what no run reached: JSON has no infinity."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def printed(results: Sequence[dict[str, Any]], budgets: Sequence[int]) -> str:
    """The results as a table, with geometric means over the spaces that a strategy ran on."""
    heads = "".join(f"{'@' + str(b):>7}" for b in budgets)
    lines = [f"{'space':38}{'strategy':24}{'seeds':>6}{'ERT5':>8}{'ERT1':>8}{heads}"]
    for r in results:
        parts = "".join(f"{r['fraction'][str(b)]:7.3f}" for b in budgets)
        lines.append(
            f"{r['space']:38}{r['strategy']:24}{r['seeds']:6}{r['ert5']:8.1f}{r['ert1']:8.1f}{parts}"
        )
    for strategy in dict.fromkeys(r["strategy"] for r in results):
        own = [r for r in results if r["strategy"] == strategy]
        erts = [math.exp(np.mean(np.log([r[key] for r in own]))) for key in ("ert5", "ert1")]
        parts = "".join(f"{np.mean([r['fraction'][str(b)] for r in own]):7.3f}" for b in budgets)
        space = f"mean of {len(own)} spaces"
        lines.append(f"{space:38}{strategy:24}{'':6}{erts[0]:8.1f}{erts[1]:8.1f}{parts}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the searches that the command line asks for and prints the table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--space", nargs="+", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=25)
    parser.add_argument("--budgets", default="25,50,100,200", help="evaluations, comma separated")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--peers", help="strategies, comma separated (all of them)")
    parser.add_argument("--cache", type=Path, help="file of JSON lines with the peers' runs")
    parser.add_argument("--cached-only", action="store_true", help="run nothing, ours neither")
    parser.add_argument("--elsewhere", type=Path, help="the kernel recorded on another device")
    parser.add_argument("--plot", type=Path, help="image file of the curves")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    options.budgets = [int(budget) for budget in options.budgets.split(",")]
    strategies: Sequence[str] = ()
    if options.peers:
        strategies = options.peers.split(",")
    elif not options.no_peers:
        import peers

        strategies = [name for name in peers.STRATEGIES if name not in peers.missing()]
        for name, package in peers.missing().items():
            print(f"{name} is left out: it needs {package}", file=sys.stderr)
    results, curves = [], defaultdict(list)
    for path in options.space:
        _, recording = replay.load(path, noise=False)
        for strategy, runs in runs_of(recording, strategies, options=options):
            found = {"space": recording.table.name, "strategy": strategy, "seeds": len(runs)}
            results.append(found | summary(runs, recording.best_seconds, options.budgets))
            curves[strategy].append(median_fraction(runs, recording.best_seconds))
    if options.plot:
        plot(curves, options.plot)
    if options.json:
        print(json.dumps(_finite(results), indent=1, allow_nan=False))
    else:
        print(printed(results, options.budgets))
    return 0


if __name__ == "__main__":
    sys.exit(main())
