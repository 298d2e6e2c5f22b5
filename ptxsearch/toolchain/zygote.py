"""The child program that compiles: it forks once a request and bounds what each fork may use.

Run by path with `python -I`, standard library only, one thread. A request is one packet on the
control socket: JSON with the job and, beside it, the socket that takes the answer. The fork gets
its own session, dies with this process, and is held to memory, CPU, file size and wall limits.
The end of the control socket (the parent went away in whatever manner) ends everything.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import resource
import selectors
import shutil
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PACKET = 1 << 16
PR_SET_PDEATHSIG = 1
INTERNAL_FAULT = 120
INCLUDE = re.compile(rb"^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"\n]+)[>\"]", re.MULTILINE)


@dataclass
class Child:
    """A running fork: where its answer goes and when it must have ended."""

    answer: socket.socket
    started: float
    deadline: float
    late: bool = False


def bound(job: dict[str, Any], parent: int) -> None:
    """Hold this process to the job's limits, in a session of its own that dies with `parent`."""
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(INTERNAL_FAULT)
    for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    limits = {
        resource.RLIMIT_AS: job["memory"],
        resource.RLIMIT_CPU: job["cpu"],
        resource.RLIMIT_FSIZE: job["output"],
        resource.RLIMIT_CORE: 0,
    }
    for limit, wanted in limits.items():
        hard = resource.getrlimit(limit)[1]
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(limit, (allowed, allowed))


