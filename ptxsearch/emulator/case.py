"""A case file run on the emulator: launches with described inputs, in the format of the corpus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxsearch.emulator.arguments import undefined
from ptxsearch.emulator.inputs import DTYPES, make
from ptxsearch.emulator.module import Module, load
from ptxsearch.emulator.operation import Array
from ptxsearch.emulator.report import Report
from ptxsearch.errors import UsageError

_RUN = "a run needs `grid`, `block` and `args`, each of them with `name` and `kind`"


@dataclass(frozen=True)
class CaseLaunch:
    """One launch of a case: which run and launch, its report, the buffers after it by name."""

    run: str
    launch: str
    report: Report
    buffers: Mapping[str, Array]
    before: Mapping[str, Any]


def run_case(ptx_text: str, case: Mapping[str, Any]) -> list[Report]:
    """The report of every launch of every run of a case."""
    return [launch.report for launch in case_launches(ptx_text, case)]


def case_launches(
    ptx_text: str, case: Mapping[str, Any], hidden: Mapping[str, Array] | None = None
) -> list[CaseLaunch]:
    """Every launch of every run; each run starts from a freshly loaded module.

    `hidden` gives contents for buffers that are allocated but not passed; otherwise they are 0.
    """
    try:
        runs = list(case["runs"])
        entry = str(case["entry"])
    except (KeyError, TypeError) as error:
        raise UsageError(f"the case has no {error}", "a case needs `entry` and `runs`") from None
    launches: list[CaseLaunch] = []
    for number, run in enumerate(runs):
        module = load(ptx_text)
        try:
            prepared = _Run(module, entry, case, run, hidden or {})
        except (TypeError, AttributeError) as error:
            raise UsageError(f"run {number} of the case is malformed ({error})", _RUN) from error
        except KeyError as error:
            raise _lacking(number, error) from None
        try:
            launches += prepared.launches()
        except KeyError as error:
            raise _lacking(number, error) from None
    return launches


def _lacking(number: int, error: KeyError) -> UsageError:
    return UsageError(f"run {number} of the case lacks {error}", f"{_RUN}, and what `init` needs")


class _Run:
    """The memory of one run of a case."""

    def __init__(
        self,
        module: Module,
        entry: str,
        case: Mapping[str, Any],
        run: Mapping[str, Any],
        hidden: Mapping[str, Array],
    ) -> None:
        self.module = module
        self.entry = entry
        self.run = run
        self.arguments = list(run["args"])
        self.buffers: dict[str, Array] = {}
        self.scalars: dict[str, Any] = {}
        self.unwritten: set[str] = set()
        self.hidden = hidden
        self._allocate()
        for item in case.get("globals", ()):
            if module.parsed is not None:
                data = make(item["init"], item["dtype"], item["shape"])
                module.write_global(_symbol(module, item["symbol"]), data)

    def _allocate(self) -> None:
        buffers = [a for a in self.arguments if a["kind"] == "buffer"]
        contents = {a["name"]: make(a["init"], a["dtype"], a["shape"]) for a in buffers}
        for hidden in self.run.get("hidden", ()):
            empty = np.zeros(hidden["shape"], DTYPES[hidden["dtype"]])
            contents[hidden["name"]] = self.hidden.get(hidden["name"], empty)
        layout = self.run.get("layout")
        self.buffers = _arena(contents, layout) if layout else contents
        self.unwritten = {a["name"] for a in buffers if a.get("role") == "out"}
        for argument in self.arguments:
            if argument["kind"] == "scalar":
                self.scalars[argument["name"]] = argument["value"]

    def launches(self) -> list[CaseLaunch]:
        """Every launch of the run, memory kept between them."""
        out = []
        for launch in self.run.get("launches") or [{}]:
            out.append(self._launch(launch))
        return out

    def _launch(self, launch: Mapping[str, Any]) -> CaseLaunch:
        by_name = {a["name"]: a for a in self.arguments}
        for name, init in launch.get("set", {}).items():
            self._fill(by_name[name], init.get("init", init))
        for name in launch.get("refill", ()):
            self._fill(by_name[name], by_name[name]["init"])
            if by_name[name].get("role") == "out":
                self.unwritten.add(name)
        self.scalars |= launch.get("scalars", {})
        bound = launch.get("bind", {})
        before: dict[str, Any] = {n: b.copy() for n, b in self.buffers.items()} | self.scalars
        before |= {name: before[other] for name, other in bound.items()}
        args: dict[str, Any] = {}
        for argument in self.arguments:
            if argument.get("param", True) is False:
                continue
            args[argument["name"]] = self._argument(argument, bound)
        report = self.module.launch(
            self.entry,
            grid=self.run["grid"],
            block=self.run["block"],
            cluster=self.run.get("cluster") or (1, 1, 1),
            shared_bytes=self.run.get("dynamic_smem", 0),
            args=args,
        )
        self.unwritten.clear()
        after = {name: buffer.copy() for name, buffer in self.buffers.items()}
        names = str(self.run.get("id", "run")), str(launch.get("id", "only"))
        return CaseLaunch(*names, report, after, before)

    def _fill(self, argument: Mapping[str, Any], init: Mapping[str, Any]) -> None:
        data = make(init, argument["dtype"], argument["shape"])
        self.buffers[argument["name"]][...] = data

    def _argument(self, argument: Mapping[str, Any], bound: Mapping[str, str]) -> Any:
        kind, name = argument["kind"], argument["name"]
        if kind == "buffer":
            source = bound.get(name, name)
            buffer = self.buffers[source]
            return undefined(buffer) if source in self.unwritten else buffer
        if kind == "scalar":
            return _scalar(argument["dtype"], self.scalars[name])
        if kind == "struct":
            return _struct(argument["fields"])
        raise UsageError(f"argument {name!r} of kind {kind!r}", "buffer, scalar or struct")


def _scalar(dtype: str, value: Any) -> np.generic[Any]:
    return make({"gen": "values", "values": [value]}, dtype, (1,))[0]  # type: ignore[no-any-return]


def _struct(fields: Sequence[tuple[str, Any]]) -> bytes:
    out = b""
    for kind, value in fields:
        if kind == "pad":
            out += bytes(value)
            continue
        items = value if isinstance(value, list) else [value]
        data = make({"gen": "values", "values": items}, kind, (len(items),))
        out += data.astype(DTYPES[kind]).tobytes()
    return out


def _arena(contents: Mapping[str, Array], layout: Mapping[str, Any]) -> dict[str, Array]:
    """All buffers as views of one array, at multiples of the alignment, in the given order."""
    align, at = int(layout["align"]), 0
    starts = {}
    for name in layout["order"]:
        at = -(-at // align) * align
        starts[name] = at
        at += contents[name].nbytes
    whole = np.zeros(-(-at // align) * align, np.uint8)
    out = {}
    for name, start in starts.items():
        data = contents[name]
        view = whole[start : start + data.nbytes].view(data.dtype).reshape(data.shape)
        view[...] = data
        out[name] = view
    return out


def _symbol(module: Module, name: str) -> str:
    """The module variable of a source name, which a compiler may have decorated."""
    variables = module.parsed.variables if module.parsed else {}
    if name in variables:
        return name
    found = [symbol for symbol in variables if name in symbol]
    return found[0] if len(found) == 1 else name
