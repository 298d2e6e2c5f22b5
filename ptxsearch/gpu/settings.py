"""How a device works: what it may take of the machine, and how it samples."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """How a device works: `memory` bytes it may take, input `sets` kept for each workload.

    `recycle` kernels renew its process, `explain` asks compute-sanitizer about crashes. Modules
    and buffers are new after `group` rounds; `placements` copies of as many sets rotate.
    """

    memory: int = 16 << 30
    sets: int = 8
    recycle: int = 50
    explain: bool = True
    group: int = 20
    placements: int = 4
    audit_bytes: int = 64 << 20
    seed: int = 0
