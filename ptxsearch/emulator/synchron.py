"""Knowledge passed between threads through words of memory: fences, atomics, strong accesses.

A fence publishes what its thread knows; an atomic or strong write after it leaves that knowledge
at the word; an atomic, or a strong read with a fence after it, takes it from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ptxsearch.emulator.address import Target
from ptxsearch.emulator.clock import Clock, Ledger
from ptxsearch.emulator.frame import Frame
from ptxsearch.emulator.lanes import Active

if TYPE_CHECKING:
    from ptxsearch.emulator.machine import Chunk

Key = TypeVar("Key")

Word = tuple[int, int]
"""A word: its block (-1 for memory of all blocks) and its address."""


class Synchron:
    """The ledgers of words. `used` is False until a thread has published anything."""

    def __init__(self) -> None:
        self.used = False
        self._words: dict[Word, Ledger] = {}
        self._block_words: dict[tuple[int, Word], Ledger] = {}
        self._seen: dict[int, dict[Ledger, int]] = {}
        self._within: dict[int, Clock] = {}

    def fence(self, chunk: Chunk, active: Active | None, *, block_only: bool) -> None:
        """A fence by the active lanes, for their block alone or for the device."""
        order = chunk.order
        self.used = True
        for lane in _live(chunk, active):
            for ledger, version in self._seen.pop(chunk.first + lane, {}).items():
                order.learn(lane, ledger, version)
            if block_only:
                self._within[chunk.first + lane] = order.knowledge(lane)
            else:
                order.publish(lane)

    def read(self, frame: Frame, target: Target, active: Active | None, *, acquire: bool) -> None:
        """A strong read: its knowledge counts at once, or after the next fence."""
        chunk = frame.chunk
        if not self._words and not self._block_words:
            return
        for lane, word in _words(frame, target, active):
            for ledger in self._held(chunk, lane, word):
                if acquire:
                    chunk.order.learn(lane, ledger, ledger.version)
                else:
                    self._seen.setdefault(chunk.first + lane, {})[ledger] = ledger.version

    def _held(self, chunk: Chunk, lane: int, word: Word) -> list[Ledger]:
        block = chunk.first // chunk.width + lane // chunk.width
        ledgers = (self._words.get(word), self._block_words.get((block, word)))
        return [ledger for ledger in ledgers if ledger is not None]

    def write(self, frame: Frame, target: Target, active: Active | None, *, release: bool) -> None:
        """A strong write: the word holds what its thread published, or all it knows."""
        if not self.used and not release:
            return
        self.used = True
        for lane, word in _words(frame, target, active):
            self._leave(frame.chunk, lane, word, release=release, keep=False)

    def _leave(self, chunk: Chunk, lane: int, word: Word, *, release: bool, keep: bool) -> None:
        order = chunk.order
        number = chunk.first + lane
        block = number // chunk.width
        published = order.knowledge(lane) if release else order.published.get(lane)
        within = self._within.get(number)
        _put(self._words, word, published, keep=keep)
        _put(self._block_words, (block, word), within, keep=keep)

    def atomic(self, frame: Frame, target: Target, active: Active | None, *, release: bool) -> None:
        """A read-modify-write: takes what the word holds and adds what was published."""
        if not self.used and not release:
            return
        self.used = True
        chunk = frame.chunk
        for lane, word in _words(frame, target, active):
            for ledger in self._held(chunk, lane, word):
                chunk.order.learn(lane, ledger, ledger.version)
            self._leave(chunk, lane, word, release=release, keep=True)


def _put(table: dict[Key, Ledger], key: Key, clock: Clock | None, *, keep: bool) -> None:
    """Leave a clock at a word, added to what is there if that is kept."""
    if not keep:
        table.pop(key, None)
    if clock is not None:
        table.setdefault(key, Ledger()).add(clock)


def _live(chunk: Chunk, active: Active | None) -> list[int]:
    lanes: list[int] = chunk.numbers(active).tolist()
    return lanes


def _words(frame: Frame, target: Target, active: Active | None) -> list[tuple[int, Word]]:
    """Each active lane with the word it addresses."""
    chunk = frame.chunk
    pattern = frame.pattern(target.slot, active)
    address = np.broadcast_to(pattern.address, (pattern.lanes,)) + target.offset
    lanes = _live(chunk, active)
    if target.space != "shared":
        return [(lane, (-1, at)) for lane, at in zip(lanes, address.tolist(), strict=True)]
    first = chunk.first // chunk.width
    return [
        (lane, (first + lane // chunk.width, at))
        for lane, at in zip(lanes, address.tolist(), strict=True)
    ]
