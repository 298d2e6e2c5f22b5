"""Records as JSON: round trips, newer schemas, foreign and truncated documents."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from ptxsearch.budget import Budget, Spend
from ptxsearch.errors import RecordingError
from ptxsearch.evaluation import Counters, Evaluation, Fault, Resources, Timing
from ptxsearch.kernel import Edit, Idea, Kernel, Launch, Proposal, Scratch, TensorMap
from ptxsearch.policy import Policy
from ptxsearch.space import Space
from ptxsearch.trial import Best, Result, Trial

KERNEL = Kernel(
    source="__global__ void k() {}",
    language="cuda",
    launches=(Launch("k", ("x", "n"), ("ceil_div(n, B)",), ("B",), shared_bytes="4 * B"),),
    values={"B": 128, "FAST": True, "MODE": "a"},
    space=Space({"B": (64, 128)}, ("B <= 128",), {"bytes": "4 * B"}),
    scratch=(Scratch("tmp", "f32", ("n",), "zeros"),),
    tensor_maps=(TensorMap("map", "x", "f32", ("n", "8"), ("32",), ("16", "8"), "128"),),
)
PROPOSAL = Proposal(
    "3", 1, KERNEL, Edit("tile", "tiles"), 0.5, Idea("t", "tile", gain=(0.1, 0.2, 0.5)), "cross"
)
EVALUATION = Evaluation(
    "WRONG",
    "smoke",
    "differs",
    key="abc",
    resources={"k": Resources(32, opcodes={"FFMA": 3})},
    times={"full": Timing(1e-6, 1.1e-6, 2e-6, 7)},
    counters={"full": Counters(fp32_fma=3.0, extra={"x": 1.0})},
    faults=(Fault("data_race", "m", line=3, block=(0, 1, 2), thread=(1, 0, 0)),),
    evidence={"share_right": 0.5, "race": {"accepted": False}},
    cost={"smoke": 0.1},
)
TRIAL = Trial(3, 2, PROPOSAL, EVALUATION, -0.5, Spend(tokens=5))
RECORDS: list[Any] = [
    KERNEL, PROPOSAL, EVALUATION, TRIAL, Policy(rule="beam"), Budget(dollars=2.0), Spend(calls=1),
    Result("t", "done", Best(TRIAL, EVALUATION, KERNEL, "00"), (TRIAL,), (TRIAL,), Spend()),
]  # fmt: skip


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_round_trip(record: Any) -> None:
    """A record written as JSON text and read back is equal."""
    text = json.dumps(record.to_dict())
    assert type(record).from_dict(json.loads(text)) == record


def test_numpy_numbers_become_plain() -> None:
    """Numpy scalars in records are written as JSON numbers."""
    written = Timing(np.float64(1.5), 1.0, 1.0, np.int64(3)).to_dict()  # type: ignore[arg-type]
    assert json.loads(json.dumps(written))["samples"] == 3


def test_newer_schema_is_refused() -> None:
    """A document of a later version says to upgrade."""
    with pytest.raises(RecordingError, match="newer"):
        Spend.from_dict({**Spend().to_dict(), "schema": 99})


@pytest.mark.parametrize(
    "change",
    [{"launches": 3}, {"source": 1}, {"language": "basic"}, {"colour": "red"}, {"values": []}],
)
def test_foreign_fields_are_named(change: dict[str, Any]) -> None:
    """A wrong type or an unknown key is an error that names it."""
    with pytest.raises(RecordingError, match=next(iter(change))):
        Kernel.from_dict({**KERNEL.to_dict(), **change})


def test_missing_field_is_named() -> None:
    """A truncated document is an error that names what it lacks."""
    data = KERNEL.to_dict()
    del data["source"]
    with pytest.raises(RecordingError, match="source"):
        Kernel.from_dict(data)


@pytest.mark.parametrize("data", [None, 3, "x", []])
def test_not_an_object(data: Any) -> None:
    """Anything but an object is refused."""
    with pytest.raises(RecordingError, match="object"):
        Spend.from_dict(data)
