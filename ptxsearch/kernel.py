"""What a candidate is: device code and declared launches, nothing that runs on the host.

A `Kernel` is source, launches and values; `bind` evaluates its expressions for one problem size.
A `Proposal` is a kernel somebody wants tried, with where it comes from and what it changes.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from ptxsearch.errors import ExpressionError, KernelError
from ptxsearch.expression import evaluate_integer
from ptxsearch.record import Record
from ptxsearch.space import Space

Value = int | float | str | bool
Language = Literal["cuda", "ptx", "recorded"]
ProposalKind = Literal["draft", "edit", "cross", "tune"]
Extent = tuple[str, str, str]

_IDENTIFIER = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*\Z")
ELEMENT_BYTES: Mapping[str, int] = {
    "f64": 8, "f32": 4, "f16": 2, "bf16": 2, "e4m3": 1, "e5m2": 1,
    "s64": 8, "s32": 4, "s16": 2, "s8": 1, "u64": 8, "u32": 4, "u16": 2, "u8": 1,
}  # fmt: skip
ZEROS_LIMIT = 65536


def _extent(value: Any) -> Extent:
    parts = (value,) if isinstance(value, str | int) else tuple(value)
    if not 1 <= len(parts) <= 3:
        raise KernelError(f"extent {value!r} has {len(parts)} parts", "give one to three")
    texts = [str(part) for part in parts] + ["1"] * (3 - len(parts))
    return (texts[0], texts[1], texts[2])


@dataclass(frozen=True)
class Launch(Record):
    """One kernel launch; extents and bytes are expressions of sizes and values.

    `args` name parameters, scratch and tensor maps in the entry's order; any other text is an
    expression passed as an integer of the width that the entry declares.
    """

    entry: str
    args: tuple[str, ...]
    grid: Extent
    block: Extent
    cluster: Extent = ("1", "1", "1")
    shared_bytes: str = "0"

    def __post_init__(self) -> None:
        if not _IDENTIFIER.match(self.entry):
            raise KernelError(f"entry {self.entry!r} is not an identifier", "name the kernel")
        object.__setattr__(self, "args", tuple(str(arg) for arg in self.args))
        for name in ("grid", "block", "cluster"):
            object.__setattr__(self, name, _extent(getattr(self, name)))
        object.__setattr__(self, "shared_bytes", str(self.shared_bytes))


@dataclass(frozen=True)
class Scratch(Record):
    """A device buffer that lives for one launch sequence.

    `init` is "undefined" (a fresh junk pattern) or "zeros" (ours, outside the clock, 64 KB in all).
    """

    name: str
    dtype: str
    shape: tuple[str, ...]
    init: Literal["undefined", "zeros"] = "undefined"

    def __post_init__(self) -> None:
        if self.dtype not in ELEMENT_BYTES:
            raise KernelError(
                f"scratch {self.name!r} has dtype {self.dtype!r}",
                f"use one of {', '.join(ELEMENT_BYTES)}",
            )
        object.__setattr__(self, "shape", tuple(str(extent) for extent in self.shape))


@dataclass(frozen=True)
class TensorMap(Record):
    """A TMA descriptor, declared here and encoded by the device (innermost dimension first).

    `strides` are bytes of every dimension but the innermost, as `cuTensorMapEncodeTiled` takes.
    """

    name: str
    buffer: str
    dtype: str
    dims: tuple[str, ...]
    strides: tuple[str, ...]
    box: tuple[str, ...]
    swizzle: Literal["none", "32", "64", "128"] = "none"

    def __post_init__(self) -> None:
        for name in ("dims", "strides", "box"):
            object.__setattr__(self, name, tuple(str(part) for part in getattr(self, name)))
        if not 1 <= len(self.dims) <= 5 or len(self.box) != len(self.dims):
            raise KernelError(
                f"tensor map {self.name!r} has {len(self.dims)} dims and a box of {len(self.box)}",
                "give 1 to 5 dims and as many box extents",
            )
        if len(self.strides) != len(self.dims) - 1:
            raise KernelError(
                f"tensor map {self.name!r} has {len(self.strides)} strides",
                f"give {len(self.dims) - 1}: every dimension but the innermost",
            )


@dataclass(frozen=True)
class BoundLaunch(Record):
    """A launch for one problem size: every extent a number, every argument resolved by name.

    An argument is the name of a parameter, scratch or tensor map, or a whole number.
    """

    entry: str
    args: tuple[str | int, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    shared_bytes: int

    @property
    def threads(self) -> int:
        """Threads of one block."""
        return math.prod(self.block)

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return math.prod(self.grid)


@dataclass(frozen=True)
class Kernel(Record):
    """Device source with its launches, the values of its parameters, and their space."""

    source: str
    language: Language
    launches: tuple[Launch, ...]
    values: Mapping[str, Value] = field(default_factory=dict)
    space: Space | None = None
    scratch: tuple[Scratch, ...] = ()
    tensor_maps: tuple[TensorMap, ...] = ()

    def __post_init__(self) -> None:
        if not self.launches and self.language != "recorded":
            raise KernelError("a kernel without launches", "declare at least one launch")
        names = [s.name for s in self.scratch] + [t.name for t in self.tensor_maps]
        if len(set(names)) != len(names):
            raise KernelError(f"scratch and tensor map names repeat: {names}", "rename them")
        if self.space is not None:
            missing = sorted(set(self.space.params) - set(self.values))
            if missing:
                raise KernelError(
                    f"no value for the parameters {', '.join(missing)}", "give each one a value"
                )

    @cached_property
    def template(self) -> str:
        """A sha256 equal for kernels that differ in values, comments and indentation alone."""
        parts = {
            "source": _bare(self.source),
            "language": self.language,
            "rest": replace(self, source="", values={}, space=None).to_dict(),
            "space": None if self.space is None else self.space.to_dict(),
            "fixed": {
                name: value
                for name, value in self.values.items()
                if self.space is None or name not in self.space.params
            },
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def with_values(self, **values: Value) -> Kernel:
        """The same template with some values replaced. Raises KernelError where illegal."""
        merged = {**self.values, **values}
        if self.space is not None:
            unknown = sorted(set(values) - set(self.space.params))
            if unknown:
                raise KernelError(
                    f"unknown parameters {', '.join(unknown)}",
                    f"use {', '.join(self.space.params)}",
                )
            chosen = {name: merged[name] for name in self.space.params}
            if not self.space.is_legal(chosen):
                raise KernelError(f"values {chosen} break the space", "choose legal values")
        return replace(self, values=merged)

    def names(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        """Every name an expression of this kernel may use: sizes, values, derived quantities."""
        clash = sorted(set(sizes) & set(self.values))
        if clash:
            raise KernelError(
                f"{', '.join(clash)} names both a size and a value", "rename the value"
            )
        names: dict[str, Any] = {**sizes, **self.values}
        if self.space is not None:
            names |= self.space.derive({name: self.values[name] for name in self.space.params})
        return names

    def bind(self, sizes: Mapping[str, int], known: frozenset[str]) -> tuple[BoundLaunch, ...]:
        """The launches for `sizes`; `known` holds the task's parameter names.

        Raises KernelError where an expression has no whole, positive value.
        """
        names = self.names(sizes)
        buffers = known | {b.name for b in self.scratch} | {t.name for t in self.tensor_maps}
        try:
            return tuple(_bind(launch, names, buffers) for launch in self.launches)
        except ExpressionError as error:
            raise KernelError(error.message, error.remedy) from error

    def scratch_shapes(self, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """The shape of each scratch buffer for `sizes`. Raises KernelError where there is none."""
        names = self.names(sizes)
        try:
            shapes = {
                buffer.name: tuple(evaluate_integer(extent, names) for extent in buffer.shape)
                for buffer in self.scratch
            }
        except ExpressionError as error:
            raise KernelError(error.message, error.remedy) from error
        for name, shape in shapes.items():
            if min(shape, default=0) < 0:
                raise KernelError(f"scratch {name!r} has shape {shape}", "use max(0, ...)")
        zeros = sum(
            math.prod(shapes[b.name]) * ELEMENT_BYTES[b.dtype]
            for b in self.scratch
            if b.init == "zeros"
        )
        if zeros > ZEROS_LIMIT:
            raise KernelError(
                f"zeros scratch of {zeros} bytes exceeds {ZEROS_LIMIT}",
                "declare it undefined and zero it inside the launches",
            )
        return shapes


def _bare(source: str) -> str:
    # Line breaks stay, preprocessor lines end there; a quote may hold what looks like a comment.
    text = source if '"' in source else re.sub(r"//[^\n]*|/\*.*?\*/", " ", source, flags=re.S)
    return "\n".join(line for part in text.splitlines() if (line := " ".join(part.split())))


def _bind(launch: Launch, names: Mapping[str, Any], buffers: frozenset[str]) -> BoundLaunch:
    def extent(parts: Extent, what: str) -> tuple[int, int, int]:
        numbers = tuple(evaluate_integer(part, names) for part in parts)
        if min(numbers) < 1:
            raise KernelError(
                f"{what} of {launch.entry} is {numbers}", "make every extent at least 1"
            )
        return (numbers[0], numbers[1], numbers[2])

    args = tuple(arg if arg in buffers else evaluate_integer(arg, names) for arg in launch.args)
    shared = evaluate_integer(launch.shared_bytes, names)
    if shared < 0:
        raise KernelError(f"shared_bytes of {launch.entry} is {shared}", "make it 0 or more")
    return BoundLaunch(
        entry=launch.entry,
        args=args,
        grid=extent(launch.grid, "grid"),
        block=extent(launch.block, "block"),
        cluster=extent(launch.cluster, "cluster"),
        shared_bytes=shared,
    )


@dataclass(frozen=True)
class Idea(Record):
    """What a proposer plans before it writes code.

    `gain` holds the 10, 50 and 90 % quantiles of log speedup over the parent.
    """

    title: str
    strategy: str
    kind: ProposalKind = "edit"
    mechanism: str = ""
    limiter: str = ""
    p_correct: float = 0.5
    gain: tuple[float, float, float] = (0.0, 0.0, 0.0)
    parameters: Mapping[str, Value] = field(default_factory=dict)
    registers: int | None = None
    shared_bytes: int | None = None
    risk: str = ""


@dataclass(frozen=True)
class Edit(Record):
    """What a child changes against its parent: a strategy tag and one sentence."""

    strategy: str
    summary: str


@dataclass(frozen=True)
class Proposal(Record):
    """A kernel to try as a child of node `parent`, with the prior its proposer gives it.

    `kernel` is None where the proposer produced none; `note` then says why.
    """

    id: str
    parent: int
    kernel: Kernel | None
    edit: Edit
    prior: float = 1.0
    idea: Idea | None = None
    kind: ProposalKind = "edit"
    note: str = ""
