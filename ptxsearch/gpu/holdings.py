"""The input sets a device keeps for timing: which workload has which, and where they are."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ptxsearch.evaluation import Inputs
from ptxsearch.gpu.case import input_set
from ptxsearch.gpu.memory import InputSet

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
        self._sets: dict[str, list[Held]] = {}

    def of(self, workload: str) -> Sequence[Held]:
        """The sets of a workload, the latest used last."""
        return tuple(self._sets.get(workload, ()))

    def keep(self, workload: str, inputs: Inputs) -> tuple[Held, list[Held]]:
        """The holding of `inputs`, and those that made room for it."""
        sets = self._sets.setdefault(workload, [])
        for held in sets:
            if held.inputs is inputs or _equal(held.inputs, inputs):
                sets.remove(held)
                sets.append(held)
                return held, []
        held = Held(next(self._tokens), inputs, input_set(inputs))
        sets.append(held)
        dropped = sets[: -self._limit]
        del sets[: -self._limit]
        return held, dropped


def _equal(left: Inputs, right: Inputs) -> bool:
    """Whether two inputs are the same set: label and every value; `out` arrays by shape."""
    if left.label != right.label or left.roles != right.roles or left.sizes != right.sizes:
        return False
    for name, value in left.values.items():
        mine, other = np.asarray(value), np.asarray(right.values[name])
        if mine.shape != other.shape or mine.dtype != other.dtype:
            return False
        if left.roles[name] != "out" and mine.tobytes() != other.tobytes():
            return False
    return True
