"""A kernel tuned on one GPU, run on another: `python benchmarks/generalisation.py FILE...`.

For every pair of recordings of one kernel: the best configuration of the row's device, as a share
of the optimum of the column's device; "-" where it is not legal or fails there. The last column is
the best single configuration's smallest share over all devices: what one kernel for all of them
could reach.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ptxsearch.interchange import Table, read
from ptxsearch.space import Value

Values = tuple[tuple[str, Value], ...]


def times(table: Table) -> dict[Values, float]:
    """Seconds of every valid configuration, by its values."""
    names = sorted(table.space.params)
    found = {}
    for row, seconds in zip(table.rows, table.seconds, strict=True):
        if np.isfinite(seconds):
            values = table.space.values(row)
            found[tuple((name, values[name]) for name in names)] = float(seconds)
    return found


def shares(known: Sequence[Mapping[Values, float]]) -> np.ndarray:
    """Entry (i, j): optimum of j over the time on j of the optimum of i; nan where it fails."""
    best = [min(times, key=lambda values: times[values]) for times in known]
    matrix = np.full((len(known), len(known)), np.nan)
    for i, values in enumerate(best):
        for j, other in enumerate(known):
            if values in other:
                matrix[i, j] = min(other.values()) / other[values]
    return matrix


def common(known: Sequence[Mapping[Values, float]]) -> tuple[float, Values]:
    """The configuration whose smallest share over all devices is largest, and that share."""
    optima = [min(times.values()) for times in known]
    everywhere = set.intersection(*(set(times) for times in known))
    worst = {
        values: min(best / times[values] for best, times in zip(optima, known, strict=True))
        for values in everywhere
    }
    winner = max(worst, key=lambda values: worst[values])
    return worst[winner], winner


def main(paths: Sequence[str]) -> None:
    """Print one table for each kernel that was recorded on several devices."""
    kernels: dict[tuple[str, ...], list[tuple[str, dict[Values, float]]]] = defaultdict(list)
    for path in sorted(paths):
        table = read(path)
        kernel = (Path(path).name.split("_")[0], *sorted(table.space.params))
        kernels[kernel].append((Path(path).stem, times(table)))
    for (name, *_), recorded in kernels.items():
        if len(recorded) < 2:
            continue
        matrix = shares([known for _, known in recorded])
        share, values = common([known for _, known in recorded])
        print(f"\n{name}: one kernel for all reaches {share:.2f} everywhere ({dict(values)})")
        print("| best of | " + " | ".join(device for device, _ in recorded) + " |")
        print("|---|" + "---|" * len(recorded))
        for (device, _), row in zip(recorded, matrix, strict=True):
            cells = ["-" if np.isnan(cell) else f"{cell:.2f}" for cell in row]
            print(f"| {device} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main(sys.argv[1:])
