"""A run: its journal, the state folded from it, its result. `Search` adds the decisions.

What is committed is in the journal before it changes the state. Opening a journal that holds the
start of the same run brings the state to where it was.
"""

from __future__ import annotations

import os

from ptxsearch.budget import Budget
from ptxsearch.errors import StoreError
from ptxsearch.export import launch_document
from ptxsearch.interrupt import uninterrupted
from ptxsearch.journal import Event, Journal
from ptxsearch.kernel import Proposal
from ptxsearch.llm.exchange import pack
from ptxsearch.policy import Policy
from ptxsearch.progress import Progress
from ptxsearch.protocols import Store
from ptxsearch.store import MemoryStore, SQLiteStore
from ptxsearch.tasks import Task
from ptxsearch.tree import TreeView
from ptxsearch.trial import Best, Result, RunState


class Run:
    """One run over a task as its journal tells it; with `look` nothing is written.

    `store` is one, or the path of one; None keeps the journal in memory. `unanswered` are the
    proposals that were asked and never told. Raises StoreError for the store of another run.
    """

    def __init__(
        self,
        task: Task,
        *,
        policy: Policy | None = None,
        budget: Budget | None = None,
        store: Store | str | os.PathLike[str] | None = None,
        seed: int = 0,
        look: bool = False,
    ) -> None:
        self.task, self.seed = task, seed
        self.policy, self.budget = policy or Policy(), budget or Budget()
        opened = SQLiteStore(store) if isinstance(store, str | os.PathLike) else store
        self.journal = Journal(opened or MemoryStore())
        self.progress = self._fresh()
        self.view = TreeView(self.progress.tree)
        self.unanswered: list[Proposal] = self._resume(look)

    @classmethod
    def stored(cls, task: Task, store: Store) -> Run:
        """The run a store holds, to look at: with its own policy, budget and seed."""
        header = next(iter(store.events()), None)
        if header is None or header.get("type") != "run":
            raise StoreError("the store holds no run", "start one with optimize and --store")
        return Run(
            task,
            policy=Policy.from_dict(header["policy"]),
            budget=Budget.from_dict(header["budget"]),
            store=store,
            seed=header["seed"],
            look=True,
        )

    def commit(self, event: Event) -> None:
        """Write one event and fold it into the state."""
        # What is in the journal and what is known must not part ways.
        with uninterrupted():
            self.journal.write(event)
            self.progress.apply(event)

    def record(self, event: Event) -> None:
        """Commit a model's exchange: what was sent and answered, and what it cost."""
        self.commit(pack(event, self.journal.store.put))

    def stop(self, state: RunState, reason: str) -> None:
        """End the run; what was told counts, what was not told can be resumed."""
        if self.progress.stopped is None:
            self.commit({"type": "stop", "state": state, "reason": reason})

    @property
    def done(self) -> bool:
        """Whether nothing more will be asked."""
        return self.progress.stopped is not None

    def result(self) -> Result:
        """What was found so far, results included that no decision has seen yet."""
        progress = self._settled()
        state, reason = progress.stopped or ("interrupted", "still running")
        top = progress.best
        best = None
        if top is not None and top.proposal.kernel is not None:
            kernel = top.proposal.kernel
            document = launch_document(kernel, self.task)
            best = Best(top, top.evaluation, kernel, document=document)
        return Result(
            task=self.task.name,
            state=state,  # type: ignore[arg-type]
            best=best,
            incumbents=tuple(progress.incumbents),
            trials=tuple(progress.trials),
            spend=progress.spend,
            reason=reason,
            baseline=progress.baseline,
            digest=self.task.digest,
        )

    def _settled(self) -> Progress:
        """The state with every told result in it; a paused run itself absorbs them in order."""
        if not self.progress.told:
            return self.progress
        again = self._fresh()
        for event in self.journal.read():
            if event["type"] != "run":
                again.apply(event)
        again.absorb(again.decisions)
        return again

    def _fresh(self) -> Progress:
        return Progress(self.task.baseline, policy=self.policy, budget=self.budget, seed=self.seed)

    def _resume(self, look: bool) -> list[Proposal]:
        header = {
            "type": "run",
            "task": self.task.name,
            "digest": self.task.digest,
            "policy": self.policy.to_dict(),
            "seed": self.seed,
        }
        found = ending = None
        for event in self.journal.read():
            if event["type"] == "run":
                found = {name: event.get(name) for name in header}
            elif event["type"] in ("stop", "resumed"):
                # A stop shows results early: a run that goes on must decide without them.
                ending = event if event["type"] == "stop" else None
            else:
                self.progress.apply(event)
        if found is None:
            self.journal.write({**header, "budget": self.budget.to_dict()})
            return []
        changed = [name for name in header if found[name] != header[name]]
        if changed:
            raise StoreError(
                f"the store holds a run with another {', '.join(changed)}",
                "resume with the same task, policy and seed, or choose another store",
            )
        if ending is not None and look:
            self.progress.apply(ending)
        elif ending is not None:
            self.commit({"type": "resumed"})
        waiting, told = self.progress.waiting, self.progress.told
        return [asked.proposal for number, asked in sorted(waiting.items()) if number not in told]
