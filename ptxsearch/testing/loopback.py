"""An OpenAI-compatible server on the loopback interface that plays a script."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

Body = Mapping[str, Any]


@dataclass(frozen=True)
class Answer:
    """One HTTP answer: a completion's `text`, or an error where `status` is not 200.

    `raw` replaces the body, `delay` seconds pass before it, `drop` cuts the connection instead.
    `usage` is what the body reports as usage (None: nothing), `error` the error object's fields.
    """

    text: str = ""
    status: int = 200
    finish: str = "stop"
    usage: Body | None = field(
        default_factory=lambda: {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    )
    headers: Mapping[str, str] = field(default_factory=dict)
    error: Body = field(default_factory=dict)
    raw: bytes | None = None
    delay: float = 0.0
    drop: bool = False


class Loopback:
    """Plays `script` in order to whoever asks, then `default`; keeps every request in `requests`.

    A script entry may also be a function of the request's body. Use it as a context manager; `url`
    is the base URL for a client.
    """

    def __init__(
        self,
        script: Sequence[Answer | str | Callable[[Body], Answer]] = (),
        *,
        default: Answer | str | Callable[[Body], Answer] = "",
        models: Sequence[str] = ("test-model",),
    ) -> None:
        self.requests: list[tuple[str, Body]] = []
        self.models = tuple(models)
        self._script, self._default = list(script), default
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.loopback = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        """The base URL, such as http://127.0.0.1:43210/v1."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Loopback:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def next_answer(self, path: str, body: Body) -> Answer:
        """The script's answer to a request, which is kept."""
        with self._lock:
            self.requests.append((path, body))
            entry = self._script.pop(0) if self._script else self._default
        if callable(entry):
            return entry(body)
        return Answer(entry) if isinstance(entry, str) else entry


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    loopback: Loopback

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that gave up is part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        models = [{"id": name, "object": "model"} for name in self.server.loopback.models]
        self._send(200, json.dumps({"object": "list", "data": models}).encode(), {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        answer = self.server.loopback.next_answer(self.path, body)
        if answer.delay:
            time.sleep(answer.delay)
        if answer.drop:
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        shape = _response if self.path.endswith("/responses") else _chat
        content = shape(answer, body) if answer.status == 200 else {"error": dict(answer.error)}
        raw = json.dumps(content).encode() if answer.raw is None else answer.raw
        self._send(answer.status, raw, answer.headers)

    def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Tests read `requests` instead."""


def _chat(answer: Answer, body: Body) -> dict[str, Any]:
    choice = {
        "index": 0,
        "finish_reason": answer.finish,
        "message": {"role": "assistant", "content": answer.text or None},
    }
    content: dict[str, Any] = {
        "id": "chat-1",
        "object": "chat.completion",
        "created": 0,
        "model": body.get("model", ""),
        "choices": [choice],
    }
    return content if answer.usage is None else {**content, "usage": dict(answer.usage)}


def _response(answer: Answer, body: Body) -> dict[str, Any]:
    text = {"type": "output_text", "text": answer.text, "annotations": []}
    message = {
        "id": "message-1", "type": "message", "role": "assistant", "status": "completed",
        "content": [text],
    }  # fmt: skip
    content: dict[str, Any] = {
        "id": "response-1",
        "object": "response",
        "created_at": 0,
        "model": body.get("model", ""),
        "status": "completed" if answer.finish == "stop" else "incomplete",
        "incomplete_details": None if answer.finish == "stop" else {"reason": answer.finish},
        "output": [message],
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
    }
    return content if answer.usage is None else {**content, "usage": dict(answer.usage)}
