"""What a user calls: optimize, verify, export, batch, ask and tell over files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ptxsearch
from ptxsearch.api import drive
from ptxsearch.batch import Suite, run_suite
from ptxsearch.config import load_policy, make_evaluator, policies, read_yaml
from ptxsearch.errors import DeviceError, PolicyError, RecordingError, UsageError
from ptxsearch.evaluation import Evaluation
from ptxsearch.exchange import answer_batch, ask_file, tell_file
from ptxsearch.kernel import Kernel
from ptxsearch.search import Search
from ptxsearch.store import SQLiteStore
from ptxsearch.trial import Trial
from ptxsearch.verification import compare
from tests.toy import ToyEvaluator, ToyProposer, toy_task, toy_verdict

SMALL = ptxsearch.Budget(trials=4)
ROOT = Path(__file__).resolve().parents[1]


def test_public_names_are_all_documented() -> None:
    """Every name in `__all__` is there, and nothing public is missing from it."""
    for name in ptxsearch.__all__:
        assert getattr(ptxsearch, name).__doc__, name


def test_default_policy_is_the_file() -> None:
    """`policies/default.yaml` equals Policy(); every policy that ships loads."""
    assert load_policy("default") == ptxsearch.Policy()
    written = set(read_yaml(ROOT / "policies" / "default.yaml"))
    optional = {k for k, v in ptxsearch.Policy().to_dict().items() if v is None}
    assert written | optional == set(ptxsearch.Policy().to_dict())
    assert {load_policy(name).rule for name in policies()} == {
        "mcts", "greedy", "beam", "best_of_n", "random",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rule: [", "line 1"),
        ("rule: bfs", "rule"),
        ("colour: red", "colour"),
        ("- 1", "mapping"),
        ("window: 0", "window"),
        ("window: 1.5", "window"),
    ],
)
def test_malformed_policies(tmp_path: Path, text: str, message: str) -> None:
    """A malformed policy names file, line or key."""
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(PolicyError, match=message):
        load_policy(path)


def test_unknown_policy_lists_near_names() -> None:
    """A misspelt policy is answered with what was probably meant."""
    with pytest.raises(PolicyError, match="greedy"):
        load_policy("gredy")


@pytest.mark.parametrize("device", ["tpu", "cuda:x", "emulated:1"])
def test_unknown_device(device: str) -> None:
    """A device nobody knows is an error that lists what there is."""
    with pytest.raises(DeviceError, match="emulated"):
        make_evaluator(device)


def test_device_that_does_nothing() -> None:
    """An object without evaluate or run is refused."""
    with pytest.raises(UsageError, match="neither"):
        make_evaluator(object())  # type: ignore[arg-type]


def test_optimize_on_the_emulator(tmp_path: Path) -> None:
    """The loop runs whole without a GPU: trials are heard, the best exported and verified."""
    heard: list[Trial] = []
    task = ptxsearch.load_task("level1/transpose")
    result = ptxsearch.optimize(
        task, budget=SMALL, device="emulated", store=tmp_path / "s", on_trial=heard.append
    )
    assert [trial.id for trial in heard] == [trial.id for trial in result.trials]
    assert result.state == "budget"
    assert result.spend.trials == 4
    assert result.best is not None
    assert result.best.evaluation.source == "modelled"
    names = {path.name for path in result.best.export(tmp_path / "out")}
    assert {"kernel.cu", "kernel.json", "launch.json", "kernel.cubin", "load_torch.py"} <= names
    path = result.save(tmp_path / "result.json")
    found = ptxsearch.verify(path)
    assert found.ok, found.differences
    assert len(found.agreements) == 2


@pytest.mark.parametrize("workers", [1, 4])
def test_wall_seconds_end_a_run_and_its_resume(tmp_path: Path, workers: int) -> None:
    """The clock is a cap like any other; what an earlier run spent counts when it goes on."""

    class Slow(ToyEvaluator):
        def evaluate(self, *given: Any, **named: Any) -> Evaluation:
            time.sleep(0.02)
            return super().evaluate(*given, **named)

    budget = ptxsearch.Budget(trials=None, wall_seconds=0.3)
    with SQLiteStore(tmp_path / "run.store") as store:
        search = Search(toy_task(), proposers=[ToyProposer()], budget=budget, store=store)
        started = time.monotonic()
        result = drive(search, Slow(), workers=workers)
        passed = time.monotonic() - started
    assert result.reason.startswith("wall_seconds")
    assert 0.3 <= result.spend.wall_seconds <= passed
    with SQLiteStore(tmp_path / "run.store") as store:
        again = Search(toy_task(), proposers=[ToyProposer()], budget=budget, store=store)
        judge = Slow()
        assert len(drive(again, judge).trials) == len(result.trials)
        assert judge.asked == 0


@pytest.mark.parametrize(("order", "most"), [(True, 8), (False, 2)])
def test_a_live_run_keeps_few_kernels_in_flight(order: bool, most: int) -> None:
    """Of 40 trials at most two are judged at once where decisions are taken as results come."""

    class Counting(ToyEvaluator):
        now = peak = 0

        def evaluate(self, *given: Any, **named: Any) -> Evaluation:
            self.now += 1
            self.peak = max(self.peak, self.now)
            time.sleep(0.005)
            self.now -= 1
            return super().evaluate(*given, **named)

    judge = Counting()
    search = Search(
        toy_task(),
        proposers=[ToyProposer()],
        policy=ptxsearch.Policy(order=order, window=8),
        budget=ptxsearch.Budget(trials=40),
    )
    drive(search, judge, workers=8)
    assert 1 < judge.peak <= most


def test_exported_launches_are_plain_numbers(tmp_path: Path) -> None:
    """launch.json holds grids and arguments that a loader can use as they are."""
    task = ptxsearch.load_task("level1/transpose")
    result = ptxsearch.optimize(task, budget=ptxsearch.Budget(trials=1), device="emulated")
    assert result.best is not None
    result.best.export(tmp_path)
    document = json.loads((tmp_path / "launch.json").read_text())
    full = document["workloads"]["full"]
    (launch,) = full["launches"]
    values = document["values"]
    assert launch["grid"][0] == -(-8192 // (values["TX"] * values["VEC"]))
    assert full["arrays"][0] == {
        "name": "x", "role": "in", "dtype": "f32", "numpy": "f4", "shape": [8192, 8192],
    }  # fmt: skip
    assert full["scalars"][0]["ctype"] == "c_int32"
    assert full["scalars"][0]["value"] == 8192


def test_verify_names_what_changed() -> None:
    """Another status, another time and another device each get a line."""
    before = toy_verdict(toy_task().baseline)
    slower = Evaluation.from_dict(before.to_dict() | {"device": "other"})
    times = {
        name: {**t, "median": t["median"] * 1.5} for name, t in before.to_dict()["times"].items()
    }
    slower = Evaluation.from_dict(slower.to_dict() | {"times": times, "source": "measured"})
    found = compare(before, slower)
    assert not found.ok
    assert "+50.00%" in found.differences[0]
    assert any("device other" in line for line in found.drift)
    failed = compare(before, Evaluation("WRONG", "smoke", "differs"))
    assert "was OK" in failed.differences[0]


def test_verify_refuses_a_changed_task(tmp_path: Path) -> None:
    """A result for another version of the task is refused."""
    task = toy_task()
    search = Search(task, proposers=())
    search.ask()
    search.tell([("0", toy_verdict(task.baseline))])
    path = search.result().save(tmp_path / "r.json")
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "digest": "0" * 64}))
    with pytest.raises(RecordingError, match="changed since"):
        ptxsearch.verify(path, task=task, device=ToyEvaluator())


def test_store_resumes_where_it_was_killed(tmp_path: Path) -> None:
    """A run killed with SIGKILL goes on to the result it would have had."""
    script = (
        "import sys, time, ptxsearch\n"
        "from ptxsearch.search import Search\n"
        "from ptxsearch.api import drive\n"
        "from ptxsearch.store import SQLiteStore\n"
        "from tests.toy import *\n"
        "class Slow(ToyEvaluator):\n"
        "    def evaluate(self, *a, **k):\n"
        "        time.sleep(0.02)\n"
        "        return super().evaluate(*a, **k)\n"
        "search = Search(toy_task(), proposers=[ToyProposer()], budget=ptxsearch.Budget(trials=40),"
        " store=SQLiteStore(sys.argv[1]))\n"
        "print(drive(search, Slow()).best.trial.id)\n"
    )
    path = tmp_path / "s"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script, str(path)]
    for wait in (1.2, 0.4, 0.7):
        with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
            time.sleep(wait)
            process.send_signal(signal.SIGKILL)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    whole = Search(toy_task(), proposers=[ToyProposer()], budget=ptxsearch.Budget(trials=40))
    expected = ptxsearch.api.drive(whole, ToyEvaluator()).best
    assert expected is not None
    assert int(done.stdout) == expected.trial.id


class Interrupting(ToyEvaluator):
    """Judges five kernels; Ctrl-C comes during the sixth."""

    def evaluate(self, task: Any, kernel: Kernel, **rest: Any) -> Evaluation:
        """The toy verdict."""
        if self.asked == 5:
            raise KeyboardInterrupt
        return super().evaluate(task, kernel, **rest)


def test_interrupt_ends_with_the_best_so_far() -> None:
    """Ctrl-C during an evaluation gives a result and loses no verdict."""
    search = Search(toy_task(), proposers=[ToyProposer()], budget=ptxsearch.Budget(trials=40))
    result = ptxsearch.api.drive(search, Interrupting())
    assert result.state == "interrupted"
    assert len(result.trials) == 5
    assert result.best is not None


def test_an_interrupted_run_has_told_of_every_trial_it_counts() -> None:
    """In order mode the last results are seen by no decision, and `on_trial` hears of them."""
    policy = ptxsearch.Policy(window=8)
    search = Search(toy_task(), proposers=[ToyProposer()], policy=policy)
    told: list[Trial] = []
    result = ptxsearch.api.drive(search, Interrupting(), on_trial=told.append)
    assert [trial.id for trial in told] == [0, 1, 2, 3, 4]
    assert tuple(told) == result.trials
    assert result.spend.trials == sum(trial.charged for trial in told)


def test_infra_is_retried() -> None:
    """A machine's fault is tried again before it is recorded."""

    class Flaky(ToyEvaluator):
        def evaluate(self, task: Any, kernel: Kernel, **rest: Any) -> Evaluation:
            verdict = super().evaluate(task, kernel, **rest)
            return Evaluation("INFRA", "quick", "lost") if self.asked % 2 else verdict

    search = Search(toy_task(), proposers=[ToyProposer()], budget=ptxsearch.Budget(trials=6))
    result = ptxsearch.api.drive(search, Flaky())
    assert all(trial.evaluation.status != "INFRA" for trial in result.trials)


