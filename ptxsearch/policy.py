"""The recipe of a search: which node to expand, how wide, how parameters are tuned, when to stop.

The defaults are those of `policies/default.yaml`; docs/search.md says what was measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ptxsearch.errors import PolicyError
from ptxsearch.record import Record

Rule = Literal["mcts", "greedy", "beam", "best_of_n", "random"]


@dataclass(frozen=True)
class Policy(Record):
    """How a run decides.

    `rule` picks the node to expand. `exploration` and `prior_weight` are c and b of the score,
    `widening` the exponent and `least_children` the floor of progressive widening. Decision k sees
    the results of decisions up to k - `window` in order mode, whatever the number of workers.
    `tune_share` bounds the share of trials that go to parameters while a proposer has ideas,
    `family_share` the share of what is in flight that one family may have.
    """

    rule: Rule = "mcts"
    exploration: float = 0.10
    prior_weight: float = 0.05
    widening: float = 0.35
    least_children: int = 5
    beam_width: int = 4
    window: int = 4
    order: bool = True
    close_after: int = 12
    tune_share: float = 0.5
    tune_spread: float = 0.03
    family_share: float = 1.0
    end_share: float = 0.2
    end_families: int = 3
    stop_within: float = 0.05
    stagnation: int | None = None
    target_seconds: float | None = None
    language: Literal["cuda", "ptx", "both"] = "cuda"
    ideas: int = 8
    max_tokens: int = 8000
    temperature: float | None = None
    compile_repairs: int = 2
    result_repairs: int = 1

    def __post_init__(self) -> None:
        bounds = {
            "exploration": (0, 10), "prior_weight": (0, 10), "widening": (0, 1),
            "least_children": (1, 1000), "beam_width": (1, 1000), "window": (1, 1024),
            "close_after": (1, 10000), "tune_share": (0, 1), "tune_spread": (0, 1),
            "family_share": (0, 1), "end_share": (0, 1), "end_families": (1, 1000),
            "stop_within": (0, 1), "ideas": (1, 50), "max_tokens": (1, 1_000_000),
            "compile_repairs": (0, 10), "result_repairs": (0, 10),
        }  # fmt: skip
        for name, (least, most) in bounds.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise PolicyError(
                    f"policy {name} is {value}", f"give a number from {least} to {most}"
                )
