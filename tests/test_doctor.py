"""The doctor's findings where each part is fine, lacking or in an odd state."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from ptxsearch import doctor
from ptxsearch.doctor import Check, diagnose, to_dict
from ptxsearch.gpu import tool
from ptxsearch.store import SQLiteStore
from ptxsearch.toolchain import find

ROW = "NVIDIA H200, 9.0, {used}, 143771, {load}, 0x{reasons:016x}, {mig}"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(tool, "_PLACES", {})
    return folder


def put(folder: Path, name: str, text: str, code: int = 0) -> None:
    """A program that prints `text`."""
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{text}'\nexit {code}\n")
    path.chmod(0o755)


def only(checks: tuple[Check, ...], part: str) -> Check:
    """The check of one part."""
    (check,) = (check for check in checks if check.part == part)
    return check


def test_every_part_that_is_not_fine_names_its_remedy() -> None:
    """Each line is fine or says what to do."""
    checks = diagnose()
    assert {check.state for check in checks} <= {"ok", "warning", "missing"}
    for check in checks:
        assert check.found
        assert (check.remedy == "") == (check.state == "ok"), check


def test_the_compilers_of_the_wheels_are_fine() -> None:
    """The ptxas and NVRTC beside us are found, with the PTX version to write."""
    checks = diagnose()
    assert only(checks, "ptxas").state == "ok"
    assert f".version {find.machine_toolchain().isa}" in only(checks, "ptxas").found
    assert only(checks, "NVRTC").state == "ok"


def test_the_checks_are_json() -> None:
    """The whole is one JSON object that says whether anything is missing."""
    checks = (Check("a", "ok", "1"), Check("b", "missing", "2", "mend"))
    got = json.loads(json.dumps(to_dict(checks)))
    assert got["ok"] is False
    assert got["checks"][1] == {"part": "b", "state": "missing", "found": "2", "remedy": "mend"}
    assert to_dict(checks[:1])["ok"] is True


@pytest.mark.parametrize(
    ("load", "reasons", "mig", "state", "words"),
    [
        (0, 0x1, "Disabled", "ok", "NVIDIA H200, compute capability 9.0"),
        (97, 0x0, "Disabled", "warning", "busy at 97 %"),
        (0, 0x20, "Disabled", "warning", "software thermal slowdown"),
        (0, 0x48, "N/A", "warning", "hardware slowdown, hardware thermal slowdown"),
        (0, 0x0, "Enabled", "warning", "MIG enabled"),
    ],
)
def test_a_gpu_is_idle_fast_and_whole(
    programs: Path, load: int, reasons: int, mig: str, state: str, words: str
) -> None:
    """A busy, throttled or partitioned GPU is a warning with the reason."""
    put(programs, "nvidia-smi", ROW.format(used=5, load=load, reasons=reasons, mig=mig))
    check = only(diagnose(), "GPU 0")
    assert (check.state, words in check.found) == (state, True)


def test_an_nvidia_smi_that_fails_is_said(programs: Path) -> None:
    """The first line of a failing nvidia-smi is shown."""
    put(programs, "nvidia-smi", "Failed to initialize NVML: Driver/library version mismatch", 18)
    check = only(diagnose(), "GPU")
    assert check.state == "warning"
    assert "version mismatch" in check.found


@pytest.mark.parametrize(
    ("version", "bindings", "state", "remedy"),
    [
        (None, "13.0.3", "warning", "NVIDIA driver"), (11080, "13.0.3", "missing", "525"),
        (12080, "13.0.3", "warning", ".[cu12]"), (12080, "12.9.1", "ok", ""),
        (13000, "13.0.3", "ok", ""),
    ],
)  # fmt: skip
def test_the_driver_and_its_bindings_must_agree(
    version: int | None, bindings: str, state: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that is absent, too old, or older than the bindings has a remedy of its own."""
    monkeypatch.setattr(doctor, "driver_version", lambda: version)
    monkeypatch.setattr(doctor, "_version", lambda name: bindings)
    check = only(diagnose(), "driver")
    assert (check.state, remedy in check.remedy) == (state, True), check


