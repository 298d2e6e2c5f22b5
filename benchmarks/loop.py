"""What the loop itself costs: `python benchmarks/loop.py [--trials 10000] [--scale]`.

A search whose verdicts are free, so that only deciding, journal and tree are timed (CPU time).
`--scale` goes to 100,000 trials in one store and resumes it, printing growth on the way.
"""

from __future__ import annotations

import argparse
import hashlib
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from ptxsearch.budget import Budget
from ptxsearch.evaluation import Evaluation, Timing
from ptxsearch.kernel import Edit, Kernel, Launch, Proposal
from ptxsearch.param import Param
from ptxsearch.policy import Policy
from ptxsearch.search import Search
from ptxsearch.selection import Situation, select
from ptxsearch.store import SQLiteStore
from ptxsearch.tasks import Task, Workload
from ptxsearch.tree import Node, Tree, TreeView

LAUNCH = Launch("k", ("x",), ("1",), ("32",))
TARGETS = {"select and backup, us": 100.0, "journal append, ms": 1.0}


class Endless:
    """A proposer that always has one more idea."""

    def propose(
        self, view: TreeView, node: Node, n: int, rng: np.random.Generator
    ) -> list[Proposal]:
        number = len(node.edges)
        text = hashlib.sha256(f"{node.id}.{number}".encode()).hexdigest()
        return [Proposal("", node.id, Kernel(text, "cuda", (LAUNCH,)), Edit(f"s{number % 7}", "e"))]


def verdict(kernel: Kernel) -> Evaluation:
    """Seven of ten kernels pass, at a time drawn from the source."""
    draw = int(hashlib.sha256(kernel.source.encode()).hexdigest()[:8], 16) / 2**32
    if draw > 0.7 and kernel.source != "start":
        return Evaluation("WRONG", "correctness", "drawn", source="modelled")
    seconds = 1e-4 * (0.5 + draw)
    times = {"w": Timing(seconds, seconds, seconds, 1)}
    return Evaluation("OK", "quick", key=kernel.source, times=times, source="modelled")


def task() -> Task:
    return Task(
        name="free",
        level=1,
        description="nothing",
        params=(Param("x", "out", "f32", ("n",)),),
        workloads=(Workload("w", {"n": 4}),),
        reference=lambda **_: np.zeros(4),
        baseline=Kernel("start", "cuda", (LAUNCH,)),
    )


def run(path: Path, trials: int, steps: list[int]) -> Search:
    """A whole run in a store; prints CPU microseconds a trial at each of `steps`."""
    store = SQLiteStore(path)
    search = Search(task(), proposers=[Endless()], budget=Budget(trials=trials), store=store)
    started, seen = time.process_time(), 0
    while not search.done:
        for proposal in search.ask(4):
            assert proposal.kernel is not None
            search.tell([(proposal.id, verdict(proposal.kernel))])
        count = len(search.progress.trials)
        if steps and count >= steps[0]:
            spent = time.process_time() - started
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(
                f"{count:>8} trials  {1e6 * spent / (count - seen):8.0f} us a trial (all of it)  "
                f"{memory:7.0f} MB",
                flush=True,
            )
            started, seen = time.process_time(), count
            steps.pop(0)
    store.close()
    return search


def select_and_backup(nodes: int) -> float:
    """CPU microseconds of one selection with its addition, verdict and backup at `nodes` nodes."""
    rng = np.random.default_rng(0)
    tree, policy = Tree(task().baseline), Policy()
    tree.settle(tree.root, "ok", reward=0.0)
    kernel = task().baseline

    def step() -> None:
        descent = select(tree, policy, Situation(), rng)
        assert descent is not None
        node = tree.add(descent.node, kernel, Edit("s", "e"), prior=1.0, idea=None)
        path = (*descent.path, node.parents[0])
        tree.visit(path, settled=False)
        tree.visit(path, settled=True)
        good = rng.random() < 0.7
        # Most edits lose a little, some gain, and gains get rarer as kernels get better.
        gain = float(rng.normal(-0.1 - 0.1 * max(descent.node.reward or 0.0, 0.0), 0.15))
        reward = (descent.node.reward or 0.0) + gain if good else None
        tree.settle(node, "ok" if good else "failed", reward=reward)

    while len(tree.nodes) < nodes:
        step()
    count = 2000
    started = time.process_time()
    for _ in range(count):
        step()
    return 1e6 * (time.process_time() - started) / count


def append(folder: Path) -> float:
    """CPU milliseconds of one durable event of typical size."""
    with SQLiteStore(folder / "append") as store:
        event = {"type": "tell", "evaluation": verdict(task().baseline).to_dict()}
        started = time.process_time()
        for _ in range(2000):
            store.append(event)
        return 1e3 * (time.process_time() - started) / 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--scale", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = {
            "select and backup, us": select_and_backup(options.nodes),
            "journal append, ms": append(folder),
        }
        for what, figure in found.items():
            print(f"{what:28} {figure:8.3f}   target {TARGETS[what]:g}")
        if options.scale:
            trials = 100_000
            steps = [1000, 3000, 10_000, 30_000, 60_000, 100_000]
            first = run(folder / "scale", trials, steps)
            nodes = len(first.progress.tree.nodes)
            micros = select_and_backup(nodes)
            print(f"select and backup at {nodes} nodes, us {micros:.1f}   target 200")
            del first
            started = time.process_time()
            with SQLiteStore(folder / "scale") as store:
                again = Search(
                    task(), proposers=[Endless()], budget=Budget(trials=trials), store=store
                )
            print(f"resume of {trials} trials, s {time.process_time() - started:.1f}   target 60")
            assert len(again.progress.tree.nodes) == nodes


if __name__ == "__main__":
    main()
