"""The command line: `ptxsearch optimize TASK` and its companions.

Exit codes: 0 success, 1 a negative verdict, 2 a user's mistake, 3 a machine part failed,
130 interrupted. With `--json` one document goes to stdout and everything else to stderr.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from ptxsearch import api, calibration, console, emulation
from ptxsearch.batch import read_suite, run_suite
from ptxsearch.budget import Budget
from ptxsearch.config import load_policy, make_evaluator
from ptxsearch.doctor import diagnose
from ptxsearch.doctor import to_dict as doctor_dict
from ptxsearch.errors import PtxsearchError, UsageError
from ptxsearch.exchange import answer_batch, ask_file, tell_file
from ptxsearch.inputs import distributions
from ptxsearch.kernelfile import read_kernel
from ptxsearch.llm import preview
from ptxsearch.plural import plural
from ptxsearch.taskfile import bundled, load_task, locate
from ptxsearch.tasklint import lint as lint_task
from ptxsearch.tasks import Task
from ptxsearch.toolchain import CompileFailure
from ptxsearch.trial import Trial
from ptxsearch.verification import verify as verify_result

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="GPU kernels made fast by search, with verdicts you can reproduce.",
)
TaskName = Annotated[str, typer.Argument(help="a bundled task, such as level1/sum, or a folder")]
Json = Annotated[bool, typer.Option("--json", help="one JSON document on stdout")]
Store = Annotated[Path | None, typer.Option(help="journal of the run; an existing one resumes")]
Device = Annotated[str | None, typer.Option(help="cuda, cuda:INDEX or emulated; default: a GPU")]
Arch = Annotated[str | None, typer.Option(help="architecture to emulate, such as sm_90")]
Llm = Annotated[str | None, typer.Option(help="openai:MODEL or replay:STORE; default: menu only")]
PolicyName = Annotated[
    str, typer.Option(help="default, mcts, greedy, beam, best_of_n, random or a YAML file")
]
Seed = Annotated[int, typer.Option(help="seed of the run")]
Trials = Annotated[int | None, typer.Option(help="most trials; free ones are not counted")]
Tokens = Annotated[int | None, typer.Option(help="most tokens")]
Dollars = Annotated[float | None, typer.Option(help="most US dollars")]
Wall = Annotated[float | None, typer.Option(help="most seconds on the clock")]
Workers = Annotated[
    int | None, typer.Option(help="kernels judged at once; default: two for each GPU, else one")
]
Debug = Annotated[bool, typer.Option("--debug", help="show the traceback of an error")]
_err = Console(stderr=True, highlight=False, markup=False)


def _budget(
    trials: int | None, tokens: int | None, dollars: float | None, wall: float | None
) -> Budget:
    if trials is None and tokens is None and dollars is None and wall is None:
        return Budget()
    return Budget(trials=trials, tokens=tokens, dollars=dollars, wall_seconds=wall)


def _print_json(document: Any) -> None:
    sys.stdout.write(json.dumps(document, indent=1, allow_nan=False) + "\n")


@app.command()
def optimize(
    task: TaskName,
    llm: Llm = None,
    policy: PolicyName = "default",
    trials: Trials = None,
    tokens: Tokens = None,
    dollars: Dollars = None,
    wall_seconds: Wall = None,
    device: Device = None,
    arch: Arch = None,
    store: Store = None,
    seed: Seed = 0,
    workers: Workers = None,
    out: Annotated[Path | None, typer.Option(help="folder for the best kernel's files")] = None,
    as_json: Json = False,
) -> None:
    """Search for the fastest kernel of TASK; Ctrl-C ends with the best so far."""
    wanted = load_task(task)
    budget = _budget(trials, tokens, dollars, wall_seconds)
    evaluator = make_evaluator(device, arch=arch)
    screen = Console(stderr=as_json, highlight=False)
    console.announce(screen, wanted, evaluator, store)
    if llm is not None and (costs := preview(llm, budget)):
        screen.print(costs, markup=False)
    shown: list[Trial] = []

    def on_trial(trial: Trial) -> None:
        shown.append(trial)
        console.show_trial(screen, trial)

    result = api.optimize(
        wanted,
        llm,
        policy=load_policy(policy),
        budget=budget,
        device=evaluator,
        store=store,
        seed=seed,
        workers=workers,
        on_trial=on_trial,
    )
    folder = None
    if result.best is not None and (out is not None or not as_json):
        folder = out or Path("runs") / wanted.name.replace("/", "_")
        result.best.export(folder)
        result.save(folder / "result.json")
    console.show_result(screen, result, shown=shown, folder=folder, store=store)
    if as_json:
        _print_json(result.to_dict())
    if result.state == "interrupted":
        raise typer.Exit(130)
    if result.state == "paused":
        raise typer.Exit(3)
    if result.best is None:
        raise typer.Exit(1)


@app.command()
def evaluate(
    task: TaskName,
    kernel: Annotated[Path | None, typer.Argument(help="my.cu or my.ptx, my.json beside")] = None,
    batch: Annotated[Path | None, typer.Option(help="proposals written by `ask`")] = None,
    out: Annotated[Path, typer.Option(help="results of --batch")] = Path("results.jsonl"),
    device: Device = None,
    arch: Arch = None,
    as_json: Json = False,
) -> None:
    """The verdict on one kernel, exit 1 where it does not pass; or on a file of proposals.

    my.json beside my.cu tells how it is launched, in the names of the task's parameters and
    sizes: {"launches": [{"entry": "k", "args": ["x", "y", "n"], "grid": "ceil_div(n, 256)",
    "block": 256}], "values": {}}. Without it the baseline's launches are used.
    """
    wanted = load_task(task)
    evaluator = make_evaluator(device, arch=arch)
    if batch is not None:
        count = answer_batch(wanted, batch, out, evaluator)
        _err.print(f"{plural(count, 'result')} added to {out}")
        return
    if kernel is None:
        raise UsageError("neither a kernel nor --batch", "give a kernel file")
    candidate = read_kernel(kernel, like=wanted.baseline)
    verdict = evaluator.evaluate(wanted, candidate, baseline=wanted.baseline)
    if as_json:
        _print_json(verdict.to_dict())
    else:
        console.show_evaluation(Console(highlight=False), verdict)
    if not verdict.ok:
        raise typer.Exit(1)


@app.command()
def emulate(
    kernel: Annotated[Path, typer.Argument(help="my.ptx, or my.cu, which is compiled first")],
    case: Annotated[
        Path, typer.Option(help="JSON: the entry and its runs, as docs/kernels.md says")
    ],
    arch: Arch = None,
    as_json: Json = False,
) -> None:
    """Run a kernel on the emulator; exit 1 for a fault, a timeout or an unsupported one.

    A case: {"entry": "k", "runs": [{"grid": 1, "block": 32, "args": [...]}]}, where an argument
    is {"name": "n", "kind": "scalar", "dtype": "s32", "value": 32} or {"name": "x", "kind":
    "buffer", "role": "in", "dtype": "f32", "shape": [32], "init": {"gen": "arange"}}.
    """
    launches = emulation.emulate(kernel, case, arch=arch)
    if isinstance(launches, CompileFailure):
        if as_json:
            _print_json(launches.to_dict())
        _err.print(launches.text, markup=False, soft_wrap=True)
        raise typer.Exit(1)
    if as_json:
        _print_json([console.report_dict(launch.report) for launch in launches])
    else:
        console.show_launches(Console(highlight=False), launches)
    if not all(launch.report.ok for launch in launches):
        raise typer.Exit(1)


@app.command()
def tasks(as_json: Json = False) -> None:
    """The tasks that ship."""
    names = bundled()
    if as_json:
        _print_json([{"name": name, "description": load_task(name).description} for name in names])
        return
    console.show_tasks(Console(highlight=False), [load_task(name) for name in names])


@app.command()
def lint(
    task: TaskName,
    device: Device = "emulated",
    quick: Annotated[bool, typer.Option(help="leave out the kernels under wrong/")] = False,
    calibrate: Annotated[bool, typer.Option(help="measure and store its tolerances")] = False,
    as_json: Json = False,
) -> None:
    """Whether TASK can judge kernels; exit 1 where it cannot."""
    wanted = load_task(task)
    if calibrate:
        _calibrate(wanted, locate(task) / "calibration.json")
        wanted = load_task(task)
    evaluator = make_evaluator(device)
    found = lint_task(wanted, evaluate=None if quick else evaluator.evaluate)
    if as_json:
        _print_json([complaint.to_dict() for complaint in found])
    else:
        console.show_complaints(Console(highlight=False), wanted, found)
    if any(complaint.severity == "error" for complaint in found):
        raise typer.Exit(1)


def _calibrate(task: Task, path: Path) -> None:
    _err.print(
        f"calibrating {plural(len(task.workloads), 'workload')} on "
        f"{plural(len(distributions(task)), 'distribution')}, seconds to minutes"
    )
    if found := calibration.calibrate(task):
        calibration.store(found, path)
    else:
        _err.print("nothing to calibrate: every output is exact or has a stated tolerance")


@app.command()
def doctor(
    store: Store = None,
    model: Annotated[str, typer.Option(help="a model to ask the endpoint for")] = "",
    as_json: Json = False,
) -> None:
    """What this machine has and lacks, each with the command that mends it."""
    checks = diagnose(environment=dict(os.environ), store=store, model=model)
    document = doctor_dict(checks)
    if as_json:
        _print_json(document)
    else:
        console.show_checks(Console(highlight=False), checks)
    if not document["ok"]:
        raise typer.Exit(1)


@app.command()
def batch(
    suite: Annotated[Path, typer.Argument(help="a YAML suite: tasks, policies, models, budget")],
    out: Annotated[Path, typer.Option(help="folder of journals and summary")] = Path("runs/batch"),
    as_json: Json = False,
) -> None:
    """Run tasks x policies x models x seeds under one budget; the same command resumes.

    A suite is YAML: lists of tasks, policies, models (menu, openai:MODEL) and seeds, the trials
    of each run, the budget of all, the device; docs/tasks.md has an example.
    """
    screen = Console(stderr=as_json, highlight=False)
    rows = run_suite(read_suite(suite), out, on_row=lambda row: console.show_row(screen, row))
    screen.print(f"summary: {out / 'summary.md'}", markup=False, soft_wrap=True)
    if as_json:
        _print_json([row.to_dict() for row in rows])
    if any(row.state == "interrupted" for row in rows):
        raise typer.Exit(130)


@app.command()
def verify(
    result: Annotated[Path, typer.Argument(help="the JSON of a result")],
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Judge the best kernel of a result again; exit 1 where something differs."""
    found = verify_result(result, device=device)
    if as_json:
        _print_json(found.to_dict())
    else:
        console.show_verification(Console(highlight=False), found)
    if not found.ok:
        raise typer.Exit(1)


