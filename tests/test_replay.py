"""Recordings: the three formats, verdicts, times drawn anew, export."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ptxsearch import replay
from ptxsearch.errors import RecordingError
from ptxsearch.evaluation import Evaluation, Timing
from ptxsearch.interchange import Table
from ptxsearch.kernel import Edit, Kernel, Launch, Proposal
from ptxsearch.protocols import Evaluator
from ptxsearch.space import Space
from ptxsearch.tasks import Task
from ptxsearch.trial import Trial

DATA = Path(__file__).parent / "data" / "spaces"
MATMUL = DATA / "matmul_H200.npz"


def judged(path: Path, **values: object) -> Evaluation:
    """The verdict of a recording on the task's kernel with these values."""
    task, recording = replay.load(path, noise=False)
    kernel = task.baseline.with_values(**values)  # type: ignore[arg-type]
    return recording.evaluate(task, kernel)


def test_recording_is_an_evaluator() -> None:
    """A recording stands where a pipeline does, and its task has a working baseline."""
    task, recording = replay.load(MATMUL)
    assert isinstance(recording, Evaluator)
    assert isinstance(task, Task)
    verdict = recording.evaluate(task, task.baseline)
    assert verdict.ok
    assert verdict.source == "recorded"
    assert recording.name == "NVIDIA H200"


def test_times_are_the_recorded_medians() -> None:
    """Without noise every configuration has its recorded time, in seconds."""
    with np.load(MATMUL) as file:
        meta, rows = json.loads(str(file["meta"])), file["idx"]
        milliseconds, resources = file["time"], file["resources"]
    task, recording = replay.load(MATMUL, noise=False)
    for i in (0, 700, 1500, 2039):
        values = {n: v[rows[i, j]] for j, (n, v) in enumerate(meta["params"].items())}
        verdict = recording.evaluate(task, task.baseline.with_values(**values))
        if np.isfinite(milliseconds[i]):
            assert verdict.seconds == pytest.approx(milliseconds[i] / 1000)
            assert verdict.resources["matmul"].registers == resources[i, 0]
        else:
            assert not verdict.ok


def test_failures_keep_their_recorded_reason() -> None:
    """A configuration that ptxas refused fails with ptxas' words; a refused launch crashes."""
    with np.load(MATMUL) as file:
        rows, status = file["idx"], file["status"]
    task, recording = replay.load(MATMUL)
    found = {}
    for code in (1, 2):
        values = recording.space.values(rows[np.flatnonzero(status == code)[0]])
        found[code] = recording.evaluate(task, task.baseline.with_values(**values))
    assert (found[1].status, found[1].stage) == ("COMPILE_ERROR", "compile")
    assert "uses too much shared data" in found[1].message
    assert (found[2].status, found[2].faults[0].kind) == ("CRASHED", "launch_failure")
    assert "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES" in found[2].message


def test_noise_is_drawn_from_the_samples() -> None:
    """Repeated times lie within the recorded samples, differ, and repeat under the same seed."""
    with np.load(MATMUL) as file:
        samples = file["samples"].astype(float) * 1e-3
    task, recording = replay.load(MATMUL, seed=3)
    i = recording.find(task.baseline.values)
    assert i is not None
    drawn = [recording.evaluate(task, task.baseline).times["recorded"] for _ in range(20)]
    low, high = np.nanmin(samples[i]), np.nanmax(samples[i])
    assert all(low <= timing.median <= timing.p95 <= high for timing in drawn)
    assert len({timing.mean for timing in drawn}) > 1
    _, again = replay.load(MATMUL, seed=3)
    assert [again.evaluate(task, task.baseline).times["recorded"] for _ in range(20)] == drawn


def test_equal_machine_code_has_an_equal_key() -> None:
    """Equal code is one kernel under one launch, and another under another launch."""
    space = Space({"a": (1, 2), "grid": (8, 16)}, derived={"blocks": "grid"})
    table = Table(
        name="k",
        space=space,
        rows=np.array([[0, 0], [0, 1], [1, 0], [1, 1]]),
        seconds=np.full(4, 1e-3),
        verdicts=[("OK", "quick", "")] * 4,
        code=["c0", "c0", "c0", "c1"],
        meta={"not_compiled_in": ["grid"]},
    )
    recording = replay.Recording(table)
    task, _ = replay.load(MATMUL)
    keys = []
    for row in table.rows:
        kernel = Kernel("k", "recorded", (), space.values(row), space)
        keys.append(recording.evaluate(task, kernel).key)
    assert keys[0] == keys[2]
    assert len(set(keys)) == 3


def test_counters_of_profiled_configurations() -> None:
    """The profiler's bytes and instructions come under our names, the rest under its own."""
    path = DATA / "ktt_coulomb3d_RTX_2080_Ti_counters.npz"
    with np.load(path) as file:
        names = json.loads(str(file["meta"]))["counter_names"]
        counters = file["counters"]
        first = int(np.flatnonzero(file["status"] == 0)[0])
    task, recording = replay.load(path)
    values = recording.space.values(recording.table.rows[first])
    verdict = recording.evaluate(task, task.baseline.with_values(**values))
    counted = verdict.counters["recorded"]
    instructions = counters[first, names.index("smsp__inst_executed.sum")]
    sectors = counters[first, names.index("dram__sectors_read.sum")]
    assert counted.sass_warp_instructions == pytest.approx(instructions)
    assert counted.extra["dram__sectors_read.sum"] == pytest.approx(sectors)
    assert verdict.resources["kernel"].registers == counters[first, names.index("registers")]


