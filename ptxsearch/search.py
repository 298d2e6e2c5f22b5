"""The algorithm: decide, write the event, apply it. `ask` for kernels to judge, `tell` verdicts.

A decision either tunes the parameters of a template or descends the tree and expands a node:

    ask:   absorb the results this decision may see
           tune a template, if it is its turn; else
           select a node by the policy's rule, and let a proposer write a child for it
    tell:  the verdict becomes a reward, is backed up, and crowns a new incumbent

It imports neither CUDA nor a model's client; time and money enter through `tell` alone, so the
same verdicts give the same tree.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ptxsearch.budget import Budget, Spend
from ptxsearch.errors import UsageError
from ptxsearch.evaluation import Evaluation
from ptxsearch.kernel import Edit, Kernel, Proposal
from ptxsearch.plural import plural
from ptxsearch.policy import Policy
from ptxsearch.progress import Caps
from ptxsearch.protocols import PayingProposer, Proposer, Store
from ptxsearch.run import Run
from ptxsearch.selection import Descent, Situation, select
from ptxsearch.tasks import Task
from ptxsearch.tree import Node
from ptxsearch.trial import RunState

Named = str | Proposal
Told = tuple[Named, Evaluation] | tuple[Named, Evaluation, Spend]


class Search(Run):
    """One run over a task: `ask` commits decisions, `tell` takes verdicts in any order.

    A store that holds the start of the same run is resumed: what was told is not asked again,
    what was asked and never told is asked again first. `store` is one, or the path of one.
    """

    def __init__(
        self,
        task: Task,
        *,
        proposers: Sequence[Proposer],
        policy: Policy | None = None,
        budget: Budget | None = None,
        store: Store | str | os.PathLike[str] | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(task, policy=policy, budget=budget, store=store, seed=seed)
        self.proposers = tuple(proposers)
        if self.proposers:
            self._reopen()

    def ask(self, n: int = 1) -> list[Proposal]:
        """Up to `n` kernels to judge; none where it must wait for verdicts, or is `done`."""
        batch: list[Proposal] = []
        while self.unanswered and len(batch) < n:
            batch.append(self.unanswered.pop(0))
        while len(batch) < n and not self.done:
            proposal = self._decide()
            if proposal is None:
                break
            if proposal.kernel is None:
                verdict = Evaluation("NO_KERNEL", "proposal", proposal.note)
                self.tell([(proposal.id, verdict)])
            else:
                batch.append(proposal)
        return batch

    def tell(self, results: Iterable[Told] | Mapping[str, Evaluation]) -> None:
        """Verdicts as (proposal or its id, evaluation), or a mapping by id; repeats are refused.

        A third part of a tuple is what the verdict cost, by default its seconds by stage.
        """
        pairs = results.items() if isinstance(results, Mapping) else results
        for named, evaluation, *spend in pairs:
            identifier = named.id if isinstance(named, Proposal) else named
            number = self._number(identifier)
            _require_time(identifier, evaluation)
            cost = spend[0] if spend else Spend(device_seconds=sum(evaluation.cost.values()))
            self.commit(
                {
                    "type": "tell",
                    "number": number,
                    "evaluation": evaluation,
                    "spend": {k: v for k, v in cost.to_dict().items() if k != "schema"},
                }
            )

    @property
    def rival(self) -> Kernel | None:
        """The kernel that a proposal has to beat in a race: the incumbent's."""
        best = self.progress.best
        return best.proposal.kernel if best is not None else None

    def _decide(self) -> Proposal | None:
        """The next decision as a committed proposal; None where it must wait or has stopped."""
        progress = self.progress
        number = progress.decisions
        if number == 0:
            edit = Edit("baseline", "the task's baseline")
            return self._place(
                Proposal("0", -1, self.task.baseline, edit), Descent(self.view.root, ())
            )
        while self._may_decide(number) and self._baseline_passed():
            found = self._tune() if self._tuning_is_due() else None
            found = found or self._expand() or self._tune(last_resort=True)
            if found is not None or not self._see_more():
                return found
        return None

    def _may_decide(self, number: int) -> bool:
        """Whether every result this decision must see has come and the budget has room."""
        progress = self.progress
        horizon = number - self.policy.window if self.policy.order else -1
        if any(n <= horizon and n not in progress.told for n in progress.waiting):
            return False
        self._see(horizon)
        while not self.budget.allows(progress.spend, Spend(trials=1 + len(progress.waiting))):
            # Room may come back where a result was free; results are seen in order.
            first = min(progress.waiting, default=None)
            if first is None:
                break
            if first not in progress.told:
                return False
            self._see(first)
        reason = self._stop_reason()
        if reason is None:
            return True
        if not progress.waiting or all(n in progress.told for n in progress.waiting):
            self.stop(*reason)
        return False

    def _see(self, upto: int) -> None:
        if any(number <= upto for number in self.progress.told):
            self.commit({"type": "seen", "upto": upto})

    def _stop_reason(self) -> tuple[RunState, str] | None:
        progress, best = self.progress, self.progress.best
        cap = self.budget.exhausted(progress.spend)
        if cap:
            return "budget", f"{cap} spent"
        if not self.budget.allows(progress.spend, Spend(trials=1 + len(progress.waiting))):
            return "budget", "trials spent"
        if best is None or best.id == 0:
            return None
        seconds, target = best.evaluation.seconds, self.policy.target_seconds
        evidence = best.evaluation.evidence
        attainable, floor = evidence.get("attainable_seconds"), evidence.get("floor_seconds", 0.0)
        if target is not None and seconds <= target:
            return "done", f"target of {target} s reached"
        # A time below the speed of light says that the model or the clock is wrong.
        if attainable and floor <= seconds <= attainable * (1 + self.policy.stop_within):
            return "done", f"within {self.policy.stop_within:.0%} of what is attainable"
        quiet = progress.trials[-1].id - best.id
        if self.policy.stagnation is not None and quiet >= self.policy.stagnation:
            return "done", f"no better kernel in {plural(quiet, 'decision')}"
        return None

    def _baseline_passed(self) -> bool:
        baseline = self.progress.baseline
        if baseline is None:
            return False
        if not baseline.ok:
            self.stop("done", f"the baseline is {baseline.status}: {baseline.message}")
        return baseline.ok

    def _tuning_is_due(self) -> bool:
        share = self.progress.tunes + 1 <= self.policy.tune_share * (self.progress.decisions + 1)
        return share or self.progress.tree.root.exhausted

    def _tune(self, *, last_resort: bool = False) -> Proposal | None:
        found = self.progress.tunings.next(last_resort=last_resort)
        if found is None or found[0].kernel is None:
            return None
        node, values = found
        assert node.kernel is not None
        text = ", ".join(f"{name}={value}" for name, value in values.items())
        tuned = node.kernel.with_values(**values)
        proposal = Proposal("", node.id, tuned, Edit("parameters", text), kind="tune")
        return self._place(proposal, Descent(node, ()))

    def _expand(self) -> Proposal | None:
        """Descend and let the proposers of the chosen node take turns until one has an idea."""
        while True:
            situation = self._situation()
            descent = select(self.progress.tree, self.policy, situation, self._random("select"))
            if descent is None:
                return None
            for index in self._turns(descent.node):
                proposer = self.proposers[index]
                found = proposer.propose(self.view, descent.node, 1, self._random("propose"))
                if found:
                    return self._place(found[0], descent)
                self._silence(descent.node, index)

    def _silence(self, node: Node, index: int) -> None:
        """Note that a proposer is not asked for `node` again, for want of ideas or of money."""
        event = {"type": "closed", "node": node.id, "proposer": index, "of": len(self.proposers)}
        proposer = self.proposers[index]
        if isinstance(proposer, PayingProposer) and proposer.refused:
            event["caps"] = self._paid_caps()
        self.commit(event)

    def _paid_caps(self) -> Caps:
        return {"tokens": self.budget.tokens, "dollars": self.budget.dollars}

    def _reopen(self) -> None:
        """Ask again where an earlier run with lower caps could not pay a proposer."""
        if nodes := self.progress.payable(self._paid_caps()):
            self.commit({"type": "reopened", "nodes": nodes})

    def _turns(self, node: Node) -> list[int]:
        silent = self.progress.out_of_ideas.get(node.id, set())
        start = len(node.edges)
        order = [(start + i) % len(self.proposers) for i in range(len(self.proposers))]
        return [index for index in order if index not in silent]

    def _situation(self) -> Situation:
        flying: dict[int, int] = {}
        for asked in self.progress.waiting.values():
            if asked.attempt:
                flying[asked.node.family] = flying.get(asked.node.family, 0) + 1
        bound = self.policy.family_share
        share = math.ceil(bound * (sum(flying.values()) + 1))
        crowded = self.policy.window > 1 and bound < 1
        full = {f for f, count in flying.items() if count >= max(share, 1)} if crowded else set()
        kept = None
        if self.budget.fraction(self.progress.spend) >= 1 - self.policy.end_share:
            families = dict.fromkeys(
                self.progress.tree.nodes[n].family for n in self.progress.tree.ranking[:200]
            )
            kept = set([f for f in families if f][: self.policy.end_families])
        return Situation(len(self.progress.waiting), full, kept)

    def _place(self, proposal: Proposal, descent: Descent) -> Proposal:
        number = self.progress.decisions
        proposal = replace(proposal, id=str(number))
        tree = self.progress.tree
        path = [[edge.parent, tree.nodes[edge.parent].edges.index(edge)] for edge in descent.path]
        self.commit({"type": "ask", "number": number, "proposal": proposal, "path": path})
        return proposal

    def _see_more(self) -> bool:
        """Nothing can be done yet: look at the next result early, or stop where none will come."""
        waiting = self.progress.waiting
        if not waiting:
            if self.progress.unpaid:
                self.stop("budget", "the caps on tokens and dollars allow no further call")
            else:
                self.stop("done", "no proposer has an idea left")
            return False
        first = min(waiting)
        self._see(first)
        return first not in waiting

    def _random(self, purpose: str) -> np.random.Generator:
        digest = hashlib.sha256(f"{purpose}:{self.progress.decisions}".encode()).digest()
        key = np.frombuffer(digest[:8], dtype=np.uint64)
        seed = np.array([self.seed & (2**64 - 1)], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=np.concatenate([seed, key])))

    def _number(self, identifier: str) -> int:
        text = str(identifier)
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1
        if number not in self.progress.waiting or number in self.progress.told:
            raise UsageError(
                f"result for proposal {identifier!r}, which is not waiting",
                "tell each asked proposal once",
            )
        return number


def _require_time(identifier: str, evaluation: Evaluation) -> None:
    """Raises UsageError for a verdict that would be in the journal and could not be applied."""
    medians = [timing.median for timing in evaluation.times.values()]
    if evaluation.ok and not (medians and all(0 < median < math.inf for median in medians)):
        raise UsageError(
            f"result for proposal {identifier!r} is OK with times {medians}",
            "an OK result has positive seconds",
        )