def run_toy_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Suite, ToyEvaluator]:
    """A suite over the bundled names that is judged by the toy evaluator."""
    task = toy_task()
    monkeypatch.setattr("ptxsearch.batch.load_task", lambda name: task)
    suite = Suite(tasks=("a", "b"), policies=("mcts", "greedy"), seeds=(0, 1), trials=6)
    return suite, ToyEvaluator()


def test_batch_is_resumable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch run again evaluates nothing and gives the same summary."""
    suite, evaluator = run_toy_batch(tmp_path, monkeypatch)
    rows = run_suite(suite, tmp_path, evaluator=evaluator)
    assert len(rows) == 8
    for row in rows:
        name = f"{row.task}-{row.policy}-menu-{row.seed}.json"
        trials = [t for t in json.loads((tmp_path / name).read_text())["trials"] if t["charged"]]
        assert row.trials == len(trials)
        assert row.passed == sum(trial["evaluation"]["status"] == "OK" for trial in trials)
    asked = evaluator.asked
    assert run_suite(suite, tmp_path, evaluator=evaluator) == rows
    assert evaluator.asked == asked
    lines = (tmp_path / "summary.csv").read_text().splitlines()
    assert len(lines) == 9
    assert (tmp_path / "summary.md").read_text().count("\n") == 10


def test_batch_keeps_to_its_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No run starts once a cap of the whole batch is reached."""
    suite, evaluator = run_toy_batch(tmp_path, monkeypatch)
    capped = Suite.from_dict(suite.to_dict() | {"budget": {"proposals": 7}})
    rows = run_suite(capped, tmp_path, evaluator=evaluator)
    assert len(rows) < 8
    stored = [json.loads(p.read_text())["spend"]["proposals"] for p in tmp_path.glob("*.json")]
    assert sum(stored) <= 7


