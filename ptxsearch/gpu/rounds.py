"""Rounds of interleaved samples: fresh modules and buffers for each group, with spot checks.

All sides share the input set and the placement of a round, and its number of repeats unless one is
far slower. What a few random samples left is read back, unless it is large and bit for bit what a
check of the same program left on the same set; guards and input digests are checked then and at
the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ptxsearch.evaluation import Array, Failure, Fault
from ptxsearch.gpu.driver import DriverError
from ptxsearch.gpu.faults import failure_of, is_final, timed_out
from ptxsearch.gpu.inspection import Found
from ptxsearch.gpu.memory import Placement
from ptxsearch.gpu.sequence import ArgumentMismatch, Loaded, Program
from ptxsearch.gpu.session import Left, Session
from ptxsearch.gpu.timing import Hang, Side

__all__ = ["Contest", "Timed", "contest"]

IDLE_SECONDS = 0.25


@dataclass(frozen=True)
class Timed:
    """Samples in seconds, and (side, token, what was left) of those that were read back.

    `repeats` is how many launches each sample is the mean of, by group; `discarded` counts
    repeats that the host was too slow for.
    """

    samples: Array
    audits: Sequence[tuple[int, int, Left]] = ()
    repeats: Sequence[int] = ()
    discarded: int = 0


@dataclass(frozen=True)
class Contest:
    """What to time: programs, the input sets by token, how many rounds, and how.

    `limits` are the seconds each program may take, `placements` how many copies of the sets
    there are at least, `audit_bytes` what may be read back in a group, `idle` the seconds for
    which nobody has used the GPU.
    """

    programs: Sequence[Program]
    tokens: Sequence[int]
    rounds: int
    limits: Sequence[float]
    seed: int
    group: int = 20
    placements: int = 4
    audit_bytes: int = 64 << 20
    idle: float = math.inf


def contest(session: Session, plan: Contest) -> Timed | Failure:
    """The samples of a contest, or the failure of the side that failed."""
    rng = np.random.Generator(np.random.Philox(plan.seed))
    sampler = session.sampler
    if plan.idle > IDLE_SECONDS:
        sampler.warm()
    before = sampler.discarded
    parts: list[Timed] = []
    for begin in range(0, plan.rounds, plan.group):
        group = _Group(session, plan, rng)
        made = group.play(min(plan.group, plan.rounds - begin))
        if isinstance(made, Failure):
            return made
        parts.append(made)
    return Timed(
        samples=np.concatenate([part.samples for part in parts]),
        audits=[audit for part in parts for audit in part.audits],
        repeats=[m for part in parts for m in part.repeats],
        discarded=sampler.discarded - before,
    )


@dataclass
class _Group:
    """One group of rounds: loads, places, samples, checks, gives back."""

    session: Session
    plan: Contest
    rng: np.random.Generator
    loaded: list[Loaded] = field(default_factory=list)
    placed: list[Placement] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    sides: list[Side] = field(default_factory=list)
    picks: set[tuple[int, int]] = field(default_factory=set)
    audits: list[tuple[int, int, Left]] = field(default_factory=list)

    def play(self, rounds: int) -> Timed | Failure:
        """The samples of one group, or a failure that names its side."""
        sampler = self.session.sampler
        sampler.side = 0
        try:
            self._prepare()
            self._pick(rounds)
            samples, m = sampler.group(self.sides, rounds, self.rng, seen=self._seen)
            for index in range(len(self.placed)):
                self._check(index)
            return Timed(samples, self.audits, [m])
        except Hang as hang:
            return timed_out(hang.seconds).of_side(sampler.side)
        except DriverError as error:
            sampler.lost = is_final(error)
            return failure_of(error).of_side(sampler.side)
        except ArgumentMismatch as mismatch:
            return mismatch.failure.of_side(len(self.sides))
        except _Spoiled as spoiled:
            return spoiled.failure
        finally:
            self._finish()

    def _prepare(self) -> None:
        """Load every side and place every set, most of the old pages still taken."""
        plan, session = self.plan, self.session
        sampler = session.sampler
        for sampler.side, program in enumerate(plan.programs):
            self.loaded.append(Loaded(session.driver, program))
        names = [list(program.scratch.values()) for program in plan.programs]
        deepest = max(len(sizes) for sizes in names)
        scratch = [max((s[k] for s in names if k < len(s)), default=0) for k in range(deepest)]
        copies = -(-plan.placements // len(plan.tokens))
        for token in [*plan.tokens] * copies:
            self.placed.append(session.place(session.sets[token], scratch))
            self.tokens.append(token)
        session.release_kept()
        for loaded, program, limit in zip(self.loaded, plan.programs, plan.limits, strict=True):
            bounds = [loaded.bind(placement) for placement in self.placed]
            self.sides.append(Side(bounds, program.zero_fills, limit))

    def _pick(self, rounds: int) -> None:
        """Choose the samples to look at: one of each side, the first alone if they are big."""
        size = self.placed[0].inputs.result_bytes
        many = size * len(self.sides) <= self.plan.audit_bytes
        for side in range(len(self.sides) if many else 1):
            self.picks.add((int(self.rng.integers(rounds)), side))

    def _seen(self, number: int, side: int, index: int) -> None:
        if (number, side) not in self.picks:
            return
        token = self.tokens[index]
        known = self.session.noted(self.plan.programs[side], token)
        if known and self._check(index, digests=True).digests == known:
            return
        found = self._check(index, results=True)
        self.audits.append((side, token, Left.of(found)))

    def _check(self, index: int, *, results: bool = False, digests: bool = False) -> Found:
        """What lies in a placement; raises _Spoiled where guards or inputs are not as they were."""
        session, placement = self.session, self.placed[index]
        found = session.inspect(placement, results=results, digests=digests)
        if found.breach is None and not found.changed:
            return found
        for side in range(len(self.sides)):
            session.memory.restore(placement)
            session.sampler.side = side
            session.sampler.repeat(self.sides[side], index)
            again = session.inspect(placement)
            if again.breach is not None or again.changed:
                raise _Spoiled(_spoiled(again).of_side(side))
        raise _Spoiled(_spoiled(found).of_side(0))

    def _finish(self) -> None:
        if self.session.sampler.lost:
            return
        for placement in self.placed:
            self.session.memory.wipe(placement)
        self.session.kept.extend(self.placed)
        for loaded in self.loaded:
            loaded.unload()


class _Spoiled(Exception):
    """A side wrote where it must not while it was timed."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def _spoiled(found: Found) -> Failure:
    if found.breach is not None:
        return Failure(found.breach)
    names = ", ".join(found.changed)
    return Failure(
        Fault(
            kind="input_written",
            message=f"while it was timed the kernel wrote to its input {names}",
            space="global",
            object=names,
        )
    )
