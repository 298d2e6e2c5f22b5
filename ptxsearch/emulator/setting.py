"""The shape and the bounds of a launch."""

from __future__ import annotations

from dataclasses import dataclass

from ptxsearch.emulator.operation import Array
from ptxsearch.emulator.report import Triple


@dataclass(frozen=True, slots=True)
class Setting:
    """How an entry is launched: `blocks` are the linear numbers of those that run, `deadline` the
    reading of `time.monotonic` at which the launch is given up, if any.
    """

    grid: Triple
    block: Triple
    dynamic_shared: int
    max_steps: int
    checks: bool
    blocks: range | Array
    deadline: float | None = None
    number: int = 1

    @property
    def whole(self) -> bool:
        """Whether every block of the grid runs."""
        return len(self.blocks) == self.grid[0] * self.grid[1] * self.grid[2]
