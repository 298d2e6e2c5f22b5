"""Long runs of one kernel: ten thousand launches for drift, and warm times from a CUDA graph.

Both launch back to back on warm caches, so their times stand apart from those of `rounds`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ptxsearch.evaluation import Failure
from ptxsearch.gpu.sequence import Bound, Loaded, Program
from ptxsearch.gpu.session import Left, Session

__all__ = ["stress", "warm_times"]

CHUNK = 100
GRAPH_LAUNCHES = 20


def stress(
    session: Session, *, program: Program, token: int, launches: int, limit: float
) -> Mapping[str, Any] | Failure:
    """Drift over many launches, and what one more launch on fresh junk leaves.

    Gives `launches`, `first` and `last` (median seconds a launch over the first and last tenth),
    `drift` (their ratio minus one), `seconds` by chunk, and `left`.
    """
    loaded = Loaded(session.driver, program)
    placement = session.place(session.sets[token], list(program.scratch.values()))
    bound = loaded.bind(placement)
    session.memory.poison(placement, session.pattern(), program.zero_fills)
    session.sampler.settle()
    start, end = session.driver.event(), session.driver.event()
    seconds = []
    for _ in range(max(1, launches // CHUNK)):
        session.driver.record(start)
        for _ in range(CHUNK):
            _launch(session, bound, program)
        session.driver.record(end)
        session.sampler.wait(end, CHUNK * limit)
        seconds.append(session.driver.seconds(start, end) / CHUNK)
    pattern = session.pattern()
    session.memory.restore(placement)
    session.memory.poison(placement, pattern, program.zero_fills)
    once = session.sampler.once(bound, limit)
    found = session.inspect(placement, pattern=pattern, results=True)
    if found.breach is not None:
        return Failure(found.breach)
    session.memory.wipe(placement)
    session.memory.release(placement)
    loaded.unload()
    tenth = max(1, len(seconds) // 10)
    first, last = float(np.median(seconds[:tenth])), float(np.median(seconds[-tenth:]))
    return {
        "launches": CHUNK * len(seconds),
        "first": first,
        "last": last,
        "drift": last / first - 1.0,
        "seconds": seconds,
        "left": Left.of(found, once),
    }


def _launch(session: Session, bound: Bound, program: Program) -> None:
    """Queue a sequence; scratch that starts as zeros is zeroed again, inside the clock."""
    for index, size in program.zero_fills:
        session.driver.zero(bound.placement.scratch[index].pointer, size)
    bound.launch()


def warm_times(
    session: Session, *, program: Program, token: int, replays: int, limit: float
) -> list[float]:
    """Seconds a launch sequence, caches warm, from replays of a graph of twenty of them."""
    loaded = Loaded(session.driver, program)
    placement = session.place(session.sets[token], list(program.scratch.values()))
    bound = loaded.bind(placement)
    session.memory.poison(placement, session.pattern(), program.zero_fills)
    session.sampler.settle()

    def launches() -> None:
        for _ in range(GRAPH_LAUNCHES):
            _launch(session, bound, program)

    graph = session.driver.capture(launches)
    start, end = session.driver.event(), session.driver.event()
    seconds = []
    for _ in range(replays + 2):
        session.driver.record(start)
        session.driver.replay(graph)
        session.driver.record(end)
        session.sampler.wait(end, GRAPH_LAUNCHES * limit)
        seconds.append(session.driver.seconds(start, end) / GRAPH_LAUNCHES)
    session.memory.wipe(placement)
    session.memory.release(placement)
    loaded.unload()
    return seconds[2:]
