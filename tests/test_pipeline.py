"""The gates on the emulated device: each status from a kernel that earns it."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from ptxsearch.emulator.device import EmulatedDevice
from ptxsearch.kernel import Kernel, Launch, Scratch
from ptxsearch.param import Param
from ptxsearch.pipeline import Pipeline
from ptxsearch.tasks import Task, Workload

HEAD = 'extern "C" __global__ void axpy(const float* x, float* y, float a, int n) {\n'
INDEX = "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
GOOD = HEAD + INDEX + "  if (i < n) y[i] = a * x[i] + 1.0f;\n}\n"


def kernel(source: str, **changes: object) -> Kernel:
    """`source` launched over n threads in blocks of 64."""
    launch = Launch("axpy", ("x", "y", "a", "n"), ("ceil_div(n, 64)",), ("64",))
    return Kernel(source, "cuda", (replace(launch, **changes),))  # type: ignore[arg-type]


TASK = Task(
    name="axpy",
    level=1,
    description="y = a x + 1",
    params=(
        Param("x", "in", "f32", ("n",)),
        Param("y", "out", "f32", ("n",)),
        Param("a", "scalar", "f32", init="3"),
        Param("n", "scalar", "s32", init="n"),
    ),
    workloads=(
        Workload("small", {"n": 100}),
        Workload("odd", {"n": 1031}, public=False),
        Workload("full", {"n": 1 << 22}, timed=True),
    ),
    reference=lambda x, a, **_: {"y": a * x + 1},
    baseline=kernel(GOOD),
    scale={"y": "rms()"},
    bytes_in="4 * n",
    bytes_out="4 * n",
)


@pytest.fixture(scope="module")
def pipeline() -> Pipeline:
    """A pipeline on the emulated device."""
    return Pipeline(EmulatedDevice())


def body(text: str) -> str:
    """A kernel whose body is `text`."""
    return HEAD + INDEX + text + "\n}\n"


CASES = [
    ("OK", "quick", GOOD, ""),
    ("COMPILE_ERROR", "compile", body("  y[i] = a * z[i];"), "z"),
    ("COMPILE_ERROR", "compile", GOOD.replace("axpy", "other"), "axpy"),
    ("CRASHED", "smoke", body("  y[i] = a * x[i] + 1.0f;"), "source line"),
    ("CRASHED", "smoke", body("  if (i < n) y[i] = a * *(float*)((char*)x + i * 4 + 1);"), "align"),
    ("WRONG", "smoke", body("  if (i < n) y[i] = a * x[i];"), "y"),
    ("WRONG", "smoke", body("  if (i < n - 1) y[i] = a * x[i] + 1.0f;"), ""),
    ("WRONG", "smoke", body("  if (i < n) y[0] = a * x[i] + 1.0f;"), ""),
    (
        "WRONG",
        "smoke",
        body("  __shared__ float s[64]; s[threadIdx.x] = i < n ? x[i] : 0;\n"
             "  if (i < n) y[i] = a * s[threadIdx.x ^ 63 ^ 63] + 1.0f + 0 * s[threadIdx.x ^ 32];"),
        "race",
    ),
    ("TIMEOUT", "smoke", body("  while (x[0] * 0 == 0) ;\n  if (i < n) y[i] = 1;"), "loop"),
    (
        "REJECTED",
        "lint",
        "__device__ int calls = 0;\n"
        + body("  atomicAdd(&calls, 1); if (i < n) y[i] = a * x[i] + 1.0f;"),
        "calls",
    ),
    ("WRONG", "correctness", body("  if (i < n) y[i] = n < 200 ? a * x[i] + 1.0f : 0.0f;"), ""),
]  # fmt: skip


@pytest.mark.parametrize(("status", "stage", "source", "word"), CASES)
def test_each_status(pipeline: Pipeline, status: str, stage: str, source: str, word: str) -> None:
    """A kernel earns the status of its first fault, at the stage that finds it."""
    verdict = pipeline.evaluate(TASK, kernel(source))
    assert (verdict.status, verdict.stage) == (status, stage), verdict.message
    assert word in verdict.message
    if status == "OK":
        assert verdict.times["full"].median > 0
        assert verdict.source == "modelled"


def test_too_many_threads(pipeline: Pipeline) -> None:
    """A block beyond the architecture's limits never reaches a device."""
    verdict = pipeline.evaluate(TASK, kernel(GOOD, block=("2048", "1", "1")))
    assert verdict.status in ("REJECTED", "PRUNED")
    assert "1024" in verdict.message


def test_bad_launch_expressions(pipeline: Pipeline) -> None:
    """A launch that cannot be evaluated is refused before anything is compiled."""
    verdict = pipeline.evaluate(TASK, kernel(GOOD, grid=("n - n", "1", "1")))
    assert (verdict.status, verdict.stage) == ("REJECTED", "lint")
    assert not verdict.cost.get("compile")


def test_equal_machine_code_has_one_verdict(pipeline: Pipeline) -> None:
    """A renamed variable and a comment give the key, and the times, of the first kernel."""
    first = pipeline.evaluate(TASK, kernel(GOOD))
    renamed = GOOD.replace("int i", "int index").replace("(i <", "(index <")
    renamed = renamed.replace("y[i]", "y[index]").replace("x[i]", "x[index]") + "// note\n"
    second = pipeline.evaluate(TASK, kernel(renamed))
    assert second.key == first.key
    assert second.times == first.times


