"""Nsight Compute: one run over the launches of a kernel, its report as counters and advice.

Sections bring the rules, `METRICS` the counters; together they cost one process. The outcome is
always classified, because an empty result without permission is not a kernel without faults.
"""

from __future__ import annotations

import ast
import csv
import glob
import importlib
import io
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ptxsearch.evaluation import Counters, Inputs
from ptxsearch.gpu import case, tool
from ptxsearch.gpu.metrics import METRICS, counters
from ptxsearch.gpu.sequence import Program

__all__ = ["SECTIONS", "Profile", "classify", "collect", "command", "read_csv", "read_report"]

SECTIONS = (
    "SpeedOfLight", "SchedulerStats", "WarpStateStats", "MemoryWorkloadAnalysis_Tables",
    "Occupancy", "LaunchStats", "SourceCounters",
)  # fmt: skip
_UNKNOWN = re.compile(r"(?:Failed to find metric|Unknown metric|not find metric)[^\w]*([\w.]+)")
_OUTCOMES = (
    ("no_permission", re.compile(r"ERR_NVGPUCTRPERM|does not have permission")),
    ("not_supported", re.compile(r"LibraryNotLoaded|not supported|Failed to initialize")),
    ("no_kernel_matched", re.compile(r"No kernels were profiled")),
)
_SCALES = {
    "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9,
    "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12, "Khz": 1e3, "Mhz": 1e6, "Ghz": 1e9,
}  # fmt: skip
_MARKUP = re.compile(r"@(?:section:[^:@]*:([^@]*)|url:([^:@]*):[^@]*)@")
_PER_OPCODE = re.compile(r"([A-Z][A-Z0-9_.]*): ([\d,]+)")
OPCODES = "sass__inst_executed_per_opcode"


@dataclass(frozen=True)
class Profile:
    """What ncu said of a launch sequence.

    `outcome` is ok, partial, no_ncu, no_permission, not_supported, no_kernel_matched, timeout or
    failed. `launches` holds the metrics of each launch, `advice` ncu's own sentences.
    """

    outcome: str
    message: str = ""
    counters: Counters = field(default_factory=lambda: Counters(source="ncu"))
    launches: tuple[Mapping[str, float], ...] = ()
    advice: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    seconds: float = 0.0


def command(ncu: str, report: Path, entries: Iterable[str], *, metrics: Sequence[str]) -> list[str]:
    """The command line of ncu before the program's: one report of every launch of `entries`."""
    names = "|".join(re.escape(name) for name in dict.fromkeys(entries))
    sections = [part for section in SECTIONS for part in ("--section", section)]
    return [
        ncu, "-o", str(report), "-f", *sections, "--metrics", ",".join(metrics),
        "--kernel-name", f"regex:^({names})$", "--clock-control", "none",
        "--cache-control", "all", "--replay-mode", "kernel", "--target-processes", "all",
    ]  # fmt: skip


def collect(
    program: Program,
    inputs: Inputs,
    *,
    timeout: float = 120.0,
    device: str | None = None,
    keep: Path | None = None,
) -> Profile:
    """The profile of one launch sequence, in a process of its own.

    `keep` names a file for the report. Metrics this ncu does not know are left out and named in
    `missing`.
    """
    path = tool.find("ncu")
    if path is None:
        return Profile("no_ncu", "ncu is not on PATH: install Nsight Compute")
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="ptxsearch-") as name:
        folder = Path(name)
        case.save(folder, program, inputs)
        report = (keep or folder / "profile").with_suffix(".ncu-rep")
        entries = [step.entry for step in program.launches]
        metrics = list(METRICS)
        for _ in range(2):
            head = command(path, report, entries, metrics=metrics)
            ran = tool.run([*head, *case.command(folder)], timeout=timeout, device=device)
            unknown = set(_UNKNOWN.findall(ran.text))
            if not unknown & set(metrics):
                break
            metrics = [metric for metric in metrics if metric not in unknown]
        outcome = classify(ran.code, ran.text, produced=report.is_file())
        launches, advice = read(report, path) if report.is_file() else ((), ())
    return Profile(
        outcome if launches or outcome != "ok" else "failed",
        "" if outcome == "ok" else _last_words(ran.text),
        counters(launches),
        launches,
        advice,
        tuple(name for name in METRICS if launches and name not in launches[0]),
        time.perf_counter() - started,
    )


def classify(code: int | None, text: str, *, produced: bool) -> str:
    """The outcome of a run of ncu from its exit code, its text and whether a report is there."""
    if code is None:
        return "timeout"
    for outcome, pattern in _OUTCOMES:
        if pattern.search(text):
            return outcome
    if not produced:
        return "failed"
    return "ok" if code == 0 else "partial"


def _last_words(text: str) -> str:
    lines = [line for line in text.splitlines() if line.startswith("==ERROR==")]
    return (lines or text.splitlines() or [""])[-1][:400]


