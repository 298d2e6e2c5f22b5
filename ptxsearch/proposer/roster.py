"""Which of several models writes the next kernel: by success so far and price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ptxsearch.errors import UsageError
from ptxsearch.protocols import LLM
from ptxsearch.tree import TreeView

_PRIOR_PRICE = 1.0


class Roster:
    """Models of a run with what their kernels came to.

    The choice draws a success rate for each model from what it achieved (Thompson sampling) and
    takes the best rate for its price, so that a cheap model that often succeeds does most of the
    work and an expensive one is asked where it pays.
    """

    def __init__(self, models: Sequence[LLM]) -> None:
        if not models:
            raise UsageError("no model was given", "give one model or several")
        self._models = list(models)
        self._authors: dict[tuple[int, str], int] = {}
        self._calls = [0] * len(models)
        self._paid = [0.0] * len(models)

    def __getitem__(self, number: int) -> LLM:
        return self._models[number]

    def choose(self, view: TreeView, rng: np.random.Generator) -> int:
        """The number of the model for the next request."""
        if len(self._models) == 1:
            return 0
        won, lost = self._record(view)
        rates = [rng.beta(1 + win, 1 + loss) for win, loss in zip(won, lost, strict=True)]
        value = [rate / price for rate, price in zip(rates, self._prices(), strict=True)]
        return int(np.argmax(value))

    def author(self, node: int, title: str) -> int:
        """The number of the model that wrote the kernel of an idea, for its repair."""
        return self._authors.get((node, title), 0)

    def note(self, exchange: Mapping[str, Any]) -> None:
        """Count an exchange for the model that answered it."""
        index = min(exchange["author"], len(self._models) - 1)
        spend = exchange["spend"]
        self._calls[index] += 1
        self._paid[index] += spend.get("dollars") or spend.get("tokens", 0) * 1e-6
        if exchange["purpose"] != "plan":
            self._authors[(exchange["node"], exchange["idea"])] = index

    def _prices(self) -> list[float]:
        """The mean price of a call of each model in units of the cheapest known one."""
        pairs = zip(self._paid, self._calls, strict=True)
        means = [paid / calls if calls else 0.0 for paid, calls in pairs]
        known = [mean for mean in means if mean > 0]
        least = min(known, default=1.0)
        return [mean / least if mean > 0 else _PRIOR_PRICE for mean in means]

    def _record(self, view: TreeView) -> tuple[list[float], list[float]]:
        """Successes and failures of each model: a kernel that passed and beat its parent wins."""
        won, lost = [0.0] * len(self._models), [0.0] * len(self._models)
        for node in view:
            if node.idea is None or not node.parents or node.state == "pending":
                continue
            parent = view[node.parents[0].parent]
            index = self._authors.get((parent.id, node.idea.title))
            if index is None:
                continue
            better = (
                node.reward is not None
                and parent.reward is not None
                and node.reward > parent.reward
            )
            (won if better else lost)[index] += 1
        return won, lost