def test_other_launch_is_another_kernel(pipeline: Pipeline) -> None:
    """Equal code under other launch values has another key."""
    first = pipeline.evaluate(TASK, kernel(GOOD))
    other = kernel(GOOD, grid=("ceil_div(n, 128)", "1", "1"), block=("128", "1", "1"))
    second = pipeline.evaluate(TASK, other)
    assert second.ok
    assert second.key != first.key


def test_hidden_sizes_are_not_told(pipeline: Pipeline) -> None:
    """A mismatch on a hidden workload names neither its size nor a position."""
    source = body("  if (i < n) y[i] = n == 1031 && i == 777 ? 0.0f : a * x[i] + 1.0f;")
    verdict = pipeline.evaluate(TASK, kernel(source))
    assert verdict.status == "WRONG"
    assert "1031" not in verdict.message
    assert "777" not in verdict.message


def test_faster_access_is_modelled_faster(pipeline: Pipeline) -> None:
    """Coalesced accesses beat strided ones by far, as on any GPU."""
    strided = body(
        "  int m = (n + 31) / 32, j = (i % 32) * m + i / 32;\n"
        "  if (i < 32 * m && j < n) y[j] = a * x[j] + 1.0f;"
    )
    blocks = {"grid": ("ceil_div(n + 31, 256)", "1", "1"), "block": ("256", "1", "1")}
    slow = pipeline.evaluate(TASK, kernel(strided, **blocks))
    fast = pipeline.evaluate(TASK, kernel(GOOD, **blocks))
    assert slow.ok, slow.message
    assert slow.seconds > 2 * fast.seconds


def test_check_stops_before_the_device(pipeline: Pipeline) -> None:
    """The stages that cost no device time say what they can."""
    assert pipeline.check(TASK, kernel(GOOD)).ok
    assert pipeline.check(TASK, kernel(body("  y[i] = z;"))).status == "COMPILE_ERROR"
    assert pipeline.check(TASK, kernel(body("  y[i] = 0;"))).ok


@pytest.mark.parametrize(
    ("scratch", "word"),
    [
        (Scratch("y", "f32", ("n",), init="zeros"), "names a parameter"),
        (Scratch("s", "f32", ("n - 5000",)), "has shape"),
        (Scratch("s", "f32", ("10**15",)), "bytes of scratch"),
    ],
)
def test_scratch_that_cannot_be_is_rejected(
    pipeline: Pipeline, scratch: Scratch, word: str
) -> None:
    """Scratch neither hides a parameter, which would clear an output, nor fills the memory."""
    found = pipeline.evaluate(TASK, replace(kernel(GOOD), scratch=(scratch,)))
    assert (found.status, found.stage) == ("REJECTED", "lint")
    assert word in found.message


def test_a_sequence_of_launches_is_bounded(pipeline: Pipeline) -> None:
    """Thousands of launches are refused before anything is compiled."""
    good = kernel(GOOD)
    found = pipeline.evaluate(TASK, replace(good, launches=good.launches * 2000))
    assert found.status == "REJECTED"
    assert "2000 launches" in found.message


def test_huge_local_arrays_are_pruned(pipeline: Pipeline) -> None:
    """Hundreds of kilobytes a thread would fill the memory of any device."""
    big = "  volatile char big[400000];\n  big[i % 400000] = 1;\n"
    found = pipeline.evaluate(TASK, kernel(HEAD + INDEX + big + "  if (i < n) y[i] = a;\n}\n"))
    assert (found.status, found.stage) == ("PRUNED", "prune")
    assert "400000 bytes of local memory" in found.message


def test_a_grid_without_end_is_rejected(pipeline: Pipeline) -> None:
    """Billions of blocks for a hundred elements are refused, not run."""
    found = pipeline.evaluate(TASK, kernel(GOOD, grid=("2**31 - 1",)))
    assert (found.status, found.stage) == ("REJECTED", "lint")
    assert "threads on a small workload" in found.message


def test_a_huge_module_variable_is_rejected(pipeline: Pipeline) -> None:
    """A hundred gigabytes of unused variable are refused, not allocated."""
    compiled = pipeline.ptx(kernel(GOOD))
    assert compiled is not None
    source = compiled.replace(".visible", ".global .b8 z[99999999999];\n.visible", 1)
    found = pipeline.evaluate(TASK, replace(kernel(GOOD), source=source, language="ptx"))
    assert (found.status, found.stage) == ("REJECTED", "lint")
    assert "99999999999 bytes" in found.message


def test_a_known_text_costs_next_to_nothing(pipeline: Pipeline) -> None:
    """A kernel judged before, in other indentation, has its verdict within a millisecond."""
    first = pipeline.evaluate(TASK, kernel(GOOD))
    again = kernel(GOOD.replace("  int i", "    int i") + "\n// again\n")
    started = time.process_time()
    for _ in range(50):
        assert pipeline.evaluate(TASK, replace(again)) is first
    assert (time.process_time() - started) / 50 < 1e-3
