"""The rule table: a metric, when it matters, the sentence that carries its number, what may help.

A rule is silent where its metric was not counted. `weight` says how much of the time may be at
stake (0 to 1), so that the most telling rules are kept where room is short. PTX and SASS counts
are used as ratios within one recording, never against each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ptxsearch.evaluation import Counters, Resources

SECTOR = 32
_LITTLE = 0.05
_SCATTERED = 0.8
_STALLED = "smsp__average_warps_issue_stalled_"
_PER_ISSUE = "_per_issue_active.ratio"


@dataclass(frozen=True)
class Facts:
    """What the rules look at: counters of one workload, resources, the least work and traffic.

    `needed_bytes`, `needed_flops` are the task's minimum for that workload, `outputs` its number
    of output elements, `blocks` and `sms` of its largest launch; None or 0 where unknown.
    """

    counters: Counters
    resources: Mapping[str, Resources]
    needed_bytes: float = 0.0
    needed_flops: float = 0.0
    outputs: float = 0.0
    blocks: int | None = None
    sms: int | None = None

    @property
    def warp_instructions(self) -> float | None:
        """Warp instructions of whichever kind was counted."""
        c = self.counters
        return c.sass_warp_instructions or c.ptx_warp_instructions

    @property
    def thread_instructions(self) -> float | None:
        """Thread instructions of the same kind."""
        c = self.counters
        return c.sass_thread_instructions if c.sass_warp_instructions else c.ptx_thread_instructions

    def plain(self, kind: str, what: str) -> float | None:
        """Global loads or stores of registers: requests or sectors without asynchronous copies.

        The emulator counts those among the loads, as the L1 cache does; ncu's counters by
        instruction do not.
        """
        counted: float | None = getattr(self.counters, f"global_{kind}_{what}")
        if counted is None or kind != "load" or self.counters.source != "emulated":
            return counted
        return counted - (getattr(self.counters, f"async_copy_{what}") or 0.0)

    @property
    def compute_bound(self) -> bool:
        """Whether the task does 20 operations or more a byte, about where fp32 meets DRAM."""
        return self.needed_bytes > 0 and self.needed_flops / self.needed_bytes >= 20


@dataclass(frozen=True)
class Rule:
    """One row of the table; `sentence` takes the metric, `{:.1f}` and the like."""

    name: str
    metric: Callable[[Facts], float | None]
    fires: Callable[[float, Facts], bool]
    weight: Callable[[float], float]
    sentence: str
    action: str


def ratio(part: float | None, whole: float | None) -> float | None:
    """`part` over `whole`, None where there is none."""
    return None if part is None or not whole else part / whole


def _efficiency(kind: str) -> Callable[[Facts], float | None]:
    def metric(facts: Facts) -> float | None:
        c = facts.counters
        moved = facts.plain(kind, "sectors") or 0.0
        # A few results at the end of a reduction cost nothing, however they are spread.
        if moved < _LITTLE * (_moved_sectors(facts) or 0.0):
            return None
        return ratio(getattr(c, f"global_{kind}_bytes"), SECTOR * moved)

    return metric


def _moved_sectors(facts: Facts) -> float | None:
    loads, stores = facts.plain("load", "sectors"), facts.plain("store", "sectors")
    if loads is None or stores is None:
        return None
    return loads + stores + (facts.counters.async_copy_sectors or 0.0)


def _traffic(facts: Facts) -> float | None:
    moved = _moved_sectors(facts)
    return None if moved is None else ratio(SECTOR * moved, facts.needed_bytes)


def _dram(facts: Facts) -> float | None:
    c = facts.counters
    if c.dram_read_bytes is None or c.dram_write_bytes is None:
        return None
    return ratio(c.dram_read_bytes + c.dram_write_bytes, facts.needed_bytes)


def _conflicts(facts: Facts) -> float | None:
    c = facts.counters
    if c.bank_conflicts is None or not c.shared_wavefronts_ideal:
        return None
    return (c.shared_wavefronts_ideal + c.bank_conflicts) / c.shared_wavefronts_ideal


def _lanes(facts: Facts) -> float | None:
    return ratio(facts.thread_instructions, facts.warp_instructions)


def _local(facts: Facts) -> float | None:
    c = facts.counters
    if c.local_load_requests is None or c.local_store_requests is None:
        return None
    return ratio(c.local_load_requests + c.local_store_requests, facts.warp_instructions)


def _request_bytes(facts: Facts) -> float | None:
    # Scattered loads are another rule's matter: wider ones would not mend them.
    efficiency = _efficiency("load")(facts)
    if efficiency is None or efficiency < _SCATTERED:
        return None
    return ratio(facts.counters.global_load_bytes, facts.plain("load", "requests"))


def _loads(facts: Facts) -> float:
    return facts.plain("load", "requests") or 0.0


def _atomics(facts: Facts) -> float | None:
    return facts.counters.global_atomic_requests


def _barriers(facts: Facts) -> float | None:
    return ratio(facts.counters.barriers, facts.warp_instructions)


def _arithmetic(facts: Facts) -> float | None:
    c = facts.counters
    fused = (c.fp32_fma or 0) + (c.fp64_fma or 0) + (c.fp16_fma or 0)
    if c.fp32_fma is None or not facts.compute_bound or c.tensor_instructions:
        return None
    return ratio(fused, facts.thread_instructions)


def _shared_per_fma(facts: Facts) -> float | None:
    c = facts.counters
    if not facts.compute_bound or c.fp32_fma is None or not c.shared_load_wavefronts:
        return None
    return ratio(c.shared_load_wavefronts, c.fp32_fma / 32)


def _blocks(facts: Facts) -> float | None:
    return ratio(facts.blocks, facts.sms)


def _occupancy(facts: Facts) -> float | None:
    known = [r.occupancy for r in facts.resources.values() if r.occupancy is not None]
    if known:
        return min(known)
    return ratio(facts.counters.extra.get("sm__maximum_warps_per_active_cycle_pct"), 100.0)


def _achieved(facts: Facts) -> float | None:
    return ratio(facts.counters.achieved_occupancy, _occupancy(facts))


def _instructions(facts: Facts) -> float | None:
    if facts.compute_bound:
        return None
    return ratio(facts.thread_instructions, facts.needed_bytes / 4)


def _percent(name: str) -> Callable[[Facts], float | None]:
    return lambda facts: facts.counters.extra.get(name)


def stalls(counters: Counters) -> list[tuple[str, float]]:
    """(reason, warps stalled per issue) without the two that are no stall, the largest first."""
    found = [
        (name[len(_STALLED) : -len(_PER_ISSUE)], value)
        for name, value in counters.extra.items()
        if name.startswith(_STALLED) and name.endswith(_PER_ISSUE)
    ]
    real = [(reason, v) for reason, v in found if reason not in ("selected", "not_selected")]
    return sorted(real, key=lambda item: (-item[1], item[0]))


STALL_ADVICE: Mapping[str, str] = {
    "long_scoreboard": "more loads in flight a thread (unroll, wider loads), prefetch, async copy",
    "short_scoreboard": "fewer shared-memory round trips: register tiles, wider shared accesses",
    "mio_throttle": "fewer shared or shuffle instructions: wider ones, register reuse",
    "lg_throttle": "fewer, wider global accesses",
    "barrier": "less work between barriers for stragglers, fewer barriers, warp-level steps",
    "math_pipe_throttle": "the arithmetic pipe is busy: fewer operations or another pipe",
    "wait": "more independent instructions in a row (unroll)",
    "no_instruction": "smaller code: less unrolling",
    "branch_resolving": "fewer branches: predicates, uniform conditions",
    "membar": "fewer fences",
    "imc_miss": "constants with uniform index, fewer distinct constants",
    "dispatch_stall": "fewer register bank conflicts: other operand order",
    "gmma": "deeper pipeline of tensor operations",
    "tex_throttle": "fewer texture or surface accesses in a row",
    "drain": "stores spread over the kernel instead of at its end",
    "sleeping": "no nanosleep on the fast path",
}

RULES: tuple[Rule, ...] = (
    Rule("spills", _local, lambda v, f: v > 0.002, lambda v: min(1.0, 0.3 + 5 * v),
         "{:.1%} of the warp instructions access local memory (spills or indexed arrays)",
         "fewer live values, smaller tiles, constant indices, a looser launch bound"),
    Rule("load_efficiency", _efficiency("load"), lambda v, f: v < _SCATTERED, lambda v: 1 - v,
         "global loads use {:.0%} of the bytes they move",
         "let neighbouring threads read neighbouring addresses, stage through shared memory"),
    Rule("store_efficiency", _efficiency("store"), lambda v, f: v < 0.8, lambda v: 1 - v,
         "global stores fill {:.0%} of the bytes they move",
         "let neighbouring threads write neighbouring addresses, turn the tile in shared memory"),
    Rule("dram_traffic", _dram, lambda v, f: v > 1.25, lambda v: 1 - 1 / v,
         "DRAM moved {:.2f}x the bytes that the task needs",
         "reuse in registers, shared memory or L2 (tiles, order of blocks), fewer passes"),
    Rule("global_traffic", _traffic, lambda v, f: v > 1.5, lambda v: 0.8 * (1 - 1 / v),
         "global accesses move {:.2f}x the bytes that the task needs",
         "reuse in registers or shared memory, larger tiles, fewer passes"),
    Rule("bank_conflicts", _conflicts, lambda v, f: v >= 1.1, lambda v: 0.9 * (1 - 1 / v),
         "shared accesses take {:.2f}x the ideal wavefronts (bank conflicts)",
         "pad the rows or swizzle the columns"),
    Rule("atomics", _atomics, lambda v, f: v > 0.005 * (f.warp_instructions or v), lambda v: 0.5,
         "{:,.0f} atomic requests go to global memory",
         "combine in registers, the warp, then shared memory before one atomic a block"),
    Rule("few_blocks", _blocks, lambda v, f: v < 2, lambda v: 1 - min(1.0, v) / 2,
         "the grid has {:.2f} blocks for each multiprocessor",
         "smaller tiles or split work, so that every multiprocessor has several blocks"),
    Rule("active_lanes", _lanes, lambda v, f: v < 26, lambda v: 0.8 * (1 - v / 32),
         "{:.1f} of 32 lanes are active on average",
         "uniform conditions within a warp, compact the work, one tail instead of many"),
    Rule("narrow_loads", _request_bytes,
         lambda v, f: v <= 136 and not f.compute_bound and _loads(f) > 256, lambda v: 0.35,
         "each global load request asks for {:.0f} bytes of the 512 that one can",
         "16-byte vector loads where the address is aligned, several items a thread"),
    Rule("instructions", _instructions, lambda v, f: v > 20, lambda v: min(0.6, v / 200),
         "{:.0f} instructions are executed for each 4 bytes that the task must move",
         "hoist index arithmetic, unroll, more items a thread, strength reduction"),
    Rule("arithmetic_share", _arithmetic, lambda v, f: v < 0.6, lambda v: 0.8 * (1 - v),
         "{:.0%} of the instructions are fused multiply-adds",
         "register tiles (several outputs a thread), unrolled inner loop, wider shared loads"),
    Rule("shared_per_fma", _shared_per_fma, lambda v, f: v > 0.3, lambda v: min(0.9, v / 2),
         "{:.2f} shared-memory wavefronts are read for each warp multiply-add",
         "larger register tiles, float4 shared loads, values reused from registers"),
    Rule("barriers", _barriers, lambda v, f: v > 0.02, lambda v: min(0.5, 5 * v),
         "{:.1%} of the warp instructions are barriers",
         "warp-level steps (shuffles), more work between barriers, double buffering"),
    Rule("occupancy", _occupancy, lambda v, f: v < 0.5, lambda v: 0.5 * (1 - v),
         "occupancy is at most {:.0%}",
         "fewer registers or shared bytes a block, other block size, or more parallelism a thread"),
    Rule("achieved_occupancy", _achieved, lambda v, f: v < 0.7, lambda v: 0.4 * (1 - v),
         "{:.0%} of the possible occupancy is reached",
         "even work per block, more blocks, a grid that is a multiple of what is resident"),
    Rule("dram_busy", _percent("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"),
         lambda v, f: v >= 80, lambda v: 0.3,
         "DRAM runs at {:.0f} % of its peak: only fewer bytes can help much",
         "fuse passes, smaller types in flight, reuse in L2"),
    Rule("sm_busy", _percent("sm__throughput.avg.pct_of_peak_sustained_elapsed"),
         lambda v, f: v >= 80, lambda v: 0.3,
         "the multiprocessors run at {:.0f} % of their peak",
         "fewer instructions: wider accesses, tensor instructions where precision allows"),
)  # fmt: skip
