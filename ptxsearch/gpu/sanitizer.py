"""compute-sanitizer: its four tools on one launch sequence, their findings as faults.

The text form is read: `========= Invalid __global__ write of size 4 bytes`, then indented lines
with the place, the thread and the address. Host frames are left out.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ptxsearch.evaluation import Fault, FaultKind, Inputs
from ptxsearch.gpu import case, tool
from ptxsearch.gpu.sequence import Program

__all__ = ["TOOLS", "Findings", "Tool", "available", "examine", "parse"]

Tool = Literal["memcheck", "racecheck", "initcheck", "synccheck"]
TOOLS: tuple[Tool, ...] = ("memcheck", "racecheck", "initcheck", "synccheck")
_PRINTED = 100
_PADDING = 4096

_PREFIX = re.compile(r"^=========\s?", re.MULTILINE)
_ACCESS = re.compile(r"Invalid __(\w+)__ (read|write|atomic) of size ([\d,]+) bytes")
_UNINITIALISED = re.compile(r"Uninitialized __(\w+)__ memory (read|write) of size ([\d,]+) bytes")
_RACE = re.compile(r"(?:Error|Warning): (?:Potential )?(\w+) hazard|Race reported between")
_BARRIER = re.compile(r"Barrier error detected\. (.+)")
_PLACE = re.compile(r"at (?:[^\n]*?)([\w$.:<>~]+)\+0x([0-9a-f]+)(?: in ([^\s:]+):(\d+))?")
_THREAD = re.compile(r"by thread \((\d+),(\d+),(\d+)\) in block \((\d+),(\d+),(\d+)\)")
_ADDRESS = re.compile(r"(?:Access (?:to|at)|Address) 0x([0-9a-f]+)(?: is ([a-z ]+))?")
_UNPRINTED = re.compile(r"ERROR SUMMARY: ([\d,]+) errors were not printed")
_TRAP = re.compile(r"Trace/breakpoint trap|Illegal instruction|Stack overflow")
_HEADS = (_ACCESS, _UNINITIALISED, _RACE, _BARRIER, _TRAP)


@dataclass(frozen=True)
class Findings:
    """What one tool found: faults in the order printed, and how many it counted.

    `outcome` is ok, missing, not_supported, timeout or failed; faults only mean something at ok.
    """

    tool: str
    outcome: str
    faults: tuple[Fault, ...] = ()
    count: int = 0
    text: str = ""


def available() -> bool:
    """Whether compute-sanitizer can be found."""
    return tool.find("compute-sanitizer") is not None


def examine(
    program: Program,
    inputs: Inputs,
    *,
    tools: Sequence[Tool] = TOOLS,
    timeout: float = 60.0,
    device: str | None = None,
) -> dict[str, Findings]:
    """The findings of each tool on one launch sequence in processes of their own."""
    path = tool.find("compute-sanitizer")
    if path is None:
        return {name: Findings(name, "missing") for name in tools}
    with tempfile.TemporaryDirectory(prefix="ptxsearch-") as folder:
        case.save(Path(folder), program, inputs)
        return {name: _examine(path, name, Path(folder), timeout, device) for name in tools}


def _examine(path: str, name: Tool, folder: Path, timeout: float, device: str | None) -> Findings:
    options = ["--tool", name, "--print-limit", str(_PRINTED), "--show-backtrace", "no"]
    options += ["--report-api-errors", "no"]
    if name == "memcheck":
        options += ["--padding", str(_PADDING)]
    ran = tool.run([path, *options, *case.command(folder)], timeout=timeout, device=device)
    if ran.code is None:
        return Findings(name, "timeout", text=ran.text)
    if "not supported" in ran.text.lower():
        return Findings(name, "not_supported", text=ran.text)
    if "SUMMARY" not in ran.text:
        return Findings(name, "failed", text=ran.text)
    faults, count = parse(ran.text)
    return Findings(name, "ok", faults, count, ran.text)


def parse(text: str) -> tuple[tuple[Fault, ...], int]:
    """The faults in a tool's text, and how many there were with those it did not print.

    What it says of calls to the driver or of copies to the host is not the kernel's doing.
    """
    plain = _PREFIX.sub("", text)
    faults = tuple(_fault(block) for block in _blocks(plain))
    unprinted = _UNPRINTED.search(plain)
    return faults, len(faults) + (int(unprinted[1].replace(",", "")) if unprinted else 0)


def _blocks(plain: str) -> Iterator[list[str]]:
    """The lines of each finding: its head and what is indented below."""
    block: list[str] = []
    for line in plain.splitlines():
        if any(head.search(line) for head in _HEADS):
            if block:
                yield block
            block = [line]
        elif block and line.startswith((" ", "\t")):
            block.append(line)
        elif block:
            yield block
            block = []
    if block:
        yield block


def _fault(block: Sequence[str]) -> Fault:
    body = "\n".join(block)
    kind, space = _kind(body)
    place, thread = _PLACE.search(body), _THREAD.search(body)
    address = _ADDRESS.search(body)
    lines = [line.strip() for line in block if "Host Frame" not in line]
    numbers = tuple(int(number) for number in thread.groups()) if thread else ()
    return Fault(
        kind=kind,
        message=_scrubbed("; ".join(lines[:6])),
        space=space,
        source_line=int(place[4]) if place and place[4] else None,
        thread=(numbers[0], numbers[1], numbers[2]) if numbers else None,
        block=(numbers[3], numbers[4], numbers[5]) if numbers else None,
        address=int(address[1], 16) if address else None,
        object=place[1] if place else "",
    )


def _kind(body: str) -> tuple[FaultKind, str]:
    if access := _ACCESS.search(body):
        if "is misaligned" in body:
            return "misaligned_access", access[1]
        read = access[2] == "read"
        return ("out_of_bounds_read" if read else "out_of_bounds_write"), access[1]
    if uninitialised := _UNINITIALISED.search(body):
        return "uninitialised_read", uninitialised[1]
    if trap := _TRAP.search(body):
        kinds: dict[str, FaultKind] = {
            "Stack overflow": "launch_failure",
            "Illegal instruction": "illegal_instruction",
        }
        return kinds.get(trap[0], "trap"), "control"
    if _BARRIER.search(body):
        return "divergent_barrier", "control"
    return "data_race", "shared"


def _scrubbed(text: str) -> str:
    """The text without folders of this machine."""
    return re.sub(r"(?:/[\w.+-]+)+/", "", text)
