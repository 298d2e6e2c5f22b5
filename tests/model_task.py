"""A task for tests of prompts and of the model's proposer, with verdicts written by hand."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ptxsearch.evaluation import Counters, Evaluation, Resources, Timing
from ptxsearch.kernel import Edit, Idea, Kernel, Launch
from ptxsearch.space import Space
from ptxsearch.tasks import Param, Task, Workload
from ptxsearch.tree import Node, Tree

SOURCE = """extern "C" __global__ void twice(const float* x, float* y, int n) {
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i < n) y[i] = 2.0f * x[i];
}"""
LAUNCHES = (
    Launch("twice", ("x", "y", "n"), ("ceil_div(n, BLOCK)", "1", "1"), ("BLOCK", "1", "1")),
)


def kernel(body: str = "") -> Kernel:
    """The baseline, with `body` as a comment that tells one version from another."""
    source = f"{SOURCE}\n// {body}" if body else SOURCE
    return Kernel(source, "cuda", LAUNCHES, {"BLOCK": 256}, Space({"BLOCK": (128, 256)}))


def task() -> Task:
    """Twice x over n floats."""
    return Task(
        name="test/twice",
        level=1,
        description="y[i] = 2 x[i] for n floats.",
        params=(
            Param("x", "in", "f32", ("n",)),
            Param("y", "out", "f32", ("n",)),
            Param("n", "scalar", "s32", init="n"),
        ),
        workloads=(
            Workload("small", {"n": 1000}),
            Workload("secret", {"n": 31337}, public=False),
            Workload("full", {"n": 1 << 24}, timed=True),
        ),
        reference=lambda x, n: 2 * x.astype(np.float64),
        baseline=kernel(),
        scale={"y": "exact"},
        bytes_in="4 * n",
        bytes_out="4 * n",
    )


def passed(microseconds: float, *, registers: int = 16, sectors: float = 4.2e6) -> Evaluation:
    """A verdict of a kernel that passed in so many microseconds."""
    seconds = microseconds * 1e-6
    requests = (1 << 24) / 32
    return Evaluation(
        "OK",
        "quick",
        key=str(microseconds),
        source="modelled",
        times={"full": Timing(seconds, seconds, seconds, 1)},
        resources={"twice": Resources(registers, occupancy=1.0, limiter="warps")},
        counters={
            "full": Counters(
                ptx_warp_instructions=12 * requests,
                ptx_thread_instructions=384 * requests,
                global_load_requests=requests,
                global_load_sectors=sectors / 2,
                global_load_bytes=128 * requests,
                global_store_requests=requests,
                global_store_sectors=sectors / 2,
                global_store_bytes=128 * requests,
            )
        },
        evidence={"floor_seconds": 27.96e-6},
    )


def failed(status: Any, message: str, **more: Any) -> Evaluation:
    """A verdict of a kernel that failed."""
    return Evaluation(status, more.pop("stage", "correctness"), message, **more)


def idea(title: str, strategy: str = "vector-loads", **changes: Any) -> dict[str, Any]:
    """An idea as a model writes it."""
    fields = {"kind": "edit", "p_correct": 0.8, "p10": 0.0, "p50": 0.1, "p90": 0.3}
    return {**fields, "title": title, "strategy": strategy, **changes}


def plan(*ideas: dict[str, Any]) -> str:
    """A PLAN answer."""
    return json.dumps({"ideas": list(ideas)})


def answer(body: str) -> str:
    """An IMPLEMENT answer whose kernel differs by `body`."""
    return f"Analysis.\n\n```cuda\n{kernel(body).source}\n```\n"


def grown(*children: tuple[str, Evaluation]) -> tuple[Tree, list[Node]]:
    """A tree whose root passed in 100 us and has children of these titles and verdicts."""
    tree = Tree(kernel())
    tree.settle(tree.root, "ok", evaluation=passed(100), reward=0.0)
    nodes = []
    for title, verdict in children:
        nodes.append(attach(tree, tree.root, title, verdict))
    return tree, nodes


def attach(tree: Tree, parent: Node, title: str, verdict: Evaluation) -> Node:
    """A settled child of `parent`."""
    planned = Idea(title, "vector-loads")
    edit = Edit("vector-loads", title)
    child = tree.add(parent, kernel(title), edit, prior=1.0, idea=planned)
    if verdict.ok:
        tree.settle(child, "ok", evaluation=verdict, reward=float(np.log(1e-4 / verdict.seconds)))
    else:
        tree.settle(child, "failed", evaluation=verdict)
    return child
