"""Jobs on a GPU's child process: started when needed, given its input sets, replaced when lost."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from typing import Any

from ptxsearch.errors import DeviceError
from ptxsearch.evaluation import Failure
from ptxsearch.gpu.holdings import Held
from ptxsearch.gpu.process import Child, Lost

__all__ = ["Runner"]

SLACK_SECONDS = 60.0
BYTES_PER_SECOND = 100e6


class Runner:
    """The child process of GPU `index`, whichever one lives now.

    `instruments` must be set before the first job. `memory` is the child's budget in bytes,
    `busy` the seconds that jobs have taken so far.
    """

    def __init__(self, index: int, *, driver: str, memory: int) -> None:
        self._index, self._driver, self._memory = index, driver, memory
        self._child = Child(index, driver=driver)
        self.properties = self._child.introduce()
        self.instruments = b""
        self.restarts = 0
        self.busy = 0.0
        self._opened = False
        self._held: dict[int, Held] = {}
        self._seen: set[bytes] = set()

    @property
    def alive(self) -> bool:
        """Whether the child lives."""
        return self._child.alive

    def kill(self) -> None:
        """End the child; the next job starts another."""
        self._child.kill()

    def renew(self, cubins: Sequence[bytes], most: int) -> None:
        """Count kernels by their code; after more than `most` start from a fresh process."""
        self._seen.update(hashlib.sha256(cubin).digest() for cubin in cubins)
        if len(self._seen) > most:
            self.kill()
            self._seen.clear()

    def drop(self, held: Held) -> None:
        """Take an input set off the device, if it is there."""
        if self._held.pop(held.token, None) is not None and self.alive:
            self._child.ask("drop", SLACK_SECONDS, token=held.token)

    def clear(self) -> None:
        """Take every input set off the device."""
        for held in list(self._held.values()):
            self.drop(held)

    def job(self, name: str, sets: Sequence[Held], patience: float, **keywords: Any) -> Any:
        """The value of a job that needs `sets` on the device and should take `patience` seconds.

        It is tried again once where the process died without a reason; then the failure is the
        machine's.
        """
        allowed = patience + SLACK_SECONDS + sum(held.bytes for held in sets) / BYTES_PER_SECOND
        try:
            return self._try(name, sets, allowed, keywords)
        except Lost:
            pass
        try:
            return self._try(name, sets, allowed, keywords)
        except Lost as lost:
            return lost.failure

    def _try(self, name: str, sets: Sequence[Held], allowed: float, keywords: Any) -> Any:
        if not self.alive:
            self._child = Child(self._index, driver=self._driver)
            self._child.introduce()
            self._opened = False
            self.restarts += 1
        if not self._opened:
            self._held.clear()
            self._child.open(cubin=self.instruments, budget=self._memory)
            self._opened = True
        for held in sets:
            if held.token not in self._held:
                self._hold(held, keep={other.token for other in sets})
        started = time.perf_counter()
        try:
            return self._child.ask(name, allowed, **keywords)
        finally:
            self.busy += time.perf_counter() - started

    def _hold(self, held: Held, *, keep: set[int]) -> None:
        """Put a set on the device; the sets that the job does not need make room for it."""
        split = held.split
        message = {
            "token": held.token,
            "label": split.label,
            "arrays": split.arrays,
            "scalars": split.scalars,
            "roles": split.roles,
        }
        allowed = SLACK_SECONDS + held.bytes / BYTES_PER_SECOND
        used = self._child.ask("hold", allowed, **message)
        if isinstance(used, Failure):
            for other in [h for token, h in self._held.items() if token not in keep]:
                self.drop(other)
            used = self._child.ask("hold", allowed, **message)
        if isinstance(used, Failure):
            raise DeviceError(
                f"an input set of {held.bytes} bytes does not fit: {used.message}",
                f"raise the device's memory setting above {self._memory} bytes",
            )
        self._held[held.token] = held
