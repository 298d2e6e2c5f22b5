"""What a run may cost, in one line, before anything is spent."""

from __future__ import annotations

from ptxsearch.budget import Budget
from ptxsearch.llm.prices import Price, price_of
from ptxsearch.plural import plural
from ptxsearch.protocols import LLM

# Estimates for the bundled tasks' prompts; a repair sends its conversation again.
_CALLS_PER_KERNEL = 1.6
_ASKED = 5500
_ANSWERED = 2000
# Half of the trials tune parameters, and the menu takes every other proposal.
_KERNELS_PER_TRIAL = 0.25
_DEFAULT_KERNELS = 25


def preview(llm: LLM | str, budget: Budget) -> str:
    """The expected calls, tokens and dollars of a run, and its caps; empty for a replay."""
    lines = []
    for name, price in _models(llm):
        kernels = _kernels(budget)
        calls = round(kernels * _CALLS_PER_KERNEL)
        tokens = calls * (_ASKED + _ANSWERED)
        if price.known:
            cost = f"about ${price.dollars(calls * _ASKED, calls * _ANSWERED):.2f}"
        else:
            cost = "no price known (cap tokens, or add the model to a price table)"
        lines.append(f"{name}: about {plural(calls, 'call')}, {tokens:,} tokens, {cost}")
    caps = [plural(budget.tokens, "token")] if budget.tokens is not None else []
    caps += [f"${budget.dollars:.2f}"] if budget.dollars is not None else []
    if lines:
        lines[-1] += f"; capped at {' and '.join(caps)}" if caps else "; not capped"
    return "\n".join(lines)


def _kernels(budget: Budget) -> int:
    counts = [float(_DEFAULT_KERNELS)]
    if budget.trials is not None:
        counts = [budget.trials * _KERNELS_PER_TRIAL]
    if budget.proposals is not None:
        counts.append(float(budget.proposals))
    return max(1, round(min(counts)))


def _models(llm: LLM | str) -> list[tuple[str, Price]]:
    if isinstance(llm, str):
        names = [part.strip().partition(":") for part in llm.split(",")]
        return [(name, price_of(name)) for kind, _, name in names if kind == "openai"]
    price = getattr(llm, "price", None)
    if isinstance(price, Price):
        return [(str(getattr(llm, "model", "model")), price)]
    return []
