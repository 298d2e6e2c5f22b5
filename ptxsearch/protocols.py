"""Every extension point on one page: what to write to add a device, a proposer, a model, a store.

A protocol has the fewest methods its users call. `ptxsearch.testing` ships a conformance test for
each; a class need not inherit from anything here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from ptxsearch.budget import Spend
from ptxsearch.evaluation import Array, Built, Counters, Evaluation, Failure, Inputs, Outputs
from ptxsearch.kernel import Kernel, Proposal
from ptxsearch.race import Guard
from ptxsearch.record import Record
from ptxsearch.tasks import Task, Workload
from ptxsearch.tree import Node, TreeView

__all__ = [
    "LLM",
    "AuditedDevice",
    "BatchDevice",
    "Completion",
    "Device",
    "Evaluator",
    "GuardedDevice",
    "Message",
    "PayingProposer",
    "Proposer",
    "SamplingDevice",
    "Store",
]

Message = Mapping[str, str]


@runtime_checkable
class Device(Protocol):
    """Runs and times compiled kernels. It knows nothing of statuses: it reports what happened.

    `source` is "measured" or "modelled". `run` poisons outputs and scratch, launches once and
    returns what is there, or the first fault. `time` returns seconds of shape
    (rounds, len(builts)), sides interleaved in random order, on the input sets that `run` has
    seen for this workload. A kernel that fails while it is timed gives a Failure.
    """

    name: str
    arch: str
    source: Literal["measured", "modelled"]

    def run(
        self, built: Built, workload: Workload, inputs: Inputs, *, timeout: float
    ) -> Outputs | Failure: ...

    def time(self, builts: Sequence[Built], workload: Workload, rounds: int) -> Array | Failure: ...

    def profile(self, built: Built, workload: Workload) -> Counters: ...


@runtime_checkable
class BatchDevice(Device, Protocol):
    """A device that runs one kernel on many input sets for less than `run` on each in turn.

    `run_all` gives what `run` would give of each case, in order, and ends with the first Failure.
    It takes cases as it goes, some ahead of the results it has given, and its user may stop early.
    """

    def run_all(
        self, built: Built, cases: Iterable[tuple[Workload, Inputs]], *, timeout: float
    ) -> Iterator[Outputs | Failure]: ...


@runtime_checkable
class AuditedDevice(Device, Protocol):
    """A device that keeps the outputs of some timed launches, chosen at random, for checking."""

    def audit(self) -> Sequence[tuple[int, Inputs, Outputs]]:
        """Of the calling thread's `time` since its last call: (index into `builts`, the inputs,
        the outputs it left).
        """
        ...


@runtime_checkable
class GuardedDevice(Device, Protocol):
    """A device that can tell whether it is fit to judge: a kernel raced against itself.

    `guard_is_due` holds at the start and after every 50 kernels that were timed since.
    """

    guard_is_due: bool

    def guard(self, built: Built, workload: Workload) -> Guard | Failure: ...


@runtime_checkable
class SamplingDevice(Device, Protocol):
    """A device that times workloads too large for it to run, from inputs it is given first."""

    def prepared(self, task: Task, workload: Workload) -> bool: ...

    def prepare(self, task: Task, workload: Workload, inputs: Inputs) -> None: ...


@runtime_checkable
class Evaluator(Protocol):
    """Judges a kernel. `Pipeline(device)` does it for real, a `Recording` from measurements."""

    def evaluate(
        self,
        task: Task,
        kernel: Kernel,
        *,
        baseline: Kernel | None = None,
        rival: Kernel | None = None,
    ) -> Evaluation: ...


@runtime_checkable
class Proposer(Protocol):
    """Suggests up to `n` children of a node. An empty list means: no more ideas for it."""

    def propose(
        self, view: TreeView, node: Node, n: int, rng: np.random.Generator
    ) -> list[Proposal]: ...


@runtime_checkable
class PayingProposer(Proposer, Protocol):
    """A proposer whose ideas cost money. Where `refused` holds after an empty list, it may have
    ideas that the caps on tokens and dollars did not allow: higher caps ask it again.
    """

    refused: bool


@dataclass(frozen=True)
class Completion(Record):
    """A model's answer: its text, why it ended (stop, length, content_filter), what it used."""

    text: str
    finish_reason: str = "stop"
    usage: Spend = field(default_factory=Spend)
    model: str = ""


@runtime_checkable
class LLM(Protocol):
    """Completes a list of {"role", "content"} messages; `schema` asks for JSON of that shape."""

    def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        temperature: float | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> Completion: ...


@runtime_checkable
class Store(Protocol):
    """An append-only journal of events and a table of blobs by their sha256."""

    def append(self, event: Mapping[str, Any]) -> int:
        """The number of the event, once it is durable."""
        ...

    def events(self, since: int = 0) -> Iterator[Mapping[str, Any]]:
        """The events numbered `since` and up, in order."""
        ...

    def put(self, blob: bytes) -> str:
        """The sha256 under which `get` returns it."""
        ...

    def get(self, sha: str) -> bytes: ...
