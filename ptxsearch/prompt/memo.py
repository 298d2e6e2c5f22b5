"""What a run has learned, as lines for a prompt: strategies, lineage, tried children."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ptxsearch.feedback import duration, shorten
from ptxsearch.tree import Node, TreeView

MOST_STRATEGIES = 12
MOST_CHILDREN = 24
_SUMMARY = 120


def memo_lines(view: TreeView) -> list[str]:
    """The best kernel so far and how each strategy fared; empty before the first verdict."""
    tried: dict[str, list[Node]] = {}
    for node in view:
        if node.id and node.state in ("ok", "failed"):
            tried.setdefault(node.edit.strategy, []).append(node)
    if not tried:
        return []
    lines = []
    best = view.incumbent
    if best.evaluation is not None and best.evaluation.ok:
        lines.append(
            f"- best kernel: #{best.id} ({_clip(best.edit.summary)}), "
            f"{duration(best.evaluation.seconds)}{_over(best, view.root, 'the tuned baseline')}"
        )
    ranked = sorted(tried, key=lambda name: (-_gain(view, tried[name]), name))
    return lines + [_strategy(view, name, tried[name]) for name in ranked[:MOST_STRATEGIES]]


def _gain(view: TreeView, nodes: Sequence[Node]) -> float:
    """The best log speedup over the parent that a strategy gave."""
    gains = [_log_speedup(node, _parent(view, node)) for node in nodes if node.state == "ok"]
    return max((gain for gain in gains if gain is not None), default=-math.inf)


def _strategy(view: TreeView, name: str, nodes: Sequence[Node]) -> str:
    passed = sum(node.state == "ok" for node in nodes)
    best = _gain(view, nodes)
    line = f"- {name}: {passed} of {len(nodes)} passed"
    if math.isfinite(best):
        line += f", best {math.exp(best):.3g}x the parent's speed"
    statuses = sorted(
        {n.evaluation.status for n in nodes if n.evaluation is not None and n.state == "failed"}
    )
    return line + (f"; failures: {', '.join(statuses)}" if statuses else "")


def lineage_lines(view: TreeView, node: Node) -> list[str]:
    """One line a step from the baseline to `node`."""
    path = view.lineage(node)
    if len(path) < 2:
        return []
    return [
        f"- #{step.id} {step.edit.strategy}: {_clip(step.edit.summary)}"
        f"{_over(step, view.root, 'the tuned baseline')}"
        for step in path[1:]
    ]


def child_lines(view: TreeView, node: Node) -> list[str]:
    """One line for each settled attempt at `node`, failures with their reason."""
    lines = []
    for child in view.children(node)[-MOST_CHILDREN:]:
        head = f"- #{child.id} {child.edit.strategy}: {_clip(child.edit.summary)}: "
        if child.state == "repeated":
            lines.append(head + "compiled to a kernel that is known")
        elif child.state == "ok":
            lines.append(head + "passed" + _over(child, node, "this kernel"))
        elif child.state == "failed" and child.evaluation is not None:
            first = next((m for m in child.evaluation.message.splitlines() if m.strip()), "")
            lines.append(head + shorten(f"{child.evaluation.status}: {first}"))
        else:
            lines.append(head + "not judged yet")
    return lines


def partner_of(view: TreeView, node: Node) -> Node | None:
    """The best kernel of another family than `node`'s; None where there is none."""
    found = [
        other
        for other in view
        if other.reward is not None
        and other.id not in (0, node.id)
        and other.family != node.family
        and other.kernel is not None
    ]
    return max(found, key=lambda other: (other.reward or 0.0, -other.id), default=None)


def _parent(view: TreeView, node: Node) -> Node:
    return view[node.parents[0].parent] if node.parents else view.root


def _log_speedup(node: Node, other: Node) -> float | None:
    if node.evaluation is None or other.evaluation is None:
        return None
    gain = other.evaluation.seconds / node.evaluation.seconds
    return math.log(gain) if math.isfinite(gain) and gain > 0 else None


def _over(node: Node, other: Node, name: str) -> str:
    gain = _log_speedup(node, other)
    return "" if gain is None else f", {math.exp(gain):.3g}x the speed of {name}"


def _clip(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SUMMARY else line[: _SUMMARY - 3] + "..."