def read(report: Path, ncu: str) -> tuple[tuple[Mapping[str, float], ...], tuple[str, ...]]:
    """Metrics by launch and advice of a report: by the report reader, or by ncu's own CSV."""
    try:
        return read_report(report)
    except ImportError:
        head = [ncu, "--import", str(report), "--csv", "--print-units", "base"]
        head += ["--print-metric-instances", "values", "--page"]
        raw = tool.run([*head, "raw"], timeout=60.0)
        return read_csv(raw.text), advice_of_csv(tool.run([*head, "details"], timeout=60.0).text)


def read_report(report: Path) -> tuple[tuple[Mapping[str, float], ...], tuple[str, ...]]:
    """Metrics in ncu's base units by launch, and advice. Raises ImportError without the reader."""
    reader = _reader()
    context = reader.load_report(str(report))
    launches, advice = [], []
    for number in range(context.num_ranges()):
        span = context.range_by_idx(number)
        for index in range(span.num_actions()):
            action = span.action_by_idx(index)
            launches.append(_numbers(action))
            advice += [text for rule in action.rule_results_as_dicts() if (text := _advice(rule))]
    return tuple(launches), tuple(dict.fromkeys(advice))


def _reader() -> Any:
    """The report reader: the installed package, or the one that Nsight Compute brings."""
    try:
        return _imported()
    except ImportError:
        path = tool.find("ncu")
        places = glob.glob("/opt/nvidia/nsight-compute/*/extras/python")
        if path is not None:
            places.append(str(Path(path).resolve().parent / "extras" / "python"))
        sys.path.extend(place for place in sorted(places, reverse=True) if place not in sys.path)
        return _imported()


def _imported() -> Any:
    with warnings.catch_warnings():
        # The types of its SWIG wrapper are deprecated from Python 3.12 on; nothing to do here.
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module("ncu_report")


def _numbers(action: Any) -> Mapping[str, float]:
    values: dict[str, float] = {}
    for name in action.metric_names():
        value = action[name].value()
        if isinstance(value, int | float) and not isinstance(value, bool):
            values[name] = float(value)
    if OPCODES in values:
        values |= _opcodes(action[OPCODES])
    return values


def _opcodes(metric: Any) -> Mapping[str, float]:
    """Executed warp instructions by opcode, each under `opcode NAME`."""
    names = metric.correlation_ids()
    return {
        f"opcode {names.value(index)}": float(metric.value(index))
        for index in range(metric.num_instances())
    }


def _advice(rule: Mapping[str, Any]) -> str:
    """One sentence of a rule, with the gain ncu estimates where it gives one."""
    message, speedup = (_mapping(rule.get(k)) for k in ("rule_message", "speedup_estimation"))
    raw = str(message.get("message", "")).strip()
    text = _MARKUP.sub(lambda found: found[1] or found[2] or "", raw)
    if not text:
        return ""
    title = str(message.get("title", "")).strip()
    gain = speedup.get("speedup")
    estimate = f" (estimated gain {float(gain):.3g} %)" if isinstance(gain, int | float) else ""
    return f"{title}: {text}{estimate}" if title else f"{text}{estimate}"


def _mapping(value: Any) -> Mapping[str, Any]:
    """A mapping that some versions of the reader hand out as its text."""
    if isinstance(value, str):
        try:
            value = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            return {"message": value}
    return value if isinstance(value, Mapping) else {}


def read_csv(text: str) -> tuple[Mapping[str, float], ...]:
    """Metrics by launch from `--page raw --csv`: names, then units, then one row a launch.

    Times become nanoseconds and sizes bytes, as in a report.
    """
    rows = list(csv.reader(io.StringIO(_table(text))))
    if len(rows) < 3:
        return ()
    names, units = rows[0], rows[1]
    launches = []
    for row in rows[2:]:
        values: dict[str, float] = {}
        for name, unit, cell in zip(names, units, row, strict=False):
            if name == OPCODES:
                listed = _PER_OPCODE.findall(cell)
                values |= {f"opcode {code}": float(n.replace(",", "")) for code, n in listed}
                cell = cell.partition(" ")[0]
            try:
                values[name] = float(cell.replace(",", "")) * _SCALES.get(unit, 1.0)
            except ValueError:
                continue
        launches.append(values)
    return tuple(launches)


def advice_of_csv(text: str) -> tuple[str, ...]:
    """The rules' sentences from `--page details --csv`."""
    rows = csv.DictReader(io.StringIO(_table(text)))
    found = [
        f"{row.get('Rule Name', '')}: {row['Rule Description'].strip()}"
        for row in rows
        if row.get("Rule Description")
    ]
    return tuple(dict.fromkeys(found))


def _table(text: str) -> str:
    """The CSV part of ncu's output: what stands before it are lines of messages."""
    lines = text.splitlines(keepends=True)
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    return "".join(lines[start:])
