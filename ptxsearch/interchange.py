"""Measured tuning spaces in the files others keep: .npz tables, T4 results, Kernel Tuner caches.

`read` gives a `Table` whatever the format. T4 is the interchange format of autotuners (results
with configuration, times and invalidity); `write_t4` writes one that they can read.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxsearch.errors import RecordingError
from ptxsearch.evaluation import Stage, Status
from ptxsearch.space import Rows, Space, Value

Verdict = tuple[Status, Stage, str]

_OK: Verdict = ("OK", "quick", "")
_COMPILE: Verdict = ("COMPILE_ERROR", "compile", "it did not compile when it was recorded")
_LAUNCH: Verdict = ("CRASHED", "smoke", "its launch or run failed when it was recorded")
_WRONG: Verdict = ("WRONG", "correctness", "its result was wrong when it was recorded")
_CRASH: Verdict = ("CRASHED", "smoke", "it crashed when it was recorded")
_TIMEOUT: Verdict = ("TIMEOUT", "smoke", "it ran past its limit when it was recorded")
_OTHER: Verdict = ("CRASHED", "smoke", "it failed when it was recorded, for no recorded reason")
_REFUSED: Verdict = ("REJECTED", "lint", "it broke a restriction when it was recorded")

_NPZ = (_OK, _COMPILE, _LAUNCH, _OTHER)
_NPZ_NAMED = (_OK, _COMPILE, _LAUNCH, _WRONG, _CRASH, _TIMEOUT)
_T4: Mapping[str, Verdict] = {
    "correct": _OK, "compile": _COMPILE, "runtime": _LAUNCH, "correctness": _WRONG,
    "timeout": _TIMEOUT, "constraints": _REFUSED,
}  # fmt: skip
_INVALIDITY: Mapping[str, str] = {
    "OK": "correct", "COMPILE_ERROR": "compile", "WRONG": "correctness", "DISHONEST": "correctness",
    "TIMEOUT": "timeout", "REJECTED": "constraints", "PRUNED": "constraints",
}  # fmt: skip
_KERNEL_TUNER: Mapping[str, Verdict] = {
    "CompilationFailedConfig": _COMPILE, "RuntimeFailedConfig": _LAUNCH, "InvalidConfig": _REFUSED,
}  # fmt: skip
_FACTORS = {"s": 1.0, "seconds": 1.0, "ms": 1e-3, "milliseconds": 1e-3, "us": 1e-6, "ns": 1e-9,
            "microseconds": 1e-6, "nanoseconds": 1e-9}  # fmt: skip


@dataclass(frozen=True)
class Table:
    """Every recorded configuration: its row in `space`, its verdict and its seconds (nan if none).

    `samples` (n, s) are single timings in seconds, nan-padded; `rel_std` (n,) their spread;
    `resources` and `counters` columns by name; `code` identifies equal machine code.
    """

    name: str
    space: Space
    rows: Rows
    seconds: NDArray[np.float64]
    verdicts: Sequence[Verdict]
    samples: NDArray[np.float64] | None = None
    rel_std: NDArray[np.float64] | None = None
    resources: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    counters: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    code: Sequence[str] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)


def read(path: str | Path) -> Table:
    """The table in a file. Raises RecordingError where it holds none of the known formats."""
    path = Path(path)
    try:
        if path.suffix == ".npz":
            return _read_npz(path)
        data = json.loads(_closed(path.read_text(encoding="utf-8")))
        if not isinstance(data, dict):
            raise TypeError(f"it holds a {type(data).__name__}")
        if "results" in data:
            return _read_t4(path.stem, data)
        if "cache" in data:
            return _read_kernel_tuner(path.stem, data)
    except OSError as error:
        raise RecordingError(f"{path} cannot be read ({error.strerror})", "check it") from error
    except (
        KeyError, ValueError, TypeError, IndexError, AttributeError, EOFError, RecursionError,
        NotImplementedError, zipfile.BadZipFile,
    ) as error:  # fmt: skip
        raise RecordingError(
            f"{path} is not a recording ({type(error).__name__}: {error})",
            "give an .npz space, T4 results or a Kernel Tuner cache",
        ) from error
    raise RecordingError(f"{path} has neither results nor cache", "give T4 or a cache file")


def _closed(text: str) -> str:
    """A cache file as JSON: one that was cut off by an abrupt end lacks its last brackets."""
    text = text.strip()
    if text.endswith("}\n}") or text.endswith("}}") or not text.startswith('{\n"device_name"'):
        return text
    return text.rstrip(",") + "}\n}"


def _read_npz(path: Path) -> Table:
    with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    meta = json.loads(str(arrays["meta"]))
    params = {name: tuple(values) for name, values in meta["params"].items()}
    rows = arrays["idx"].astype(np.int64)
    if "restrictions" in meta:
        space = Space(params, tuple(meta["restrictions"]), derived=_launch_sizes(meta))
    else:
        space = Space.from_rows(params, rows)
    kinds = _NPZ_NAMED if "status_names" in meta else _NPZ
    messages = arrays.get("message", np.full(len(rows), ""))
    verdicts = []
    for status, message in zip(arrays["status"], messages, strict=True):
        verdict = kinds[int(status)]
        verdicts.append((verdict[0], verdict[1], str(message) or verdict[2]))
    counters = _columns(meta.get("counter_names", ()), arrays.get("counters"))
    resources = _columns(meta.get("resource_names", ()), arrays.get("resources"))
    for name in ("registers", "shared_bytes", "local_bytes", "const_bytes"):
        if name in counters:
            resources[name] = counters.pop(name)
    samples, rel_std = arrays.get("samples"), arrays.get("rel_std")
    return Table(
        name=str(meta.get("name", path.stem)),
        space=space,
        rows=rows,
        seconds=arrays["time"] * 1e-3,
        verdicts=verdicts,
        samples=None if samples is None else samples.astype(float) * 1e-3,
        rel_std=None if rel_std is None else rel_std.astype(float),
        resources=resources,
        counters=counters,
        code=[str(code) for code in arrays.get("code_hash", ())],
        meta=meta,
    )


def _launch_sizes(meta: Mapping[str, Any]) -> dict[str, str]:
    """Threads of a block and blocks of the grid, where the launch was recorded."""
    derived = {}
    for name, key in (("threads", "block"), ("blocks", "grid")):
        if key in meta:
            derived[name] = " * ".join(f"({extent})" for extent in meta[key])
    return derived


def _columns(names: Sequence[str], table: NDArray[Any] | None) -> dict[str, NDArray[np.float64]]:
    if table is None:
        return {}
    columns = {name: table[:, i].astype(float) for i, name in enumerate(names)}
    return {name: np.where(column < 0, np.nan, column) for name, column in columns.items()}


def _read_t4(name: str, data: Mapping[str, Any]) -> Table:
    unit = data.get("metadata", {}).get("timeunit", "milliseconds")
    records = []
    for result in data["results"]:
        verdict = _T4[result["invalidity"]]
        samples = [float(t) * _FACTORS[unit] for t in result["times"].get("runtimes") or ()]
        seconds = np.nan
        if verdict is _OK:
            named = {m["name"]: m for m in result.get("measurements") or ()}
            objective = (result.get("objectives") or ["time"])[0]
            if objective in named:
                measured = named[objective]
                seconds = float(measured["value"]) * _FACTORS[measured.get("unit") or unit]
            else:
                seconds = float(np.mean(samples))
        records.append((result["configuration"], seconds, verdict, samples))
    return _of_records(name, records, meta=data.get("metadata", {}))


def _read_kernel_tuner(name: str, data: Mapping[str, Any]) -> Table:
    keys = data["tune_params_keys"]
    records = []
    for entry in data["cache"].values():
        verdict, seconds = _OK, np.nan
        if isinstance(entry["time"], str):
            verdict = _KERNEL_TUNER.get(entry["time"], _OTHER)
        elif not 0 < entry["time"] < 1e20:
            verdict = _OTHER
        else:
            seconds = float(entry["time"]) * 1e-3
        samples = [float(t) * 1e-3 for t in entry.get("times") or () if verdict is _OK]
        records.append(({key: entry[key] for key in keys}, seconds, verdict, samples))
    declared = {key: tuple(data.get("tune_params", {}).get(key, ())) for key in keys}
    meta = {key: data.get(key) for key in ("device_name", "kernel_name", "problem_size")}
    return _of_records(name, records, declared=declared, meta=meta)


def _of_records(
    name: str,
    records: Sequence[tuple[Mapping[str, Value], float, Verdict, list[float]]],
    *,
    meta: Mapping[str, Any],
    declared: Mapping[str, tuple[Value, ...]] | None = None,
) -> Table:
    """A table of (values, seconds, verdict, samples); exactly these values are legal."""
    if not records:
        raise ValueError("no results")
    params: dict[str, tuple[Value, ...]] = {}
    for key in records[0][0]:
        met = {record[0][key] for record in records}
        values = tuple((declared or {}).get(key, ()))
        params[key] = values if met <= set(values) else _ordered(met)
    records = [record for record in records if record[2] is not _REFUSED]
    product = Space(params)
    rows = np.array([product.row(values) for values, *_ in records], dtype=np.int64)
    rows, first = np.unique(rows, axis=0, return_index=True)
    kept = [records[int(i)] for i in first]
    longest = max(len(samples) for *_, samples in kept)
    padded = np.array([samples + [np.nan] * (longest - len(samples)) for *_, samples in kept])
    return Table(
        name=name,
        space=Space.from_rows(params, rows),
        rows=rows,
        seconds=np.array([seconds for _, seconds, *_ in kept]),
        verdicts=[verdict for _, _, verdict, _ in kept],
        samples=padded if longest else None,
        meta=meta,
    )


def _ordered(values: Iterable[Value]) -> tuple[Value, ...]:
    return tuple(sorted(values, key=lambda value: (isinstance(value, str), value)))


def write_t4(
    path: str | Path, results: Iterable[tuple[Mapping[str, Value], float | None, Status]]
) -> None:
    """Writes (values, seconds, status) as T4 results 1.0.0, times in milliseconds."""
    written = []
    for values, seconds, status in results:
        milliseconds = None if seconds is None else seconds * 1e3
        measured = (
            [] if seconds is None else [{"name": "time", "value": milliseconds, "unit": "ms"}]
        )
        written.append(
            {
                "configuration": dict(values),
                "objectives": ["time"],
                "times": {"runtimes": [] if milliseconds is None else [milliseconds]},
                "invalidity": _INVALIDITY.get(status, "runtime"),
                "correctness": 1 if status == "OK" else 0,
                "measurements": measured,
            }
        )
    document = {
        "schema_version": "1.0.0",
        "metadata": {"timeunit": "milliseconds"},
        "results": written,
    }
    Path(path).write_text(json.dumps(document, indent=1), encoding="utf-8")
