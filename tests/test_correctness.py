"""Verdicts on outputs: every element, on the task's scale, with a class of mistake."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ptxsearch.correctness import Verdict, check, error
from ptxsearch.evaluation import Array
from ptxsearch.expectation import Expected, References, expected, standard_sets
from ptxsearch.inputs import make_inputs
from ptxsearch.taskfile import bundled, load_task
from ptxsearch.tasks import Task, Workload


def set_of(name: str, workload: str = "", distribution: str = "normal") -> tuple[Task, Expected]:
    """A bundled task and one prepared set of it."""
    task = load_task(name)
    chosen = task.workload(workload) if workload else task.smallest
    return task, References(task).get(chosen, 1, distribution)


def verdict(task: Task, expect: Expected, **arrays: Array) -> Verdict:
    """The verdict on right outputs with some replaced."""
    right = {p.name: expect.arrays[p.name].astype(p.numpy_dtype) for p in task.outputs}
    return check(task, right | arrays, expect)


@pytest.mark.parametrize("name", bundled())
def test_the_correctly_rounded_answer_passes_everywhere(name: str) -> None:
    """The reference rounded once to the output type is right on every set that fits a laptop."""
    task = load_task(name)
    references = References(task)
    for workload in task.workloads:
        if workload.timed:
            continue
        for seed, distribution in standard_sets(task, workload):
            expect = references.get(workload, seed, distribution)
            found = verdict(task, expect)
            assert found.passed
            assert found.share_right == 1.0
            assert found.message == ""


def test_numpy_float32_arithmetic_passes_and_float16_fails() -> None:
    """An independent 32-bit product is right, one of 16-bit inputs is not."""
    task, expect = set_of("level1/matmul", "medium")
    a, b = (np.asarray(expect.inputs.values[n]) for n in "ab")
    assert verdict(task, expect, c=a @ b).passed
    half = a.astype(np.float16).astype(np.float32) @ b.astype(np.float16).astype(np.float32)
    found = verdict(task, expect, c=half)
    assert not found.passed
    assert found.pattern == "precision"


def test_three_tf32_products_pass_and_one_fails() -> None:
    """Factors split in two tf32 parts give 32-bit quality, their large parts alone do not."""
    task, expect = set_of("level1/matmul", "medium")
    parts = []
    for name in "ab":
        whole = np.asarray(expect.inputs.values[name])
        big = (whole.view(np.uint32) + 0x1000 & 0xFFFFE000).astype(np.uint32).view(np.float32)
        small = whole - big
        small = (small.view(np.uint32) + 0x1000 & 0xFFFFE000).astype(np.uint32).view(np.float32)
        parts.append((big.astype(np.float64), small.astype(np.float64)))
    (a1, a2), (b1, b2) = parts
    three = (a1 @ b2 + a2 @ b1 + a1 @ b1).astype(np.float32)
    assert verdict(task, expect, c=three).passed
    assert not verdict(task, expect, c=(a1 @ b1).astype(np.float32)).passed


def test_one_wrong_element_fails_and_is_named() -> None:
    """A single flipped bit in 6,144 elements is found, with its place."""
    task, expect = set_of("level1/transpose")
    got = expect.arrays["out"].copy()
    got[5, 7] = np.nextafter(got[5, 7], np.float32(np.inf))
    found = verdict(task, expect, out=got)
    assert not found.passed
    assert found.mismatches[0].index == (5, 7)
    assert found.share_right == pytest.approx(1 - 1 / 6144)
    assert found.pattern in ("precision", "few")


def spoilt(kind: str, expect: Expected) -> Array:
    """An output of level1/transpose spoilt in a known way."""
    right = expect.arrays["out"]
    flat = right.copy().reshape(-1)
    if kind == "tail":
        flat[-100:] = np.arange(100)
    elif kind == "head":
        flat[:100] = np.arange(100)
    elif kind == "all_zero":
        flat[:] = 0
    elif kind == "constant":
        flat[:] = 2.5
    elif kind == "nan":
        flat[::2] = np.float32(np.nan)
    elif kind == "unwritten":
        flat.view(np.uint32)[64:128] = 0x7FA5A5A5
    elif kind == "off_by_factor":
        flat *= 3
    elif kind == "periodic":
        flat[::32] = np.arange(flat[::32].size)
    elif kind == "transposed":
        return np.ascontiguousarray(right.T).reshape(right.shape)
    elif kind == "copy_of_input":
        return np.asarray(expect.inputs.values["x"]).reshape(right.shape)
    elif kind == "scattered":
        flat[np.random.default_rng(0).random(flat.size) < 0.3] += 1
    return flat.reshape(right.shape)


@pytest.mark.parametrize(
    "kind",
    [
        "tail", "head", "all_zero", "constant", "nan", "unwritten", "off_by_factor", "periodic",
        "scattered",
    ],
)  # fmt: skip
def test_a_mistake_is_classified(kind: str) -> None:
    """The class of a planted mistake is recognised and told."""
    task, expect = set_of("level1/transpose")
    found = verdict(task, expect, out=spoilt(kind, expect))
    assert not found.passed
    assert found.pattern == kind
    assert "expected" in found.message


def test_an_untransposed_copy_is_told_from_other_mistakes() -> None:
    """Elements in their old order are the input's, and the message says so."""
    task, expect = set_of("level1/transpose")
    found = verdict(task, expect, out=spoilt("copy_of_input", expect))
    assert found.pattern == "copy_of_input"
    assert "input x" in found.message


