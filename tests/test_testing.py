"""Tests of the partners that ptxsearch ships for tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxsearch.evaluation import Built, Failure, Fault, Inputs
from ptxsearch.inputs import make_inputs
from ptxsearch.protocols import Completion
from ptxsearch.store import MemoryStore, SQLiteStore
from ptxsearch.taskfile import load_task
from ptxsearch.tasks import Workload
from ptxsearch.testing import (
    DeviceConformance,
    FakeDevice,
    LLMConformance,
    ScriptedLLM,
    StoreConformance,
)

TASK = load_task("level1/saxpy")


def test_a_scripted_model_plays_its_replies_and_keeps_its_calls() -> None:
    """Text, a function of the messages, a Completion, an exception, then the default."""
    script: list[Any] = [
        "a",
        lambda messages: messages[0]["content"],
        Completion("c"),
        ValueError("d"),
    ]
    llm = ScriptedLLM(script, default="e")
    ask = [{"role": "user", "content": "b"}]
    assert [llm.complete(ask, max_tokens=3).text for _ in range(3)] == ["a", "b", "c"]
    with pytest.raises(ValueError, match="d"):
        llm.complete(ask, max_tokens=3)
    assert llm.complete(ask, max_tokens=4, temperature=0.5).text == "e"
    assert len(llm.calls) == 5
    assert (llm.calls[4].max_tokens, llm.calls[4].temperature) == (4, 0.5)
    ask[0]["content"] = "changed"
    assert llm.calls[0].messages[0]["content"] == "b"


def test_a_fake_device_fails_and_times_as_told() -> None:
    """Seconds and failures are those of the functions it was given."""
    fault = Failure(Fault("trap", "told to"))
    slow = FakeDevice(TASK, seconds=lambda kernel, workload: 2.0)
    broken = FakeDevice(TASK, fails=lambda kernel: fault)
    built = Built(b"", "", TASK.baseline, {})
    inputs = make_inputs(TASK, TASK.smallest, seed=1)
    assert broken.run(built, TASK.smallest, inputs, timeout=1) == fault
    assert broken.time([built], TASK.smallest, 2) == fault
    assert np.array_equal(np.asarray(slow.time([built], TASK.smallest, 2)), [[2.0], [2.0]])


class TestScriptedConforms(LLMConformance):
    """The scripted model passes what every model must."""

    def make_llm(self) -> ScriptedLLM:
        """A model that says yes."""
        return ScriptedLLM(default="yes")


class TestFakeDeviceConforms(DeviceConformance):
    """The fake device passes what every device must."""

    def make_device(self) -> FakeDevice:
        """A fake device for saxpy."""
        return FakeDevice(TASK)

    def make_case(self) -> tuple[Built, Workload, Inputs]:
        """The baseline on its smallest workload."""
        workload = TASK.smallest
        return Built(b"", "", TASK.baseline, {}), workload, make_inputs(TASK, workload, seed=0)


class TestMemoryStoreConforms(StoreConformance):
    """The store in memory passes what every store must."""

    def make_store(self) -> MemoryStore:
        """A new store."""
        return MemoryStore()


class TestSQLiteStoreConforms(StoreConformance):
    """The store on disk passes what every store must."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> Iterator[None]:
        self.folder, self.made = tmp_path, list[SQLiteStore]()
        yield
        for store in self.made:
            store.close()

    def make_store(self) -> SQLiteStore:
        """A store in a new file."""
        self.made.append(SQLiteStore(self.folder / f"{len(self.made)}.db"))
        return self.made[-1]
