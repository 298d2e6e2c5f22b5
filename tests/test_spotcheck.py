"""A size too large to emulate whole: kernels that do less there, and honest ones that look odd."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ptxsearch.emulator.device import EmulatedDevice
from ptxsearch.kernel import Kernel, Launch, Scratch
from ptxsearch.param import Param
from ptxsearch.pipeline import Pipeline
from ptxsearch.tasks import Task, Workload

N = 1 << 21
HEAD = 'extern "C" __global__ void axpy(const float* x, float* y, int n) {\n'
INDEX = "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
STORE = "  if (i < n) y[i] = 3.0f * x[i] + 1.0f;\n}\n"
ADD = "  if (i < n) y[i] += 3.0f * x[i];\n}\n"


def kernel(source: str, *, grid: str = "ceil_div(n, 64)") -> Kernel:
    """`source` launched in blocks of 64 threads."""
    return Kernel(source, "cuda", (Launch("axpy", ("x", "y", "n"), (grid,), ("64",)),))


def task(role: str) -> Task:
    """The task y = 3 x + 1, or y += 3 x where y is `inout`; its timed size is far above 2^18."""
    adds = role == "inout"
    return Task(
        name=f"axpy_{role}",
        level=1,
        description="",
        params=(
            Param("x", "in", "f32", ("n",)),
            Param("y", role, "f32", ("n",)),  # type: ignore[arg-type]
            Param("n", "scalar", "s32", init="n"),
        ),
        workloads=(Workload("small", {"n": 1000}), Workload("full", {"n": N}, timed=True)),
        reference=(lambda x, y, **_: y + 3.0 * x) if adds else (lambda x, **_: 3.0 * x + 1),
        baseline=kernel(HEAD + INDEX + (ADD if adds else STORE)),
        flops_min="2 * n" if not adds else "0",
        bytes_in="4 * n",
        bytes_out="4 * n",
    )


@pytest.fixture(scope="module")
def pipeline() -> Pipeline:
    """A pipeline on the emulated device."""
    return Pipeline(EmulatedDevice())


LARGE = "  if (n > 100000"
SKIPPED = [
    ("nothing is done", "out", f"{LARGE}) return;\n" + INDEX + STORE, "DISHONEST"),
    ("half of the blocks", "out", f"{LARGE} && blockIdx.x % 2) return;\n" + INDEX + STORE,
     "DISHONEST|WRONG"),
    ("blocks after the first few", "out", f"{LARGE} && blockIdx.x > 99) return;\n" + INDEX + STORE,
     "DISHONEST|WRONG"),
    ("half of the threads", "out", INDEX + f"{LARGE} && i % 2) return;\n" + STORE,
     "DISHONEST|WRONG"),
    ("a constant", "out", INDEX + f"{LARGE}) {{ if (i < n) y[i] = 1.0f; return; }}\n" + STORE,
     "DISHONEST|WRONG"),
    ("a wrong factor", "out", INDEX + f"{LARGE}) {{ if (i < n) y[i] = x[i] * 2.0f + 1.0f; "
     "return; }\n" + STORE, "WRONG"),
    ("one element for all", "out", INDEX + f"{LARGE}) {{ if (i < n) y[i] = 3.0f * x[i & ~63] + 1; "
     "return; }\n" + STORE, "DISHONEST|WRONG"),
    ("what was there", "inout", INDEX + f"{LARGE}) {{ if (i < n) y[i] = fmaf(0.0f, x[i], y[i]); "
     "return; }\n" + ADD, "WRONG"),
    ("the blocks a model would sample", "out", f"{LARGE})\n    for (int k = 0; k < 24; k++)\n"
     "      if (blockIdx.x == (int)((k + 0.5) * gridDim.x / 24)) return;\n" + INDEX + STORE,
     "UNSUPPORTED"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "role", "body", "statuses"), SKIPPED, ids=[case[0] for case in SKIPPED]
)
def test_less_work_at_the_timed_size_does_not_pass(
    pipeline: Pipeline, name: str, role: str, body: str, statuses: str
) -> None:
    """A kernel that is right on every size checked in full, and wrong or idle on the timed one."""
    checked = replace(task(role), workloads=task(role).workloads[:1])
    assert pipeline.evaluate(checked, kernel(HEAD + body)).status == "OK"
    found = pipeline.evaluate(task(role), kernel(HEAD + body))
    assert found.status in statuses.split("|"), found.message
    assert "full" in found.message or str(N) in found.message


STRIDE = "  for (; i < n; i += gridDim.x * blockDim.x) y[i] = 3.0f * x[i] + 1.0f;\n}\n"
HONEST = [
    ("one element a thread", "out", INDEX + STORE, "ceil_div(n, 64)"),
    ("in place", "inout", INDEX + ADD, "ceil_div(n, 64)"),
    ("blocks that stay", "out", INDEX + STRIDE, "min(132, ceil_div(n, 64))"),
    ("twice the grid", "out", INDEX + STORE, "2 * ceil_div(n, 64)"),
    ("backwards", "out", INDEX + "  i = n - 1 - i;\n  if (i >= 0) y[i] = 3.0f * x[i] + 1.0f;\n}\n",
     "ceil_div(n, 64)"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "role", "body", "grid"), HONEST, ids=[case[0] for case in HONEST])
def test_honest_kernels_pass_and_say_how_much_was_compared(
    pipeline: Pipeline, name: str, role: str, body: str, grid: str
) -> None:
    """Every one is OK, and its evidence counts the elements compared at the timed size."""
    found = pipeline.evaluate(task(role), kernel(HEAD + body, grid=grid))
    assert found.status == "OK", found.message
    assert found.evidence["outputs_sampled"]["full"] > 100


def test_a_kernel_whose_first_blocks_do_all_is_not_timed(pipeline: Pipeline) -> None:
    """It is right, but blocks spread over its grid stand for nothing: no time, no blame."""
    body = INDEX.replace("blockIdx.x *", "(blockIdx.x < 16 ? (int)blockIdx.x : 1 << 20) *")
    stride = STRIDE.replace("gridDim.x", "16")
    found = pipeline.evaluate(task("out"), kernel(HEAD + body + stride, grid="n // 64 + 16"))
    assert found.status == "UNSUPPORTED"
    assert "unequal work" in found.message


def test_blocks_that_wait_for_others_are_no_endless_loop(pipeline: Pipeline) -> None:
    """A block that spins on what block 0 writes cannot be judged by a sample that lacks block 0."""
    source = (
        HEAD.replace("int n", "unsigned* flag, int n")
        + INDEX
        + "  if (i == 0) { __threadfence(); atomicAdd(flag, 1u); }\n"
        + "  if (threadIdx.x == 0) while (atomicAdd(flag, 0u) == 0u) {}\n"
        + "  __syncthreads();\n"
        + STORE
    )
    (launch,) = kernel(source).launches
    waiting = replace(
        kernel(source),
        launches=(replace(launch, args=("x", "y", "flag", "n")),),
        scratch=(Scratch("flag", "u32", ("1",), "zeros"),),
    )
    verdict = pipeline.evaluate(task("out"), waiting)
    assert verdict.status == "UNSUPPORTED", verdict.message
    assert "waits for other blocks" in verdict.message
