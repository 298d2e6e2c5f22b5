"""A language model as a proposer: PLAN ideas for a node, IMPLEMENT the most promising, repair.

Its state is the ideas planned for each node; which of them were used and which kernels wait for a
repair is read off the tree. So a resumed run needs the exchanges of the first one and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ptxsearch import prompt
from ptxsearch.budget import Spend
from ptxsearch.evaluation import Evaluation
from ptxsearch.kernel import Edit, Idea, Kernel, Proposal
from ptxsearch.llm import exchange
from ptxsearch.llm.ledger import Ledger
from ptxsearch.policy import Policy
from ptxsearch.proposer import ideas, mending
from ptxsearch.proposer.roster import Roster
from ptxsearch.protocols import LLM, Completion, Message
from ptxsearch.reply import PLAN_SCHEMA, Malformed, parse_implementation, parse_plan
from ptxsearch.reply.answer import written
from ptxsearch.tasks import Task
from ptxsearch.tree import Node, TreeView

MOST_PLANS = 3
_LOST_PLANS = 2


@dataclass(frozen=True)
class Hooks:
    """What a run lends its proposer; each may be left out.

    `check` judges a kernel by the stages that cost no device time, so that compile errors are
    repaired before they become trials. `compiled` gives a kernel's PTX. `record` commits an
    exchange's event.
    """

    check: Callable[[Kernel], Evaluation] | None = None
    compiled: Callable[[Kernel], str | None] | None = None
    record: Callable[[Mapping[str, Any]], None] | None = None


@dataclass
class _Plans:
    """The ideas of one node in the order they were planned, and how many plans failed."""

    ideas: list[Idea] = field(default_factory=list)
    plans: int = 0
    lost: int = 0


class LLMProposer:
    """Proposes kernels that a model, or several, writes for `task`.

    `llm` is one model or a sequence, of which each idea gets one by success and price. Raises
    ProviderPaused or ProviderError where a provider does; an answer that cannot be used is a
    Proposal without a kernel whose note says why.
    """

    def __init__(
        self,
        task: Task,
        llm: LLM | Sequence[LLM],
        *,
        policy: Policy | None = None,
        arch: str = "sm_90",
        hooks: Hooks | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self.task, self.policy, self.arch = task, policy or Policy(), arch
        self.hooks, self.ledger = hooks or Hooks(), ledger or Ledger()
        models = [llm] if isinstance(llm, LLM) else list(llm)
        for one in models:
            self.ledger.admit(one)
        self._roster = Roster(models)
        self._plans: dict[int, _Plans] = {}
        self._restored: dict[str, Completion] = {}
        self.refused = False

    @property
    def brief(self) -> prompt.Brief:
        """The facts that this run's prompts depend on."""
        return prompt.Brief(
            language=self.policy.language,
            arch=self.arch,
            ideas=self.policy.ideas,
            compiled=self.hooks.compiled,
        )

    def attach(self, hooks: Hooks, recorded: Iterable[Mapping[str, Any]] = ()) -> None:
        """Lend `hooks`, and restore the state that the exchanges of an earlier run left."""
        self.hooks = hooks
        for found in recorded:
            self.ledger.add(Spend(**found["spend"]))
            self._restored[found["key"]] = exchange.completion(found)
            self._apply(found)

    def propose(
        self, view: TreeView, node: Node, n: int, rng: np.random.Generator
    ) -> list[Proposal]:
        """Up to `n` children, due repairs first; none without ideas left, or where `refused`."""
        self.refused = False
        if node.kernel is None or node.kernel.language == "recorded":
            return []
        found: list[Proposal] = []
        mended: set[int] = set()
        used: list[str] = []
        while len(found) < n:
            proposal = self._mend(view, node, mended) or self._new(view, node, rng, used)
            if proposal is None:
                break
            found.append(proposal)
        return found

    def _mend(self, view: TreeView, node: Node, mended: set[int]) -> Proposal | None:
        """A repair of a child that failed; None where none is due or affordable."""
        policy = self.policy
        if self.hooks.check is not None:
            policy = Policy(**{**vars(policy), "compile_repairs": 0})
        own = self._plans.get(node.id, _Plans()).ideas
        children = [c for c in view.children(node) if c.idea in own and c.id not in mended]
        failed = mending.due(children, policy)
        if failed is None or failed.kernel is None or failed.evaluation is None:
            return None
        mended.add(failed.id)
        assert failed.idea is not None
        asked = self._request(view, node, failed.idea)
        messages = prompt.repair(
            asked,
            written(failed.kernel),
            failed.evaluation,
            advice=mending.advice(failed.evaluation),
        )
        author = self._roster.author(node.id, failed.idea.title)
        edit = Edit(failed.idea.strategy, mending.summary_of(failed, failed.idea.title))
        return self._write(author, messages, node, failed.idea, edit)

    def _new(
        self, view: TreeView, node: Node, rng: np.random.Generator, used: list[str]
    ) -> Proposal | None:
        """A kernel for the best idea left; None where there is none or the money is spent."""
        children = view.children(node)
        tried = [c.idea.title if c.idea else c.edit.summary for c in children] + used
        left = self._left(node, tried)
        while not left:
            trouble = self._plan(view, node, rng, tried)
            if trouble is not None:
                edit = Edit("plan", "plan")
                return Proposal("", node.id, None, edit, note=trouble) if trouble else None
            left = self._left(node, tried)
        idea = ideas.best(left, children, at_root=node.id == 0)
        assert idea is not None
        used.append(idea.title)
        author = self._roster.choose(view, rng)
        edit = Edit(idea.strategy, idea.title)
        return self._write(author, self._request(view, node, idea), node, idea, edit)

    def _left(self, node: Node, tried: Sequence[str]) -> list[Idea]:
        planned = self._plans.get(node.id, _Plans()).ideas
        return [idea for idea in planned if idea.title not in tried]

    def _plan(
        self, view: TreeView, node: Node, rng: np.random.Generator, tried: Sequence[str]
    ) -> str | None:
        """Ask for ideas: None if there are new ones, else why not, empty where none are left."""
        plans = self._plans.setdefault(node.id, _Plans())
        if plans.plans >= MOST_PLANS or plans.lost >= _LOST_PLANS:
            return ""
        author = self._roster.choose(view, rng)
        messages = prompt.render(self.task, view, node, purpose="plan", brief=self.brief)
        context = {"purpose": "plan", "node": node.id, "idea": "", "known": list(tried)}
        reason = ""
        for _ in range(2):
            completion = self._ask(author, messages, context, schema=PLAN_SCHEMA)
            if completion is None:
                return ""
            parsed = parse_plan(completion.text)
            if not isinstance(parsed, Malformed):
                return None if self._left(node, tried) else ""
            reason = _cut_off(completion, self.policy) or parsed.reason
            messages = prompt.plan_again(messages, completion.text, reason)
        return f"no plan: {reason}"

    def _request(self, view: TreeView, node: Node, idea: Idea) -> list[Message]:
        return prompt.render(
            self.task, view, node, purpose="implement", idea=idea, brief=self.brief
        )

    def _write(
        self, author: int, messages: list[Message], node: Node, idea: Idea, edit: Edit
    ) -> Proposal | None:
        """The kernel of an idea, repaired while it does not read or compile."""
        assert node.kernel is not None
        seen: set[str] = set()
        kernel: Kernel | None = None
        note = ""
        for attempt in range(self.policy.compile_repairs + 1):
            purpose = "repair" if attempt else "implement"
            context = {"purpose": purpose, "node": node.id, "idea": idea.title}
            completion = self._ask(author, messages, context)
            if completion is None:
                break
            verdict, parsed = self._verdict(completion, node.kernel)
            kernel = parsed or kernel
            note = verdict.message if verdict is not None and parsed is None else ""
            if verdict is None or not mending.allowance(verdict.status, self.policy):
                break
            if mending.fingerprint(verdict) in seen or completion.finish_reason == "content_filter":
                break
            seen.add(mending.fingerprint(verdict))
            messages = prompt.repair(
                messages, completion.text, verdict, advice=mending.advice(verdict)
            )
        if kernel is None and not note:
            return None
        return Proposal(
            "", node.id, kernel, edit, prior=ideas.worth(idea), idea=idea, kind=idea.kind, note=note
        )

    def _verdict(
        self, completion: Completion, parent: Kernel
    ) -> tuple[Evaluation | None, Kernel | None]:
        """What keeps an answer from being judged by a device, and the kernel if it has one."""
        parsed = parse_implementation(completion.text, parent, self.policy.language, arch=self.arch)
        if isinstance(parsed, Malformed):
            reason = _cut_off(completion, self.policy) or parsed.reason
            message = f"{reason}\n{parsed.excerpt}" if parsed.excerpt else reason
            return Evaluation("NO_KERNEL", "proposal", message), None
        if self.hooks.check is None:
            return None, parsed
        verdict = self.hooks.check(parsed)
        return (None if verdict.ok else verdict), parsed

    def _ask(
        self,
        author: int,
        messages: Sequence[Message],
        context: Mapping[str, Any],
        *,
        schema: Mapping[str, Any] | None = None,
    ) -> Completion | None:
        """One paid and recorded exchange; None where the budget does not allow it.

        Where a run was interrupted between an answer and its use, the answer is not bought twice.
        """
        again = self._restored.pop(exchange.key(messages), None)
        if again is not None:
            return again
        llm = self._roster[author]
        price = self.ledger.price(llm, messages, self.policy.max_tokens)
        if not self.ledger.reserve(price):
            self.refused = True
            return None
        actual = Spend()
        try:
            completion = llm.complete(
                messages,
                max_tokens=self.policy.max_tokens,
                temperature=self.policy.temperature,
                schema=schema,
            )
            actual = completion.usage
        finally:
            self.ledger.settle(price, actual)
        self.ledger.learn(llm, messages, actual.tokens - len(completion.text) // 6)
        context = {**context, "author": author, "prompt": prompt.version()}
        happened = exchange.event(messages, completion, context)
        if self.hooks.record is not None:
            self.hooks.record(happened)
        self._apply(happened)
        return completion

    def _apply(self, happened: Mapping[str, Any]) -> None:
        """Fold one exchange into the state: live and restored state are equal by construction."""
        node, purpose = happened["node"], happened["purpose"]
        self._roster.note(happened)
        if purpose != "plan":
            return
        plans = self._plans.setdefault(node, _Plans())
        parsed = parse_plan(happened["reply"])
        if isinstance(parsed, Malformed):
            plans.lost += 1
            return
        plans.plans += 1
        known = [*happened["known"], *(idea.title for idea in plans.ideas)]
        plans.ideas += ideas.fresh(parsed, known)


def _cut_off(completion: Completion, policy: Policy) -> str:
    if completion.finish_reason == "length":
        return f"the answer was cut off at {policy.max_tokens} tokens; be brief, code first of all"
    if completion.finish_reason == "content_filter":
        return "the provider's content filter held the answer back"
    return ""
