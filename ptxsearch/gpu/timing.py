"""The clock: samples in the order of EVALUATION section 7, all sides on the same buffers.

One repeat: restore and poison the buffers, turn persisting cache lines back, scrub, queue a
filler spin, then event, launches, event, and a polled wait. A sample is the mean of m repeats;
the sides of a round take turns repeat by repeat in random order.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ptxsearch.errors import DeviceError
from ptxsearch.evaluation import Array
from ptxsearch.gpu.driver import Driver, DriverError
from ptxsearch.gpu.faults import is_final
from ptxsearch.gpu.instruments import Instruments
from ptxsearch.gpu.memory import Memory
from ptxsearch.gpu.sequence import Bound

__all__ = ["Hang", "Sampler", "Side", "repeats"]

FILLER_FLOOR = 15e-6
FILLER_CEILING = 2e-3
FILLER_MARGIN = 1.5
ENQUEUE_WINDOW = 32
WARM_SECONDS = 0.05
ATTEMPTS = 20
FAR = 4.0


class Hang(DeviceError):
    """Queued work did not end within `seconds`; the process that queued it must die."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"queued work did not end within {seconds:.3g} s")
        self.seconds = seconds


def repeats(seconds: float) -> int:
    """How many repeats make one sample of a kernel that takes `seconds`: 280 us of it, 1 to 16."""
    return min(16, max(1, math.ceil(280e-6 / max(seconds, 1e-9))))


@dataclass
class Side:
    """One kernel of a round: its launches at each placement, and the longest it may take."""

    bounds: Sequence[Bound]
    zeros: Sequence[tuple[int, int]]
    limit: float
    enqueue: deque[float] = field(default_factory=lambda: deque(maxlen=ENQUEUE_WINDOW))


class Sampler:
    """Takes samples on one device.

    `pattern` numbers the junk patterns, `side` is the side that was queued last, `lost` says that
    the context is gone: after a hang or a fault that the driver cannot recover from.
    """

    def __init__(self, driver: Driver, instruments: Instruments, memory: Memory) -> None:
        self._driver = driver
        self._instruments = instruments
        self._memory = memory
        self._start, self._end = driver.event(), driver.event()
        self.filler = FILLER_FLOOR
        self.discarded = 0
        self.pattern = 1
        self.side = 0
        self.lost = False

    def wait(self, event: object, limit: float) -> None:
        """Poll until the event is done. Raises Hang after `limit` seconds."""
        started = time.perf_counter()
        while not self._is_done(event):
            passed = time.perf_counter() - started
            if passed > limit:
                self.lost = True
                raise Hang(limit)
            if passed > 5e-3:
                time.sleep(min(1e-3, passed / 20))

    def _is_done(self, event: object) -> bool:
        try:
            return self._driver.done(event)
        except DriverError as error:
            self.lost = is_final(error)
            raise

    def once(self, bound: Bound, limit: float) -> float:
        """Seconds of one launch sequence on a quiet device. Raises DriverError or Hang."""
        self._driver.record(self._start)
        bound.launch()
        self._driver.record(self._end)
        self.wait(self._end, limit)
        return self._driver.seconds(self._start, self._end)

    def settle(self, limit: float = 60.0) -> None:
        """Wait for all queued work. Raises Hang after `limit` seconds."""
        self._driver.record(self._end)
        self.wait(self._end, limit)

    def warm(self) -> None:
        """Bring an idle device up to its clocks: scrubs for at least 50 ms."""
        started = time.perf_counter()
        while time.perf_counter() - started < WARM_SECONDS:
            for _ in range(16):
                self._instruments.scrub(0)
            self.settle()

    def repeat(self, side: Side, index: int) -> float:
        """Seconds of one launch sequence of a side at placement `index`.

        A repeat whose launches took the host longer to queue than the filler covers is done
        again with a longer filler.
        """
        for _ in range(ATTEMPTS):
            seconds = self._attempt(side, index)
            if seconds is not None:
                return seconds
            self.discarded += 1
            self.filler = min(FILLER_CEILING, 1.3 * self.filler)
        raise DeviceError(
            f"the host needs more than {FILLER_CEILING * 1e3 / FILLER_MARGIN:.1f} ms to queue one"
            " launch sequence",
            "leave a processor core free for timing",
        )

    def _attempt(self, side: Side, index: int) -> float | None:
        driver, bound = self._driver, side.bounds[index]
        self.pattern = (self.pattern + 1) & 0x7FFFFFFF
        self._memory.poison(bound.placement, self.pattern, side.zeros)
        driver.forget_persisting()
        self._instruments.scrub(self.pattern)
        begun = time.perf_counter()
        self._instruments.spin(self.filler)
        driver.record(self._start)
        bound.launch()
        driver.record(self._end)
        taken = time.perf_counter() - begun
        self.wait(self._end, side.limit)
        side.enqueue.append(taken)
        if FILLER_MARGIN * taken > self.filler:
            return None
        return driver.seconds(self._start, self._end)

    def group(
        self,
        sides: Sequence[Side],
        rounds: int,
        rng: np.random.Generator,
        *,
        seen: Callable[[int, int, int], None],
    ) -> tuple[Array, int]:
        """Seconds of shape (rounds, sides) from one group of rounds, and the repeats of a sample.

        A side more than four times slower than the rival has the repeats that its own time asks.

        `seen(round, side, placement)` is called after the last repeat of each sample, while its
        buffers still hold what it left.
        """
        placements = len(sides[0].bounds)
        first = []
        for self.side, side in enumerate(sides):
            first.append(self.repeat(side, 0))
        self._steady(sides)
        m = repeats(first[min(1, len(first) - 1)])
        # A far slower side needs no mean of as many: its own length makes its samples as quiet.
        turns = [repeats(t) if t > FAR * first[min(1, len(first) - 1)] else m for t in first]
        samples = np.zeros((rounds, len(sides)))
        cycles = -(-rounds // placements)
        order = np.concatenate([rng.permutation(placements) for _ in range(cycles)])
        for number in range(rounds):
            index = int(order[number])
            for turn in range(m):
                for self.side in map(int, rng.permutation(len(sides))):
                    if turn >= turns[self.side]:
                        continue
                    taken = self.repeat(sides[self.side], index)
                    samples[number, self.side] += taken / turns[self.side]
                    if turn == turns[self.side] - 1:
                        seen(number, self.side, index)
        return samples, m

    def _steady(self, sides: Sequence[Side]) -> None:
        """Choose the filler from the slowest side's usual time to queue."""
        slowest = max(float(np.median(side.enqueue)) for side in sides)
        self.filler = min(FILLER_CEILING, max(FILLER_FLOOR, 2.0 * slowest))
