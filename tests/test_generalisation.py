"""Shares of the optimum on another device, by hand."""

from __future__ import annotations

import numpy as np

from benchmarks.generalisation import common, shares


def test_shares_and_the_one_kernel_for_all() -> None:
    """Two devices disagree on the best of three configurations; the third one suits both."""
    one, two, both = (("x", 1),), (("x", 2),), (("x", 3),)
    first = {one: 10.0, two: 40.0, both: 12.5}
    second = {two: 8.0, both: 10.0}
    matrix = shares([first, second])
    np.testing.assert_array_equal(matrix, [[1.0, np.nan], [0.25, 1.0]])
    assert common([first, second]) == (0.8, both)
