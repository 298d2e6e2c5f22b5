"""A toy task whose times follow a formula: searches over it need no compiler and no device."""

from __future__ import annotations

import hashlib

import numpy as np

from ptxsearch.evaluation import Evaluation, Timing
from ptxsearch.kernel import Edit, Kernel, Launch, Proposal
from ptxsearch.space import Space
from ptxsearch.tasks import Param, Task, Workload
from ptxsearch.tree import Node, TreeView

SPACE = Space({"A": (1, 2, 4, 8), "B": (0, 1, 2)})
STATUSES = ("OK", "OK", "OK", "WRONG", "COMPILE_ERROR")


def toy_kernel(source: str = "start", *, space: Space | None = SPACE) -> Kernel:
    """A kernel nobody compiles."""
    values = {} if space is None else {"A": 1, "B": 0}
    return Kernel(source, "cuda", (Launch("k", ("x",), ("1",), ("32",)),), values, space)


def toy_task(*, space: Space | None = SPACE) -> Task:
    """One output, one workload."""
    return Task(
        name="toy",
        level=1,
        description="toy",
        params=(Param("x", "out", "f32", ("n",)),),
        workloads=(Workload("only", {"n": 4}),),
        reference=lambda **_: np.zeros(4),
        baseline=toy_kernel(space=space),
    )


def _draw(text: str) -> float:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") / 2**32


class ToyProposer:
    """`most` children a node, whose sources name the path; deterministic."""

    def __init__(self, most: int = 6, *, space: Space | None = SPACE) -> None:
        self.most, self.space = most, space

    def propose(
        self, view: TreeView, node: Node, n: int, rng: np.random.Generator
    ) -> list[Proposal]:
        """The next child of `node`."""
        number = len(node.edges)
        if number >= self.most or node.kernel is None:
            return []
        kernel = toy_kernel(f"{node.kernel.source}.{number}", space=self.space)
        edit = Edit(f"strategy{number}", f"edit {number}")
        return [Proposal("", node.id, kernel, edit, prior=1.0 / (1 + number))]


def toy_verdict(kernel: Kernel, *, failing: bool = True) -> Evaluation:
    """A status and a time that depend on source and values alone."""
    source = kernel.source
    status = STATUSES[int(_draw(source) * len(STATUSES))] if failing else "OK"
    if source == "start":
        status = "OK"
    if status != "OK":
        return Evaluation(status, "correctness", "toy", source="modelled")
    depth = source.count(".")
    seconds = 1e-4 * (0.5 + _draw(source + "time")) * 0.9**depth
    seconds *= 1 + abs(float(kernel.values.get("A", 4)) - 4) / 8
    key = hashlib.sha256(f"{source}{sorted(kernel.values.items())}".encode()).hexdigest()
    times = {"only": Timing(seconds, seconds, seconds, 1)}
    return Evaluation("OK", "quick", key=key, times=times, source="modelled")


class ToyEvaluator:
    """Judges by `toy_verdict` and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def evaluate(
        self,
        task: Task,
        kernel: Kernel,
        *,
        baseline: Kernel | None = None,
        rival: Kernel | None = None,
    ) -> Evaluation:
        """The toy verdict."""
        self.asked += 1
        return toy_verdict(kernel)
