"""The parent's side of the child process: start, ask under a watchdog, kill, start again.

A child that dies with a reply due, or says nothing for too long, is a fault of the machine unless
a kernel was running; a kernel that hangs is reported by the child itself, and the watchdog here
is for the case that it cannot.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ptxsearch.errors import DeviceError
from ptxsearch.evaluation import Failure, Fault
from ptxsearch.gpu.channel import Channel, Closed, Reply
from ptxsearch.gpu.driver import Properties

__all__ = ["CUDA_DRIVER", "Child", "Lost"]

CUDA_DRIVER = "ptxsearch.gpu.cuda:CudaDriver"
START_SECONDS = 60.0
_BARE = str(Path(__file__).with_name("bare.py"))
_WORKER = (sys.executable, _BARE, "ptxsearch.gpu.worker")
_ROOT = str(Path(__file__).resolve().parents[2])


class Lost(Exception):
    """The child is gone; `failure` says what to report if trying again does not help."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.failure = Failure(Fault(kind="machine", message=message))


class Child:
    """One running worker process. Start another when `alive` is false."""

    def __init__(self, index: int, *, driver: str = CUDA_DRIVER) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [*_WORKER, str(theirs.fileno()), str(index), driver],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env=_environment(),
            )
        self.channel = Channel(ours)
        self.alive = True
        self.properties: Properties | None = None
        self._finalizer = weakref.finalize(self, _end, self.channel, self.process)

    def introduce(self) -> Properties:
        """What the GPU is. Raises DeviceError where there is none."""
        if self.properties is None:
            reply = self._reply(START_SECONDS)
            if reply.error:
                self.kill()
                raise DeviceError(reply.error)
            self.properties = reply.value
        return self.properties

    def open(self, **opening: Any) -> None:
        """Open the session. Raises DeviceError where the device fails its first probe."""
        self.channel.send(opening)
        reply = self._reply(START_SECONDS)
        if reply.error or reply.value is not True:
            self.kill()
            raise DeviceError(
                f"the GPU failed its health probe: {reply.error or reply.value}",
                "look at nvidia-smi; other processes may hold the device",
            )

    def ask(self, job: str, patience: float, **keywords: Any) -> Any:
        """The value of a job. Raises Lost where the child died or stayed silent too long."""
        try:
            self.channel.send({"job": job, **keywords})
            reply = self._reply(patience)
        except Closed as error:
            code = self.kill()
            raise Lost(f"the GPU process died with code {code} during {job}") from error
        if reply.last:
            self.kill()
        if reply.error:
            raise DeviceError(f"the GPU process failed during {job}: {reply.error}")
        return reply.value

    def _reply(self, timeout: float) -> Reply:
        try:
            reply = self.channel.receive(timeout)
        except TimeoutError as error:
            self.kill()
            raise Lost(f"the GPU process said nothing for {timeout:.0f} s") from error
        assert isinstance(reply, Reply)
        return reply

    def kill(self) -> int | None:
        """End the process at once. Returns its exit code."""
        self.alive = False
        self._finalizer()
        return self.process.returncode


def _environment() -> Mapping[str, str]:
    """The parent's environment; modules load whole, so that no first launch loads code."""
    paths = [_ROOT, *filter(None, [os.environ.get("PYTHONPATH", "")])]
    return {
        **os.environ,
        "CUDA_MODULE_LOADING": "EAGER",
        "PYTHONPATH": os.pathsep.join(paths),
    }


def _end(channel: Channel, process: subprocess.Popen[bytes]) -> None:
    channel.close()
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
    process.wait()
