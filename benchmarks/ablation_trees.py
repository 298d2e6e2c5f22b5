"""Drawn worlds of ideas whose verdicts are free: what a policy does where 70 of 100 kernels fail.

A world has 24 ideas (or 6) of three variants each. A kernel is the set of ideas it holds. Its log
speedup is a saturating function of the ideas' gains, a quarter of which interact; a few pairs
pay only together although one of them alone costs time. Proposals at a node are drawn with
replacement, the obvious ones more often, so that they repeat the more a node is expanded; in some
worlds they end. Every kernel has two parameters that cost up to 23 % where they are wrong. All of
it follows from the world's family and seed.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace

import numpy as np

from ptxsearch.evaluation import Evaluation, Status, Timing
from ptxsearch.kernel import Edit, Kernel, Launch, Proposal
from ptxsearch.param import Param
from ptxsearch.space import Space
from ptxsearch.tasks import Task, Workload
from ptxsearch.tree import Node, TreeView

VARIANTS = "abc"
BASELINE_SECONDS = 1e-4
_SPACE = Space({"A": (1, 2, 3, 4), "B": (0, 1)})
_FAILURES: tuple[tuple[float, Status], ...] = (
    (0.45, "WRONG"), (0.80, "COMPILE_ERROR"), (0.92, "CRASHED"), (1.0, "TIMEOUT"),
)  # fmt: skip


@dataclass(frozen=True)
class Family:
    """What worlds of one kind share: how often kernels fail, how much there is to gain.

    `gain` is the mean of a helpful idea's log speedup, `ceiling` the log speedup that gains
    saturate at, `traps` the share of pairs that pay only together, `told` how well priors
    correlate with gains. A node has `plan` different ideas, and then none; without, ideas are drawn
    with replacement for ever.
    """

    ideas: int = 24
    plan: int | None = None

    failing: float = 0.7
    gain: float = 0.15
    ceiling: float = 2.0
    traps: float = 0.03
    told: float = 0.5


FAMILIES = {
    "plain": Family(),
    "low ceiling": Family(ceiling=0.7),
    "small gains": Family(gain=0.06),
    "traps": Family(traps=0.10),
    "blind priors": Family(told=0.0),
    "half fail": Family(failing=0.5),
}
# Worlds in which a node's ideas end as a model's plan does, and one with so few ideas that the same
# kernel is reached by several ways all the time.
OTHERS = {
    "plans": Family(plan=8),
    "plans, traps": Family(plan=8, traps=0.10),
    "plans, half fail": Family(plan=8, failing=0.5),
    "few ideas": Family(ideas=6, failing=0.3),
}


class World:
    """One drawn world: a task, its verdicts, and a proposer's ideas."""

    def __init__(self, name: str, seed: int) -> None:
        self.family, self.seed = {**FAMILIES, **OTHERS}[name], seed
        digest = hashlib.sha256(f"{name}:{seed}".encode()).digest()
        self._salt = digest.hex()
        rng = np.random.default_rng(int.from_bytes(digest[:8], "big"))
        count = self.family.ideas
        helpful = rng.random(count) < 0.6
        gains = np.where(helpful, 1.0, -0.5) * rng.exponential(self.family.gain, count)
        pairs = rng.normal(0.0, self.family.gain / 3, (count, count))
        pairs *= rng.random((count, count)) < 0.25
        trap = np.triu(rng.random((count, count)) < self.family.traps, 1)
        pairs[trap] += 2.5 * self.family.gain
        gains[trap.any(axis=1)] -= 0.7 * self.family.gain
        self.gains, self.pairs = gains, np.triu(pairs, 1)
        noise = rng.normal(0.0, self.family.gain, count)
        share = self.family.told
        blend = share * gains + (1 - share) * noise
        self.priors = np.exp(blend / max(float(np.std(blend)), 1e-9) / 2)
        self.obvious = 1.0 / (1.0 + rng.permutation(count)) ** 0.7
        self.task = _task()

    def log_speedup(self, kernel: Kernel) -> float:
        """What the kernel gains over the baseline, parameters at their best."""
        held = [(int(token[:-1]), token[-1]) for token in kernel.source.split()[1:]]
        total = sum(float(self.gains[i]) * self._quality(i, v) for i, v in held)
        total += sum(float(self.pairs[min(i, j), max(i, j)]) for i, _ in held for j, _ in held) / 2
        ceiling = self.family.ceiling
        return ceiling * (1 - math.exp(-total / ceiling)) if total > 0 else total

    def evaluate(
        self,
        task: Task,
        kernel: Kernel,
        *,
        baseline: Kernel | None = None,
        rival: Kernel | None = None,
    ) -> Evaluation:
        """The verdict: a status and a time that follow from world, ideas and parameters."""
        ideas = " ".join(sorted(kernel.source.split()[1:]))
        failed = bool(ideas) and self._draw(f"fails {ideas}") < self.family.failing
        values = f"{kernel.values['A']} {kernel.values['B']}"
        key = hashlib.sha256(f"{ideas}|{values}".encode()).hexdigest()
        if failed:
            draw = self._draw(f"status {ideas}")
            status = next(s for bound, s in _FAILURES if draw <= bound)
            known = "" if status == "COMPILE_ERROR" else key
            return Evaluation(status, "correctness", "drawn", key=known, source="modelled")
        loss = 0.0
        if self._draw(f"flat {ideas}") > 0.3:
            best = 1 + int(4 * self._draw(f"A {ideas}"))
            loss += 0.05 * abs(float(kernel.values["A"]) - best)
            loss += 0.08 * (int(kernel.values["B"]) != int(2 * self._draw(f"B {ideas}")))
        seconds = BASELINE_SECONDS * math.exp(loss - self.log_speedup(kernel))
        times = {"w": Timing(seconds, seconds, seconds, 1)}
        return Evaluation("OK", "quick", key=key, times=times, source="modelled")

    def propose(
        self, view: TreeView, node: Node, n: int, rng: np.random.Generator
    ) -> list[Proposal]:
        """One child of `node` by a drawn idea it does not hold; none where its plan has ended."""
        if node.kernel is None:
            return []
        held = {int(token[:-1]) for token in node.kernel.source.split()[1:]}
        open_ = [i for i in range(self.family.ideas) if i not in held]
        plan = self.family.plan
        ended = plan is not None and len(node.edges) >= min(plan, len(open_) * len(VARIANTS))
        if ended or not open_:
            return []
        tried = {child.edit.summary for child in view.children(node)} if plan is not None else set()
        drawn = self._idea(open_, rng)
        while drawn in tried:
            drawn = self._idea(open_, rng)
        tokens = sorted([*node.kernel.source.split()[1:], drawn])
        kernel = replace(node.kernel, source=" ".join(["start", *tokens]))
        edit = Edit(f"idea{drawn[:-1]}", drawn)
        return [Proposal("", node.id, kernel, edit, prior=float(self.priors[int(drawn[:-1])]))]

    def _idea(self, open_: list[int], rng: np.random.Generator) -> str:
        weights = self.obvious[open_]
        idea = int(rng.choice(open_, p=weights / weights.sum()))
        return f"{idea}{VARIANTS[int(rng.choice(len(VARIANTS), p=[0.5, 0.3, 0.2]))]}"

    def _quality(self, idea: int, variant: str) -> float:
        return 0.5 + 0.5 * self._draw(f"quality {idea}{variant}")

    def _draw(self, text: str) -> float:
        digest = hashlib.sha256(f"{self._salt}:{text}".encode()).digest()
        return int.from_bytes(digest[:6], "big") / 2**48


def _task() -> Task:
    start = Kernel(
        "start",
        "cuda",
        (Launch("k", ("x",), ("1", "1", "1"), ("32", "1", "1")),),
        {"A": 1, "B": 0},
        _SPACE,
    )
    return Task(
        name="drawn",
        level=1,
        description="a drawn world",
        params=(Param("x", "out", "f32", ("n",)),),
        workloads=(Workload("w", {"n": 4}),),
        reference=lambda **_: np.zeros(4),
        baseline=start,
    )
