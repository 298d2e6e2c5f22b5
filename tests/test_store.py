"""The store: durable, chained, one writer, clear about what is wrong with a file."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from ptxsearch.errors import StoreError
from ptxsearch.protocols import Store
from ptxsearch.store import MIGRATIONS, MemoryStore, SQLiteStore, on_network_file_system


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_events_and_blobs_come_back(kind: str, tmp_path: Path) -> None:
    """What was appended and put is read back in order and by hash."""
    store = MemoryStore() if kind == "memory" else SQLiteStore(tmp_path / "s")
    assert isinstance(store, Store)
    assert [store.append({"n": n, "x": [1, None, "é"]}) for n in range(3)] == [0, 1, 2]
    sha = store.put(b"kernel")
    assert store.put(b"kernel") == sha
    assert [event["n"] for event in store.events(since=1)] == [1, 2]
    assert store.get(sha) == b"kernel"
    with pytest.raises(StoreError, match="blob"):
        store.get("0" * 64)
    store.close()


def test_reopened_store_goes_on(tmp_path: Path) -> None:
    """Numbers continue over a close and an open."""
    with SQLiteStore(tmp_path / "s") as store:
        store.append({"a": 1})
    with SQLiteStore(tmp_path / "s") as store:
        assert store.append({"a": 2}) == 1
        assert [event["a"] for event in store.events()] == [1, 2]


def test_two_writers_are_refused(tmp_path: Path) -> None:
    """A second process gets one clear error while the first writes."""
    with SQLiteStore(tmp_path / "s") as store:
        store.append({"a": 1})
        script = (
            "import sys\nfrom ptxsearch.store import SQLiteStore\n"
            "from ptxsearch.errors import StoreError\n"
            f"try: SQLiteStore({str(tmp_path / 's')!r})\n"
            "except StoreError as e: print(e); sys.exit(7)\n"
        )
        other = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=False
        )
    assert other.returncode == 7, other.stderr
    assert "another process writes" in other.stdout


def test_reader_beside_a_writer(tmp_path: Path) -> None:
    """A read-only store sees what is committed while the writer is open, and cannot append."""
    with SQLiteStore(tmp_path / "s") as store:
        store.append({"a": 1})
        with SQLiteStore(tmp_path / "s", read_only=True) as reader:
            assert len(list(reader.events())) == 1
            with pytest.raises(StoreError, match="read only"):
                reader.append({"a": 2})


def test_edited_event_is_found(tmp_path: Path) -> None:
    """A changed event breaks the hash chain and is named."""
    with SQLiteStore(tmp_path / "s") as store:
        for number in range(5):
            store.append({"n": number})
    with sqlite3.connect(tmp_path / "s") as raw:
        raw.execute("UPDATE event SET body = ? WHERE number = 2", (json.dumps({"n": 9}),))
    with pytest.raises(StoreError, match="corrupt at event 2"):
        SQLiteStore(tmp_path / "s")


def test_missing_event_is_found(tmp_path: Path) -> None:
    """A hole in the middle is told from a cut tail."""
    with SQLiteStore(tmp_path / "s") as store:
        for number in range(5):
            store.append({"n": number})
    with sqlite3.connect(tmp_path / "s") as raw:
        raw.execute("DELETE FROM event WHERE number = 2")
    with pytest.raises(StoreError, match="corrupt at event 2"):
        SQLiteStore(tmp_path / "s")


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"\x00garbage" * 500, "no store or is corrupt"), (b"text\n", "no store or is corrupt")],
)
def test_garbage_is_no_store(tmp_path: Path, content: bytes, message: str) -> None:
    """A file of another kind gives one clear error and is left as it is."""
    path = tmp_path / "s"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=message):
        SQLiteStore(path)
    assert path.read_bytes() == content


def test_foreign_database_is_refused(tmp_path: Path) -> None:
    """A database of another program is not written to."""
    with sqlite3.connect(tmp_path / "s") as raw:
        raw.execute("CREATE TABLE mine (x)")
    with pytest.raises(StoreError, match="another program"):
        SQLiteStore(tmp_path / "s")


def test_newer_store_is_refused(tmp_path: Path) -> None:
    """A store of a later version says so."""
    SQLiteStore(tmp_path / "s").close()
    with sqlite3.connect(tmp_path / "s") as raw:
        raw.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    with pytest.raises(StoreError, match="newer than"):
        SQLiteStore(tmp_path / "s")


def test_unwritable_folder(tmp_path: Path) -> None:
    """A path below a file cannot be written."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="cannot be written"):
        SQLiteStore(tmp_path / "file" / "s")


def test_missing_store_to_read(tmp_path: Path) -> None:
    """Reading needs a store that is there."""
    with pytest.raises(StoreError, match="no store at"):
        SQLiteStore(tmp_path / "none", read_only=True)


def test_full_disk_loses_nothing(tmp_path: Path) -> None:
    """An append that does not fit raises, and everything before it is still there."""
    store = SQLiteStore(tmp_path / "s")
    store.append({"a": 1})
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages + 2}")

    def fill() -> None:
        for _ in range(100):
            store.append({"filler": "x" * 4000})

    with pytest.raises(StoreError, match="no space left"):
        fill()
    count = len(list(store.events()))
    store.close()
    with SQLiteStore(tmp_path / "s") as again:
        assert len(list(again.events())) == count >= 1
        again.append({"a": 2})


def test_killed_writer_loses_no_committed_event(tmp_path: Path) -> None:
    """Killing it between events leaves all that were reported, and the lock is free."""
    path = tmp_path / "s"
    script = (
        "import sys, time\nfrom ptxsearch.store import SQLiteStore\n"
        f"s = SQLiteStore({str(path)!r})\n"
        "while True:\n print(s.append({'n': 1}), flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as p:
        assert p.stdout is not None
        seen = 0
        while seen < 200:
            seen = int(p.stdout.readline())
        os.kill(p.pid, signal.SIGKILL)
        last = [int(line) for line in p.stdout.read().split("\n")[:-1] if line]
    with SQLiteStore(path) as store:
        assert len(list(store.events())) >= max([seen, *last]) + 1
        store.append({"n": 2})


def test_copy_of_a_running_store_is_a_store(tmp_path: Path) -> None:
    """The file and its write-ahead log copied while the writer runs hold a valid prefix."""
    with SQLiteStore(tmp_path / "s") as store:
        for number in range(50):
            store.append({"n": number})
        for path in tmp_path.glob("s*"):
            if not path.name.endswith((".lock", "-shm")):
                shutil.copy(path, tmp_path / path.name.replace("s", "copy", 1))
    with SQLiteStore(tmp_path / "copy") as copy:
        numbers = [event["n"] for event in copy.events()]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) == 50


def test_network_file_systems_are_recognised(tmp_path: Path) -> None:
    """The longest mount that holds the path decides."""
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/a / ext4 rw 0 0\nserver:/x /home nfs4 rw 0 0\n/dev/b /home/fast xfs 0 0\n"
    )
    assert on_network_file_system(Path("/home/user/s"), str(mounts))
    assert not on_network_file_system(Path("/home/fast/s"), str(mounts))
    assert not on_network_file_system(Path("/tmp/s"), str(mounts))
