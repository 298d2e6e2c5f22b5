"""What kind of mistake wrong outputs look like: a class and a hint, from where and how they differ.

The classes: unwritten, nan, all_zero, constant, copy_of_input, transposed, off_by_factor, tail,
head, periodic, precision, everywhere, few, scattered. A class is a guess in the order given; it
informs, it never decides whether an output is right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxsearch.evaluation import Array, Inputs
from ptxsearch.record import Record

_SAMPLE = 65536
_CANONICAL_NANS = frozenset({0x7FFFFFFF, 0x7FC00000, 0xFFC00000})
_ALL_ONES = 0xFF


@dataclass(frozen=True)
class Mismatch(Record):
    """One wrong element."""

    output: str
    index: tuple[int, ...]
    got: float | int | str
    expected: float | int | str


@dataclass(frozen=True)
class Description:
    """The class of a mistake, one sentence on it, and the first wrong elements."""

    kind: str
    hint: str
    count: int
    first: tuple[tuple[tuple[int, ...], Any, Any], ...]

    def mismatches(self, output: str) -> list[Mismatch]:
        """The first wrong elements as records of `output`."""
        return [
            Mismatch(output, index, _plain(got), _plain(want)) for index, got, want in self.first
        ]


def _plain(value: Any) -> float | int | str:
    number = value.item() if hasattr(value, "item") else value
    if isinstance(number, float) and not np.isfinite(number):
        return str(number)
    return number if isinstance(number, int) else float(f"{float(number):.9g}")


def describe(
    got: Array, want: Array, bad: Array, inputs: Inputs, *, poison: int | None = None
) -> Description | None:
    """The description of an output whose flat positions `bad` (ascending) are wrong, if any."""
    if not bad.size:
        return None
    flat_got, flat_want = got.reshape(-1), want.reshape(-1)
    first = tuple(
        (tuple(int(i) for i in np.unravel_index(at, want.shape)), flat_got[at], flat_want[at])
        for at in bad[:8]
    )
    at = bad if bad.size <= _SAMPLE else bad[:: bad.size // _SAMPLE + 1]
    kind, hint = _by_value(flat_got, flat_want, at, got, want, inputs, poison)
    if not kind:
        kind, hint = _by_place(flat_got, flat_want, bad, at, want.size)
    return Description(kind, hint, int(bad.size), first)


def _by_value(
    flat_got: Array,
    flat_want: Array,
    at: Array,
    got: Array,
    want: Array,
    inputs: Inputs,
    poison: int | None,
) -> tuple[str, str]:
    values, wants = flat_got[at].astype(np.float64), flat_want[at].astype(np.float64)
    if _is_unwritten(flat_got[at], poison):
        return "unwritten", "the wrong elements still hold the fill pattern: no thread writes them"
    if np.isnan(values).mean() > 0.5:
        return "nan", "the wrong elements are NaN: look for 0/0, inf-inf or junk that is read"
    if at.size > 1 and not values.any():
        return "all_zero", "the wrong elements are zero"
    if at.size > 2 and (values == values[0]).all() and (wants != wants[0]).any():
        return "constant", f"every wrong element is {values[0]:.6g}"
    for name, array in inputs.named("in", "inout").items():
        if array.size == want.size and at.size > 2:
            same = array.reshape(-1)[at].astype(np.float64) == values
            if same.all():
                return "copy_of_input", f"the wrong elements are those of the input {name}"
    return _by_relation(values, wants, at, got, want)


def _by_relation(
    values: Array, wants: Array, at: Array, got: Array, want: Array
) -> tuple[str, str]:
    if want.ndim == 2 and at.size > 2 and min(want.shape) > 1:
        turned = got.reshape(want.shape[::-1]).T
        near = np.isclose(turned.reshape(-1)[at].astype(np.float64), wants, rtol=1e-3, atol=0)
        if near.all():
            return "transposed", "the output is right but transposed: rows and columns are swapped"
    usable = np.isfinite(values) & np.isfinite(wants) & (wants != 0)
    if usable.sum() > 0:
        size = np.sqrt(np.mean(np.square(wants[usable])))
        away = np.abs(values - wants)[usable] / np.maximum(np.abs(wants[usable]), size)
        if away.max() < 0.02 and usable.all():
            return "precision", (
                f"every wrong element is within {away.max():.2g} of the expected one: lower "
                "precision, an approximate function, a lossy order, or a few terms left out"
            )
        with np.errstate(all="ignore"):
            ratio = values[usable] / wants[usable]
        middle = float(np.median(ratio))
        spread = float(np.abs(ratio - middle).max())
        if usable.sum() > 2 and middle not in (0.0, 1.0) and spread < 1e-3 * abs(middle):
            return "off_by_factor", f"the wrong elements are {middle:.6g} times the expected ones"
    return "", ""


def _is_unwritten(values: Array, poison: int | None) -> bool:
    raw = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)
    if raw.shape[1] > 1 and (raw == (_ALL_ONES if poison is None else poison)).all():
        return True
    if values.dtype != np.float32 or not np.isnan(values).all():
        return False
    # NaNs that arithmetic makes are canonical: any other payload was put there before the run.
    return not _CANONICAL_NANS & {int(word) for word in np.unique(values.view(np.uint32))[:64]}


def _by_place(
    flat_got: Array, flat_want: Array, bad: Array, at: Array, size: int
) -> tuple[str, str]:
    begin, end = int(bad[0]), int(bad[-1])
    is_run = end - begin + 1 == bad.size
    if is_run and end == size - 1 and begin > 0:
        return "tail", f"only the end is wrong, from element {begin} of {size} on"
    if is_run and begin == 0 and end < size - 1:
        return "head", f"only the start is wrong, up to element {end} of {size}"
    for period in (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024):
        lanes = np.unique(at % period)
        if bad.size > 8 and 8 * period <= size and len(lanes) <= period // 4:
            return "periodic", f"wrong elements repeat every {period}, first at {begin}"
    share = bad.size / size
    if share == 1:
        return "everywhere", "every element is wrong"
    if share < 0.01:
        return (
            "few",
            f"{bad.size} of {size} elements are wrong, first at {begin}: a race or an edge",
        )
    return "scattered", f"{100 * share:.3g} % of the elements are wrong, from {begin} to {end}"
