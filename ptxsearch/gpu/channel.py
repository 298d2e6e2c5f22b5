"""Framed messages between two processes; big arrays travel as one anonymous shared file.

A frame is a header (bytes of the pickle, sizes of its out-of-band buffers) and the pickle. The
buffers lie in a memfd whose descriptor comes along, so a gigabyte is copied once and never
through the pipe, and nothing is left behind when a side dies. Both sides are this program.
"""

from __future__ import annotations

import mmap
import os
import pickle
import select
import socket
import struct
import time
from dataclasses import dataclass
from typing import Any

__all__ = ["Channel", "Closed", "Reply"]

_HEAD = struct.Struct("<QI")
_SIZE = struct.Struct("<Q")
_INLINE = 4096
_ALIGN = 64


@dataclass(frozen=True)
class Reply:
    """The answer to a job: `value`, or `error` where the answering program itself failed.

    `last` says that its process ends after it, because the context is lost.
    """

    value: Any = None
    error: str = ""
    last: bool = False


class Closed(ConnectionError):
    """The other side is gone."""


class Channel:
    """One end of a connected stream socket that carries objects."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def fileno(self) -> int:
        """The descriptor to wait on."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close this end; the other one sees Closed."""
        self._socket.close()

    def send(self, message: Any) -> None:
        """Send one object. Raises Closed where nobody reads."""
        buffers: list[memoryview] = []

        def keep(buffer: pickle.PickleBuffer) -> bool:
            raw = buffer.raw()
            if raw.nbytes < _INLINE:
                return True
            buffers.append(raw)
            return False

        body = pickle.dumps(message, protocol=5, buffer_callback=keep)
        sizes = b"".join(_SIZE.pack(buffer.nbytes) for buffer in buffers)
        head = _HEAD.pack(len(body), len(buffers)) + sizes
        try:
            if buffers:
                descriptor = _shared(buffers)
                try:
                    socket.send_fds(self._socket, [head[:1]], [descriptor])
                finally:
                    os.close(descriptor)
                head = head[1:]
            self._socket.sendall(head + body)
        except OSError as error:
            raise Closed(str(error)) from error

    def receive(self, timeout: float | None = None) -> Any:
        """The next object. Raises TimeoutError after `timeout` seconds, Closed at the end."""
        deadline = None if timeout is None else time.monotonic() + timeout
        first, descriptors = self._first(deadline)
        try:
            head = first + self._exactly(_HEAD.size - 1, deadline)
            length, count = _HEAD.unpack(head)
            sizes = [_SIZE.unpack(self._exactly(8, deadline))[0] for _ in range(count)]
            body = self._exactly(length, deadline)
            buffers = _buffers(descriptors[0], sizes) if count else []
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return pickle.loads(body, buffers=buffers)

    def _first(self, deadline: float | None) -> tuple[bytes, list[int]]:
        self._await(deadline)
        try:
            first, descriptors, _, _ = socket.recv_fds(self._socket, 1, 1)
        except OSError as error:
            raise Closed(str(error)) from error
        if not first:
            raise Closed("the other side closed the channel")
        return first, descriptors

    def _exactly(self, size: int, deadline: float | None) -> bytes:
        parts = bytearray(size)
        view, filled = memoryview(parts), 0
        while filled < size:
            self._await(deadline)
            try:
                got = self._socket.recv_into(view[filled:])
            except OSError as error:
                raise Closed(str(error)) from error
            if not got:
                raise Closed("the other side closed the channel in the middle of a message")
            filled += got
        return bytes(parts)

    def _await(self, deadline: float | None) -> None:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        try:
            ready = select.select([self._socket], [], [], left)[0]
        except ValueError as error:
            raise Closed("this end is closed") from error
        if not ready:
            raise TimeoutError("no answer in time")


def _padded(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def _shared(buffers: list[memoryview]) -> int:
    """A memfd that holds the buffers one after the other, each at a multiple of 64 bytes."""
    descriptor = os.memfd_create("ptxsearch", os.MFD_CLOEXEC)
    os.ftruncate(descriptor, sum(_padded(buffer.nbytes) for buffer in buffers))
    offset = 0
    for buffer in buffers:
        done = 0
        flat = buffer.cast("B") if buffer.format != "B" or buffer.ndim != 1 else buffer
        while done < flat.nbytes:
            done += os.pwrite(descriptor, flat[done : done + (1 << 30)], offset + done)
        offset += _padded(buffer.nbytes)
    return descriptor


def _buffers(descriptor: int, sizes: list[int]) -> list[memoryview]:
    """The buffers of a memfd, mapped copy-on-write: the receiver may write to its own."""
    total = sum(_padded(size) for size in sizes)
    mapped = memoryview(mmap.mmap(descriptor, total, mmap.MAP_PRIVATE))
    views, offset = [], 0
    for size in sizes:
        views.append(mapped[offset : offset + size])
        offset += _padded(size)
    return views
