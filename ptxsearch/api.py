"""What a user calls: `optimize` a task, `evaluate` one kernel."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Literal

from ptxsearch.budget import Budget, Spend
from ptxsearch.certification import certified
from ptxsearch.config import DEFAULT_ARCH, make_evaluator, make_policy, open_store
from ptxsearch.emulator.device import EmulatedDevice
from ptxsearch.errors import ProviderPaused, UsageError
from ptxsearch.evaluation import Evaluation
from ptxsearch.gpu import CudaDevice, CudaDevices
from ptxsearch.kernel import Idea, Kernel, Proposal
from ptxsearch.llm import Ledger, exchanges, from_spec
from ptxsearch.menu import Menu
from ptxsearch.pipeline import Pipeline
from ptxsearch.policy import Policy
from ptxsearch.prompt import Brief, render
from ptxsearch.proposer import Hooks, LLMProposer
from ptxsearch.protocols import LLM, Device, Evaluator, Message, Proposer, Store
from ptxsearch.search import Search
from ptxsearch.store import SQLiteStore
from ptxsearch.tasks import Task
from ptxsearch.toolchain import CompileFailure
from ptxsearch.trial import Result, Trial

OnTrial = Callable[[Trial], None]
_RETRIES = 2


def optimize(
    task: Task,
    llm: LLM | str | None = None,
    *,
    policy: Policy | str | None = None,
    budget: Budget | None = None,
    device: Device | Evaluator | str | None = None,
    store: Store | str | os.PathLike[str] | None = None,
    seed: int = 0,
    workers: int | None = None,
    on_trial: OnTrial | None = None,
) -> Result:
    """The fastest kernel a search found for `task`, with the evidence.

    `llm` None proposes from the built-in menu alone. `store` is a path: the same call with the
    same store resumes. Ctrl-C ends the run with the best so far. `on_trial` hears of every trial.
    `workers` threads judge kernels, by default two for each GPU and one without.
    """
    chosen = make_policy(policy)
    opened = open_store(store)
    evaluator = make_evaluator(device)
    spending = budget or Budget()
    try:
        proposers = make_proposers(task, llm, policy=chosen, budget=spending, evaluator=evaluator)
        search = Search(
            task,
            proposers=proposers,
            policy=chosen,
            budget=spending,
            store=opened,
            seed=seed,
        )
        attach(search, evaluator)
        threads = workers if workers is not None else default_workers(evaluator)
        result = drive(search, evaluator, workers=threads, on_trial=on_trial)
        if result.state == "interrupted":
            return result
        return _with_cubin(certified(result, task, evaluator), evaluator)
    finally:
        if isinstance(opened, SQLiteStore) and opened is not store:
            opened.close()


def default_workers(evaluator: Evaluator) -> int:
    """Two for each GPU, so that one compiles and checks while the other times; else one."""
    device = evaluator.device if isinstance(evaluator, Pipeline) else None
    return 2 * len(device.gpus) if isinstance(device, CudaDevice | CudaDevices) else 1


def make_proposers(
    task: Task,
    llm: LLM | str | None,
    *,
    policy: Policy,
    budget: Budget,
    evaluator: Evaluator | None = None,
) -> tuple[Proposer, ...]:
    """The menu, and before it a model where one is given."""
    if llm is None:
        return (Menu(),)
    models = from_spec(llm, open_store=lambda path: SQLiteStore(path, read_only=True))
    arch = evaluator.device.arch if isinstance(evaluator, Pipeline) else DEFAULT_ARCH
    model = LLMProposer(task, models, policy=policy, arch=arch, ledger=Ledger(budget))
    return (model, Menu())


def attach(search: Search, evaluator: Evaluator | None) -> None:
    """Give the search's models its journal, what they were told before, and a compiler."""
    earlier = tuple(exchanges(search.journal.store))
    hooks = Hooks(record=search.record)
    if isinstance(evaluator, Pipeline):
        check = functools.partial(evaluator.check, search.task)
        hooks = Hooks(check=check, compiled=evaluator.ptx, record=search.record)
    for proposer in search.proposers:
        if isinstance(proposer, LLMProposer):
            proposer.attach(hooks, earlier)


def evaluate(
    task: Task,
    kernel: Kernel,
    *,
    device: Device | Evaluator | str | None = None,
    arch: str | None = None,
) -> Evaluation:
    """The verdict on one kernel, timed beside the task's baseline."""
    return make_evaluator(device, arch=arch).evaluate(task, kernel, baseline=task.baseline)


