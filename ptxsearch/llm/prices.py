"""What tokens cost, from `prices.yaml` or a file of the user's, and how long a context may be."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import yaml

from ptxsearch.errors import UsageError

_MILLION = 1e6
_VERSION = re.compile(r"([-@](\d{4}(-?\d\d){0,2}|\d\d-\d\d|latest|preview|exp))*")


@dataclass(frozen=True)
class Price:
    """US dollars for a million tokens; `context` and `answer`, the longest of each, in tokens.

    Either is None where unknown. `known` is False for a model that no table names: its dollars are
    0 and cannot be capped.
    """

    input: float = 0.0
    cached: float = 0.0
    output: float = 0.0
    context: int | None = None
    answer: int | None = None
    api: Literal["chat", "responses"] = "chat"
    known: bool = True

    def dollars(self, asked: int, answered: int, *, cached: int = 0) -> float:
        """The price of a call; `cached` of the `asked` tokens were read from a cache."""
        fresh = max(0, asked - cached)
        total = fresh * self.input + cached * self.cached + answered * self.output
        return total / _MILLION


UNKNOWN = Price(known=False)


def price_of(model: str, table: Mapping[str, Price] | None = None) -> Price:
    """The price of the model that `model` names or is a version of; UNKNOWN where there is none.

    A successor (gpt-5.9 of gpt-5) is another model: no price is better than a guessed one.
    """
    known = bundled() if table is None else table
    name = model.rsplit("/", 1)[-1].lower()
    matches = [
        prefix
        for prefix in known
        if name.startswith(prefix) and _VERSION.fullmatch(name, len(prefix))
    ]
    return known[max(matches, key=len)] if matches else UNKNOWN


@cache
def bundled() -> Mapping[str, Price]:
    """The table that comes with the package."""
    text = resources.files("ptxsearch").joinpath("prices.yaml").read_text("utf-8")
    return _table(yaml.safe_load(text), "prices.yaml")


def load_prices(path: str | os.PathLike[str]) -> Mapping[str, Price]:
    """A user's table, whose models are added to the bundled ones.

    Raises UsageError where the file cannot be read or holds anything else.
    """
    try:
        data = yaml.safe_load(Path(path).read_text("utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise UsageError(f"price table {path} cannot be read ({error})", _EXAMPLE) from error
    return {**bundled(), **_table(data, str(path))}


_EXAMPLE = "write lines such as `my-model: {input: 1.0, cached: 0.1, output: 4.0, context: 128000}`"


def _table(data: Any, where: str) -> dict[str, Price]:
    if not isinstance(data, Mapping):
        raise UsageError(f"{where} holds no table of prices", _EXAMPLE)
    return {str(name).lower(): _price(str(name), row, where) for name, row in data.items()}


def _price(name: str, row: Any, where: str) -> Price:
    allowed = {"input", "cached", "output", "context", "answer", "api"}
    if not isinstance(row, Mapping) or not set(row) <= allowed or "input" not in row:
        raise UsageError(f"{where}: {name} has the fields {row!r}", _EXAMPLE)
    for field in ("input", "cached", "output", "context", "answer"):
        value = row.get(field, 0)
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise UsageError(f"{where}: {field} of {name} is {value!r}", "give a number from 0 up")
    if row.get("api", "chat") not in ("chat", "responses"):
        raise UsageError(f"{where}: api of {name} is {row['api']!r}", "use chat or responses")
    return Price(**{"cached": row["input"], "output": 0.0, **row})
