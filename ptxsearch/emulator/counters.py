"""What a launch did, counted by warp instruction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ptxsearch.emulator.code import Segment
from ptxsearch.emulator.footprint import Footprint
from ptxsearch.emulator.lanes import Active
from ptxsearch.evaluation import Counters

if TYPE_CHECKING:
    from ptxsearch.emulator.address import Piece, Target
    from ptxsearch.emulator.machine import Chunk

FIELDS = frozenset(Counters.__dataclass_fields__)
LOCAL_WORD = 4


class Tally:
    """Counts by name, those of whole segments kept apart until the end."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.branches = 0
        self.divergent_branches = 0
        self.segments: dict[Segment, list[int]] = {}
        self.footprint: Footprint | None = None

    def segment(self, segment: Segment, active: Active | None, chunk: Chunk) -> None:
        """Note that lanes ran through a segment."""
        found = self.segments.get(segment)
        if found is None:
            found = self.segments[segment] = [0, 0]
        if active is None:
            found[0] += chunk.lanes
            found[1] += chunk.lanes >> 5
        else:
            found[0] += active.count
            found[1] += active.warps

    def amount(self, tally: Mapping[str, int], lanes: int) -> None:
        """Note what `lanes` threads did."""
        for name, each in tally.items():
            self.counts[name] += each * lanes

    def load(self, piece: Piece, target: Target) -> None:
        """Note a load."""
        self._access(piece, target.size, "load", counted=target.counted)
        if self.footprint is not None and piece.allocation.space == "global":
            self.footprint.add(piece)

    def store(self, piece: Piece, target: Target) -> None:
        """Note a store."""
        piece.allocation.stored += piece.lanes * target.size
        self._access(piece, target.size, "store", counted=target.counted)

    def _access(self, piece: Piece, size: int, kind: str, *, counted: bool) -> None:
        counts, pattern, space = self.counts, piece.pattern, piece.allocation.space
        if space == "global":
            counts[f"global_{kind}_requests"] += pattern.warps
            counts[f"global_{kind}_sectors"] += pattern.sectors(piece.offset)
            counts[f"global_{kind}_bytes"] += pattern.distinct(size) * size
        elif space == "shared":
            wavefronts, ideal = pattern.wavefronts(size), pattern.phases(size)
            counts[f"shared_{kind}_requests"] += pattern.warps
            counts[f"shared_{kind}_wavefronts"] += wavefronts
            counts[f"shared_{kind}_bytes"] += pattern.distinct(size) * size
            counts["shared_wavefronts_ideal"] += ideal
            counts["bank_conflicts"] += wavefronts - ideal
        elif space == "local" and counted:
            counts[f"local_{kind}_requests"] += pattern.warps
            counts[f"local_{kind}_sectors"] += pattern.local_sectors(size, piece.offset)

    def atomic(self, piece: Piece, size: int, chunk: Chunk, *, returns: bool) -> None:
        """Note an atomic operation."""
        piece.allocation.stored += piece.lanes * size
        pattern = piece.pattern
        if piece.allocation.space == "global":
            self.counts["global_atomic_requests"] += pattern.warps
            self.counts["global_atomic_sectors"] += pattern.sectors(piece.offset)
        else:
            self.counts["shared_atomic_requests"] += pattern.warps

    def copy_in(self, piece: Piece, size: int, chunk: Chunk) -> None:
        """Note the global side of an asynchronous copy."""
        if self.footprint is not None:
            self.footprint.add(piece)
        pattern, counts = piece.pattern, self.counts
        sectors = pattern.sectors(piece.offset)
        counts["async_copy_sectors"] += sectors
        counts["async_copy_bytes"] += pattern.distinct(size) * size
        counts["global_load_requests"] += pattern.warps
        counts["global_load_sectors"] += sectors
        counts["bank_conflicts"] += max(pattern.lines(piece.offset) - pattern.phases(size), 0)

    def copy_out(self, piece: Piece, size: int) -> None:
        """Note the shared side of an asynchronous copy."""
        self.counts["async_copy_requests"] += piece.pattern.warps

    def barrier(self, chunk: Chunk, active: Active | None) -> None:
        """Note that warps reached a barrier."""
        self.counts["barriers"] += chunk.lanes // 32 if active is None else active.warps

    def total(self) -> Counters:
        """The counts as a record; a count of zero is a zero."""
        counts = Counter(self.counts)
        threads = warps = 0
        for segment, (lanes, groups) in self.segments.items():
            threads += segment.length * lanes
            warps += segment.length * groups
            for name, each in segment.tally.items():
                counts[name] += each * lanes
        counts["ptx_thread_instructions"] = threads
        counts["ptx_warp_instructions"] = warps
        counts["branches"] = self.branches
        counts["divergent_branches"] = self.divergent_branches
        known: dict[str, Any] = dict.fromkeys(COUNTED, 0.0)
        known |= {name: float(value) for name, value in counts.items() if name in FIELDS}
        return Counters(**known)


COUNTED = (
    "global_load_requests",
    "global_load_sectors",
    "global_load_bytes",
    "global_store_requests",
    "global_store_sectors",
    "global_store_bytes",
    "global_atomic_requests",
    "global_atomic_sectors",
    "local_load_requests",
    "local_load_sectors",
    "local_store_requests",
    "local_store_sectors",
    "shared_load_requests",
    "shared_load_wavefronts",
    "shared_load_bytes",
    "shared_store_requests",
    "shared_store_wavefronts",
    "shared_store_bytes",
    "shared_atomic_requests",
    "shared_wavefronts_ideal",
    "bank_conflicts",
    "async_copy_requests",
    "async_copy_sectors",
    "async_copy_bytes",
    "fp16_add",
    "fp16_mul",
    "fp16_fma",
    "fp32_add",
    "fp32_mul",
    "fp32_fma",
    "fp64_add",
    "fp64_mul",
    "fp64_fma",
    "special_functions",
    "integer_operations",
    "tensor_instructions",
    "barriers",
)
