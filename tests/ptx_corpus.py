"""The modules and cases that the tests of the PTX layer share."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ptxsearch.ptx import Module, parse

DATA = Path(__file__).parent / "data" / "ptx"
CASES: dict[str, dict[str, Any]] = json.loads((DATA / "cases.json").read_text())
HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"


class Launch(NamedTuple):
    """A launch with numbers, as a kernel record evaluates it."""

    entry: str
    args: tuple[str | int, ...] = ()
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (32, 1, 1)
    cluster: tuple[int, int, int] = (1, 1, 1)
    shared_bytes: int = 0


@cache
def source(name: str) -> str:
    """The text of a corpus kernel."""
    return (DATA / "corpus" / f"{name}.ptx").read_text()


def module(text: str) -> Module:
    """The text parsed; a fault fails the test with its message."""
    parsed = parse(text)
    assert isinstance(parsed, Module), str(parsed)
    return parsed


def entry(body: str, params: str = "", directives: str = "") -> str:
    """A module with one entry `k` around statements."""
    return f"{HEAD}.visible .entry k({params})\n{directives}\n{{\n{body}\n}}\n"
