"""Tasks on disk: a folder with `task.yaml`, `reference.py`, a baseline and `wrong/` kernels.

`load_task("level1/sum")` finds a bundled task by name, in a checkout and installed alike, or any
folder by path. A mistake in a file is one TaskError with the file, the line and the key.
`reference.py` is code that runs: a task is as trusted as any program.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

from ptxsearch.document import Document
from ptxsearch.errors import PtxsearchError, TaskError, UserError
from ptxsearch.evaluation import Status
from ptxsearch.inputs import distributions
from ptxsearch.kernel import Kernel, Language, Launch, Scratch, TensorMap
from ptxsearch.param import Param
from ptxsearch.space import Space
from ptxsearch.tasks import Calibration, Task, Workload, Wrong

SCHEMA = 1
_KEYS = frozenset(
    {
        "schema", "name", "level", "description", "provenance", "params", "workloads",
        "distributions", "scale", "tolerance", "calibrated_at", "allow", "flops_min", "bytes_in",
        "bytes_out", "baseline", "space", "wrong", "notes",
    }
)  # fmt: skip
_KERNEL_KEYS = frozenset({"source", "launches", "values", "scratch", "tensor_maps"})
_WRONG_KEYS = frozenset(
    {"file", "status", "reason", "counter", "at_least", "launches", "scratch", "values"}
)
_ALLOWED = frozenset({"atomics_order", "griddepcontrol", "in_place"})
# What a module's own statements may raise while it is imported.
_IMPORT_MISTAKES = (
    ArithmeticError, AttributeError, ImportError, LookupError, NameError, OSError, RuntimeError,
    SyntaxError, TypeError, ValueError,
)  # fmt: skip


def folder() -> Path:
    """The directory of the bundled tasks: in the package, or at the top of a checkout."""
    inside = Path(__file__).parent / "benchmarks"
    return inside if inside.is_dir() else Path(__file__).parent.parent / "benchmarks"


def bundled() -> tuple[str, ...]:
    """The names of the bundled tasks, such as "level1/sum", in order."""
    found = folder().glob("level*/*/task.yaml")
    return tuple(sorted(path.parent.relative_to(folder()).as_posix() for path in found))


def load_task(name: str | Path) -> Task:
    """The task of a bundled name, a folder, or a path to its `task.yaml`.

    Raises TaskError where there is none (with near matches) or where it is malformed.
    """
    return _Reader(locate(name) / "task.yaml").task()


def locate(name: str | Path) -> Path:
    """The folder of a task by bundled name or path. Raises TaskError where there is none."""
    path = Path(name)
    if path.name == "task.yaml" and path.is_file():
        return path.parent
    for home in (path, folder() / str(name)):
        if (home / "task.yaml").is_file():
            return home
    raise TaskError(f"unknown task {str(name)!r}", _near(str(name)))


def _near(name: str) -> str:
    known = bundled()
    short = {task.split("/")[-1]: task for task in known}
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    near += [short[m] for m in difflib.get_close_matches(name.split("/")[-1], short, n=3)]
    if near:
        return f"did you mean {' or '.join(dict.fromkeys(near))}?"
    return f"use one of {', '.join(known)}, or the path of a folder with a task.yaml"


class _Reader:
    """Builds a Task from its folder."""

    def __init__(self, path: Path) -> None:
        self.file = Document(path)
        self.home = path.parent

    def task(self) -> Task:
        """The whole task."""
        data = self.file.keys(self.file.data, _KEYS, "")
        for key in ("name", "level", "description", "params", "workloads", "baseline"):
            if key not in data:
                raise TaskError(f"{self.file.path}: lacks the key {key}", f"add {key}")
        if not isinstance(data.get("schema", SCHEMA), int) or data.get("schema", SCHEMA) > SCHEMA:
            raise self.file.fault("schema", f"is {data['schema']!r}", f"use {SCHEMA} or upgrade")
        code = self.code()
        baseline = self.kernel(data["baseline"], data.get("space"), "baseline")
        params = self.file.records(Param, data["params"], "params")
        try:
            task = Task(
                name=str(data["name"]),
                level=self.file.number(data["level"], "level"),
                description=str(data["description"]).strip(),
                params=params,
                workloads=self.workloads(data["workloads"]),
                reference=code.reference,
                baseline=baseline,
                provenance=str(data.get("provenance", "")).strip(),
                distributions=tuple(data.get("distributions") or ()),
                scale=dict(data.get("scale") or {}),
                magnitude=getattr(code, "magnitude", None),
                variant=getattr(code, "variant", None),
                tolerance={k: float(v) for k, v in (data.get("tolerance") or {}).items()},
                calibration=self.calibration(),
                calibrated_at=data.get("calibrated_at") or {},
                allow=self.allow(data.get("allow") or ()),
                flops_min=str(data.get("flops_min", "0")),
                bytes_in=str(data.get("bytes_in", "0")),
                bytes_out=str(data.get("bytes_out", "0")),
                wrong=self.wrongs(data.get("wrong") or [], baseline),
                notes=data.get("notes") or {},
                digest=self.digest(),
            )
            distributions(task)
            self.check(task)
        except TaskError as error:
            if str(self.file.path) in error.message or str(self.home) in error.message:
                raise
            raise TaskError(f"{self.file.path}: {error.message}", error.remedy) from error
        return task

    def check(self, task: Task) -> None:
        """Evaluate every expression once for every workload, so that none fails later."""
        for name in task.calibrated_at:
            if name not in [workload.name for workload in task.workloads]:
                raise self.file.fault(
                    f"calibrated_at.{name}",
                    "is no workload",
                    f"use {', '.join(workload.name for workload in task.workloads)}",
                )
        for i, workload in enumerate(task.workloads):
            try:
                for param in task.params:
                    param.extents(workload.sizes)
                for what in ("flops_min", "bytes_in", "bytes_out"):
                    task.amount(what, workload)
                for kernel in (task.baseline, *(wrong.kernel for wrong in task.wrong)):
                    kernel.bind(workload.sizes, task.names)
                    kernel.scratch_shapes(workload.sizes)
            except UserError as error:
                raise self.file.fault(f"workloads[{i}]", error.message, error.remedy) from error

    def workloads(self, data: Any) -> tuple[Workload, ...]:
        """The workloads, whose sizes must be positive whole numbers."""
        found = self.file.records(Workload, data, "workloads")
        for i, workload in enumerate(found):
            sizes = self.file.keys(
                workload.sizes, frozenset(workload.sizes or ()), f"workloads[{i}].sizes"
            )
            for name, size in sizes.items():
                where = f"workloads[{i}].sizes.{name}"
                if self.file.number(size, where) < 1:
                    raise self.file.fault(where, f"is {size}", "use 1 or more")
        return found

    def allow(self, data: Any) -> frozenset[str]:
        """What the task allows a kernel to do."""
        unknown = sorted(set(data) - _ALLOWED)
        if unknown:
            raise self.file.fault(
                "allow", f"names {unknown[0]!r}", f"use {', '.join(sorted(_ALLOWED))}"
            )
        return frozenset(data)

    def source(self, name: Any, where: str) -> tuple[str, Language]:
        """The text and language of a source file in the task's folder."""
        languages: dict[str, Language] = {".cu": "cuda", ".ptx": "ptx"}
        path = self.home / str(name)
        if path.suffix not in languages:
            raise self.file.fault(where, f"is {name!r}", "name a .cu or .ptx file")
        try:
            return path.read_text(encoding="utf-8"), languages[path.suffix]
        except (OSError, UnicodeDecodeError) as error:
            raise self.file.fault(
                where, f"{path.name} cannot be read ({error})", "add it"
            ) from error

    def kernel(self, data: Any, space: Any, where: str) -> Kernel:
        """The baseline with its space."""
        given = self.file.keys(data, _KERNEL_KEYS, where)
        text, language = self.source(given.get("source"), f"{where}.source")
        declared = None
        if space is not None:
            params = {k: tuple(v) for k, v in space.get("params", {}).items()}
            declared = self.file.record(Space, {**space, "params": params}, "space")
        values = dict(given.get("values") or {})
        try:
            kernel = Kernel(
                source=text,
                language=language,
                launches=self.file.records(Launch, given.get("launches"), f"{where}.launches"),
                values=values,
                space=declared,
                scratch=self.file.records(Scratch, given.get("scratch") or [], f"{where}.scratch"),
                tensor_maps=self.file.records(
                    TensorMap, given.get("tensor_maps") or [], f"{where}.tensor_maps"
                ),
            )
            return kernel.with_values(**values)
        except TaskError:
            raise
        except UserError as error:
            raise self.file.fault(where, error.message, error.remedy) from error

    def wrongs(self, data: Any, baseline: Kernel) -> tuple[Wrong, ...]:
        """The labelled kernels; launches, scratch and values are the baseline's if not given."""
        return tuple(self.wrong(item, f"wrong[{i}]", baseline) for i, item in enumerate(data))

    def wrong(self, data: Any, where: str, baseline: Kernel) -> Wrong:
        """One labelled kernel."""
        given = self.file.keys(data, _WRONG_KEYS, where)
        for key in ("file", "status", "reason"):
            if key not in given:
                raise self.file.fault(where, f"lacks the key {key}", f"add {key}")
        if given["status"] not in get_args(Status):
            raise self.file.fault(
                f"{where}.status", f"is {given['status']!r}", f"use {', '.join(get_args(Status))}"
            )
        text, language = self.source(given["file"], f"{where}.file")
        if "launches" in given:
            kernel = Kernel(
                source=text,
                language=language,
                launches=self.file.records(Launch, given["launches"], f"{where}.launches"),
                values=given.get("values") or {},
                scratch=self.file.records(Scratch, given.get("scratch") or [], f"{where}.scratch"),
            )
        else:
            values = given.get("values") or baseline.values
            kernel = replace(baseline, source=text, language=language, values=values, space=None)
        return Wrong(
            name=Path(given["file"]).stem,
            kernel=kernel,
            status=str(given["status"]),
            reason=str(given["reason"]),
            counter=str(given.get("counter", "")),
            at_least=float(given.get("at_least", 0)),
        )

    def code(self) -> ModuleType:
        """The module of `reference.py`, which must define `reference`."""
        path = self.home / "reference.py"
        if not path.is_file():
            raise TaskError(f"{path} is missing", "write reference(**inputs, **sizes) in it")
        spec = importlib.util.spec_from_file_location(f"reference_{self.home.name}", path)
        if spec is None or spec.loader is None:
            raise TaskError(f"{path} cannot be imported", "write a Python module")
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except _IMPORT_MISTAKES as error:
            kind = type(error).__name__
            raise TaskError(f"{path} fails when imported ({kind}: {error})", "mend it") from error
        if not callable(getattr(module, "reference", None)):
            raise TaskError(f"{path} defines no reference", "write def reference(...)")
        return module

    def calibration(self) -> dict[str, Calibration]:
        """What `calibration.json` beside the task holds, empty where there is none."""
        path = self.home / "calibration.json"
        if not path.is_file():
            return {}
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            return {key: Calibration.from_dict(value) for key, value in stored["entries"].items()}
        except (
            OSError, ValueError, RecursionError, KeyError, AttributeError, PtxsearchError
        ) as error:  # fmt: skip
            raise TaskError(
                f"{path} cannot be used ({error})", "remove it and run: ptxsearch lint --calibrate"
            ) from error

    def digest(self) -> str:
        """A sha256 over the files that decide what is expected."""
        hashed = hashlib.sha256(self.file.text.encode())
        hashed.update((self.home / "reference.py").read_bytes())
        return hashed.hexdigest()
