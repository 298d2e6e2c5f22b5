"""Framed messages between two processes; big arrays travel as one anonymous shared file.

A frame is a header, the places of the pickle's out-of-band buffers, the numbers of files that
this side no longer looks at, and the pickle. The buffers lie in an arena whose descriptor comes
along, so that a gigabyte never passes the pipe and nothing is left behind when a side dies. Both
sides are this program.
"""

from __future__ import annotations

import copyreg
import io
import os
import pickle
import select
import socket
import struct
import time
import weakref
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxsearch.evaluation import Array
from ptxsearch.gpu.arena import LEAST, Arena, Files, mapped

__all__ = ["Channel", "Closed", "Reply"]

# Bytes of the pickle, places, the file's number (0: not to be released), numbers released.
_HEAD = struct.Struct("<QIQI")
_PLACE = struct.Struct("<QQ")
_NUMBER = struct.Struct("<Q")


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
        self._files = Files()
        self._released: deque[int] = deque()

    def fileno(self) -> int:
        """The descriptor to wait on."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close this end; the other one sees Closed."""
        self._socket.close()

    def arena(self) -> Arena:
        """Where to put the arrays of one message; `send` takes it back."""
        return Arena(self._files)

    def send(self, message: Any, arena: Arena | None = None) -> None:
        """Send one object; its arrays that lie in `arena` are not copied, and `arena` is closed.

        Raises Closed where nobody reads.
        """
        arena = arena or Arena()
        try:
            self._send(message, arena)
        except OSError as error:
            raise Closed(str(error)) from error
        finally:
            arena.close()

    def _send(self, message: Any, arena: Arena) -> None:
        places: list[tuple[int, int]] = []

        def keep(buffer: pickle.PickleBuffer) -> bool:
            raw = buffer.raw()
            if raw.nbytes < LEAST:
                return True
            places.append((arena.put(raw), raw.nbytes))
            return False

        packed = io.BytesIO()
        pickler = pickle.Pickler(packed, protocol=5, buffer_callback=keep)
        pickler.dispatch_table = _TABLE
        pickler.dump(message)
        body = packed.getvalue()
        released = [self._released.popleft() for _ in range(len(self._released))]
        number = arena.lend() if places else 0
        head = _HEAD.pack(len(body), len(places), number, len(released))
        head += b"".join(_PLACE.pack(*place) for place in places)
        head += b"".join(_NUMBER.pack(number) for number in released)
        if places:
            socket.send_fds(self._socket, [head[:1]], [arena.descriptor])
            head = head[1:]
        self._socket.sendall(head + body)

    def receive(self, timeout: float | None = None) -> Any:
        """The next object. Raises TimeoutError after `timeout` seconds, Closed at the end."""
        deadline = None if timeout is None else time.monotonic() + timeout
        first, descriptors = self._first(deadline)
        try:
            head = first + self._exactly(_HEAD.size - 1, deadline)
            length, count, number, released = _HEAD.unpack(head)
            table = self._exactly(_PLACE.size * count, deadline)
            places = [(int(offset), int(size)) for offset, size in _PLACE.iter_unpack(table)]
            table = self._exactly(_NUMBER.size * released, deadline)
            self._files.released(done for (done,) in _NUMBER.iter_unpack(table))
            body = self._exactly(length, deadline)
            buffers: list[memoryview] = []
            if places:
                pages, buffers = mapped(descriptors[0], places)
                if number:
                    told = weakref.finalize(pages, self._released.append, number)
                    told.atexit = False
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


def _reduced(array: Array) -> Any:
    """How an array is pickled: numpy keeps types that are not its own (bf16) in the pickle."""
    if array.dtype.kind == "V" and array.dtype.fields is None:
        return _typed, (array.view(f"u{array.dtype.itemsize}"), array.dtype)
    return array.__reduce_ex__(5)


def _typed(raw: Array, dtype: np.dtype[Any]) -> Array:
    return raw.view(dtype)


_TABLE = {**copyreg.dispatch_table, np.ndarray: _reduced}