@app.command()
def prompt(
    task: TaskName,
    node: Annotated[int, typer.Option(help="number of the node to expand")] = 0,
    store: Annotated[Path | None, typer.Option(help="journal of a run over TASK")] = None,
    purpose: Annotated[str, typer.Option(help="plan or implement")] = "plan",
    policy: PolicyName = "default",
    arch: Arch = None,
) -> None:
    """Print exactly what a model would be sent to expand a node."""
    for message in api.preview_prompt(
        load_task(task), node, store=store, purpose=purpose, policy=load_policy(policy), arch=arch
    ):
        sys.stdout.write(f"--- {message['role']}\n{message['content']}\n")


@app.command()
def export(
    task: TaskName,
    store: Annotated[Path, typer.Option(help="journal of a run over TASK")],
    out: Annotated[Path, typer.Option(help="folder to write")],
    arch: Arch = None,
) -> None:
    """Write the best kernel of a stored run: source, cubin, launches, loaders."""
    result = api.stored_result(load_task(task), store, arch=arch)
    if result.best is None:
        raise UsageError(f"{store} holds no kernel that passed", "run optimize first")
    for path in result.best.export(out):
        sys.stdout.write(f"{path}\n")


@app.command()
def ask(
    task: TaskName,
    store: Annotated[Path, typer.Option(help="journal of the run")],
    n: Annotated[int, typer.Option("-n", help="most proposals to write")] = 8,
    out: Annotated[Path, typer.Option(help="JSON Lines file to write")] = Path("proposals.jsonl"),
    llm: Llm = None,
    policy: PolicyName = "default",
    trials: Trials = None,
    seed: Seed = 0,
) -> None:
    """Write proposals for another machine to evaluate; exit 1 where there is none now."""
    asked = ask_file(
        load_task(task),
        out,
        n=n,
        store=store,
        llm=llm,
        policy=load_policy(policy),
        budget=_budget(trials, None, None, None),
        seed=seed,
    )
    why = f" ({asked.why})" if asked.why else ""
    _err.print(f"{plural(asked.written, 'proposal')} in {out}{why}", soft_wrap=True)
    if not asked.written:
        raise typer.Exit(1)


@app.command()
def tell(
    task: TaskName,
    results: Annotated[Path, typer.Argument(help="what `evaluate --batch` wrote")],
    store: Annotated[Path, typer.Option(help="journal of the run")],
    policy: PolicyName = "default",
    trials: Trials = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Bring results home; refused lines are named and lose nothing."""
    told = tell_file(
        load_task(task),
        results,
        store=store,
        policy=load_policy(policy),
        budget=_budget(trials, None, None, None),
        seed=seed,
    )
    if as_json:
        _print_json(told.to_dict())
        return
    _err.print(f"{plural(told.accepted, 'result')} told, {len(told.refused)} refused")
    for line in told.refused:
        _err.print(f"  {line}")


def main() -> None:
    """The entry point: one line of cause and remedy for every expected error."""
    debug = "--debug" in sys.argv
    if debug:
        sys.argv.remove("--debug")
    try:
        app(standalone_mode=True)
    except PtxsearchError as error:
        if debug:
            raise
        _err.print(f"error: {error.message}", style="bold", markup=False, soft_wrap=True)
        if error.remedy:
            _err.print(f"   do: {error.remedy}", markup=False, soft_wrap=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
