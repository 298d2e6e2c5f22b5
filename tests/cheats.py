"""Kernels that cheat and honest ones that look odd, with the statuses a pipeline may answer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ptxsearch.kernel import Kernel
from ptxsearch.kernelfile import read_kernel

FOLDER = Path(__file__).parent / "data" / "cheats"


@dataclass(frozen=True)
class Cheat:
    """A labelled kernel for a bundled task; `row` is the kind of cheat, 0 where it is honest."""

    name: str
    task: str
    kernel: Kernel
    statuses: frozenset[str]
    why: str
    row: int = 0

    @property
    def honest(self) -> bool:
        """Whether it must pass."""
        return self.row == 0


def cheats() -> tuple[Cheat, ...]:
    """Every labelled kernel, cheats first."""
    labels = json.loads((FOLDER / "labels.json").read_text(encoding="utf-8"))
    return tuple(
        Cheat(
            name=name,
            task=label["task"],
            kernel=read_kernel(FOLDER / f"{name}.cu"),
            statuses=frozenset(label["statuses"]),
            why=label["why"],
            row=label.get("row", 0),
        )
        for group in ("cheats", "honest")
        for name, label in labels[group].items()
    )
