"""One GPU, one timer at a time: a lock between the processes and threads of this machine.

Kernels may be checked side by side; while one user times, nobody else is on the device. Whoever
waits to time holds the turnstile, so that a stream of checks cannot keep it waiting.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from ptxsearch.errors import DeviceError

__all__ = ["DeviceLock"]


class DeviceLock:
    """The lock of the GPU `uuid`; the system releases it when its holder dies."""

    def __init__(self, uuid: str) -> None:
        self._threads = threading.RLock()
        self._depth = 0
        self._descriptor = _open(f"ptxsearch-gpu-{uuid}.lock")
        self._turnstile = _open(f"ptxsearch-gpu-{uuid}.turn")

    def idle(self) -> float:
        """Seconds since anybody last used the GPU: at most those since the file was made."""
        return max(0.0, time.time() - os.fstat(self._descriptor).st_mtime)

    @contextlib.contextmanager
    def held(self, *, shared: bool = False) -> Iterator[None]:
        """The lock for the length of a with block; a thread that has it may enter again."""
        with self._threads:
            if self._depth == 0:
                fcntl.flock(self._turnstile, fcntl.LOCK_EX)
                try:
                    fcntl.flock(self._descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
                finally:
                    fcntl.flock(self._turnstile, fcntl.LOCK_UN)
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if self._depth == 0:
                    # A write sets the file's time, which is when the GPU was last in use.
                    os.pwrite(self._descriptor, b"\n", 0)
                    fcntl.flock(self._descriptor, fcntl.LOCK_UN)


def _open(name: str) -> int:
    path = Path(tempfile.gettempdir()) / name
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise DeviceError(
            f"the GPU's lock file cannot be opened: {error}",
            f"make {path} writable, or set TMPDIR",
        ) from error
