"""What a run may spend and has spent; a price is reserved before it is paid, so caps are hard."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from ptxsearch.errors import UsageError
from ptxsearch.record import Record


@dataclass(frozen=True)
class Spend(Record):
    """What was spent: counts, tokens, US dollars, seconds."""

    trials: int = 0
    proposals: int = 0
    calls: int = 0
    tokens: int = 0
    dollars: float = 0.0
    device_seconds: float = 0.0
    wall_seconds: float = 0.0

    def __add__(self, other: Spend) -> Spend:
        return Spend(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in _FIELDS})

    def __sub__(self, other: Spend) -> Spend:
        return Spend(**{f.name: getattr(self, f.name) - getattr(other, f.name) for f in _FIELDS})


_FIELDS = fields(Spend)


@dataclass(frozen=True)
class Budget(Record):
    """Caps of a run; None is no cap. A trial is one charged device evaluation."""

    trials: int | None = 100
    proposals: int | None = None
    tokens: int | None = None
    dollars: float | None = None
    device_seconds: float | None = None
    wall_seconds: float | None = None

    def __post_init__(self) -> None:
        for f in fields(self):
            cap = getattr(self, f.name)
            if cap is not None and not cap > 0:
                raise UsageError(f"budget {f.name} is {cap}", "give a positive number or None")
        if all(getattr(self, f.name) is None for f in fields(self)):
            raise UsageError("a budget without any cap never ends", "cap trials or wall_seconds")

    def fraction(self, spend: Spend) -> float:
        """The largest share of a cap that is spent, 0 at the start."""
        shares = [
            getattr(spend, f.name) / cap
            for f in fields(self)
            if (cap := getattr(self, f.name)) is not None
        ]
        return float(max(shares))

    def exhausted(self, spend: Spend) -> str:
        """The name of the first cap that is reached, empty where none is."""
        for f in fields(self):
            cap = getattr(self, f.name)
            if cap is not None and getattr(spend, f.name) >= cap:
                return f.name
        return ""

    def allows(self, spend: Spend, price: Spend) -> bool:
        """Whether `price` on top of `spend` (reservations included) stays within every cap."""
        total: Any = spend + price
        return all(
            cap is None or getattr(total, f.name) <= cap
            for f in fields(self)
            for cap in (getattr(self, f.name),)
        )
