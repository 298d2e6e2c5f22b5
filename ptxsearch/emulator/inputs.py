"""Input data from its description: splitmix64 words turned into values, the same everywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from ptxsearch.emulator.operation import Array
from ptxsearch.errors import UsageError

DTYPES: Mapping[str, np.dtype[Any]] = {
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "bf16": np.dtype(np.uint16),
    "e4m3": np.dtype(np.uint8),
    "e5m2": np.dtype(np.uint8),
    **{f"{k}{8 * n}": np.dtype(f"{'i' if k == 's' else k}{n}") for k in "su" for n in (1, 2, 4, 8)},
}
"""How each type is held; bf16 and the 8-bit floats as their bits."""

BITS_ONLY = frozenset({"bf16", "e4m3", "e5m2"})
WORD = (1 << 64) - 1
SEED_FACTOR = 0xD1342543DE82EF95
STREAM_FACTOR = 0x2545F4914F6CDD1D
START = 0x632BE59BD9B4E019

SPECIAL_TEXT = """
0 -0 1 -1 0.5 -0.5 1.5 2.5 -2.5 inf -inf nan 1e-40 -1e-40 1.17549435e-38 3.4028234e38
-3.4028234e38 2147483648 -2147483904 4294967040 127.5 128.5 -128.5 255.5 256.5
0.49999997 1e-7 65504 65520 8388607.5 16777216 3.1415927
"""
SPECIAL = tuple(float(text) for text in SPECIAL_TEXT.split())

Make = Callable[[Mapping[str, Any], str, int], Array]


def words(seed: int, count: int, stream: int = 0) -> Array:
    """Random 64-bit words of splitmix64, started from a seed and a stream number."""
    start = (seed * SEED_FACTOR + stream * STREAM_FACTOR + START) & WORD
    with np.errstate(over="ignore"):
        step = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed = step + np.uint64(start)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def fractions(seed: int, count: int, stream: int = 0) -> Array:
    """Random float64 in [0, 1) with 53 bits."""
    return np.asarray((words(seed, count, stream) >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def stored(values: Any, dtype: str) -> Array:
    """The values rounded to a type, as it is held."""
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype == "bf16":
            single = np.asarray(values, np.float64).astype(np.float32)
            bits = single.astype(ml_dtypes.bfloat16).view(np.uint16)
            return np.where(np.isnan(single), np.uint16(0x7FFF), bits)
        return np.asarray(values).astype(DTYPES[dtype])


def _integers(init: Mapping[str, Any], count: int) -> Array:
    span = np.uint64(init["hi"] - init["lo"])
    drawn = (words(init.get("seed", 0), count) % span).astype(np.int64)
    return np.asarray(drawn + init["lo"])


def _normal(init: Mapping[str, Any], dtype: str, count: int) -> Array:
    total = sum(fractions(init.get("seed", 0), count, part) for part in range(12))
    return stored(init.get("mean", 0.0) + init.get("std", 1.0) * (total - 6.0), dtype)


def _uniform(init: Mapping[str, Any], dtype: str, count: int) -> Array:
    low, high = init["lo"], init["hi"]
    return stored(low + (high - low) * fractions(init.get("seed", 0), count), dtype)


def _fill_byte(init: Mapping[str, Any], dtype: str, count: int) -> Array:
    kind = DTYPES[dtype]
    return np.full(count * kind.itemsize, init["byte"], np.uint8).view(kind)


def _bits(init: Mapping[str, Any], dtype: str, count: int) -> Array:
    kind = DTYPES[dtype]
    size = count * kind.itemsize
    return words(init.get("seed", 0), -(-size // 8)).view(np.uint8)[:size].copy().view(kind)


def _special(init: Mapping[str, Any], dtype: str, count: int) -> Array:
    at = np.arange(count)
    chosen = np.array(SPECIAL)[at // 2 % len(SPECIAL)]
    drawn = -300.0 + 600.0 * fractions(init.get("seed", 0), count)
    return stored(np.where(at % 2 == 0, chosen, drawn), dtype)


def _values(init: Mapping[str, Any], dtype: str, count: int) -> Array:
    kind = DTYPES[dtype]
    exact = kind.kind in "iu" and dtype not in BITS_ONLY
    return stored(np.resize(np.array(init["values"], kind if exact else np.float64), count), dtype)


GENERATORS: Mapping[str, Make] = {
    "zeros": lambda init, dtype, count: np.zeros(count, DTYPES[dtype]),
    "fill": lambda init, dtype, count: stored(np.full(count, init["value"]), dtype),
    "fill_byte": _fill_byte,
    "uniform": _uniform,
    "normal": _normal,
    "integer": lambda init, dtype, count: stored(_integers(init, count), dtype),
    "grid": lambda init, dtype, count: stored(_integers(init, count) * float(init["step"]), dtype),
    "bits": _bits,
    "arange": lambda init, dtype, count: stored(
        init.get("start", 0) + init.get("step", 1) * np.arange(count), dtype
    ),
    "modulo": lambda init, dtype, count: stored(
        (np.arange(count) * init.get("mul", 1) + init.get("add", 0)) % init["mod"], dtype
    ),
    "permutation": lambda init, dtype, count: stored(
        np.argsort(words(init.get("seed", 0), count), kind="stable"), dtype
    ),
    "special": _special,
    "values": _values,
}


def make(init: Mapping[str, Any], dtype: str, shape: Sequence[int]) -> Array:
    """The array that an `init` describes; `patch` replaces single elements afterwards."""
    generator = GENERATORS.get(str(init.get("gen")))
    if generator is None:
        raise UsageError(f"unknown generator {init.get('gen')!r}", f"one of {sorted(GENERATORS)}")
    if dtype not in DTYPES:
        raise UsageError(f"unknown dtype {dtype!r}", f"one of {sorted(DTYPES)}")
    flat = np.ascontiguousarray(generator(init, dtype, int(np.prod(shape, dtype=np.int64))))
    for at, value in init.get("patch", {}).items():
        flat[int(at)] = value
    return flat.reshape(tuple(shape))
