"""One parameter of a kernel's entry: its role, element type, shape and what its values mean."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import ml_dtypes
import numpy as np

from ptxsearch.errors import TaskError
from ptxsearch.expression import evaluate_integer
from ptxsearch.record import Record

Role = Literal["in", "out", "inout", "scalar"]
DTYPES: Mapping[str, np.dtype[Any]] = {
    "f64": np.dtype(np.float64), "f32": np.dtype(np.float32), "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16), "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "s64": np.dtype(np.int64), "s32": np.dtype(np.int32), "s16": np.dtype(np.int16),
    "s8": np.dtype(np.int8), "u64": np.dtype(np.uint64), "u32": np.dtype(np.uint32),
    "u16": np.dtype(np.uint16), "u8": np.dtype(np.uint8),
}  # fmt: skip
FLOATS = frozenset({"f64", "f32", "f16", "bf16", "e4m3", "e5m2"})
_DOMAIN = re.compile(r"(any|positive|sorted|bytes|index|csr)(?:\((.+)\))?\Z")


def limits(dtype: np.dtype[Any]) -> Any:
    """`finfo` of a float type, numpy's or ml_dtypes': eps, max, smallest_normal."""
    own = dtype.kind == "f" and dtype.isbuiltin == 1
    return np.finfo(dtype) if own else ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Param(Record):
    """One entry parameter in order. `shape` holds expressions of sizes; a scalar has none.

    `init` is the value of a scalar (an expression of sizes) or of an inout buffer before every
    launch sequence; an inout buffer without one holds input data then. `domain` says what inputs
    mean: any, positive, sorted, bytes, index(n) for values in 0..n-1, csr(n) for row pointers
    from 0 to n.
    """

    name: str
    role: Role
    dtype: str
    shape: tuple[str, ...] = ()
    init: str | None = None
    domain: str = "any"

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise TaskError(
                f"parameter {self.name!r} has dtype {self.dtype!r}", f"use {', '.join(DTYPES)}"
            )
        if self.role not in ("in", "out", "inout", "scalar"):
            raise TaskError(
                f"parameter {self.name!r} has role {self.role!r}", "use in, out, inout or scalar"
            )
        if not _DOMAIN.match(self.domain):
            raise TaskError(
                f"parameter {self.name!r} has domain {self.domain!r}",
                "use any, positive, sorted, bytes, index(n) or csr(n)",
            )
        if self.role == "scalar" and (self.init is None or self.shape):
            raise TaskError(
                f"scalar {self.name!r} has shape {list(self.shape)} and init {self.init!r}",
                "give it an init and no shape",
            )
        object.__setattr__(self, "shape", tuple(str(extent) for extent in self.shape))

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The numpy dtype of its values."""
        return DTYPES[self.dtype]

    @property
    def meaning(self) -> tuple[str, str]:
        """The domain's kind and the expression in its parentheses, empty where it has none."""
        match = _DOMAIN.match(self.domain)
        return (match[1], match[2] or "") if match else ("any", "")

    def extents(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape for `sizes`."""
        return tuple(evaluate_integer(extent, sizes) for extent in self.shape)
