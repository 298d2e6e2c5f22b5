"""Events of a run as records: what is written to a store, and read back from it.

An event is a dict with a `type`: run, ask, tell, seen, closed, reopened, exchange, stop or
resumed. Kernel sources and cubins go to the blob table and appear in events by hash, so that an
event stays small.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ptxsearch.errors import StoreError
from ptxsearch.evaluation import Evaluation
from ptxsearch.kernel import Kernel, Proposal
from ptxsearch.protocols import Store

Event = Mapping[str, Any]


class Journal:
    """Writes events of a run to `store` and reads them back with their records restored."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._sources: dict[str, str] = {}
        self._texts: dict[str, str] = {}

    def write(self, event: Event) -> None:
        """Commit one event; Proposal and Evaluation values are written as their dicts."""
        self.store.append({name: self._encode(value) for name, value in event.items()})

    def read(self) -> Iterator[dict[str, Any]]:
        """Every event in order, with its proposal and evaluation as records."""
        for event in self.store.events():
            if "type" not in event:
                raise StoreError("the store holds events of another program", "use another store")
            yield {name: self._decode(name, value) for name, value in event.items()}

    def _encode(self, value: Any) -> Any:
        if isinstance(value, Proposal):
            return self.pack(value)
        if isinstance(value, Evaluation):
            return value.to_dict()
        return value

    def _decode(self, name: str, value: Any) -> Any:
        if name == "proposal":
            return self.unpack(value)
        if name == "evaluation":
            return Evaluation.from_dict(value)
        if name == "baseline":
            return Kernel.from_dict(self._unpack_kernel(value))
        return value

    def pack(self, proposal: Proposal) -> dict[str, Any]:
        """The proposal as a dict whose kernel names its source by hash."""
        data = proposal.to_dict()
        if data["kernel"] is not None:
            data["kernel"] = self.pack_kernel(data["kernel"])
        return data

    def pack_kernel(self, kernel: Mapping[str, Any]) -> dict[str, Any]:
        """A kernel's dict with its source replaced by the hash of the blob that holds it."""
        source = kernel["source"]
        if source not in self._sources:
            self._sources[source] = self.store.put(source.encode())
        return {**kernel, "source": self._sources[source]}

    def unpack(self, data: Mapping[str, Any]) -> Proposal:
        """The proposal `pack` wrote."""
        if data["kernel"] is None:
            return Proposal.from_dict(data)
        return Proposal.from_dict({**data, "kernel": self._unpack_kernel(data["kernel"])})

    def _unpack_kernel(self, kernel: Mapping[str, Any]) -> dict[str, Any]:
        sha = kernel["source"]
        if sha not in self._texts:
            self._texts[sha] = self.store.get(sha).decode()
        return {**kernel, "source": self._texts[sha]}
