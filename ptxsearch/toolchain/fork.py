"""What holds a lock or a child process starts afresh in a forked copy of this process."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Renewable(Protocol):
    """An object whose locks and children belong to the process that made them."""

    def after_fork(self) -> None:
        """Make them anew: this is a forked copy, where other threads do not exist."""


_KNOWN: weakref.WeakSet[Renewable] = weakref.WeakSet()


def renew_after_fork(item: Renewable) -> None:
    """Call `item.after_fork()` in every forked copy, as long as `item` lives."""
    _KNOWN.add(item)


def _renew() -> None:
    for item in list(_KNOWN):
        item.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
