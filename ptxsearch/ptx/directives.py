"""Lint of performance directives that ptxas ignores: an edit that changes nothing is refused.

What ptxas 13.0 does was measured: registers below 24 are raised to 24 and above 255 ignored; a
minimum of blocks without a bound on threads, or beyond what a multiprocessor holds, is ignored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ptxsearch.arch import Arch
from ptxsearch.ptx.finding import Finding
from ptxsearch.ptx.syntax import Function

_FEWEST, _MOST = 24, 255


def idle_directives(function: Function, limits: Arch | None) -> Iterator[Finding]:
    """Findings on directives of `function` without effect."""

    def finding(message: str) -> Finding:
        return Finding("idle-directive", function.line, f"'{function.name}': {message}")

    directives = function.directives
    for (registers,) in [directives[name] for name in ("maxnreg",) if name in directives]:
        if not _FEWEST <= registers <= _MOST:
            became = f"raised to {_FEWEST}" if registers < _FEWEST else "ignored"
            yield finding(
                f".maxnreg {registers} is {became} by ptxas; use {_FEWEST} to {_MOST} or remove it"
            )
    if "minnctapersm" not in directives:
        return
    blocks = directives["minnctapersm"][0]
    bound = directives.get("maxntid") or directives.get("reqntid")
    most = limits.threads_per_sm if limits else 2048
    if bound is None:
        yield finding(
            f".minnctapersm {blocks} is ignored without .maxntid or .reqntid; add one of them"
        )
    elif math.prod(bound) * blocks > most:
        yield finding(
            f".minnctapersm {blocks} of {math.prod(bound)} threads is ignored: a multiprocessor "
            f"holds {most} threads; ask for at most {most // max(1, math.prod(bound))}"
        )
