"""What a compilation gives: `Compiled`, or `CompileFailure` that says what its author can mend."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ptxsearch.evaluation import Resources
from ptxsearch.record import Record

FailedAt = Literal["limits", "nvrtc", "ptxas"]


@dataclass(frozen=True)
class CompileFailure(Record):
    """Why there is no cubin. `lines` quotes the source around each error, `log` the compiler.

    `stage` "limits" means that the source, or what compiling it took, is beyond what we allow.
    `language` tells which text the lines are of.
    """

    stage: FailedAt
    message: str
    lines: tuple[str, ...] = ()
    log: str = ""
    language: Literal["cuda", "ptx"] = "cuda"

    @property
    def text(self) -> str:
        """The failure as a model should read it: message, then the quoted lines."""
        return "\n".join((f"{self.stage}: {self.message}", *self.lines))


@dataclass(frozen=True)
class Compiled:
    """PTX, and where there is a ptxas the cubin with the resources of each entry.

    `target` is what was assembled for (`sm_90a` where features ask for it), `seconds` the wall
    time of this call, near zero from the cache.
    """

    ptx: str
    cubin: bytes
    resources: Mapping[str, Resources]
    log: str
    seconds: float
    toolchain: str
    target: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Translated(Record):
    """What NVRTC made of CUDA C++."""

    ptx: str
    log: str = ""


@dataclass(frozen=True)
class Assembled(Record):
    """What ptxas said of a module; its cubin travels beside it."""

    log: str = ""
    resources: Mapping[str, Resources] = field(default_factory=dict)


def pack(record: Translated | Assembled | CompileFailure, blob: bytes = b"") -> bytes:
    """The record and its bytes in one string for the cache."""
    head = {"kind": type(record).__name__, "record": record.to_dict()}
    return json.dumps(head).encode() + b"\n" + blob


def unpack(data: bytes) -> tuple[Translated | Assembled | CompileFailure, bytes]:
    """What `pack` packed."""
    head, _, blob = data.partition(b"\n")
    fields = json.loads(head)
    kinds: Mapping[str, type[Translated] | type[Assembled] | type[CompileFailure]] = {
        kind.__name__: kind for kind in (Translated, Assembled, CompileFailure)
    }
    return kinds[fields["kind"]].from_dict(fields["record"]), blob
