"""Which failed kernels are worth a repair, how often, and with what advice."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ptxsearch.evaluation import Evaluation
from ptxsearch.policy import Policy
from ptxsearch.tree import Node

_MENDS = re.compile(r"mends #(\d+): ")
# A hang says nothing about its cause, and a cheat is not to be polished.
_BUILD = frozenset({"NO_KERNEL", "REJECTED", "COMPILE_ERROR", "PRUNED"})
_RESULT = frozenset({"WRONG", "CRASHED"})

_ADVICE: Mapping[str, str] = {
    "data_race": "Order the accesses: a barrier between writing and reading shared data, also "
    "before the data is overwritten in the next round.",
    "out_of_bounds_read": "Guard the index by the size before the access.",
    "out_of_bounds_write": "Guard the index by the size before the access.",
    "uninitialised_read": "Write every element before it is read, also in the tail.",
    "misaligned_access": "Vector accesses need aligned addresses for every row and offset; use "
    "scalars where the row length is no multiple of the vector.",
    "divergent_barrier": "Every thread of the block must reach the barrier: no return or branch "
    "around it.",
    "COMPILE_ERROR": "Look for the same mistake elsewhere in the kernel.",
    "WRONG": "Follow one wrong element by hand through index, tail and order.",
}


def allowance(status: str, policy: Policy) -> int:
    """How many repairs a failure of this status gets."""
    if status in _BUILD:
        return policy.compile_repairs
    return policy.result_repairs if status in _RESULT else 0


def advice(evaluation: Evaluation) -> str:
    """One sentence for this kind of failure, empty where there is none."""
    for fault in evaluation.faults:
        if fault.kind in _ADVICE:
            return _ADVICE[fault.kind]
    return _ADVICE.get(evaluation.status, "")


def fingerprint(evaluation: Evaluation) -> str:
    """Equal for the same error at another line or with other numbers."""
    first = next((line for line in evaluation.message.splitlines() if line.strip()), "")
    return f"{evaluation.status}:{re.sub(r'[0-9]+', '#', first)}"


def summary_of(failed: Node, title: str) -> str:
    """The summary of an edit that mends `failed`."""
    return f"mends #{failed.id}: {title}"


def mended_by(node: Node) -> int | None:
    """The number of the node that `node` is a repair of; None where it is none."""
    match = _MENDS.match(node.edit.summary)
    return int(match[1]) if match else None


def due(children: Sequence[Node], policy: Policy) -> Node | None:
    """The first failed child that still has a repair to its credit.

    A chain of repairs of one kernel counts together, and it ends where an error comes back.
    """
    by_number = {child.id: child for child in children}
    replaced = {mended_by(child) for child in children}
    for child in children:
        if child.id in replaced or child.kernel is None or child.idea is None:
            continue
        if child.state != "failed" or child.evaluation is None:
            continue
        chain = _chain(child, by_number)
        seen = [fingerprint(n.evaluation) for n in chain if n.evaluation is not None]
        limit = allowance(child.evaluation.status, policy)
        if len(chain) < limit and fingerprint(child.evaluation) not in seen:
            return child
    return None


def _chain(child: Node, by_number: Mapping[int, Node]) -> list[Node]:
    """The failed kernels that `child` descends from by repairs."""
    chain: list[Node] = []
    number = mended_by(child)
    while number is not None and number in by_number:
        chain.append(by_number[number])
        number = mended_by(by_number[number])
    return chain