def test_the_profiler_is_found_by_its_version(programs: Path) -> None:
    """Ncu's version is read from what it prints; without it the fallback is named."""
    assert "static facts" in only(diagnose(), "ncu").found
    put(programs, "ncu", "NVIDIA (R) Nsight Compute\nVersion 2025.3.1.0 (build 36398880)")
    assert "2025.3.1.0" in only(diagnose(), "ncu").found


@pytest.mark.parametrize(
    ("text", "user", "state"),
    [
        ("RmProfilingAdminOnly: 1\n", 1000, "missing"), ("RmProfilingAdminOnly: 1\n", 0, "ok"),
        ("RmProfilingAdminOnly: 0\n", 1000, "ok"), (None, 0, "warning"),
    ],
)  # fmt: skip
def test_counter_permission_is_read_from_the_driver(
    text: str | None, user: int, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counters reserved to the administrator are missing to anybody else."""
    path = tmp_path / "params"
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr(doctor, "_PARAMETERS", path)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    check = only(diagnose(), "counters")
    assert check.state == state
    if state == "missing":
        assert "NVreg_RestrictProfilingToAdminUsers=0" in check.remedy


@pytest.fixture
def server() -> Iterator[str]:
    """The address of a server that lists one model to whoever has the key."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            allowed = self.headers.get("Authorization") == "Bearer good"
            self.send_response(200 if allowed else 401)
            self.end_headers()
            self.wfile.write(b'{"data": [{"id": "tiny"}]}' if self.path == "/v1/models" else b"{")

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    listening = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{listening.server_port}"
    listening.shutdown()
    thread.join()
    listening.server_close()


@pytest.mark.parametrize(
    ("path", "key", "model", "state", "words"),
    [
        ("/v1", "good", "", "ok", "1 model"), ("/v1/", "good", "tiny", "ok", "answers"),
        ("/v1", "good", "huge", "missing", "has no huge; it has tiny"),
        ("/v1", "bad", "", "missing", "answered 401"),
        ("/other", "good", "", "missing", "did not answer as an OpenAI server"),
    ],
)  # fmt: skip
def test_the_language_model_is_asked(
    server: str, path: str, key: str, model: str, state: str, words: str
) -> None:
    """The server is reached with the key and must list the model; the key is never shown."""
    environment = {"OPENAI_BASE_URL": server + path, "OPENAI_API_KEY": key}
    check = only(diagnose(environment=environment, model=model), "language model")
    assert (check.state, words in check.found) == (state, True), check
    assert key not in check.found


def test_a_server_that_is_not_there_is_missing() -> None:
    """A refused connection and a non-address are each one line."""
    for address in ("http://127.0.0.1:9", "ftp://somewhere"):
        check = only(diagnose(environment={"OPENAI_BASE_URL": address}), "language model")
        assert check.state == "missing"


def test_a_store_is_examined(tmp_path: Path) -> None:
    """A whole store is fine with its events counted; a damaged or absent one is not."""
    path = tmp_path / "run.db"
    with SQLiteStore(path) as store:
        for number in range(3):
            store.append({"type": "ask", "number": number})
    check = only(diagnose(store=path), "store")
    assert (check.state, "3 events" in check.found) == ("ok", True)
    path.write_bytes(b"SQLite format 3\x00" + b"\xff" * 3000)
    assert only(diagnose(store=path), "store").state == "missing"
    assert "no store at" in only(diagnose(store=tmp_path / "absent"), "store").found


def test_folders_without_room_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is told with the variable that leads elsewhere."""
    usage = type("Usage", (), {"free": 10**6})
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage)
    check = only(diagnose(), "temporary folder")
    assert check.state == "missing"
    assert "TMPDIR" in check.remedy


def test_without_compilers_the_command_that_installs_them_is_given(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No wheel and nothing on PATH: ptxas and NVRTC are missing, each with the same command."""
    monkeypatch.setattr(find, "_wheel_folders", list)
    monkeypatch.setattr(doctor, "machine_toolchain", lambda: find.toolchain_for(None))
    monkeypatch.setattr(
        doctor, "compile_kernel", lambda *_, **__: find.toolchain_for(None).require_nvrtc()
    )
    find.toolchain_for.cache_clear()
    checks = diagnose()
    find.toolchain_for.cache_clear()
    for part in ("ptxas", "NVRTC"):
        assert only(checks, part).state == "missing"
        assert "pip install" in only(checks, part).remedy