def exchange_run(tmp_path: Path) -> dict[str, Any]:
    """The arguments of one ask/tell run."""
    return {
        "store": tmp_path / "s",
        "policy": ptxsearch.Policy(window=8),
        "budget": ptxsearch.Budget(trials=12),
        "seed": 0,
    }


def test_ask_evaluate_tell(tmp_path: Path) -> None:
    """Files go out and results come home until the run is done, as in one process."""
    task, evaluator = toy_task(), ToyEvaluator()
    rounds = 0
    asked = ask_file(task, tmp_path / "p", n=4, **exchange_run(tmp_path))
    assert asked.written == 1
    assert "the baseline is judged first" in asked.why
    while ask_file(task, tmp_path / "p", n=4, **exchange_run(tmp_path)).written:
        results = tmp_path / f"r{rounds}"
        answer_batch(task, tmp_path / "p", results, evaluator)
        told = tell_file(task, results, **exchange_run(tmp_path))
        assert not told.refused
        assert not told.missing
        rounds += 1
    with SQLiteStore(tmp_path / "s", read_only=True) as store:
        result = Search.stored(task, store).result()
    assert rounds > 2
    assert result.spend.trials > 3


def test_result_files_that_went_wrong(tmp_path: Path) -> None:
    """Lost, doubled, shuffled, truncated and foreign lines are told apart and lose nothing."""
    task, evaluator = toy_task(), ToyEvaluator()
    ask_file(task, tmp_path / "p", n=1, **exchange_run(tmp_path))
    answer_batch(task, tmp_path / "p", tmp_path / "r", evaluator)
    tell_file(task, tmp_path / "r", **exchange_run(tmp_path))
    assert ask_file(task, tmp_path / "p", n=5, **exchange_run(tmp_path)).written >= 4
    answer_batch(task, tmp_path / "p", tmp_path / "r2", evaluator)
    lines = (tmp_path / "r2").read_text().splitlines()
    foreign = json.dumps({**json.loads(lines[0]), "run": "elsewhere"})
    rng = np.random.default_rng(0)
    mixed = [*lines[1:], lines[1], foreign]
    shuffled = [mixed[i] for i in rng.permutation(len(mixed))]
    (tmp_path / "bad").write_text("\n".join(shuffled) + "\n" + lines[0][:50])
    told = tell_file(task, tmp_path / "bad", **exchange_run(tmp_path))
    assert told.accepted == len(lines) - 1
    reasons = " ".join(told.refused)
    for word in ("elsewhere", "not waiting", "truncated"):
        assert word in reasons
    assert told.missing == (json.loads(lines[0])["id"],)
    again = ask_file(task, tmp_path / "p", n=1, **exchange_run(tmp_path))
    assert again.written == 1
    assert json.loads((tmp_path / "p").read_text())["id"] == told.missing[0]


def test_interrupted_batch_of_evaluations_goes_on(tmp_path: Path) -> None:
    """Proposals already answered in the result file are not evaluated again."""
    task, evaluator = toy_task(), ToyEvaluator()
    ask_file(task, tmp_path / "p", n=1, **exchange_run(tmp_path))
    assert answer_batch(task, tmp_path / "p", tmp_path / "r", evaluator) == 1
    with (tmp_path / "r").open("a") as handle:
        handle.write('{"id": "trunc')
    assert answer_batch(task, tmp_path / "p", tmp_path / "r", evaluator) == 0
    assert evaluator.asked == 1
