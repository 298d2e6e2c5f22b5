"""Places in a flat array: one object for a slice, a strided pattern or an index list.

All positions count elements. An array may have a second axis (one element of several granules);
places always address the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Run:
    """`count` consecutive elements from `start`, one for each lane."""

    start: int
    count: int
    unique = True

    def get(self, flat: Array) -> Array:
        """The elements, as a view."""
        return flat[self.start : self.start + self.count]

    def put(self, flat: Array, values: Any) -> None:
        """Store one value for each lane."""
        flat[self.start : self.start + self.count] = values

    def shifted(self, offset: int) -> Run:
        """The same place `offset` elements on."""
        return Run(self.start + offset, self.count)

    def indices(self) -> Array:
        """The element of each lane."""
        return np.arange(self.start, self.start + self.count)


@dataclass(frozen=True, slots=True)
class Rows:
    """`rows` runs of `width` elements whose starts lie `stride` apart, rows not overlapping."""

    start: int
    rows: int
    width: int
    stride: int
    unique = True

    def _view(self, flat: Array) -> Array:
        size = flat.strides[0]
        return np.ndarray(
            (self.rows, self.width, *flat.shape[1:]),
            flat.dtype,
            flat,
            self.start * size,
            (self.stride * size, size, *flat.strides[1:]),
        )

    def get(self, flat: Array) -> Array:
        """The elements, as a copy."""
        return self._view(flat).reshape(self.rows * self.width, *flat.shape[1:])

    def put(self, flat: Array, values: Any) -> None:
        """Store one value for each lane, or one for all."""
        view = self._view(flat)
        if isinstance(values, np.ndarray) and values.shape[0] > 1:
            values = values.reshape(self.rows, self.width, *values.shape[1:])
        view[...] = values

    def shifted(self, offset: int) -> Rows:
        """The same place `offset` elements on."""
        return Rows(self.start + offset, self.rows, self.width, self.stride)

    def indices(self) -> Array:
        """The element of each lane."""
        starts = self.start + self.stride * np.arange(self.rows)
        return (starts[:, None] + np.arange(self.width)).reshape(-1)


@dataclass(frozen=True, slots=True)
class Single:
    """One element for all of `count` lanes."""

    start: int
    count: int
    unique = False

    def get(self, flat: Array) -> Array:
        """The element once."""
        return flat[self.start : self.start + 1]

    def put(self, flat: Array, values: Any) -> None:
        """Store the value of the last lane."""
        flat[self.start] = values[-1] if isinstance(values, np.ndarray) else values

    def shifted(self, offset: int) -> Single:
        """The same place `offset` elements on."""
        return Single(self.start + offset, self.count)

    def indices(self) -> Array:
        """The element of each lane."""
        return np.full(self.count, self.start)


@dataclass(frozen=True, slots=True, eq=False)
class List:
    """An element for each lane, in any order; `unique` is only claimed where it is known."""

    index: Array
    unique = False

    def get(self, flat: Array) -> Array:
        """The elements, as a copy."""
        return flat.take(self.index, 0)

    def put(self, flat: Array, values: Any) -> None:
        """Store one value for each lane; the last lane wins where several meet."""
        flat[self.index] = values

    def shifted(self, offset: int) -> List:
        """The same place `offset` elements on."""
        return List(self.index + offset) if offset else self

    def indices(self) -> Array:
        """The element of each lane."""
        return self.index


Where = Run | Rows | Single | List


def apart(one: Where, one_size: int, other: Where, other_size: int) -> bool:
    """Whether two places in elements of some sizes plainly do not overlap."""
    if isinstance(one, List) or isinstance(other, List):
        return False
    first, first_end = _span(one, one_size)
    second, second_end = _span(other, other_size)
    if first_end <= second or second_end <= first:
        return True
    if not (isinstance(one, Rows) and isinstance(other, Rows)):
        return False
    stride = one.stride * one_size
    if stride != other.stride * other_size:
        return False
    shift = (second - first) % stride
    return shift >= one.width * one_size and shift + other.width * other_size <= stride


def _span(where: Run | Rows | Single, size: int) -> tuple[int, int]:
    """The first unit of a place and the one after its last."""
    start = where.start * size
    match where:
        case Run(count=count):
            return start, start + count * size
        case Rows(rows=rows, width=width, stride=stride):
            return start, start + ((rows - 1) * stride + width) * size
    return start, start + size


def place(address: Array, lanes: int, size: int) -> Where:
    """The place of `lanes` addresses in elements of `size` bytes; all are multiples of it."""
    if address.size == 1:
        return Single(int(address[0]) // size, lanes)
    first, last = int(address[0]), int(address[-1])
    if last > first:
        steps = address[1:] - address[:-1]
        odd = steps != size
        if last - first == size * (lanes - 1) and not bool(odd.any()):
            return Run(first // size, lanes)
        found = _rows(address, odd, size)
        if found is not None:
            return found
    elif first == last and int(address.min()) == int(address.max()):
        return Single(first // size, lanes)
    return List(address >> (size.bit_length() - 1))


def _rows(address: Array, odd: Array, size: int) -> Rows | None:
    """The strided pattern of addresses that run on in rows of one length, if that is what it is.

    `odd` marks the steps between lanes that are not `size`.
    """
    width = int(odd.argmax()) + 1
    lanes = address.size
    if lanes % width:
        return None
    rows = lanes // width
    starts = address[::width]
    gap = int(starts[1] - starts[0]) if rows > 1 else size * width
    if gap < size * width or gap % size or int(starts[-1] - starts[0]) != gap * (rows - 1):
        return None
    if int(np.count_nonzero(odd)) != rows - 1 or not bool(odd[width - 1 :: width].all()):
        return None
    if not bool((starts[1:] - starts[:-1] == gap).all()):
        return None
    return Rows(int(address[0]) // size, rows, width, gap // size)
