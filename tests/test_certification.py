"""Stage 10 in a run: who the finalists are, and that only certified numbers are reported."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ptxsearch import certification
from ptxsearch.budget import Budget
from ptxsearch.evaluation import Built, Failure, Fault, Timing
from ptxsearch.gpu import CudaDevice
from ptxsearch.gpu.final import Certificate
from ptxsearch.kernel import Kernel
from ptxsearch.pipeline import Pipeline
from ptxsearch.search import Search
from ptxsearch.trial import Result
from tests.toy import ToyProposer, toy_task, toy_verdict


@pytest.fixture(scope="module")
def result() -> Result:
    """A toy run that ended."""
    search = Search(toy_task(), proposers=[ToyProposer()], budget=Budget(trials=30))
    while not search.done:
        for proposal in search.ask():
            assert proposal.kernel is not None
            search.tell([(proposal.id, toy_verdict(proposal.kernel))])
    return search.result()


class FakePipeline(Pipeline):
    """A pipeline on a GPU that is not there; kernels build to their source."""

    def __init__(self) -> None:
        self.device = object.__new__(CudaDevice)
        self.compiler = type("C", (), {"toolchain": type("T", (), {"name": "t"})})()  # type: ignore[assignment]

    def build(self, kernel: Kernel) -> Built:
        """The source as machine code."""
        return Built(f"{kernel.source}{kernel.values}".encode(), "", kernel, {})


def certificate(winner: int, **more: Any) -> Certificate:
    """A certificate for one of the finalists."""
    time = Timing(2e-5, 2e-5, 2e-5, 1000)
    return Certificate(
        "H200", 13000, "t", "c", "only", winner, time, time, (2e-5, 2e-5), 1.0, (1.0, 1.0),
        (2e-5,), 1000, **more,
    )  # fmt: skip


def scripted(monkeypatch: pytest.MonkeyPatch, *answers: Certificate | Failure) -> list[int]:
    """Stage 10 answers in this order; the list tells how many finalists each time had."""
    left, seen = list(answers), []

    def certify(device: object, task: object, finalists: list[Built], *a: Any, **k: Any) -> Any:
        seen.append(len(finalists))
        answer = left.pop(0)
        return answer if isinstance(answer, Failure) else {"only": answer}

    monkeypatch.setattr(certification, "certify_task", certify)
    return seen


def test_finalists_are_the_best_with_distinct_code(result: Result) -> None:
    """At most five, best first, no machine code twice."""
    finalists = certification.finalists_of(result)
    assert len(finalists) == 5
    assert len({trial.evaluation.key for trial in finalists}) == 5
    rewards = sorted((t.reward for t in result.trials if t.evaluation.ok), reverse=True)
    assert finalists[0].reward == rewards[0]


def test_winner_is_reported_with_its_certified_time(
    result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The certificate's winner and its time replace what the search had seen."""
    monkeypatch.setattr(
        certification, "certify_task", lambda *a, **k: {"only": certificate(winner=2)}
    )
    found = certification.certified(result, toy_task(), FakePipeline())
    assert found.best is not None
    assert found.best.trial == certification.finalists_of(result)[2]
    assert found.best.evaluation.stage == "final"
    assert found.best.seconds == pytest.approx(2e-5)
    assert found.best.evaluation.evidence["final"]["only"]["launches"] == 1000
    assert Result.from_dict(found.to_dict()).best == found.best


def test_failing_machine_changes_nothing(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where stage 10 fails for no kernel's fault the best stays, and its evidence says so."""
    scripted(monkeypatch, Failure(Fault("machine", "the GPU fell off the bus")))
    found = certification.certified(result, toy_task(), FakePipeline())
    assert found.best is not None
    assert result.best is not None
    assert found.best.kernel == result.best.kernel
    assert found.best.evaluation.evidence["final"] == {"failed": "the GPU fell off the bus"}


@pytest.mark.parametrize(
    "answer",
    [
        Failure(Fault("illegal_instruction", "a trap", object="builts[1]")),
        certificate(1, faults=("after 10000 launches: out is wrong",)),
        certificate(1, findings={"memcheck": 3, "racecheck": 0}),
        certificate(1, findings={"initcheck": 1}),
    ],
)
def test_finalist_that_fails_is_not_reported(
    result: Result, monkeypatch: pytest.MonkeyPatch, answer: Certificate | Failure
) -> None:
    """A finalist that traps, ends wrong or is faulted by a tool makes room for the next."""
    seen = scripted(monkeypatch, answer, certificate(winner=1))
    culprit, other = certification.finalists_of(result)[1:3]
    found = certification.certified(result, toy_task(), FakePipeline())
    assert found.best is not None
    assert found.best.trial == other
    assert list(found.best.evaluation.evidence["refused"]) == [str(culprit.id)]
    assert seen == [5, 5]
    assert culprit not in certification.finalists_of(result, without=[culprit.id])


def test_named_barriers_are_honest(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    """What racecheck alone reports, of a kernel that the emulator found clean, is a note."""
    scripted(monkeypatch, certificate(0, findings={"racecheck": 385}))
    found = certification.certified(result, toy_task(), FakePipeline())
    assert found.best is not None
    assert found.best.trial == certification.finalists_of(result)[0]
    verdict = replace(found.best.evaluation, evidence={"not_emulated": "wgmma"})
    only = {"only": certificate(0, findings={"racecheck": 385})}
    assert "racecheck" in certification.disqualification(only, verdict)


def test_no_kernel_left_is_no_result(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every kernel fails in the end none is reported, and the reason names them."""
    passed = {t.evaluation.key for t in result.trials if t.evaluation.ok}
    bad = certificate(0, faults=("a timed launch: out is wrong",))
    scripted(monkeypatch, *[bad] * len(passed))
    found = certification.certified(result, toy_task(), FakePipeline())
    assert found.best is None
    assert found.reason.startswith("no kernel passed")
    assert Result.from_dict(found.to_dict()) == found


def test_nothing_to_certify_off_a_gpu(result: Result) -> None:
    """Modelled and recorded results are returned as they are."""
    evaluator: Any = object()
    assert certification.certified(result, toy_task(), evaluator) is result
