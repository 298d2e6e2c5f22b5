"""How the machine leaves a launch in the middle: signals that never pass its boundary."""

from __future__ import annotations

from ptxsearch.emulator.report import Unsupported


class Halt(Exception):
    """The launch cannot go on: a fatal fault was reported."""


class Unable(Exception):
    """The launch met an instruction that is not supported."""

    def __init__(self, what: Unsupported) -> None:
        super().__init__(str(what))
        self.what = what


class Refused(Exception):
    """The launch itself is not valid; the message says why."""


class TaintStarted(Exception):
    """A load met undefined bytes: from here on undefined bits must be followed."""