def preview_prompt(
    task: Task,
    node: int = 0,
    *,
    store: str | os.PathLike[str] | None = None,
    purpose: str = "plan",
    policy: Policy | None = None,
    arch: str | None = None,
) -> Sequence[Message]:
    """The messages a model would be sent to expand `node` of a stored run (or of a fresh one).

    Nothing is sent and nothing is written.
    """
    if purpose not in ("plan", "implement"):
        raise UsageError(f"purpose {purpose!r}", "use plan or implement")
    pipeline = Pipeline(EmulatedDevice(arch or DEFAULT_ARCH))
    if store is None:
        fresh = Search(task, proposers=(), policy=policy)
        for proposal in fresh.ask():
            fresh.tell([(proposal.id, pipeline.evaluate(task, task.baseline))])
        view = fresh.view
    else:
        with SQLiteStore(store, read_only=True) as opened:
            view = Search.stored(task, opened).view
    if not 0 <= node < sum(1 for _ in view):
        raise UsageError(f"no node {node}", f"give 0 to {sum(1 for _ in view) - 1}")
    chosen = policy or Policy()
    brief = Brief(
        language=chosen.language,
        arch=pipeline.device.arch,
        ideas=chosen.ideas,
        compiled=pipeline.ptx,
    )
    idea = view[node].idea or Idea("the idea chosen from the plan", "any")
    kind: Literal["plan", "implement"] = "plan" if purpose == "plan" else "implement"
    return render(
        task, view, view[node], purpose=kind, brief=brief, idea=None if kind == "plan" else idea
    )


def stored_result(task: Task, store: str | os.PathLike[str], *, arch: str | None = None) -> Result:
    """The result of the run over `task` that a store holds, without going on with it."""
    with SQLiteStore(store, read_only=True) as opened:
        search = Search.stored(task, opened)
        return _with_cubin(search.result(), make_evaluator("emulated", arch=arch))


def drive(
    search: Search,
    evaluator: Evaluator,
    *,
    workers: int = 1,
    on_trial: OnTrial | None = None,
) -> Result:
    """Ask, evaluate on `workers` threads, tell, until the search is done or interrupted."""
    if workers < 1:
        raise UsageError(f"workers is {workers}", "give at least 1")
    if not search.policy.order and search.budget.trials is not None:
        # A live run decides on what is known: with more in flight it knows too little.
        workers = min(workers, max(2, search.budget.trials // 25))
    heard = len(search.progress.trials)
    clock = time.monotonic()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="evaluate")
    running: dict[Future[Evaluation], Proposal] = {}
    try:
        while True:
            for proposal in search.ask(workers - len(running)):
                running[pool.submit(_judge, search, evaluator, proposal)] = proposal
            heard = _report(search, heard, on_trial)
            if not running:
                break
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            passed, clock = time.monotonic() - clock, time.monotonic()
            told = []
            for number, future in enumerate(finished):
                cost = _cost(future.result(), wall_seconds=0.0 if number else passed)
                told.append((running.pop(future).id, future.result(), cost))
            search.tell(told)
            heard = _report(search, heard, on_trial)
    except KeyboardInterrupt:
        search.stop("interrupted", "interrupted")
    except ProviderPaused as error:
        search.stop("paused", str(error))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    _report(search, heard, on_trial)
    result = search.result()
    # A run that ends early holds results that no decision has seen.
    seen = {trial.id for trial in search.progress.trials}
    for trial in result.trials:
        if on_trial is not None and trial.id not in seen:
            on_trial(trial)
    return _with_cubin(result, evaluator)


def _judge(search: Search, evaluator: Evaluator, proposal: Proposal) -> Evaluation:
    assert proposal.kernel is not None
    baseline = search.task.baseline
    for attempt in range(_RETRIES + 1):
        verdict = evaluator.evaluate(
            search.task, proposal.kernel, baseline=baseline, rival=search.rival
        )
        if verdict.status != "INFRA" or attempt == _RETRIES:
            return verdict
        time.sleep(0.1 * 2**attempt)
    raise AssertionError("unreachable")


def _cost(verdict: Evaluation, *, wall_seconds: float) -> Spend:
    return Spend(device_seconds=sum(verdict.cost.values()), wall_seconds=wall_seconds)


def _report(search: Search, heard: int, on_trial: OnTrial | None) -> int:
    trials: Sequence[Trial] = search.progress.trials[heard:]
    for trial in trials if on_trial is not None else ():
        assert on_trial is not None
        on_trial(trial)
    return heard + len(trials)


def _with_cubin(result: Result, evaluator: Evaluator) -> Result:
    """The result with the machine code of its best kernel, where it can be built."""
    if result.best is None or not isinstance(evaluator, Pipeline):
        return result
    built = evaluator.build(result.best.kernel)
    if isinstance(built, CompileFailure):
        return result
    return replace(result, best=replace(result.best, cubin=built.cubin.hex()))
