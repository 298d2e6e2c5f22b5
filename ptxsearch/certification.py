"""Stage 10 of a run on a GPU: the finalists in fresh processes; only those numbers are reported.

The five best kernels are checked on inputs the search never used, timed again, examined, profiled
and stressed (`gpu.final`). The winner of that becomes the result's best; its certificates, by
workload, are in its evidence under `final`. A kernel that fails there is no finalist any more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ptxsearch.evaluation import Built, Evaluation, Failure
from ptxsearch.export import launch_document
from ptxsearch.gpu import CudaDevice, CudaDevices
from ptxsearch.gpu.final import Certificate, certify_task
from ptxsearch.kernel import Kernel
from ptxsearch.pipeline import Pipeline
from ptxsearch.protocols import Device, Evaluator
from ptxsearch.tasks import Task
from ptxsearch.trial import Best, Result, Trial

FINALISTS = 5
FRESH_SEED = 104_729
# racecheck reports named barriers between producers and consumers, which are honest; it decides
# only where the emulator could not run the kernel. The other tools have no false finding known.
_DECIDING = ("memcheck", "initcheck", "synccheck")


def certified(result: Result, task: Task, evaluator: Evaluator) -> Result:
    """`result` with its best chosen and timed by stage 10; unchanged off a GPU.

    Kernels that fail there are passed over, with the reasons in the best's evidence under
    `refused` by trial. Where none is left there is no best, and the result's reason says so;
    where the machine fails, the best stays as it was and `final` says why.
    """
    if not is_certifying(evaluator) or result.best is None:
        return result
    refused: dict[int, str] = {}
    while finalists := finalists_of(result, without=refused):
        kernels = [trial.proposal.kernel for trial in finalists]
        found = certificates([k for k in kernels if k is not None], task, evaluator)
        if isinstance(found, Failure):
            side = found.side
            if found.status == "INFRA" or side is None or side >= len(finalists):
                return _unconfirmed(result, found.message)
            refused[finalists[side].id] = found.message
            continue
        trial = finalists[next(iter(found.values())).winner]
        if fault := disqualification(found, trial.evaluation):
            refused[trial.id] = fault
            continue
        return _confirmed(result, trial, task, found, refused)
    texts = "; ".join(f"trial {number}: {text}" for number, text in refused.items())
    return replace(result, best=None, reason=f"no kernel passed the final examination ({texts})")


def is_certifying(evaluator: Evaluator) -> bool:
    """Whether an evaluator judges on a GPU, where results are certified."""
    return isinstance(evaluator, Pipeline) and _gpu(evaluator.device) is not None


def _gpu(device: Device) -> CudaDevice | None:
    """The GPU that this thread certifies on."""
    return device.mine if isinstance(device, CudaDevice | CudaDevices) else None


def certificates(
    kernels: Sequence[Kernel], task: Task, evaluator: Evaluator
) -> dict[str, Certificate] | Failure:
    """A certificate by timed workload for the fastest of `kernels`, or the failure of one."""
    assert isinstance(evaluator, Pipeline)
    gpu = _gpu(evaluator.device)
    assert gpu is not None
    made = [evaluator.build(kernel) for kernel in (*kernels, task.baseline)]
    built = [item for item in made if isinstance(item, Built)]
    if len(built) != len(made):
        return Failure(unsupported="a finalist or the baseline does not compile any more")
    return certify_task(
        gpu,
        task,
        built[:-1],
        built[-1],
        toolchain=evaluator.compiler.toolchain.name,
        seed=FRESH_SEED,
    )


def disqualification(found: Mapping[str, Certificate], verdict: Evaluation) -> str:
    """Why a winner must not be reported, empty where nothing forbids it."""
    deciding = _DECIDING + (("racecheck",) if "not_emulated" in verdict.evidence else ())
    texts: list[str] = []
    for certificate in found.values():
        texts += certificate.faults
        texts += [
            f"{tool} reports {count} errors"
            for tool, count in certificate.findings.items()
            if count > 0 and tool in deciding
        ]
    return "; ".join(dict.fromkeys(texts))


def finalists_of(result: Result, *, without: Collection[int] = ()) -> list[Trial]:
    """The best trials with distinct machine code, the best first, and none `without` names."""
    passed = [trial for trial in result.trials if trial.evaluation.ok]
    refused = {trial.evaluation.key for trial in passed if trial.id in without}
    passed.sort(key=lambda trial: (-trial.reward, trial.id))
    distinct = {trial.evaluation.key: trial for trial in reversed(passed)}
    return [
        trial
        for trial in passed
        if distinct[trial.evaluation.key] is trial and trial.evaluation.key not in refused
    ][:FINALISTS]


def _confirmed(
    result: Result,
    trial: Trial,
    task: Task,
    found: Mapping[str, Certificate],
    refused: Mapping[int, str],
) -> Result:
    kernel = trial.proposal.kernel
    assert kernel is not None
    evidence = {
        **trial.evaluation.evidence,
        "final": {name: certificate.to_dict() for name, certificate in found.items()},
    }
    if refused:
        evidence["refused"] = {str(number): text for number, text in refused.items()}
    times = {name: certificate.timing for name, certificate in found.items()}
    verdict = replace(trial.evaluation, stage="final", evidence=evidence, times=times)
    return replace(
        result, best=Best(trial, verdict, kernel, document=launch_document(kernel, task))
    )


def _unconfirmed(result: Result, why: str) -> Result:
    assert result.best is not None
    verdict = result.best.evaluation
    evidence = {**verdict.evidence, "final": {"failed": why}}
    return replace(
        result, best=replace(result.best, evaluation=replace(verdict, evidence=evidence))
    )
