"""Prepared sets: the same ones whether made at once or one by one, and never more than allowed."""

from __future__ import annotations

import numpy as np

from ptxsearch.expectation import References, standard_sets
from ptxsearch.taskfile import load_task
from ptxsearch.tasks import Workload


def test_sets_made_side_by_side_are_those_made_alone() -> None:
    """Inputs come from their own streams: threads change nothing."""
    task = load_task("level1/saxpy")
    big = Workload("big", dict.fromkeys(task.timed[0].sizes, 1 << 20))
    sets = standard_sets(task, big)
    together, alone = References(task, limit=1 << 30), References(task, limit=1 << 30)
    together.prepare(big, sets)
    for pair in sets:
        left, right = together.get(big, *pair), alone.get(big, *pair)
        for name, value in left.inputs.values.items():
            if left.inputs.roles[name] != "out":
                np.testing.assert_array_equal(value, right.inputs.values[name])
        for name, array in left.arrays.items():
            np.testing.assert_array_equal(array, right.arrays[name])
    first = together.get(big, *sets[0])
    together.prepare(big, sets)
    assert together.get(big, *sets[0]) is first


def test_sets_that_do_not_fit_are_not_made_ahead() -> None:
    """With room for two sets alone, preparing makes one and leaves the rest to be asked for."""
    task = load_task("level1/saxpy")
    big = Workload("big", dict.fromkeys(task.timed[0].sizes, 1 << 20))
    sets = standard_sets(task, big)
    size = References(task).get(big, *sets[0]).nbytes
    references = References(task, limit=2 * size)
    references.prepare(big, sets)
    assert references._held() == size


def test_a_set_is_found_by_its_inputs_when_it_was_dropped() -> None:
    """What an audit read back is compared with the same set, made again where it was dropped."""
    task = load_task("level1/softmax")
    workload = task.workloads[1]
    sets = standard_sets(task, workload)
    roomy, tight = References(task, limit=1 << 30), References(task, limit=1)
    for pair in sets:
        kept = roomy.get(workload, *pair)
        tight.get(workload, *pair)
        assert roomy.of(kept.inputs) is kept
    for pair in sets:
        again = tight.of(roomy.get(workload, *pair).inputs)
        assert again.inputs.label == f"{pair[1]}, seed {pair[0]}"
        np.testing.assert_array_equal(again.arrays["out"], roomy.get(workload, *pair).arrays["out"])
