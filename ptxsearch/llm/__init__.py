"""Language models: clients, prices, the ledger of what they cost, recordings of exchanges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ptxsearch.errors import UsageError
from ptxsearch.llm.exchange import Replay, exchanges
from ptxsearch.llm.ledger import Ledger
from ptxsearch.llm.preview import preview
from ptxsearch.protocols import LLM, Store

__all__ = ["Ledger", "Replay", "exchanges", "from_spec", "preview"]

_USE = (
    'give "openai:MODEL", "replay:STORE", or any object with '
    "complete(messages, *, max_tokens, temperature, schema)"
)


def from_spec(
    spec: str | LLM, *, open_store: Callable[[str], Store] | None = None, **options: Any
) -> tuple[LLM, ...]:
    """The models that `spec` names: one, or several separated by commas.

    `open_store` opens the store of a replay to read; `options` go to `OpenAIModel`. Raises
    UsageError for anything else, and what opening a store or a client raises.
    """
    if not isinstance(spec, str):
        if not isinstance(spec, LLM):
            raise UsageError(f"llm is a {type(spec).__name__}", _USE)
        return (spec,)
    return tuple(_one(part.strip(), open_store, options) for part in spec.split(","))


def _one(spec: str, open_store: Callable[[str], Store] | None, options: dict[str, Any]) -> LLM:
    kind, _, name = spec.partition(":")
    if kind == "openai" and name:
        # The client library takes most of a second to import: only where it is used.
        from ptxsearch.llm.client import OpenAIModel

        return OpenAIModel(name, **options)
    if kind == "replay" and name and open_store is not None:
        return Replay(exchanges(open_store(name)))
    raise UsageError(f"llm is {spec!r}", _USE)
