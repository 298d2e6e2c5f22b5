"""A YAML file whose mistakes are reported with file, line and key.

`Document` reads one mapping and turns parts of it into records; a key is named as it stands in
the file, `workloads[1].sizes`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar

import yaml

from ptxsearch.errors import TaskError, UserError

T = TypeVar("T")


class Document:
    """One YAML mapping: its `data`, and errors that say where in the file they are."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.text = path.read_text(encoding="utf-8")
            root = yaml.compose(self.text, Loader=yaml.SafeLoader)
            self.data = yaml.safe_load(self.text)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = f":{mark.line + 1}" if mark is not None else ""
            problem = getattr(error, "problem", None) or str(error)
            raise TaskError(f"{path}{line}: not YAML ({problem})", "mend the syntax") from error
        except (OSError, ValueError, RecursionError) as error:
            raise TaskError(f"{path} cannot be read ({error})", "give a readable file") from error
        self.lines: dict[str, int] = {}
        self._seen: set[int] = set()
        if root is not None:
            self._locate(root, "")
        if not isinstance(self.data, dict):
            raise TaskError(f"{path}: holds {type(self.data).__name__}", "write keys and values")

    def _locate(self, node: yaml.Node, where: str) -> None:
        self.lines.setdefault(where, node.start_mark.line + 1)
        # Aliases may repeat a node without end.
        if id(node) in self._seen:
            return
        self._seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                inner = f"{where}.{key.value}" if where else str(key.value)
                self.lines.setdefault(inner, key.start_mark.line + 1)
                self._locate(value, inner)
        elif isinstance(node, yaml.SequenceNode):
            for i, item in enumerate(node.value):
                self._locate(item, f"{where}[{i}]")

    def fault(self, where: str, message: str, remedy: str) -> TaskError:
        """The TaskError for key `where`, or for the nearest one above it that has a line."""
        known = where
        while known and known not in self.lines:
            known = known[: max(known.rfind("."), known.rfind("["), 0)]
        line = f":{self.lines[known]}" if known in self.lines else ""
        return TaskError(f"{self.path}{line}: {where}: {message}", remedy)

    def keys(self, data: Any, allowed: frozenset[str], where: str) -> Mapping[str, Any]:
        """The mapping `data`, whose keys must all be `allowed`."""
        if not isinstance(data, dict):
            raise self.fault(where, f"holds {data!r}", f"write {', '.join(sorted(allowed))}")
        for key in data:
            if key not in allowed:
                near = difflib.get_close_matches(str(key), allowed, n=1)
                hint = f"did you mean {near[0]}?" if near else f"use {', '.join(sorted(allowed))}"
                raise self.fault(f"{where}.{key}" if where else str(key), "unknown key", hint)
        return data

    def record(self, kind: type[T], data: Any, where: str) -> T:
        """The record `kind` of the mapping `data`."""
        known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]
        given = dict(self.keys(data, frozenset(known), where))
        for name, f in known.items():
            if name not in given and f.default is MISSING and f.default_factory is MISSING:
                raise self.fault(where, f"lacks the key {name}", f"add {name}")
        for name in ("shape", "args", "params", "dims", "strides", "box", "restrictions"):
            if isinstance(given.get(name), list):
                given[name] = tuple(given[name])
        if given.get("init") is not None:
            given["init"] = str(given["init"])
        try:
            return kind(**given)
        except UserError as error:
            raise self.fault(where, error.message, error.remedy) from error
        except (TypeError, ValueError, AttributeError) as error:
            raise self.fault(
                where, f"has a value of the wrong type ({error})", "mend it"
            ) from error

    def records(self, kind: type[T], data: Any, where: str) -> tuple[T, ...]:
        """The records of the list `data`."""
        if not isinstance(data, list):
            raise self.fault(where, f"holds {data!r}", "write a list")
        return tuple(self.record(kind, item, f"{where}[{i}]") for i, item in enumerate(data))

    def number(self, value: Any, where: str) -> int:
        """The whole number `value`."""
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.fault(where, f"is {value!r}", "write a whole number")
        return value
