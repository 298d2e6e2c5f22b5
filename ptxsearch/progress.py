"""The state of a run, folded from its events: live and resumed state are equal by construction.

Nothing here decides anything: `Search` decides, writes an event, and applies it. Results are told
in any order and absorbed in the order of their decisions, so that what a decision sees does not
depend on how many workers there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ptxsearch.budget import Budget, Spend
from ptxsearch.evaluation import NEVER_CHARGED, Evaluation
from ptxsearch.kernel import Kernel, Proposal
from ptxsearch.policy import Policy
from ptxsearch.reward import reward
from ptxsearch.tree import Edge, Node, Tree
from ptxsearch.trial import Trial
from ptxsearch.tuner import Told
from ptxsearch.tuning import Tunings

Caps = Mapping[str, float | None]


@dataclass(frozen=True)
class Asked:
    """A decision whose result is not absorbed yet."""

    number: int
    proposal: Proposal
    node: Node
    path: tuple[Edge, ...]
    attempt: bool


class Progress:
    """Tree, trials, tunings and spend after the events applied so far.

    `out_of_ideas` holds the proposers that are silent at a node; `unpaid` those of them that the
    caps of then did not allow to ask.
    """

    def __init__(self, baseline: Kernel, *, policy: Policy, budget: Budget, seed: int) -> None:
        self.tree = Tree(baseline)
        self.policy = policy
        self.tunings = Tunings(self.tree, policy, trials=budget.trials, seed=seed)
        self.trials: list[Trial] = []
        self.incumbents: list[Trial] = []
        self.spend = Spend()
        self.decisions = 0
        self.tunes = 0
        self.waiting: dict[int, Asked] = {}
        self.told: dict[int, tuple[Evaluation, Spend]] = {}
        self.out_of_ideas: dict[int, set[int]] = {}
        self.unpaid: dict[int, list[tuple[int, Caps]]] = {}
        self.stopped: tuple[str, str] | None = None
        self._keys: dict[str, int] = {}
        self._templates: dict[str, int] = {}

    @property
    def baseline(self) -> Evaluation | None:
        """The verdict on the baseline, None before it came."""
        return self.trials[0].evaluation if self.trials else None

    @property
    def best(self) -> Trial | None:
        """The incumbent."""
        return self.incumbents[-1] if self.incumbents else None

    def apply(self, event: Mapping[str, Any]) -> None:
        """Fold one event into the state."""
        match event["type"]:
            case "ask":
                self._ask(event)
            case "tell":
                self._tell(event["number"], event["evaluation"], Spend(**event["spend"]))
            case "seen":
                self.absorb(event["upto"])
            case "closed":
                self._close(self.tree.nodes[event["node"]], event)
            case "reopened":
                self._reopen(event["nodes"])
            case "exchange":
                self.spend += Spend(**event["spend"])
            case "stop":
                # A paused run goes on as if it had not stopped: what it has not seen stays unseen.
                if event["state"] in ("done", "budget"):
                    self.absorb(self.decisions)
                self.stopped = (event["state"], event["reason"])
            case "resumed":
                self.stopped = None

    def payable(self, caps: Caps) -> list[int]:
        """The nodes where a proposer was silent for want of money under lower caps than these."""
        return [
            node
            for node, refusals in self.unpaid.items()
            if any(_is_raised(before, caps) for _, before in refusals)
        ]

    def absorb(self, upto: int) -> None:
        """Let the results of decisions up to `upto` into the tree, in order."""
        for number in sorted(n for n in self.told if n <= upto):
            self._take(number)

    def _ask(self, event: Mapping[str, Any]) -> None:
        number, proposal = event["number"], event["proposal"]
        self.decisions = number + 1
        self.spend += Spend(proposals=0 if proposal.kind == "tune" else 1)
        path = tuple(self.tree.nodes[n].edges[i] for n, i in event["path"])
        if number == 0:
            self.waiting[0] = Asked(0, proposal, self.tree.root, (), attempt=False)
            return
        parent = self.tree.nodes[proposal.parent]
        if proposal.kind == "tune":
            self.tunes += 1
            self.tunings.hold(parent, _chosen(proposal.kernel))
            self.waiting[number] = Asked(number, proposal, parent, (), attempt=False)
            return
        node = self.tree.add(
            parent, proposal.kernel, proposal.edit, prior=proposal.prior, idea=proposal.idea
        )
        path = (*path, node.parents[0])
        self.tree.visit(path, settled=False)
        self.waiting[number] = Asked(number, proposal, node, path, attempt=True)

    def _tell(self, number: int, evaluation: Evaluation, spend: Spend) -> None:
        self.told[number] = (evaluation, spend)
        if not self.policy.order or number == 0:
            self._take(number)

    def _take(self, number: int) -> None:
        evaluation, spend = self.told.pop(number)
        self._absorb(self.waiting.pop(number), evaluation, spend)

    def _absorb(self, asked: Asked, evaluation: Evaluation, spend: Spend) -> None:
        base = self.baseline or evaluation
        repeat = bool(evaluation.key) and evaluation.key in self._keys
        charged = (
            evaluation.status not in NEVER_CHARGED | {"NO_KERNEL"}
            and not repeat
            and asked.number > 0
        )
        trial = Trial(
            id=asked.number,
            node=asked.node.id,
            proposal=asked.proposal,
            evaluation=evaluation,
            reward=reward(evaluation, base),
            # The clock is the run's, not a trial's: trials overlap.
            spend=replace(spend, trials=spend.trials + int(charged), wall_seconds=0.0),
            charged=charged,
        )
        self.trials.append(trial)
        self.spend += replace(trial.spend, wall_seconds=spend.wall_seconds)
        if evaluation.key:
            self._keys.setdefault(evaluation.key, asked.node.id)
        if asked.proposal.kind == "tune":
            self._settle_tuned(asked.node, trial)
        else:
            self.tree.visit(asked.path, settled=True)
            self._settle_attempt(asked.node, trial)
        self._crown(trial)

    def _settle_attempt(self, node: Node, trial: Trial) -> None:
        evaluation = trial.evaluation
        if not evaluation.ok or node.kernel is None:
            self.tree.settle(node, "failed", evaluation=evaluation)
        else:
            twin = self._templates.setdefault(node.kernel.template, node.id)
            if twin != node.id:
                self.tree.share(node, self.tree.nodes[twin])
            else:
                self.tree.settle(node, "ok", evaluation=evaluation, reward=trial.reward)
                self.tunings.start(node, evaluation.seconds)
        parent = self.tree.nodes[node.parents[0].parent] if node.parents else None
        if parent is not None and self._has_lost_enough(parent):
            self.tree.close(parent)

    def _settle_tuned(self, node: Node, trial: Trial) -> None:
        evaluation = trial.evaluation
        seconds = evaluation.seconds if evaluation.ok else None
        self.tunings.tell(node, Told(_chosen(trial.proposal.kernel), seconds))
        if evaluation.ok and (node.reward is None or trial.reward > node.reward):
            self.tree.settle(
                node,
                "ok",
                evaluation=evaluation,
                reward=trial.reward,
                kernel=trial.proposal.kernel,
            )

    def _crown(self, trial: Trial) -> None:
        race = trial.evaluation.evidence.get("race")
        won = race is None or bool(race.get("accepted"))
        better = self.best is None or trial.reward > self.best.reward
        if trial.evaluation.ok and better and (won or trial.id == 0):
            self.incumbents.append(trial)

    def _close(self, node: Node, event: Mapping[str, Any]) -> None:
        silent = self.out_of_ideas.setdefault(node.id, set())
        silent.add(event["proposer"])
        if "caps" in event:
            self.unpaid.setdefault(node.id, []).append((event["proposer"], event["caps"]))
        if len(silent) == event["of"]:
            self.tree.close(node)

    def _reopen(self, numbers: Sequence[int]) -> None:
        """Ask the proposers of these nodes again that were silent for want of money."""
        for number in numbers:
            self.out_of_ideas[number] -= {proposer for proposer, _ in self.unpaid.pop(number)}
            if not self._has_lost_enough(self.tree.nodes[number]):
                self.tree.reopen(self.tree.nodes[number])

    def _has_lost_enough(self, node: Node) -> bool:
        return node.id > 0 and node.losses >= self.policy.close_after


def _is_raised(before: Caps, now: Caps) -> bool:
    """Whether a cap of `now` is higher than it was; None is the highest."""
    pairs = [(cap, now[name]) for name, cap in before.items() if cap is not None]
    return any(cap is None or cap > was for was, cap in pairs)


def _chosen(kernel: Kernel | None) -> dict[str, Any]:
    """The values of the parameters of a tuned kernel's space."""
    if kernel is None or kernel.space is None:
        return {}
    return {name: kernel.values[name] for name in kernel.space.params}
