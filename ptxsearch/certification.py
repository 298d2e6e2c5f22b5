"""Stage 10 of a run on a GPU: the finalists in fresh processes; only those numbers are reported.

The five best kernels are checked on inputs the search never used, timed again, examined, profiled
and stressed (`gpu.final`). The winner of that becomes the result's best; its certificates, by
workload, are in its evidence under `final`.
"""

from __future__ import annotations

from dataclasses import replace

from ptxsearch.evaluation import Built, Failure
from ptxsearch.export import launch_document
from ptxsearch.gpu import CudaDevice
from ptxsearch.gpu.final import certify_task
from ptxsearch.pipeline import Pipeline
from ptxsearch.protocols import Evaluator
from ptxsearch.tasks import Task
from ptxsearch.trial import Best, Result, Trial

FINALISTS = 5
FRESH_SEED = 104_729


def certified(result: Result, task: Task, evaluator: Evaluator) -> Result:
    """`result` with its best chosen and timed by stage 10; unchanged off a GPU.

    Where a finalist fails there, the best stays as it was and its evidence says why.
    """
    if not isinstance(evaluator, Pipeline) or not isinstance(evaluator.device, CudaDevice):
        return result
    baseline = evaluator.build(task.baseline)
    finalists = finalists_of(result)
    made = [evaluator.build(t.proposal.kernel) for t in finalists if t.proposal.kernel]
    built = [item for item in made if isinstance(item, Built)]
    if result.best is None or not isinstance(baseline, Built) or len(built) != len(finalists):
        return result
    found = certify_task(
        evaluator.device,
        task,
        built,
        baseline,
        toolchain=evaluator.compiler.toolchain.name,
        seed=FRESH_SEED,
    )
    if isinstance(found, Failure):
        evidence = {**result.best.evaluation.evidence, "final": {"failed": found.message}}
        return replace(result, best=_with(result.best, evidence=evidence))
    # One winner for all timed workloads: that of the first, which the task lists first.
    first = next(iter(found.values()))
    trial = finalists[first.winner]
    kernel = trial.proposal.kernel
    assert kernel is not None
    evidence = {
        **trial.evaluation.evidence,
        "final": {name: certificate.to_dict() for name, certificate in found.items()},
    }
    best = Best(
        trial,
        replace(trial.evaluation, stage="final"),
        kernel,
        cubin=built[first.winner].cubin.hex(),
        document=launch_document(kernel, task),
    )
    times = {name: certificate.timing for name, certificate in found.items()}
    return replace(result, best=_with(best, evidence=evidence, times=times))


def finalists_of(result: Result) -> list[Trial]:
    """The best trials with distinct machine code, the best first."""
    passed = [trial for trial in result.trials if trial.evaluation.ok]
    passed.sort(key=lambda trial: (-trial.reward, trial.id))
    distinct = {trial.evaluation.key: trial for trial in reversed(passed)}
    return [t for t in passed if distinct[t.evaluation.key] is t][:FINALISTS]


def _with(best: Best, **changes: object) -> Best:
    return replace(best, evaluation=replace(best.evaluation, **changes))  # type: ignore[arg-type]
