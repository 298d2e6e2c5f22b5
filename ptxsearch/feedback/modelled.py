"""Where the emulator's time model sees a kernel's time go: how long each part of the GPU is busy.

The model leaves its parts, in seconds, in the counters' `extra` as `modelled_<part>`; ncu has
none.
"""

from __future__ import annotations

from collections.abc import Mapping

from ptxsearch.evaluation import Counters

_PREFIX = "modelled_"
_SHOWN = 3
# A part that is busy for less than this share of the longest adds under 2 % to the modelled time.
_HIDDEN = 0.5

NAMES: Mapping[str, str] = {
    "dram": "DRAM",
    "l2": "L2",
    "l1": "L1",
    "shared": "shared memory",
    "issue": "issue slots",
    "special": "special functions",
    "latency": "latency",
    "blocks": "starts of blocks",
}
ADVICE: Mapping[str, str] = {
    "dram": "only fewer bytes can help: what is left is the traffic itself",
    "l2": "reuse in registers or shared memory, whole sectors in every store",
    "l1": "whole sectors in every access, reuse in registers",
    "shared": "wider shared accesses, fewer conflicts, values kept in registers",
    "issue": "fewer instructions: wider accesses, hoisted index arithmetic",
    "latency": "more loads in flight a thread, more resident warps, fewer barriers and round trips",
    "special": "fewer exponentials, divisions and roots",
    "atomics": "combine before one atomic a block",
    "blocks": "fewer, longer blocks: several items or tiles each",
}
# The part whose time a rule of the table is about.
CONCERNS: Mapping[str, str] = {
    "bank_conflicts": "shared",
    "instructions": "issue",
    "shared_per_fma": "shared",
    "atomics": "atomics",
}


def parts(counters: Counters) -> dict[str, float]:
    """Seconds by part, the longest first; empty where nothing was modelled."""
    found = {
        name.removeprefix(_PREFIX): seconds
        for name, seconds in counters.extra.items()
        if name.startswith(_PREFIX) and seconds > 0
    }
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def line(counters: Counters) -> str:
    """The longest parts with their times, and what helps the first; empty without a model."""
    found = list(parts(counters).items())[:_SHOWN]
    if not found:
        return ""
    shown = ", ".join(f"{NAMES.get(name, name)} {_us(seconds)}" for name, seconds in found)
    advice = ADVICE.get(found[0][0])
    return f"- busy longest (modelled): {shown}" + (f"; try: {advice}" if advice else "")


def hidden(rule: str, counters: Counters) -> str:
    """Why what a rule tells of costs next to nothing: another part is busy twice as long."""
    found, part = parts(counters), CONCERNS.get(rule)
    if part is None or not found:
        return ""
    longest, took = next(iter(found)), found.get(part, 0.0)
    if took >= _HIDDEN * found[longest]:
        return ""
    return (
        f"hidden: {NAMES.get(part, part)} is busy {_us(took)}, "
        f"{NAMES.get(longest, longest)} {_us(found[longest])}"
    )


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.4g} us"
