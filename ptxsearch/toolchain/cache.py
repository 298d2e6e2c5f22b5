"""What was compiled before, by a hash of everything that goes in: in memory, and in a folder.

An entry on disk carries the hash of its own bytes; one that was cut or altered is not there. A
folder that cannot be written is no error: the cache then forgets at the end of the process.
"""

from __future__ import annotations

import hashlib
import os
import threading
import zlib
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from ptxsearch.toolchain.fork import renew_after_fork

_MAGIC = b"ptxsearch-compiled-1\n"
_DIGEST = 32
_WRITES_A_TRIM = 500


def key(*parts: str) -> str:
    """The name of what `parts` produce; no two lists of parts share one."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(f"{len(data)}:".encode() + data)
    return digest.hexdigest()


def cache_folder(environment: Mapping[str, str]) -> Path:
    """The folder that the XDG rules give the compile cache of this user."""
    base = environment.get("XDG_CACHE_HOME", "")
    home = Path(environment.get("HOME", "") or Path.home())
    root = Path(base) if base.startswith("/") else home / ".cache"
    return root / "ptxsearch" / "compiled"


class Cache:
    """Bytes by key: the most recently used in memory, up to `memory_bytes`, and in `folder`.

    When the folder holds more than `folder_bytes` the entries written longest ago go.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        memory_bytes: int = 128 << 20,
        folder_bytes: int = 1 << 30,
    ) -> None:
        self.folder = folder
        self._folder_limit = folder_bytes
        self._until_trim = 1
        self._limit = memory_bytes
        self._lock = threading.Lock()
        self._held: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Forget what is in memory: another thread may have been changing it."""
        self._lock = threading.Lock()
        self._held, self._size = OrderedDict(), 0

    def get(self, name: str) -> bytes | None:
        """The bytes put under `name`; None where there are none or they are damaged."""
        with self._lock:
            if name in self._held:
                self._held.move_to_end(name)
                return self._held[name]
        data = self._read(name)
        if data is not None:
            self._hold(name, data)
        return data

    def put(self, name: str, data: bytes, *, lasting: bool = True) -> None:
        """Keep `data` under `name`; on disk too where `lasting`."""
        self._hold(name, data)
        if lasting and self.folder is not None:
            with suppress(OSError):
                self._write(self._path(name), data)
                self._until_trim -= 1
                if self._until_trim <= 0:
                    self._until_trim = _WRITES_A_TRIM
                    self._trim(self.folder)

    def _hold(self, name: str, data: bytes) -> None:
        with self._lock:
            self._size += len(data) - len(self._held.pop(name, b""))
            self._held[name] = data
            while self._size > self._limit and len(self._held) > 1:
                self._size -= len(self._held.popitem(last=False)[1])

    def _trim(self, folder: Path) -> None:
        """Delete the oldest entries until the folder is three quarters full, if it is too full."""
        found = []
        for path in folder.glob("??/*"):
            with suppress(FileNotFoundError):
                state = path.stat()
                found.append((state.st_mtime, state.st_size, path))
        size = sum(entry[1] for entry in found)
        if size <= self._folder_limit:
            return
        for _, bytes_, path in sorted(found, key=lambda entry: entry[0]):
            if size <= self._folder_limit * 3 // 4:
                break
            path.unlink(missing_ok=True)
            size -= bytes_

    def _path(self, name: str) -> Path:
        assert self.folder is not None
        return self.folder / name[:2] / name[2:]

    def _read(self, name: str) -> bytes | None:
        if self.folder is None:
            return None
        try:
            raw = self._path(name).read_bytes()
        except OSError:
            return None
        body = raw[len(_MAGIC) + _DIGEST :]
        if not raw.startswith(_MAGIC):
            return None
        if hashlib.sha256(body).digest() != raw[len(_MAGIC) : len(_MAGIC) + _DIGEST]:
            return None
        try:
            return zlib.decompress(body)
        except zlib.error:
            return None

    def _write(self, path: Path, data: bytes) -> None:
        body = zlib.compress(data, 1)
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=path.parent, prefix=".new-", delete=False) as file:
            try:
                file.write(_MAGIC + hashlib.sha256(body).digest() + body)
                file.flush()
                os.replace(file.name, path)
            except OSError:
                os.unlink(file.name)
                raise
