"""Tests that every device, proposer, model and store must pass.

Subclass one in your own tests and say how to make yours; pytest collects the methods:

    class TestMyStore(StoreConformance):
        def make_store(self):
            return MyStore()
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ptxsearch.errors import PtxsearchError
from ptxsearch.evaluation import Built, Counters, Failure, Inputs, Outputs
from ptxsearch.kernel import Proposal
from ptxsearch.protocols import LLM, Completion, Device, Proposer, Store
from ptxsearch.tasks import Task, Workload
from ptxsearch.tree import Tree, TreeView


class StoreConformance:
    """A store numbers events, keeps their order and content, and finds blobs by hash."""

    def make_store(self) -> Store:
        """A new, empty store."""
        raise NotImplementedError

    def test_it_is_a_store(self) -> None:
        """The protocol's methods are there."""
        assert isinstance(self.make_store(), Store)

    def test_events_come_back_in_order(self) -> None:
        """Events are numbered from 0 and read back equal, from any number on."""
        store = self.make_store()
        events: list[dict[str, Any]] = [
            {"type": "a", "n": 1},
            {"type": "b", "list": [1, 2.5, None, "x"]},
            {"type": "c"},
        ]
        assert [store.append(event) for event in events] == [0, 1, 2]
        assert [dict(event) for event in store.events()] == events
        assert [dict(event) for event in store.events(2)] == events[2:]

    def test_blobs_are_found_by_their_sha256(self) -> None:
        """The same bytes have the same name, and it is their sha256."""
        store = self.make_store()
        name = store.put(b"abc")
        assert name == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        assert store.put(b"abc") == name
        assert store.get(name) == b"abc"

    def test_an_unknown_blob_is_an_error_of_ours(self) -> None:
        """A name that was never put raises a PtxsearchError."""
        try:
            self.make_store().get("0" * 64)
        except PtxsearchError:
            return
        raise AssertionError("an unknown blob was found")


class LLMConformance:
    """A model answers messages with text, a reason to end, and what it used."""

    def make_llm(self) -> LLM:
        """A model that answers at least two requests."""
        raise NotImplementedError

    def test_it_is_a_model(self) -> None:
        """The protocol's method is there."""
        assert isinstance(self.make_llm(), LLM)

    def test_it_completes_messages(self) -> None:
        """Text comes back with one call counted and no negative usage."""
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi."}]
        answer = self.make_llm().complete(messages, max_tokens=64)
        assert isinstance(answer, Completion)
        assert isinstance(answer.text, str)
        assert answer.finish_reason
        assert answer.usage.calls == 1
        assert answer.usage.tokens >= 0
        assert answer.usage.dollars >= 0

    def test_a_completion_can_be_recorded(self) -> None:
        """An answer to a request with schema and temperature survives JSON."""
        answer = self.make_llm().complete(
            [{"role": "user", "content": "Give {}."}],
            max_tokens=64,
            temperature=0.5,
            schema={"type": "object", "properties": {}, "additionalProperties": False},
        )
        assert Completion.from_dict(json.loads(json.dumps(answer.to_dict()))) == answer


class ProposerConformance:
    """A proposer gives children of the node it is asked for, or none, and is deterministic."""

    def make_proposer(self) -> Proposer:
        """A new proposer."""
        raise NotImplementedError

    def make_task(self) -> Task:
        """A task with a baseline."""
        raise NotImplementedError

    def _proposals(self) -> list[Proposal]:
        task = self.make_task()
        tree = Tree(task.baseline)
        return self.make_proposer().propose(
            TreeView(tree), tree.root, 3, np.random.Generator(np.random.Philox(7))
        )

    def test_it_is_a_proposer(self) -> None:
        """The protocol's method is there."""
        assert isinstance(self.make_proposer(), Proposer)

    def test_proposals_are_children_of_the_node(self) -> None:
        """At most as many as asked, each with a parent, a positive prior, a kernel or a reason."""
        proposals = self._proposals()
        assert len(proposals) <= 3
        for proposal in proposals:
            assert proposal.parent == 0
            assert proposal.prior > 0
            assert proposal.kernel is not None or proposal.note

    def test_equal_trees_and_seeds_give_equal_proposals(self) -> None:
        """Two fresh proposers agree."""
        first, second = self._proposals(), self._proposals()
        assert [p.to_dict() for p in first] == [p.to_dict() for p in second]

    def test_proposals_survive_json(self) -> None:
        """A proposal can be written to a file and read back."""
        for proposal in self._proposals():
            assert Proposal.from_dict(json.loads(json.dumps(proposal.to_dict()))) == proposal


class DeviceConformance:
    """A device runs and times a kernel that is right, and never changes its inputs."""

    def make_device(self) -> Device:
        """The device."""
        raise NotImplementedError

    def make_case(self) -> tuple[Built, Workload, Inputs]:
        """A kernel that is right, built for the device, a workload, and its inputs."""
        raise NotImplementedError

    def test_it_is_a_device(self) -> None:
        """The protocol's methods and attributes are there."""
        device = self.make_device()
        assert isinstance(device, Device)
        assert device.source in ("measured", "modelled")
        assert device.arch.startswith("sm_")

    def test_it_returns_every_output_and_keeps_inputs(self) -> None:
        """Each out and inout array comes back with its shape and dtype; inputs stay as they are."""
        built, workload, inputs = self.make_case()
        before = {name: array.copy() for name, array in inputs.named("in").items()}
        outputs = self.make_device().run(built, workload, inputs, timeout=60)
        assert isinstance(outputs, Outputs), outputs
        for name, array in inputs.named("out", "inout").items():
            assert outputs.arrays[name].shape == array.shape
            assert outputs.arrays[name].dtype == array.dtype
        for name, array in inputs.named("in").items():
            assert np.array_equal(array.view(np.uint8), before[name].view(np.uint8))

    def test_it_times_all_sides_of_a_round(self) -> None:
        """Times are positive seconds of shape (rounds, kernels)."""
        built, workload, inputs = self.make_case()
        device = self.make_device()
        assert isinstance(device.run(built, workload, inputs, timeout=60), Outputs)
        seconds = device.time([built, built], workload, 3)
        assert not isinstance(seconds, Failure), seconds
        assert seconds.shape == (3, 2)
        assert (seconds > 0).all()

    def test_it_profiles(self) -> None:
        """Counters come back, whatever of them could be counted."""
        built, workload, inputs = self.make_case()
        device = self.make_device()
        device.run(built, workload, inputs, timeout=60)
        assert isinstance(device.profile(built, workload), Counters)
