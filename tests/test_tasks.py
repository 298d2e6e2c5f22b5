"""The record of a task: what it refuses, what it answers, and tasks made in code."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ptxsearch.errors import TaskError
from ptxsearch.evaluation import Array
from ptxsearch.kernel import Kernel, Launch
from ptxsearch.param import Param
from ptxsearch.tasks import Task, Workload, task

KERNEL = Kernel("", "cuda", (Launch("scale", ("x", "out", "n"), "1", "32"),))
X, OUT, N = (
    Param("x", "in", "f32", ("n",)),
    Param("out", "out", "f32", ("n", "2 * n")),
    Param("n", "scalar", "s32", init="n"),
)


def make(**changes: object) -> Task:
    """A small task with some fields changed."""
    fields = {
        "name": "scale",
        "level": 1,
        "description": "",
        "params": (X, OUT, N),
        "workloads": (Workload("a", {"n": 8}), Workload("b", {"n": 64}, timed=True)),
        "reference": lambda x, n: np.zeros((n, 2 * n)),
        "baseline": KERNEL,
    }
    return Task(**(fields | changes))  # type: ignore[arg-type]


def test_shapes_follow_sizes() -> None:
    """A shape is its expressions' values."""
    assert OUT.extents({"n": 3}) == (3, 6)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"params": (X, N)}, "no output"),
        ({"workloads": ()}, "no workload"),
        ({"params": (X, X, OUT)}, "twice"),
        ({"workloads": (Workload("a", {"n": 1}), Workload("a", {"n": 2}))}, "twice"),
        ({"scale": {"y": "rms()"}}, "no output"),
        ({"scale": {"out": "loose"}}, "scale 'loose'"),
        ({"scale": {"out": "sum"}}, "no magnitude"),
    ],
)
def test_a_task_that_cannot_judge_is_refused(changes: dict[str, object], words: str) -> None:
    """What is missing or repeated is named with what to do."""
    with pytest.raises(TaskError, match=words) as caught:
        make(**changes)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"dtype": "float"}, "dtype 'float'"),
        ({"role": "input"}, "role 'input'"),
        ({"domain": "primes"}, "domain 'primes'"),
        ({"role": "scalar"}, "init"),
    ],
)
def test_a_parameter_outside_the_vocabulary_is_refused(fields: dict[str, str], words: str) -> None:
    """Types, roles and domains come from fixed lists."""
    given = {"name": "x", "role": "in", "dtype": "f32", "shape": ("n",), **fields}
    with pytest.raises(TaskError, match=words):
        Param(**given)  # type: ignore[arg-type]


def test_the_smallest_workload_is_public_and_the_timed_one_marked() -> None:
    """A hidden size of one is never what a kernel is first emulated on."""
    hidden = Workload("one", {"n": 1}, public=False)
    made = make(workloads=(hidden, Workload("a", {"n": 8}), Workload("b", {"n": 64}, timed=True)))
    assert made.smallest.name == "a"
    assert [workload.name for workload in made.timed] == ["b"]
    unmarked = make(workloads=(hidden, Workload("a", {"n": 8}), Workload("c", {"n": 9})))
    assert [workload.name for workload in unmarked.timed] == ["c"]


def test_integers_are_exact_whatever_the_scale_says() -> None:
    """Only floats have a scale; the root mean square is what they have by default."""
    counts = Param("counts", "out", "u32", ("4",))
    made = make(params=(X, OUT, counts))
    assert made.scale_of("counts") == "exact"
    assert made.scale_of("out") == "rms()"


def test_the_digest_changes_with_what_is_expected_and_not_with_the_kernel() -> None:
    """References and sizes decide the digest, names and baselines do not make it repeatable."""

    def one(x: Array, n: int) -> Array:
        return np.zeros((n, 2 * n))

    def two(x: Array, n: int) -> Array:
        return np.zeros((n, 3 * n))

    first = make(reference=one)
    assert first.digest == make(reference=one).digest
    assert first.digest == make(reference=one, baseline=replace(KERNEL, source="//")).digest
    assert first.digest != make(reference=two).digest
    assert first.digest != make(reference=one, workloads=(Workload("a", {"n": 9}),)).digest


def test_a_numpy_function_becomes_a_task() -> None:
    """The decorator takes name and description from the function."""

    @task(baseline=KERNEL, params=(X, OUT, N), workloads=(Workload("a", {"n": 8}),), level=2)
    def scaled(x: Array, n: int) -> Array:
        """Twice the input."""
        return np.tile(2.0 * x[:, None], (1, 2 * n))

    assert isinstance(scaled, Task)
    assert (scaled.name, scaled.description, scaled.level) == ("scaled", "Twice the input.", 2)


def test_a_kernel_becomes_a_task_whose_reference_it_is() -> None:
    """Arguments give parameters in order; the description says what judges."""
    made = Task.from_kernel(
        KERNEL,
        inputs={
            "x": np.zeros((4, 5), dtype=np.float32),
            "out": np.zeros(3, dtype=np.int32),
            "n": 20,
            "a": 0.5,
        },
        outputs=["out"],
    )
    assert [(p.name, p.role, p.dtype, p.shape, p.init) for p in made.params] == [
        ("x", "in", "f32", ("4", "5"), None),
        ("out", "out", "s32", ("3",), None),
        ("n", "scalar", "s32", (), "20"),
        ("a", "scalar", "f32", (), "0.5"),
    ]
    assert made.reference is None
    assert "reference" in made.description
    with pytest.raises(TaskError, match="no argument"):
        Task.from_kernel(KERNEL, inputs={"x": np.zeros(1)}, outputs=["y"])
