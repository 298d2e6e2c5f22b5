"""Input data of a task: reproducible arrays by seed and distribution, within each domain.

Every array comes from its own Philox stream, keyed by task, workload, parameter, distribution and
seed, so that neither the order of parameters nor another array's size changes it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ptxsearch.errors import TaskError
from ptxsearch.evaluation import Array, Inputs
from ptxsearch.expression import evaluate, evaluate_integer
from ptxsearch.param import FLOATS, Param
from ptxsearch.tasks import Task, Workload

Make = Callable[[np.random.Generator, int], Array]
_ALL_FLOAT = ("normal", "shifted", "small", "heavy", "ties")
_SEPARABLE = "normal"


def _normal(rng: np.random.Generator, n: int) -> Array:
    return rng.standard_normal(n, dtype=np.float32)


def _heavy(rng: np.random.Generator, n: int) -> Array:
    # Normal over uniform: tails as a Cauchy's, cut where 32-bit sums of products still hold them.
    ratio = _normal(rng, n) / np.maximum(rng.random(n, dtype=np.float32), np.float32(1e-3))
    return ratio.astype(np.float32, copy=False)


def _ties(rng: np.random.Generator, n: int) -> Array:
    """Few distinct values, many zeros, runs of equals: structure that random data never has."""
    values = rng.integers(-4, 5, n).astype(np.float32)
    values[rng.random(n, dtype=np.float32) < 0.25] = 0
    run = min(n, 64)
    values[:run] = values[0] if n else 0
    return values


_FLOAT: Mapping[str, Make] = {
    "normal": _normal,
    "shifted": lambda rng, n: _normal(rng, n) * np.float32(10) + np.float32(5),
    "small": lambda rng, n: _normal(rng, n) * np.float32(1e-4),
    "heavy": _heavy,
    "ties": _ties,
    "uniform": lambda rng, n: rng.random(n, dtype=np.float32),
    "large": lambda rng, n: _normal(rng, n) * np.float32(50),
}


def _index_skewed(rng: np.random.Generator, n: int, top: int) -> Array:
    """Indices that crowd at the low end: the cube of a uniform number."""
    return np.minimum((rng.random(n) ** 3 * top).astype(np.int64), top - 1)


_WHOLE: Mapping[str, Callable[[np.random.Generator, int, int], Array]] = {
    "uniform": lambda rng, n, top: rng.integers(0, top, n),
    "skewed": _index_skewed,
    "constant": lambda rng, n, top: np.full(n, int(rng.integers(0, top))),
    "ramp": lambda rng, n, top: (np.arange(n) + int(rng.integers(0, top))) % top,
    "permuted": lambda rng, n, top: np.resize(rng.permutation(min(n, top)), n),
}
DISTRIBUTIONS: frozenset[str] = frozenset(_FLOAT) | frozenset(_WHOLE)


def distributions(task: Task) -> tuple[str, ...]:
    """The distributions the task is judged on: its own, or those that suit its parameters.

    Raises TaskError where the task names one that does not exist.
    """
    unknown = [name for name in task.distributions if name not in DISTRIBUTIONS]
    if unknown:
        raise TaskError(
            f"task {task.name!r} names the distribution {unknown[0]!r}",
            f"use {', '.join(sorted(DISTRIBUTIONS))}",
        )
    if task.distributions:
        return task.distributions
    is_float = any(_is_real(p) for p in task.params if p.role in ("in", "inout"))
    return _ALL_FLOAT if is_float else tuple(_WHOLE)


def make_inputs(task: Task, workload: Workload, *, seed: int, distribution: str = "") -> Inputs:
    """The arguments of one launch sequence for `workload`; input arrays are read-only.

    An empty `distribution` is the task's first. A parameter whose domain does not know the
    distribution takes one of its own, chosen by the name, so that a set is varied as a whole.
    """
    allowed = distributions(task)
    chosen = distribution or allowed[0]
    if chosen not in DISTRIBUTIONS:
        raise TaskError(
            f"distribution {chosen!r} is unknown", f"use {', '.join(sorted(DISTRIBUTIONS))}"
        )
    values: dict[str, Array | np.generic] = {}
    for param in task.params:
        key = (task.name, workload.name, tuple(workload.sizes.items()), param.name, chosen, seed)
        values[param.name] = _value(param, workload.sizes, chosen, _stream(key))
    roles = {param.name: param.role for param in task.params}
    return Inputs(values, roles, dict(workload.sizes), label=f"{chosen}, seed {seed}")


def fill(
    param: Param, sizes: Mapping[str, int], *, distribution: str, rng: np.random.Generator
) -> Array:
    """Fresh input data for `param` from `rng`, of its shape and within its domain."""
    shape = param.extents(sizes)
    count = math.prod(shape)
    flat = _real(param, count, distribution, rng) if _is_real(param) else None
    if flat is None:
        flat = _whole(param, count, sizes, distribution, rng)
    return np.ascontiguousarray(flat.astype(param.numpy_dtype, copy=False).reshape(shape))


def _is_real(param: Param) -> bool:
    return param.dtype in FLOATS and param.meaning[0] in ("any", "positive", "sorted")


def _stream(key: tuple[Any, ...]) -> np.random.Generator:
    digest = hashlib.sha256(repr(key).encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))


def _value(
    param: Param, sizes: Mapping[str, int], distribution: str, rng: np.random.Generator
) -> Array | np.generic:
    if param.role == "scalar":
        return _scalar(param, sizes)
    if param.role == "out":
        return np.empty(param.extents(sizes), dtype=param.numpy_dtype)
    if param.role == "inout" and param.init is not None:
        array = np.full(param.extents(sizes), evaluate(param.init, sizes), dtype=param.numpy_dtype)
    else:
        array = fill(param, sizes, distribution=distribution, rng=rng)
    array.flags.writeable = False
    return array


def _scalar(param: Param, sizes: Mapping[str, int]) -> np.generic:
    number = evaluate(param.init or "0", sizes)
    kind = param.numpy_dtype
    if param.dtype not in FLOATS:
        limits = np.iinfo(kind)
        if number != int(number) or not limits.min <= number <= limits.max:
            raise TaskError(
                f"scalar {param.name!r} is {number}, outside {param.dtype}",
                "use a wider type or a smaller size",
            )
        number = int(number)
    scalar: np.generic = kind.type(number)
    return scalar


def _real(param: Param, count: int, distribution: str, rng: np.random.Generator) -> Array:
    make = _FLOAT.get(distribution, _FLOAT[_SEPARABLE])
    if param.dtype == "f64" and distribution == "normal":
        values: Array = rng.standard_normal(count)
    else:
        values = make(rng, count)
    if param.meaning[0] == "positive":
        values = np.abs(values) + np.asarray(1e-6, dtype=values.dtype)
    if param.meaning[0] == "sorted":
        values = np.sort(values)
    limit = float(np.finfo(np.float32).max) if param.dtype in ("f32", "f64") else 240.0
    return values if param.dtype in ("f32", "f64") else np.clip(values, -limit, limit)


def _whole(
    param: Param,
    count: int,
    sizes: Mapping[str, int],
    distribution: str,
    rng: np.random.Generator,
) -> Array:
    kind, argument = param.meaning
    if kind == "csr":
        return _row_pointers(count, evaluate_integer(argument, sizes), distribution, rng)
    top = _top(param, sizes)
    names = tuple(_WHOLE)
    known = distribution if distribution in _WHOLE else names[sum(distribution.encode()) % 2]
    values = _WHOLE[known](rng, count, top)
    if kind == "any" and param.dtype.startswith("s"):
        values = values - top // 2
    return np.sort(values) if kind == "sorted" else values


def _top(param: Param, sizes: Mapping[str, int]) -> int:
    """One above the largest value: of the index, of a byte, or a number sums of which fit."""
    kind, argument = param.meaning
    if kind == "index":
        top = evaluate_integer(argument, sizes)
        if top < 1:
            raise TaskError(f"domain of {param.name!r} is index({top})", "give a positive bound")
        return top
    if kind == "bytes":
        return 256
    limits = np.iinfo(param.numpy_dtype) if param.dtype not in FLOATS else np.iinfo(np.int16)
    return int(min(limits.max, 1 << 20))


def _row_pointers(count: int, total: int, distribution: str, rng: np.random.Generator) -> Array:
    """`count` non-decreasing offsets from 0 to `total`; skewed ones leave many rows empty."""
    if count < 1:
        return np.zeros(0, dtype=np.int64)
    power = 4.0 if distribution in ("skewed", "heavy") else 1.0
    inner = np.sort((rng.random(max(0, count - 2)) ** power * (total + 1)).astype(np.int64))
    ends = [0] if count == 1 else [0, *np.minimum(inner, total).tolist(), total]
    return np.asarray(ends, dtype=np.int64)
