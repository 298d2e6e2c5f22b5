"""How far an array is from the expected one, on the task's scale, element by element.

Pieces are small enough to stay in a cache and large enough that threads seldom wait for the
interpreter; big arrays are compared on several threads, because every kernel's every output passes
here, gigabytes of them.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxsearch.evaluation import Array
from ptxsearch.param import limits

# Alone a piece's three arrays of 64 bits shall stay near the core.
_PIECE, _SHARED_PIECE = 1 << 16, 1 << 18
_SPAN = 1 << 21
_THREADS = min(16, len(os.sched_getaffinity(0)))


@dataclass(frozen=True)
class Deviation:
    """The largest |got - want| beyond what rounding explains, over the scale, and what exceeds.

    `over` holds the flat positions, in order, where the ratio is above the limit asked for.
    """

    worst: float
    over: Array


@dataclass(frozen=True)
class Relative:
    """The scale that is the expected value itself, at least `least`."""

    least: float

    def of(self, want: Array) -> Array:
        """The scale of each expected value."""
        return np.maximum(np.abs(want), self.least)


Scale = Array | Relative


@dataclass(frozen=True)
class Rounding:
    """What a type explains: differences of `rtol` of the value, and its smallest normal number.

    Values beyond `top` are expected as the infinity that they round to.
    """

    rtol: float
    least: float
    top: float

    @classmethod
    def of(cls, dtype: np.dtype[Any], *, rtol: float) -> Rounding:
        """The rounding of values of `dtype`."""
        facts = limits(dtype)
        top = float(facts.max) * (1 + float(facts.eps) / 4)
        return cls(rtol, float(facts.smallest_normal), top)


def deviation(
    got: Array, want: Array, scale: Scale, *, rounding: Rounding, limit: float = np.inf
) -> Deviation:
    """The deviation of `got` from `want`; inf where NaNs or infinities differ.

    An array `scale` broadcasts to the shape of `want`. Two NaNs are equal, so are two equal
    infinities.
    """
    parts = got.reshape(-1), want.reshape(-1), _spread(scale, want.shape)
    starts = range(0, want.size, _SPAN)
    step = _PIECE if len(starts) == 1 else _SHARED_PIECE

    def span(start: int) -> Deviation:
        return _span(*parts, slice(start, min(start + _SPAN, want.size), step), rounding, limit)

    with np.errstate(all="ignore"):
        if len(starts) == 1:
            found = [span(0)]
        else:
            with ThreadPoolExecutor(_THREADS) as pool:
                found = list(pool.map(span, starts))
    over = [part.over for part in found if part.over.size]
    positions = np.concatenate(over) if over else np.zeros(0, dtype=np.int64)
    return Deviation(max((part.worst for part in found), default=0.0), positions)


def _spread(scale: Scale, shape: tuple[int, ...]) -> Scale:
    """The scale as one number or one for each element, flat."""
    if isinstance(scale, Relative):
        return scale
    scale = np.asarray(scale, dtype=np.float64)
    if scale.size == 1 or scale.shape == shape:
        return scale.reshape(-1)
    return np.broadcast_to(scale, shape).reshape(-1)


def _span(
    got: Array, want: Array, scale: Scale, where: slice, rounding: Rounding, limit: float
) -> Deviation:
    """The deviation within `where`, taken in pieces of its step."""
    worst, over = 0.0, []
    room = tuple(np.empty(min(where.step, where.stop - where.start)) for _ in range(3))
    # numpy's error state belongs to a thread.
    with np.errstate(all="ignore"):
        for begin in range(where.start, where.stop, where.step):
            piece = slice(begin, min(begin + where.step, where.stop))
            part = scale if isinstance(scale, Relative) or scale.size == 1 else scale[piece]
            top = _quick(got[piece], want[piece], part, rounding, room)
            if not top <= limit:
                ratios = _ratios(got[piece], want[piece], part, rounding)
                over.append(np.flatnonzero(ratios > limit) + begin)
                top = float(np.max(ratios, initial=0.0))
            worst = max(worst, top)
    return Deviation(worst, np.concatenate(over) if over else np.zeros(0, dtype=np.int64))


def _quick(
    got: Array, want: Array, scale: Scale, rounding: Rounding, room: tuple[Array, ...]
) -> float:
    """The largest ratio of a piece of plain finite numbers; NaN where some may be anything else."""
    excess, size, allowed = (array[: want.size] for array in room)
    np.abs(want, out=size)
    if not np.max(size) <= rounding.top:
        return np.nan
    np.copyto(excess, got, casting="unsafe")
    excess -= want
    np.abs(excess, out=excess)
    np.multiply(size, rounding.rtol, out=allowed)
    allowed += rounding.least
    excess -= allowed
    # Where nothing exceeds rounding the scale may be 0.
    if np.max(excess) <= 0:
        return 0.0
    excess /= np.maximum(size, scale.least, out=size) if isinstance(scale, Relative) else scale
    return float(np.max(excess))


def _ratios(got: Array, want: Array, scale: Scale, rounding: Rounding) -> Array:
    size = scale.of(want) if isinstance(scale, Relative) else scale
    got, want = got.astype(np.float64, copy=False), want.astype(np.float64, copy=False)
    want = np.where(np.abs(want) > rounding.top, np.copysign(np.inf, want), want)
    excess = np.abs(got - want) - rounding.rtol * np.abs(want) - rounding.least
    ratio = np.where(excess > 0, excess / size, 0.0)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    odd = ~np.isfinite(got) | ~np.isfinite(want)
    ratio[odd & ~same] = np.inf
    ratio[same | np.isnan(ratio)] = 0.0
    return ratio
