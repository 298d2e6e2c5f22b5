"""Work that was skipped is proven, work that was not needed is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ptxsearch import honesty
from ptxsearch.arch import typical_gpu
from ptxsearch.evaluation import Array, Counters, Outputs
from ptxsearch.expectation import Expected, References
from ptxsearch.kernel import Kernel, Launch
from ptxsearch.param import Param
from ptxsearch.taskfile import load_task
from ptxsearch.tasks import Task, Workload

# The best known times in microseconds on an H200, measured outside this project's code.
BEST_KNOWN = [
    ("level1/sum", "full", 63.0),
    ("level1/transpose", "full", 129.5),
    ("level1/matmul", "full", 63.2),
    ("level1/histogram", "full", 31.8),
    ("level1/softmax", "wide", 153.0),
    ("level1/softmax", "tall", 136.0),
]


def prepared(name: str, distribution: str = "normal") -> tuple[Task, Expected]:
    """A bundled task and one set of its smallest workload."""
    task = load_task(name)
    return task, References(task).get(task.smallest, 5, distribution)


def outputs(task: Task, expect: Expected, **read: Array) -> Outputs:
    """Right outputs of a kernel that read only the elements marked."""
    arrays = {p.name: expect.arrays[p.name].astype(p.numpy_dtype) for p in task.outputs}
    return Outputs(arrays, read=read)


def mask(expect: Expected, name: str, share: float) -> Array:
    """The first `share` of the elements of an input."""
    array = np.asarray(expect.inputs.values[name])
    flat = np.arange(array.size) < round(share * array.size)
    return flat.reshape(array.shape)


@pytest.mark.parametrize(("name", "workload", "microseconds"), BEST_KNOWN)
def test_no_known_kernel_beats_the_floor(name: str, workload: str, microseconds: float) -> None:
    """The floor lies below the best measured time, and within eight times of it."""
    task = load_task(name)
    gpu = typical_gpu("sm_90")
    assert gpu is not None
    floor = honesty.floor(task, task.workload(workload), gpu)
    assert microseconds / 8 < floor.seconds * 1e6 < microseconds
    assert honesty.below_floor(task, task.workload(workload), microseconds * 1e-6, gpu) is None


def test_the_memory_floor_is_bytes_over_bandwidth() -> None:
    """64M floats at 4,800 GB/s take 55.9 microseconds, and outputs within L2 are free."""
    gpu = typical_gpu("sm_90")
    assert gpu is not None
    task = load_task("level1/sum")
    floor = honesty.floor(task, task.workload("full"), gpu)
    assert floor.seconds == pytest.approx(4 * 67108864 / 4800e9, rel=1e-6)
    turned = load_task("level1/transpose")
    both = honesty.floor(turned, turned.workload("full"), gpu)
    assert both.memory_seconds == pytest.approx((2 * 4 * 8192**2 - 60 * 2**20) / 4800e9, rel=1e-6)


def test_a_time_below_the_floor_is_suspect_and_no_proof() -> None:
    """A near-zero time is told with the floor, to be measured again."""
    gpu = typical_gpu("sm_90")
    assert gpu is not None
    task = load_task("level1/saxpy")
    found = honesty.below_floor(task, task.workload("full"), 2e-6, gpu)
    assert found is not None
    assert found.rule == "floor"
    assert not found.dishonest
    assert "memory" in found.message


@pytest.mark.parametrize(
    ("counters", "words"),
    [
        (Counters(global_load_bytes=0.0, global_store_bytes=0.0), "reads 0 bytes"),
        (Counters(global_load_bytes=8.0 * 2**26, global_store_bytes=0.0), "writes 0 bytes"),
        (Counters(global_load_bytes=8.0 * 2**26, global_store_bytes=4.0 * 2**26), ""),
        (Counters(), ""),
    ],
)
def test_a_time_below_the_floor_is_confirmed_by_bytes(counters: Counters, words: str) -> None:
    """Only counters that show missing reads or writes turn a suspicion into a proof."""
    task = load_task("level1/saxpy")
    found = honesty.confirm(task, task.workload("full"), counters)
    assert (found is None) == (words == "")
    assert found is None or (found.dishonest and words in found.message)


@pytest.mark.parametrize(
    ("name", "source"), [("level1/sum", "x"), ("level1/transpose", "x"), ("level1/matmul", "b")]
)
def test_unread_halves_of_inputs_decide_these_answers(name: str, source: str) -> None:
    """Whoever answers right without half of the data did not compute."""
    task, expect = prepared(name)
    got = outputs(task, expect, **{source: mask(expect, source, 0.5)})
    message = honesty.unread_inputs_matter(task, expect, got)
    assert "elements of " + source in message


def test_a_single_unread_element_decides_a_sum() -> None:
    """No threshold on the share: one of 4,096 is enough."""
    task, expect = prepared("level1/sum")
    read = mask(expect, "x", 1.0)
    read[1234] = False
    got = outputs(task, expect, x=read)
    assert "1 of 4096" in honesty.unread_inputs_matter(task, expect, got)


def test_everything_read_is_honest() -> None:
    """Nothing is said of a kernel that read all of its inputs."""
    task, expect = prepared("level1/matmul")
    got = outputs(task, expect, a=mask(expect, "a", 1), b=mask(expect, "b", 1))
    assert honesty.judge(task, expect, got) == []


def masked_task() -> Task:
    """A task whose second half of the input never matters."""

    def reference(x: Array, n: int) -> Array:
        return 2.0 * x[: n // 2].astype(np.float64)

    return Task(
        name="masked",
        level=1,
        description="",
        params=(Param("x", "in", "f32", ("n",)), Param("out", "out", "f32", ("n // 2",))),
        workloads=(Workload("w", {"n": 512}),),
        reference=reference,
        baseline=Kernel("", "cuda", (Launch("k", ("x", "out"), "1", "1"),)),
        tolerance={"out": 1e-6},
    )


def test_unread_elements_that_do_not_matter_are_honest() -> None:
    """A mask or a causal half may stay unread."""
    task = masked_task()
    expect = References(task).get(task.workloads[0], 1, "normal")
    read = np.arange(512) < 256
    assert honesty.unread_inputs_matter(task, expect, outputs(task, expect, x=read)) == ""
    skipped = np.arange(512) < 255
    assert honesty.unread_inputs_matter(task, expect, outputs(task, expect, x=skipped)) != ""


def test_index_inputs_are_drawn_anew_within_their_range() -> None:
    """A gather whose indices are unread is found without an invalid index ever made."""
    seen: list[int] = []

    def reference(table: Array, index: Array, n: int, m: int) -> Array:
        seen.append(int(index.max()))
        return table[index].astype(np.float64)

    task = Task(
        name="gather",
        level=1,
        description="",
        params=(
            Param("table", "in", "f32", ("m",)),
            Param("index", "in", "s32", ("n",), domain="index(m)"),
            Param("out", "out", "f32", ("n",)),
        ),
        workloads=(Workload("w", {"n": 300, "m": 20}),),
        reference=reference,
        baseline=Kernel("", "cuda", (Launch("k", ("table", "index", "out"), "1", "1"),)),
        tolerance={"out": 1e-6},
    )
    expect = References(task).get(task.workloads[0], 1, "normal")
    nothing = np.zeros(300, dtype=bool)
    assert honesty.unread_inputs_matter(task, expect, outputs(task, expect, index=nothing))
    assert max(seen) < 20


def test_fewer_bytes_stored_than_the_outputs_have_is_skipped_work() -> None:
    """A launch that stores nothing cannot have written a matrix."""
    task, expect = prepared("level1/transpose")
    got = outputs(task, expect)
    assert honesty.stored(task, got) is None
    assert honesty.stored(task, replace(got, stored_bytes=(6144 * 4,))) is None
    found = honesty.stored(task, replace(got, stored_bytes=(0, 6144 * 4 - 4)))
    assert found is not None
    assert found.dishonest


def test_inout_buffers_need_not_be_stored_whole() -> None:
    """Elements that stay as they are may be left alone."""
    task, expect = prepared("level1/saxpy")
    assert honesty.stored(task, replace(outputs(task, expect), stored_bytes=(4,))) is None


@pytest.mark.parametrize(
    ("counters", "dishonest"),
    [
        (Counters(fp32_fma=64 * 64 * 32), False),
        (Counters(fp32_fma=64 * 64 * 16), True),
        (Counters(fp32_mul=64 * 64 * 32, fp32_add=64 * 64 * 32), False),
        (Counters(fp32_fma=10, tensor_instructions=64), False),
        (Counters(), False),
    ],
)
def test_operations_are_held_against_the_best_algorithm(
    counters: Counters, dishonest: bool
) -> None:
    """Half of the terms is too few; tensor instructions and no counts say nothing."""
    task = load_task("level1/matmul")
    found = honesty.operations(task, task.smallest, counters)
    assert (found is not None and found.dishonest) is dishonest


def test_sixteen_bit_arithmetic_is_evidence_in_the_emulator_only() -> None:
    """HFMA2 in machine code also loads constants, so a hardware count proves nothing."""
    task = load_task("level1/matmul")
    found = honesty.precision(task, Counters(fp16_fma=100))
    assert found is not None
    assert not found.dishonest
    assert honesty.precision(task, Counters(source="ncu", fp16_fma=100)) is None
    assert honesty.precision(task, Counters(fp32_fma=100)) is None
