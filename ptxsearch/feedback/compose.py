"""An evaluation as text for a proposer: at most 15 lines, as a delta to the parent's.

Every sentence carries its number; advice stands only beside the metric that asks for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ptxsearch.arch import typical_gpu
from ptxsearch.errors import PtxsearchError
from ptxsearch.evaluation import Counters, Evaluation, Fault, Resources
from ptxsearch.feedback import modelled
from ptxsearch.feedback.residence import resident
from ptxsearch.feedback.rules import RULES, STALL_ADVICE, Facts, Rule, ratio, stalls
from ptxsearch.kernel import Kernel
from ptxsearch.tasks import Task, Workload

MOST_LINES = 15
WIDEST = 240
_NOTABLE = 0.05
# Weights, beside those of the rules, of what is better than the parent's and of what is hidden.
_MENDED, _UNFELT = 0.2, 0.1


def feedback(
    evaluation: Evaluation,
    parent: Evaluation | None = None,
    *,
    task: Task | None = None,
    kernel: Kernel | None = None,
    parent_kernel: Kernel | None = None,
    arch: str = "sm_90",
) -> tuple[str, ...]:
    """What the verdict says and what may help, the most telling first, at most 15 lines.

    Occupancy and dynamic shared memory are told where the kernels are given.
    """
    if not evaluation.ok:
        return failure(evaluation, most=MOST_LINES)
    before = parent if parent is not None and parent.ok else None
    lines = _times(evaluation, before)
    name = _counted(evaluation, task, arch)
    where = _workload(task, name)
    took, old = evaluation.resources, before.resources if before else {}
    # Both or neither: dynamic shared bytes of one side alone would read as a change.
    if before is None or parent_kernel is not None:
        took = resident(took, kernel, task=task, workload=where, arch=arch)
        old = resident(old, parent_kernel, task=task, workload=where, arch=arch)
    lines += _resources(took, old)
    if name:
        now = _facts(evaluation, name, task=task, kernel=kernel, arch=arch)
        then = (
            _facts(before, name, task=task, kernel=None, arch=arch)
            if before and name in before.counters
            else None
        )
        bound = modelled.line(now.counters)
        told = [bound] if bound else []
        told += _ruled(now, then, most=MOST_LINES - len(lines) - len(told) - 2)
        told += _stalled(now.counters)
        lines += [_source_line(now.counters, name), *told] if told else []
    if not any(c.source == "ncu" for c in evaluation.counters.values()):
        lines += _degraded(evaluation)
    return tuple(shorten(line) for line in lines[:MOST_LINES])


def failure(evaluation: Evaluation, *, most: int = MOST_LINES) -> tuple[str, ...]:
    """A failed verdict: status, stage, message line by line, faults, the pattern of errors."""
    lines = [f"{evaluation.status} at {evaluation.stage}"]
    lines += [line for line in evaluation.message.splitlines() if line.strip()]
    for fault in evaluation.faults[:4]:
        if fault.message not in evaluation.message:
            lines.append(_fault(fault))
    share, pattern = evaluation.evidence.get("share_right"), evaluation.evidence.get("pattern")
    if isinstance(share, float):
        lines.append(f"{share:.1%} of the elements are right")
    if isinstance(pattern, str) and pattern and pattern not in evaluation.message:
        lines.append(f"pattern of the errors: {pattern}")
    return tuple(shorten(line) for line in lines[:most])


def shorten(line: str) -> str:
    """One line without control characters, at most 240 characters."""
    clean = "".join(c if c.isprintable() else " " for c in line).rstrip()
    return clean if len(clean) <= WIDEST else clean[: WIDEST - 3] + "..."


def _fault(fault: Fault) -> str:
    place = f" at line {fault.source_line}" if fault.source_line else ""
    place = place or (f" at PTX line {fault.line}" if fault.line else "")
    return f"{fault.kind}{place}: {fault.message}"


def duration(seconds: float) -> str:
    """Seconds in the unit that reads best."""
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.4g} ms"
    return f"{seconds * 1e6:.4g} us"


def _times(evaluation: Evaluation, parent: Evaluation | None) -> list[str]:
    lines = []
    for name, timing in evaluation.times.items():
        line = f"time on {name}: {duration(timing.median)} ({evaluation.source})"
        if parent is not None and name in parent.times:
            gain = parent.times[name].median / timing.median
            line += f", {gain:.3g}x the parent's speed ({duration(parent.times[name].median)})"
        lines.append(line)
    floor = evaluation.evidence.get("floor_seconds")
    if isinstance(floor, float) and floor > 0 and math.isfinite(evaluation.seconds):
        line = f"least time by bytes and operations: {duration(floor)}; "
        line += f"this kernel is at {floor / evaluation.seconds:.0%}"
        attainable = evaluation.evidence.get("attainable_seconds")
        if isinstance(attainable, float) and attainable > 0:
            share = attainable / evaluation.seconds
            line += f", at {share:.0%} of what is attainable ({duration(attainable)})"
        lines.append(line)
    return lines[:4]


def _resources(now: Mapping[str, Resources], before: Mapping[str, Resources]) -> list[str]:
    lines = []
    only_one = len(now) == len(before) == 1
    for entry, took in list(now.items())[:3]:
        # A kernel of one entry is compared with its parent's, whatever they are called.
        old = before.get(entry) or (next(iter(before.values())) if only_one else None)
        parts = [f"{_moved(took.registers, old.registers if old else None)} registers"]
        spilled = took.spill_loads + took.spill_stores
        parts.append(f"{spilled} spill bytes" if spilled else "no spills")
        if took.stack_bytes and not spilled:
            parts.append(f"{took.stack_bytes} bytes of local arrays")
        shared = took.static_shared + took.dynamic_shared
        if shared or (old and old.static_shared + old.dynamic_shared):
            then = old.static_shared + old.dynamic_shared if old else None
            parts.append(f"{_moved(shared, then)} shared bytes")
        if took.occupancy is not None:
            limit = f" (limited by {took.limiter})" if took.limiter else ""
            parts.append(f"occupancy {took.occupancy:.0%}{limit}")
        if took.global_load_bits:
            parts.append(f"widest global load {took.global_load_bits} bits")
        lines.append(f"{entry}: " + ", ".join(parts))
    return lines


def _moved(now: int, before: int | None) -> str:
    return f"{now:,}" if before is None or before == now else f"{now:,} (parent {before:,})"


def _counted(evaluation: Evaluation, task: Task | None, arch: str) -> str:
    """The workload whose counters tell most: the timed one that is furthest from its least time.

    Without a task it is the last one counted.
    """
    gpu, found = typical_gpu(arch), ""
    worst = -1.0
    for workload in task.timed if task is not None else ():
        if workload.name not in evaluation.counters:
            continue
        timing, excess = evaluation.times.get(workload.name), 0.0
        if task is not None and gpu is not None and timing is not None:
            moved = task.amount("bytes_in", workload) + task.amount("bytes_out", workload)
            work = task.amount("flops_min", workload)
            least = max(moved / gpu.bandwidth, work / gpu.fp32_peak)
            excess = timing.median / least if least > 0 else 0.0
        if excess > worst:
            worst, found = excess, workload.name
    return found or next(iter(reversed(tuple(evaluation.counters))), "")


def _workload(task: Task | None, name: str) -> Workload | None:
    """The workload of that name, else the first timed one."""
    if task is None:
        return None
    return next((w for w in task.workloads if w.name == name), next(iter(task.timed), None))


def _source_line(counters: Counters, name: str) -> str:
    what = {"ncu": "hardware counters (ncu)", "emulated": "counters from the emulator"}
    return f"{what.get(counters.source, 'recorded counters')} on {name}:"


def _facts(
    evaluation: Evaluation, name: str, *, task: Task | None, kernel: Kernel | None, arch: str
) -> Facts:
    gpu = typical_gpu(arch)
    workload = None
    if task is not None:
        workload = next((w for w in task.workloads if w.name == name), None)
    if task is None or workload is None:
        return Facts(evaluation.counters[name], evaluation.resources)
    return Facts(
        evaluation.counters[name],
        evaluation.resources,
        needed_bytes=task.amount("bytes_in", workload) + task.amount("bytes_out", workload),
        needed_flops=task.amount("flops_min", workload),
        outputs=float(sum(math.prod(param.extents(workload.sizes)) for param in task.outputs)),
        blocks=_blocks(task, workload, kernel),
        sms=gpu.sms if gpu else None,
    )


def _blocks(task: Task, workload: Workload, kernel: Kernel | None) -> int | None:
    if kernel is None or kernel.language == "recorded":
        return None
    try:
        bound = kernel.bind(workload.sizes, task.names)
    except PtxsearchError:
        return None
    return max(math.prod(launch.grid) for launch in bound)


def _ruled(now: Facts, then: Facts | None, *, most: int) -> list[str]:
    found: list[tuple[float, int, str]] = []
    for order, rule in enumerate(RULES):
        value = rule.metric(now)
        if value is None or not math.isfinite(value):
            continue
        old = rule.metric(then) if then is not None else None
        if rule.fires(value, now):
            line = f"- {rule.sentence.format(value)}{_delta(rule, value, old)}; "
            covered = modelled.hidden(rule.name, now.counters)
            weight = _UNFELT if covered else rule.weight(value)
            found.append((-weight, order, line + (covered or f"try: {rule.action}")))
        elif old is not None and then is not None and rule.fires(old, then):
            line = f"- mended: {rule.sentence.format(value)}{_delta(rule, value, old)}"
            found.append((-_MENDED, order, line))
    return [line for _, _, line in sorted(found)[: max(0, most)]]


def _delta(rule: Rule, value: float, old: float | None) -> str:
    if old is None or abs(value - old) <= _NOTABLE * max(abs(value), abs(old)):
        return ""
    number = rule.sentence[rule.sentence.index("{") : rule.sentence.index("}") + 1]
    return f" (parent {number.format(old)})"


def _stalled(counters: Counters) -> list[str]:
    found = stalls(counters)
    total = counters.extra.get("smsp__average_warp_latency_per_inst_issued.ratio")
    if not found:
        return []
    reason, warps = found[0]
    share = ratio(warps, total)
    shown = f"{share:.0%} of the time between two of its instructions" if share else f"{warps:.1f}"
    advice = STALL_ADVICE.get(reason)
    return [f"- a warp waits most on {reason}: {shown}" + (f"; try: {advice}" if advice else "")]


def _degraded(evaluation: Evaluation) -> list[str]:
    if evaluation.source != "measured":
        return []
    return [
        "no hardware counters were taken: they need ncu and the permission to profile "
        "(NVreg_RestrictProfilingToAdminUsers=0 or CAP_PERFMON; `ptxsearch doctor` tells)"
    ]
