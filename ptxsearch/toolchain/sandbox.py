"""Programs run apart from us under limits, by a child process that forks once a job.

A `Sandbox` starts its child on the first job and again whenever it is gone. It may be used from
any thread, and from a process that was forked after it was made.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ptxsearch.errors import ToolchainError
from ptxsearch.toolchain.fork import renew_after_fork

_ZYGOTE = Path(__file__).with_name("zygote.py")
_PACKET = 1 << 16
_GRACE = 10.0
_ATTEMPTS = 4
_WORDS = "zygote.log"


@dataclass(frozen=True)
class Limits:
    """What one job may use: wall and CPU seconds, bytes of memory and of each file it writes.

    The wall is twice the CPU limit: on a busy machine the same source must meet the same end.
    """

    wall: float = 40.0
    cpu: int = 20
    memory: int = 4 << 30
    output: int = 64 << 20


@dataclass(frozen=True)
class Job:
    """A program to execute, or a `kernel.cu` to compile with NVRTC (`kind` "nvrtc").

    `argv` is the command, or NVRTC's options; `roots` are folders of headers, `headers` more of
    them as text by name.
    """

    kind: str
    argv: Sequence[str]
    roots: Sequence[str] = ()
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """How a job ended: exit code (negative is a signal), whether it was late, what it used."""

    code: int
    late: bool
    cpu: float
    wall: float
    memory: int


class Sandbox:
    """A child that runs jobs under limits; `library` is the NVRTC it loads, if any."""

    def __init__(self, library: Path | None = None) -> None:
        self._library = library
        self._lock = threading.Lock()
        self._child: _Child | None = None
        renew_after_fork(self)

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A fresh folder for one job. Raises ToolchainError where none can be written."""
        try:
            path = Path(tempfile.mkdtemp(prefix="job-", dir=self._ready().root))
            try:
                yield path
            finally:
                shutil.rmtree(path, ignore_errors=True)
        except OSError as error:
            raise ToolchainError(
                f"the compiler's temporary folder or channel cannot be used: {error}",
                "free some space or open files, or set TMPDIR to another disk",
            ) from error

    def run(self, job: Job, folder: Path, limits: Limits) -> Outcome:
        """The outcome of `job` in `folder`. Raises ToolchainError where the child keeps dying."""
        for _ in range(_ATTEMPTS):
            folder.mkdir(exist_ok=True)
            outcome = self._attempt(job, folder, limits)
            if outcome is not None:
                return outcome
        words = self._ready().last_words()
        raise ToolchainError(
            f"the compiler's child process ended {_ATTEMPTS} times in a row: {words}",
            "free some memory and run again, or reinstall the compiler wheels",
        )

    def close(self) -> None:
        """End the child and remove its folders; the next job starts a new one."""
        with self._lock:
            child, self._child = self._child, None
        if child is not None:
            child.end()

    def _ready(self) -> _Child:
        with self._lock:
            if self._child is None:
                self._child = _Child(self._library)
            return self._child

    def _attempt(self, job: Job, folder: Path, limits: Limits) -> Outcome | None:
        child = self._ready()
        request = {
            "kind": job.kind,
            "argv": list(job.argv),
            "roots": list(job.roots),
            "headers": dict(job.headers),
            "folder": str(folder),
            "wall": limits.wall,
            "cpu": limits.cpu,
            "memory": limits.memory,
            "output": limits.output,
        }
        reply = child.ask(json.dumps(request).encode(), limits.wall + _GRACE)
        if reply:
            return Outcome(**json.loads(reply))
        self._discard(child)
        return None

    def _discard(self, child: _Child) -> None:
        """Forget a child that is gone or deaf; its folders stay for the jobs still in them."""
        with self._lock:
            if self._child is child:
                self._child = _Child(self._library, root=child.keep_root())
        child.process.kill()
        child.end()

    def after_fork(self) -> None:
        """Leave the parent's child alone; the next job starts one of our own."""
        self._lock = threading.Lock()
        if self._child is not None:
            self._child.forget()
            self._child = None


class _Child:
    """The running zygote: its control socket and the folder its jobs live in."""

    def __init__(self, library: Path | None, root: str | None = None) -> None:
        self.root = root or tempfile.mkdtemp(prefix="ptxsearch-")
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-I", "-S", str(_ZYGOTE), str(theirs.fileno())]
        with theirs, open(Path(self.root) / _WORDS, "ab") as words:
            self.process = subprocess.Popen(
                [*command, str(library or ""), self.root],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=words,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self._finalizer = weakref.finalize(
            self, _end, self.control, self.process, [self.root], os.getpid()
        )

    def ask(self, request: bytes, timeout: float) -> bytes:
        """The answer to one request; empty when the zygote is gone or deaf."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            ours.settimeout(timeout)
            try:
                with theirs:
                    socket.send_fds(self.control, [request], [theirs.fileno()])
                return ours.recv(_PACKET)
            except OSError:
                return b""

    def last_words(self) -> str:
        """The last line that this zygote or one before it wrote when it failed."""
        lines = (Path(self.root) / _WORDS).read_text(errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "it was killed")

    def keep_root(self) -> str:
        """The folder, which from now on is the caller's to remove."""
        self._finalizer.detach()
        self._finalizer = weakref.finalize(self, _end, self.control, self.process, [], os.getpid())
        return self.root

    def end(self) -> None:
        """Close the control socket, which ends the zygote, and wait for it."""
        self._finalizer()

    def forget(self) -> None:
        """Drop the parent's zygote in a forked copy of the parent."""
        self._finalizer.detach()
        self.control.close()
        self.process.returncode = 0


def _end(
    control: socket.socket, process: subprocess.Popen[bytes], folders: list[str], owner: int
) -> None:
    if os.getpid() != owner:
        return
    control.close()
    try:
        process.wait(timeout=2.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
