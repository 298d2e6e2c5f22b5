"""The input sets a device keeps for timing: which workload has which, and under what token.

Workloads of different tasks may share a name and sizes, so sets are told apart by their
parameters too; a kernel uses the latest ones that have every parameter it names.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ptxsearch.evaluation import Array, Inputs
from ptxsearch.gpu.case import input_set
from ptxsearch.gpu.memory import InputSet
from ptxsearch.kernel import Kernel
from ptxsearch.tasks import Workload

__all__ = ["Held", "Holdings"]


@dataclass(frozen=True)
class Held:
    """One set of inputs with the token that names it to the worker."""

    token: int
    inputs: Inputs
    split: InputSet

    @property
    def bytes(self) -> int:
        """Bytes of its arrays."""
        return sum(array.nbytes for array in self.split.arrays.values())


class Holdings:
    """At most `limit` sets for each workload, the latest used last; older ones are dropped."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tokens = itertools.count(1)
        self._sets: dict[Any, list[Held]] = {}

    def of(self, workload: Workload, kernel: Kernel) -> Sequence[Held]:
        """The sets of a workload that `kernel` can use, the latest used last."""
        own = {s.name for s in kernel.scratch} | {t.name for t in kernel.tensor_maps}
        named = {a for launch in kernel.launches for a in launch.args} - own
        named = {name for name in named if name.isidentifier()} - set(workload.sizes)
        named -= set(kernel.names(workload.sizes))
        for key, sets in reversed(self._sets.items()):
            if key[0] == _name(workload) and named <= {part[0] for part in key[1]}:
                return tuple(sets)
        return ()

    def clear(self) -> list[Held]:
        """Forget every set. Returns what was held."""
        held = [one for sets in self._sets.values() for one in sets]
        self._sets.clear()
        return held

    def keep(self, workload: Workload, inputs: Inputs) -> tuple[Held, list[Held]]:
        """The holding of `inputs`, and those that made room for it."""
        key = (_name(workload), _signature(inputs))
        sets = self._sets.pop(key, [])
        self._sets[key] = sets
        same = [held for held in sets if held.inputs is inputs]
        for held in same or (held for held in sets if _equal(held.inputs, inputs)):
            sets.remove(held)
            # The caller tells sets apart by identity: the object it gave last is handed back.
            sets.append(replace(held, inputs=inputs))
            return sets[-1], []
        held = Held(next(self._tokens), inputs, input_set(inputs))
        sets.append(held)
        dropped = sets[: -self._limit]
        del sets[: -self._limit]
        return held, dropped


def _name(workload: Workload) -> tuple[str, tuple[tuple[str, int], ...]]:
    return workload.name, tuple(sorted(workload.sizes.items()))


def _signature(inputs: Inputs) -> tuple[tuple[str, str, str, tuple[int, ...]], ...]:
    """Name, role, type and shape of every parameter."""
    return tuple(
        (name, inputs.roles[name], str(np.asarray(value).dtype), np.shape(value))
        for name, value in inputs.values.items()
    )


def _equal(left: Inputs, right: Inputs) -> bool:
    """Whether two inputs of one signature are the same set: label and every value that is read."""
    if left.label != right.label:
        return False
    return all(
        left.roles[name] == "out"
        or value is right.values[name]
        or np.array_equal(_raw(value), _raw(right.values[name]))
        for name, value in left.values.items()
    )


def _raw(value: Array | np.generic) -> Array:
    """The bytes of a value, not copied where it is contiguous: NaNs may be equal."""
    return np.ascontiguousarray(value).reshape(-1).view(np.uint8)
