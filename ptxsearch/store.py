"""The journal of a run: append-only, hash-chained events and a table of blobs, in SQLite.

One writer, any number of read-only readers. Every event carries the sha256 of the one before it,
so a journal that was edited or lost its middle is told from one whose tail was cut by a crash.
`MemoryStore` keeps the same promises in memory.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from ptxsearch.errors import StoreError, UsageError

FIRST_HASH = "0" * 64
_NETWORK_FILE_SYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "afs",
                                   "beegfs", "ceph", "fuse.sshfs", "9p"})  # fmt: skip
# Each entry takes the store from the version before it; never edit one that has shipped.
MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE event (
        number INTEGER PRIMARY KEY, body TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL
    );
    CREATE TABLE blob (sha TEXT PRIMARY KEY, body BLOB NOT NULL);
    """,
)


def chain(previous: str, body: str) -> str:
    """The hash of an event from its predecessor's and its canonical JSON."""
    return hashlib.sha256((previous + body).encode()).hexdigest()


def canonical(event: Mapping[str, Any]) -> str:
    """The JSON text of an event; keys keep their order, as a space's parameters are ordered."""
    try:
        return json.dumps(event, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise UsageError(
            f"a {event.get('type', 'nameless')} event holds a number that is not finite",
            "write None where there is none",
        ) from error


class MemoryStore:
    """A store that ends with the process."""

    def __init__(self) -> None:
        self._events: list[str] = []
        self._blobs: dict[str, bytes] = {}

    def append(self, event: Mapping[str, Any]) -> int:
        """The number of the event, from 0."""
        self._events.append(canonical(event))
        return len(self._events) - 1

    def events(self, since: int = 0) -> Iterator[Mapping[str, Any]]:
        """The events numbered `since` and up, in order."""
        for body in self._events[since:]:
            yield json.loads(body)

    def put(self, blob: bytes) -> str:
        """The sha256 under which `get` returns it."""
        sha = hashlib.sha256(blob).hexdigest()
        self._blobs[sha] = blob
        return sha

    def get(self, sha: str) -> bytes:
        """The blob. Raises StoreError where there is none."""
        if sha not in self._blobs:
            raise StoreError(f"no blob {sha[:12]}", "use the store that the run was written to")
        return self._blobs[sha]

    def close(self) -> None:
        """Nothing to release."""


class SQLiteStore:
    """A store in one file. `read_only` opens it beside a writer.

    Raises StoreError where the path cannot be written, another process writes to it, it is no
    store, it is newer than this version, or its hash chain is broken.
    """

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False) -> None:
        self.path = Path(path)
        self.read_only = read_only
        self._lock: IO[bytes] | None = None
        self._last: tuple[int, str] = (-1, FIRST_HASH)
        if not self.path.name or self.path.is_dir():
            raise StoreError(f"{self.path} is a folder", "give the path of a file")
        if read_only and not self.path.is_file():
            raise StoreError(f"no store at {self.path}", "give the path of an existing store")
        if not read_only:
            self._lock = _lock(self.path)
        try:
            self._connection = self._open()
            self._migrate()
            self._last = self._verify()
        except sqlite3.DatabaseError as error:
            self.close()
            raise _explain(error, self.path) from error
        except StoreError:
            self.close()
            raise

    def _open(self) -> sqlite3.Connection:
        if self.read_only:
            connection = sqlite3.connect(
                f"{self.path.absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False
            )
        else:
            connection = sqlite3.connect(
                self.path, isolation_level=None, check_same_thread=False, timeout=10
            )
            journal = "DELETE" if on_network_file_system(self.path) else "WAL"
            connection.execute(f"PRAGMA journal_mode={journal}")
            connection.execute(f"PRAGMA synchronous={'FULL' if journal == 'DELETE' else 'NORMAL'}")
        return connection

    def _migrate(self) -> None:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version > len(MIGRATIONS):
            raise StoreError(
                f"{self.path} has store version {version}, newer than {len(MIGRATIONS)}",
                "upgrade ptxsearch to read it",
            )
        tables = {row[0] for row in self._connection.execute("SELECT name FROM sqlite_master")}
        if version == 0 and tables:
            raise StoreError(f"{self.path} is a database of another program", "choose another path")
        if self.read_only:
            if version == 0:
                raise StoreError(f"{self.path} is an empty store", "start a run with --store first")
            return
        for number in range(version, len(MIGRATIONS)):
            self._connection.executescript(
                f"BEGIN; {MIGRATIONS[number]} PRAGMA user_version={number + 1}; COMMIT;"
            )

    def _verify(self) -> tuple[int, str]:
        number, last = -1, FIRST_HASH
        rows = self._connection.execute(
            "SELECT number, body, previous, hash FROM event ORDER BY number"
        )
        for found, body, previous, hashed in rows:
            if found != number + 1 or previous != last or chain(previous, body) != hashed:
                raise StoreError(
                    f"{self.path} is corrupt at event {number + 1}: its hash chain is broken",
                    "restore a copy; `ptxsearch doctor --store` says what is left",
                )
            number, last = found, hashed
        return number, last

    def append(self, event: Mapping[str, Any]) -> int:
        """The number of the event, once it is durable. Raises StoreError where it is not."""
        if self.read_only:
            raise StoreError(f"{self.path} is open to read only", "open it without read_only")
        number, last = self._last
        body = canonical(event)
        hashed = chain(last, body)
        try:
            self._connection.execute(
                "INSERT INTO event VALUES (?, ?, ?, ?)", (number + 1, body, last, hashed)
            )
        except sqlite3.DatabaseError as error:
            raise _explain(error, self.path) from error
        self._last = (number + 1, hashed)
        return number + 1

    def events(self, since: int = 0) -> Iterator[Mapping[str, Any]]:
        """The events numbered `since` and up, in order."""
        rows = self._connection.execute(
            "SELECT body FROM event WHERE number >= ? ORDER BY number", (since,)
        )
        for (body,) in rows:
            yield json.loads(body)

    def put(self, blob: bytes) -> str:
        """The sha256 under which `get` returns it."""
        sha = hashlib.sha256(blob).hexdigest()
        try:
            self._connection.execute("INSERT OR IGNORE INTO blob VALUES (?, ?)", (sha, blob))
        except sqlite3.DatabaseError as error:
            raise _explain(error, self.path) from error
        return sha

    def get(self, sha: str) -> bytes:
        """The blob. Raises StoreError where there is none or it does not match its hash."""
        row = self._connection.execute("SELECT body FROM blob WHERE sha = ?", (sha,)).fetchone()
        if row is None or hashlib.sha256(row[0]).hexdigest() != sha:
            raise StoreError(
                f"blob {sha[:12]} of {self.path} is missing or damaged", "restore a copy"
            )
        return bytes(row[0])

    def close(self) -> None:
        """Release the file; safe to call twice."""
        if hasattr(self, "_connection"):
            self._connection.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> SQLiteStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _lock(path: Path) -> IO[bytes]:
    """The store's lock file, held until closed (the kernel releases it when a process dies)."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = open(path.with_name(path.name + ".lock"), "ab")  # noqa: SIM115
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written ({error.strerror})", "choose a folder you may write to"
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        handle.close()
        raise StoreError(
            f"another process writes to {path}", "wait for it to end, or choose another store"
        ) from error
    return handle


def on_network_file_system(path: Path, mounts: str = "/proc/mounts") -> bool:
    """Whether `path` lies on a file system where shared memory between hosts does not work."""
    try:
        lines = Path(mounts).read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    target = str(path.absolute().parent)
    best, kind = "", ""
    for line in lines:
        fields = line.split()
        if len(fields) < 3:
            continue
        mount = fields[1].replace("\\040", " ")
        inside = target == mount or target.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, fields[2]
    return kind in _NETWORK_FILE_SYSTEMS


def _explain(error: sqlite3.DatabaseError, path: Path) -> StoreError:
    text = str(error)
    if "full" in text:
        return StoreError(
            f"no space left to write {path}", "free some space, then resume with the same store"
        )
    if "readonly" in text or "unable to open" in text or "permission" in text:
        return StoreError(f"{path} cannot be written ({text})", "choose a path you may write to")
    if "not a database" in text or "malformed" in text or "no such" in text:
        return StoreError(f"{path} is no store or is corrupt ({text})", "restore a copy of it")
    if "locked" in text or "busy" in text:
        return StoreError(f"another process holds {path} ({text})", "wait for it to end")
    return StoreError(f"{path} failed ({text})", "check the disk, then resume with the same store")