def test_a_transposed_product_is_told() -> None:
    """Rows and columns swapped in a square result are named."""
    task, expect = set_of("level1/matmul")
    turned = np.ascontiguousarray(expect.arrays["c"].T).astype(np.float32)
    assert verdict(task, expect, c=turned).pattern == "transposed"


def test_a_known_fill_byte_is_recognised_in_integers() -> None:
    """Counts that nobody wrote still hold the fill."""
    task, expect = set_of("level1/histogram", distribution="uniform")
    got = expect.arrays["out"].copy()
    got[10:20] = 0xA5A5A5A5
    found = check(task, {"out": got}, expect, poison=0xA5)
    assert found.pattern == "unwritten"


@pytest.mark.parametrize(
    ("got", "words"),
    [
        ({}, "missing"),
        ({"out": np.zeros((64, 96), dtype=np.float64)}, "float64"),
        ({"out": np.zeros((96, 64), dtype=np.float32)}, "shape"),
        ({"out": np.zeros(6144, dtype=np.float32)}, "shape"),
    ],
)
def test_the_form_of_an_output_is_strict(got: dict[str, Array], words: str) -> None:
    """A missing output, another dtype, shape or count never passes."""
    task, expect = set_of("level1/transpose")
    found = check(task, got, expect)
    assert not found.passed
    assert words in found.message


def test_nan_passes_only_where_it_is_expected() -> None:
    """NaN is no wildcard, and an expected NaN must be there."""
    task = load_task("level1/transpose")
    inputs = make_inputs(task, task.smallest, seed=0)
    x = np.asarray(inputs.values["x"]).copy()
    x[3, 4] = np.nan
    spiked = type(inputs)({**inputs.values, "x": x}, inputs.roles, inputs.sizes, inputs.label)
    expect = expected(task, task.smallest, spiked)
    right = expect.arrays["out"]
    assert check(task, {"out": right.copy()}, expect).passed
    wild, lost = right.copy(), right.copy()
    wild[0, 0] = np.nan
    lost[4, 3] = 0
    assert not check(task, {"out": wild}, expect).passed
    assert not check(task, {"out": lost}, expect).passed


def test_infinity_is_right_only_where_the_type_overflows() -> None:
    """A sum beyond the largest float is expected as infinity, a finite one is not."""
    scale = np.array([1e38])
    kind = np.dtype(np.float32)
    infinite = np.array([np.inf], dtype=np.float32)
    assert error(infinite, np.array([1e39]), scale, dtype=kind) == 0
    assert error(infinite, np.array([1e38]), scale, dtype=kind) == math.inf
    assert error(-infinite, np.array([1e39]), scale, dtype=kind) == math.inf


def test_flushed_denormals_are_no_error_and_small_numbers_count() -> None:
    """Below the smallest normal number nothing is measured, above it everything relative."""
    kind = np.dtype(np.float32)
    tiny = float(np.finfo(np.float32).tiny)
    want = np.array([0.5 * tiny, 1e-30])
    scale = np.maximum(np.abs(want), tiny)
    flushed = np.array([0.0, 1e-30], dtype=np.float32)
    assert error(flushed, want, scale, dtype=kind) < 1e-6
    wrong = np.array([0.0, 2e-30], dtype=np.float32)
    assert error(wrong, want, scale, dtype=kind) == pytest.approx(1.0, rel=1e-6)


def test_error_is_largest_deviation_over_scale() -> None:
    """The definition, on numbers done by hand."""
    got = np.array([1.0, 2.5, 3.0], dtype=np.float32)
    want = np.array([1.0, 2.0, 3.25])
    assert error(got, want, np.array([4.0]), dtype=np.dtype(np.float32)) == pytest.approx(0.125)


def test_a_hidden_workload_tells_no_sizes_or_values() -> None:
    """The message on a hidden workload names the class alone."""
    task, expect = set_of("level1/transpose", "prime")
    found = verdict(task, expect, out=np.zeros((257, 131), dtype=np.float32))
    assert not found.passed
    assert found.mismatches == ()
    assert not any(character.isdigit() for character in found.message)


def test_sets_cover_every_distribution_and_rotate_with_the_seed() -> None:
    """At least four sets, each distribution among them, and other seeds share none."""
    task = load_task("level1/transpose")
    sets = standard_sets(task, task.smallest, seed=0)
    assert {name for _, name in sets} == set(task.distributions)
    assert len(sets) >= 4
    assert not set(sets) & set(standard_sets(task, task.smallest, seed=1))


def test_references_are_computed_once_and_dropped_beyond_the_limit() -> None:
    """A set is kept by workload, seed and distribution within the memory given."""
    calls: list[int] = []

    def reference(x: Array, n: int) -> Array:
        calls.append(n)
        return np.array([x.sum(dtype=np.float64)])

    base = load_task("level1/sum")
    task = Task(
        name="counted", level=1, description="", params=base.params, reference=reference,
        workloads=(Workload("w", {"n": 1024}),), baseline=base.baseline, tolerance={"out": 1e-5},
    )  # fmt: skip
    references = References(task, limit=10_000)
    for seed in (1, 1, 2, 1, 3, 3, 1, 2):
        references.get(task.workloads[0], seed, "normal")
    assert len(calls) == 4