def redirect(folder: Path) -> None:
    """Read nothing, and send standard output and error to the job's log."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.closerange(3, 64)


def headers(source: bytes, roots: list[str]) -> dict[str, bytes]:
    """The headers that `source` may reach below `roots`, by every name they are included as."""
    found: dict[str, bytes] = {}
    waiting = [(name, "") for name in INCLUDE.findall(source)]
    while waiting:
        raw, folder = waiting.pop()
        name = raw.decode("utf-8", "replace")
        for spelled in (os.path.normpath(os.path.join(folder, name)), os.path.normpath(name)):
            path = next(
                (p for root in roots if os.path.isfile(p := os.path.join(root, spelled))), None
            )
            if path is None or spelled.startswith(("..", "/")):
                continue
            if name not in found or spelled not in found:
                found[name] = found[spelled] = Path(path).read_bytes()
                waiting += [
                    (inner, os.path.dirname(spelled)) for inner in INCLUDE.findall(found[name])
                ]
            break
    return found


class Nvrtc:
    """The NVRTC library at a path, with its built-in functions loaded beforehand."""

    def __init__(self, path: Path) -> None:
        for builtins in sorted(path.parent.glob("libnvrtc-builtins.so.*")):
            ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
        self.library = ctypes.CDLL(str(path))
        self.compile(b"", [], {})

    def compile(
        self, source: bytes, options: list[str], included: dict[str, bytes]
    ) -> tuple[int, bytes, bytes]:
        """(NVRTC's result code, PTX, log) of one translation unit."""
        lib, program = self.library, ctypes.c_void_p()
        names = (ctypes.c_char_p * len(included))(*(name.encode() for name in included))
        bodies = (ctypes.c_char_p * len(included))(*included.values())
        code = lib.nvrtcCreateProgram(
            ctypes.byref(program), source, b"kernel.cu", len(included), bodies, names
        )
        if code:
            return code, b"", b"nvrtcCreateProgram failed"
        flags = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        code = lib.nvrtcCompileProgram(program, len(options), flags)
        log = self._text(program, "ProgramLog")
        ptx = b"" if code else self._text(program, "PTX")
        lib.nvrtcDestroyProgram(ctypes.byref(program))
        return code, ptx, log

    def _text(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        getattr(self.library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        getattr(self.library, f"nvrtcGet{what}")(program, text)
        return text.value


def compile_cuda(nvrtc: Nvrtc, job: dict[str, Any], folder: Path) -> int:
    """The exit status of compiling `kernel.cu` in `folder` to `kernel.ptx` and `log`.

    Every file is open before the compiler sees the source, and no other can be opened: whatever
    the preprocessor is talked into, it reads nothing but the headers it was handed.
    """
    source = (folder / "kernel.cu").read_bytes()
    included = headers(source, job["roots"])
    included |= {name: text.encode() for name, text in job["headers"].items()}
    with (folder / "kernel.ptx").open("wb") as ptx, (folder / "log").open("ab") as log:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
        code, text, messages = nvrtc.compile(source, job["argv"], included)
        ptx.write(text)
        log.write(messages)
    return 1 if code else 0


class Zygote:
    """The loop: take requests, fork, watch deadlines, answer when a fork has ended."""

    def __init__(self, control: socket.socket, nvrtc: Nvrtc | None) -> None:
        self.control, self.nvrtc = control, nvrtc
        self.children: dict[int, Child] = {}
        self.selector = selectors.DefaultSelector()
        woken, self.wake = socket.socketpair()
        woken.setblocking(False)
        self.wake.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.wake.fileno())
        self.woken = woken
        self.selector.register(control, selectors.EVENT_READ)
        self.selector.register(woken, selectors.EVENT_READ)

    def serve(self) -> None:
        """Run until the parent closes the control socket."""
        while True:
            now = time.monotonic()
            deadlines = [child.deadline for child in self.children.values()]
            wait = max(0.0, min(deadlines) - now) if deadlines else None
            for key, _ in self.selector.select(wait):
                if key.fileobj is self.woken:
                    self.woken.recv(PACKET)
                elif not self.accept():
                    return
            self.enforce()
            self.reap()

    def accept(self) -> bool:
        """Start the next request; False when the parent is gone."""
        packet, fds, _, _ = socket.recv_fds(self.control, PACKET, 1)
        if not packet:
            return False
        answer = socket.socket(fileno=fds[0])
        answer.set_inheritable(False)
        job = json.loads(packet)
        parent, started = os.getpid(), time.monotonic()
        pid = os.fork()
        if pid == 0:
            self.work(job, parent)
        self.children[pid] = Child(answer, started, started + job["wall"])
        return True

    def work(self, job: dict[str, Any], parent: int) -> None:
        """Do one job in this fork and leave; never returns."""
        status = INTERNAL_FAULT
        try:
            signal.set_wakeup_fd(-1)
            bound(job, parent)
            folder = Path(job["folder"])
            os.chdir(folder)
            redirect(folder)
            if job["kind"] == "exec":
                os.execve(job["argv"][0], job["argv"], {"LC_ALL": "C", "TMPDIR": str(folder)})
            elif self.nvrtc is not None:
                status = compile_cuda(self.nvrtc, job, folder)
        except (OSError, MemoryError, ValueError) as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(status)

    def enforce(self) -> None:
        """Kill the session of every fork that is past its deadline."""
        now = time.monotonic()
        for pid, child in self.children.items():
            if now >= child.deadline:
                child.late, child.deadline = True, now + 1.0
                kill(pid)

    def reap(self) -> None:
        """Answer for every fork that has ended."""
        for pid in list(self.children):
            ended, status, usage = os.wait4(pid, os.WNOHANG)
            if not ended:
                continue
            child = self.children.pop(pid)
            answer = {
                "code": os.waitstatus_to_exitcode(status),
                "late": child.late,
                "cpu": usage.ru_utime + usage.ru_stime,
                "wall": time.monotonic() - child.started,
                "memory": usage.ru_maxrss * 1024,
            }
            with suppress(OSError):
                child.answer.send(json.dumps(answer).encode())
            child.answer.close()


def kill(pid: int) -> None:
    """Kill the process and its session, whichever of them still exist."""
    for end in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            end(pid, signal.SIGKILL)


def main(control: int, library: str, root: str) -> None:
    """Serve requests that arrive on file descriptor `control`; `root` is removed at the end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = socket.socket(fileno=control)
    channel.set_inheritable(False)
    zygote = Zygote(channel, Nvrtc(Path(library)) if library else None)
    try:
        zygote.serve()
    finally:
        for pid in zygote.children:
            kill(pid)
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
