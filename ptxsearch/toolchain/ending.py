"""How a compiler's job ended: what it wrote, and which limit stopped it if one did."""

from __future__ import annotations

import re
from pathlib import Path

from ptxsearch.toolchain.sandbox import Limits, Outcome

UNABLE = 120
"""The exit code of a child that could not begin its job."""
_OUT_OF_MEMORY = re.compile(r"(out of memory|bad_alloc|MemoryError|[Mm]emory allocation failure)")


def read_log(folder: Path, most: int = 1 << 20) -> str:
    """The first `most` bytes of the log in `folder`; empty where none was written."""
    try:
        with (folder / "log").open("rb") as file:
            return file.read(most).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def exceeded(tool: str, outcome: Outcome, log: str, limits: Limits) -> str:
    """Which limit ended the job, in words; empty where it failed by itself."""
    mend = "write simpler code or unroll less"
    if outcome.late:
        return f"{tool} did not end within {limits.wall:g} s; {mend}"
    if outcome.code == -24 or (outcome.code == -9 and outcome.cpu >= limits.cpu - 1):
        return f"{tool} used more than {limits.cpu} CPU seconds; {mend}"
    if outcome.code in (-6, -9) or (outcome.code and _OUT_OF_MEMORY.search(log)):
        return f"{tool} ran out of its {limits.memory / (1 << 30):g} GiB of memory; {mend}"
    if outcome.code < 0:
        return f"{tool} was ended by signal {-outcome.code}; change the construct it fails on"
    return ""
