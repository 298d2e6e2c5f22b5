"""Pictures of a run: how it converged, and its tree. Needs the extra `plot` (matplotlib)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptxsearch.errors import UsageError
from ptxsearch.tree import TreeView
from ptxsearch.trial import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {"ok": "tab:green", "failed": "tab:red", "repeated": "tab:gray", "pending": "tab:blue"}


def convergence(result: Result, axes: Axes | None = None) -> Axes:
    """Time of every trial that passed in microseconds, and the best so far, by trial."""
    chart: Axes = _axes(axes)
    passed = [trial for trial in result.trials if trial.evaluation.ok]
    numbers = [trial.id for trial in passed]
    times = [trial.evaluation.seconds * 1e6 for trial in passed]
    best = [min(times[: i + 1]) for i in range(len(times))]
    chart.plot(numbers, times, "o", color="tab:blue", alpha=0.5, label="trial")
    chart.step(numbers, best, where="post", color="tab:green", label="best so far")
    failed = [trial.id for trial in result.trials if not trial.evaluation.ok]
    if failed and times:
        chart.plot(failed, [max(times)] * len(failed), "x", color="tab:red", label="did not pass")
    source = passed[0].evaluation.source if passed else "modelled"
    chart.set_xlabel("trial")
    chart.set_ylabel(f"time in us ({source})")
    chart.set_yscale("log")
    chart.legend()
    return chart


def tree(view: TreeView, axes: Axes | None = None) -> Axes:
    """The search tree from left to right; a node's height is its place among its siblings."""
    chart: Axes = _axes(axes)
    places = _places(view)
    for node in view:
        x, y = node.depth, places[node.id]
        for child in view.children(node):
            chart.plot([x, child.depth], [y, places[child.id]], color="lightgray", zorder=1)
    for node in view:
        x, y = node.depth, places[node.id]
        chart.scatter([x], [y], s=70, color=_COLOURS[node.state], zorder=2)
        label = node.edit.strategy
        if node.reward is not None:
            label += f" {node.reward:+.2f}"
        chart.annotate(label, (x, y), xytext=(6, 3), textcoords="offset points", fontsize=8)
    chart.set_xlabel("depth")
    chart.set_yticks([])
    chart.margins(x=0.3, y=0.2)
    return chart


def _places(view: TreeView) -> dict[int, float]:
    """Leaves one below another, a parent at the middle of its children."""
    places: dict[int, float] = {}
    row = 0
    for node in reversed(list(view)):
        below = [places[c.id] for c in view.children(node) if c.id in places and c.id > node.id]
        if below:
            places[node.id] = sum(below) / len(below)
        else:
            places[node.id] = float(row)
            row += 1
    return places


def _axes(axes: Axes | None) -> Any:
    if axes is not None:
        return axes
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise UsageError(
            "plots need matplotlib", "pip install '.[plot]' in the checkout"
        ) from error
    return plt.subplots(figsize=(7, 4))[1]