def test_other_kernels_are_not_judged() -> None:
    """A kernel of another template is UNSUPPORTED and values outside the space are REJECTED."""
    task, recording = replay.load(MATMUL)
    other = Kernel(
        "__global__ void f() {}", "cuda", (Launch("f", (), ("1", "1", "1"), ("32", "1", "1")),)
    )
    assert recording.evaluate(task, other).status == "UNSUPPORTED"
    outside = Kernel(task.baseline.source, "recorded", (), {"BM": 7})
    assert recording.evaluate(task, outside).status == "REJECTED"


def test_kernel_tuner_cache() -> None:
    """A cut-off cache is read: milliseconds, failures by their reason, restricted ones illegal."""
    path = DATA / "cache_kernel_tuner.json"
    _, recording = replay.load(path)
    assert recording.name == "NVIDIA Example"
    assert len(recording.table.rows) == 4
    assert judged(path, block_size_x=64, method="a").seconds == pytest.approx(1e-3)
    assert judged(path, block_size_x=128, method="a").status == "CRASHED"
    assert judged(path, block_size_x=32, method="b").status == "COMPILE_ERROR"
    assert not recording.space.is_legal({"block_size_x": 64, "method": "b"})
    assert not recording.space.is_legal({"block_size_x": 128, "method": "b"})


def test_t4_results() -> None:
    """T4 results are read with their units and invalidity."""
    path = DATA / "t4.json"
    assert judged(path, bx=32, ty=1).seconds == pytest.approx(5e-3)
    assert judged(path, bx=64, ty=1).seconds == pytest.approx(2.5)
    assert judged(path, bx=64, ty=2).status == "WRONG"
    assert judged(path, bx=32, ty=2).status == "TIMEOUT"


def trial(number: int, kernel: Kernel, status: str, seconds: float | None) -> Trial:
    """A trial of a kernel with this verdict."""
    times = {} if seconds is None else {"w": Timing(seconds, seconds, seconds, 7)}
    verdict = Evaluation(status, "quick", times=times)  # type: ignore[arg-type]
    return Trial(number, 0, Proposal(str(number), 0, kernel, Edit("tune", "")), verdict, 0.0)


def test_t4_export_can_be_read_back(tmp_path: Path) -> None:
    """What a run exports keeps the fields that the schema requires, and replays."""
    _, recording = replay.load(DATA / "t4.json")
    kernel = Kernel("k", "recorded", (), {"bx": 32, "ty": 1}, recording.space)
    trials = [
        trial(0, kernel, "OK", 0.25),
        trial(1, kernel.with_values(bx=64), "COMPILE_ERROR", None),
        trial(2, kernel.with_values(ty=2), "CRASHED", None),
    ]
    path = tmp_path / "out.json"
    replay.export_t4(trials, path)
    written = json.loads(path.read_text())
    assert written["schema_version"] == "1.0.0"
    allowed = {"timeout", "compile", "runtime", "correctness", "constraints", "correct"}
    for result in written["results"]:
        assert {"configuration", "times", "invalidity", "correctness"} <= set(result)
        assert result["invalidity"] in allowed
    assert [r["invalidity"] for r in written["results"]] == ["correct", "compile", "runtime"]
    assert judged(path, bx=32, ty=1).seconds == pytest.approx(0.25)
    assert judged(path, bx=64, ty=1).status == "COMPILE_ERROR"


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '"results"', '["cache"]', '{"a": 1}', '{"results": []}', '{"cache": {}}',
     '{"results": [{"invalidity": "odd"}]}', '{"cache": 1}',
     '{"results":[{"configuration":null,"measurements":1,"invalidity":"correct","times":1}]}',
     '{"results":' * 9999, "[" * 99999],
    ids=lambda content: content[:20],
)  # fmt: skip
def test_foreign_files_are_one_clear_error(tmp_path: Path, content: str) -> None:
    """A file of another kind is a RecordingError that names it."""
    path = tmp_path / "foreign.json"
    path.write_text(content)
    with pytest.raises(RecordingError, match="foreign"):
        replay.load(path)


def test_missing_file_is_a_recording_error(tmp_path: Path) -> None:
    """So is a file that is not there, and an .npz that is none."""
    with pytest.raises(RecordingError, match="cannot be read"):
        replay.load(tmp_path / "no.npz")
    for content in (b"junk", b"", b"PK\x03\x04"):
        (tmp_path / "bad.npz").write_bytes(content)
        with pytest.raises(RecordingError, match="not a recording"):
            replay.load(tmp_path / "bad.npz")


def test_recorded_task_has_no_reference() -> None:
    """Running a recorded task's reference says that its recording judges it."""
    task, _ = replay.load(MATMUL)
    with pytest.raises(RecordingError, match="no reference"):
        task.reference()  # type: ignore[misc]
