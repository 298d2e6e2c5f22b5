"""What a run has learned, as lines for a prompt: strategies, lineage, tried children."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from ptxsearch.feedback import duration, shorten
from ptxsearch.kernel import Idea
from ptxsearch.tree import Node, TreeView

MOST_STRATEGIES = 12
MOST_CHILDREN = 24
_SUMMARY = 120
_NUMBER = re.compile(r"#(\d{1,6})\b")


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
    ranked = sorted(tried, key=lambda name: (_fastest(tried[name])[0], name))
    return lines + [_strategy(view, name, tried[name]) for name in ranked[:MOST_STRATEGIES]]


def _fastest(nodes: Sequence[Node]) -> tuple[float, Node | None]:
    """Seconds of the fastest that passed, and the node; infinity and None where none did."""
    timed = [
        (node.evaluation.seconds, node.id, node)
        for node in nodes
        if node.state == "ok" and node.evaluation is not None
    ]
    seconds, _, best = min(timed, default=(math.inf, 0, None))
    return seconds, best


def _strategy(view: TreeView, name: str, nodes: Sequence[Node]) -> str:
    passed = sum(node.state == "ok" for node in nodes)
    seconds, best = _fastest(nodes)
    line = f"- {name}: {passed} of {len(nodes)} passed"
    if best is not None and math.isfinite(seconds):
        line += f", best {duration(seconds)}{_over(best, _parent(view, best), 'its parent')}"
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


def partner_for(view: TreeView, node: Node, idea: Idea) -> Node | None:
    """The kernel that a crossing idea names as #N, else the best one of another family now."""
    for number in map(int, _NUMBER.findall(f"{idea.title} {idea.mechanism}")):
        named = next((other for other in view if other.id == number), None)
        if named is not None and named.id not in (0, node.id) and named.kernel is not None:
            return named
    return partner_of(view, node)


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
