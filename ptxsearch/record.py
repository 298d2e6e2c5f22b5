"""Records as JSON: `to_dict` and `from_dict` for every frozen dataclass, with a schema version.

A record mixes in `Record` and is written field by field; reading checks names and types, so that
a truncated or foreign file is one clear error. Fields that hold arrays are not for JSON.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, Self

from ptxsearch.errors import RecordingError

SCHEMA = 1


class Record:
    """A frozen dataclass that can be written to JSON and read back equal."""

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON types; the outermost object carries the schema version."""
        return {"schema": SCHEMA, **_fields(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The record `to_dict` wrote. Raises RecordingError for a foreign or newer one."""
        record: Self = _decode(cls, data, cls.__name__)
        return record


@cache
def _hints(cls: type) -> Mapping[str, Any]:
    return typing.get_type_hints(cls)


def _fields(record: Any) -> dict[str, Any]:
    return {f.name: _encode(getattr(record, f.name)) for f in dataclasses.fields(record) if f.init}


def _encode(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _fields(value)
    if isinstance(value, Mapping):
        return {str(key): _encode(item) for key, item in value.items()}
    if isinstance(value, tuple | list | frozenset):
        return [_encode(item) for item in value]
    if hasattr(value, "item") and not isinstance(value, str | bytes):
        return value.item()
    return value


def _decode(kind: Any, data: Any, where: str) -> Any:
    if kind is Any:
        return data
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return _decode_union(arguments, data, where)
    if origin is tuple:
        return _decode_tuple(arguments, data, where)
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        _expect(isinstance(data, Mapping), data, "an object", where)
        return {key: _decode(arguments[1], item, f"{where}.{key}") for key, item in data.items()}
    if origin is typing.Literal:
        _expect(data in arguments, data, f"one of {', '.join(map(repr, arguments))}", where)
        return data
    if dataclasses.is_dataclass(kind):
        return _decode_record(kind, data, where)
    if kind is float:
        number = isinstance(data, int | float) and not isinstance(data, bool)
        _expect(number, data, "a number", where)
        return float(data)
    if isinstance(kind, type) and kind is not object:
        exact = isinstance(data, kind) and not (kind is int and isinstance(data, bool))
        _expect(exact, data, f"a value of type {kind.__name__}", where)
    return data


def _decode_union(kinds: tuple[Any, ...], data: Any, where: str) -> Any:
    if data is None and type(None) in kinds:
        return None
    options = [kind for kind in kinds if kind is not type(None)]
    for kind in options:
        if isinstance(kind, type) and type(data) is kind:
            return data
    failure: RecordingError | None = None
    for kind in options:
        try:
            return _decode(kind, data, where)
        except RecordingError as error:
            failure = error
    raise failure or RecordingError(f"{where} is {data!r}", "restore the original file")


def _decode_tuple(kinds: tuple[Any, ...], data: Any, where: str) -> tuple[Any, ...]:
    _expect(isinstance(data, list | tuple), data, "a list", where)
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(_decode(kinds[0], item, f"{where}[{i}]") for i, item in enumerate(data))
    _expect(len(data) == len(kinds), data, f"a list of {len(kinds)}", where)
    return tuple(
        _decode(kind, item, f"{where}[{i}]")
        for i, (kind, item) in enumerate(zip(kinds, data, strict=True))
    )


def _decode_record(kind: Any, data: Any, where: str) -> Any:
    _expect(isinstance(data, Mapping), data, "an object", where)
    schema = data.get("schema", SCHEMA)
    if not isinstance(schema, int) or schema > SCHEMA:
        raise RecordingError(
            f"{where} has schema {schema!r}, newer than {SCHEMA}", "upgrade ptxsearch to read it"
        )
    fields = {f.name: f for f in dataclasses.fields(kind) if f.init}
    unknown = sorted(set(data) - set(fields) - {"schema"})
    missing = sorted(
        name
        for name, f in fields.items()
        if name not in data
        and f.default is dataclasses.MISSING
        and f.default_factory is dataclasses.MISSING
    )
    if unknown or missing:
        raise RecordingError(
            f"{where} has unknown keys {unknown} and lacks {missing}",
            f"use the keys {', '.join(fields)}",
        )
    hints = _hints(kind)
    return kind(**{n: _decode(hints[n], data[n], f"{where}.{n}") for n in fields if n in data})


def _expect(holds: bool, data: Any, wanted: str, where: str) -> None:
    if not holds:
        shown = repr(data)
        raise RecordingError(
            f"{where} is {shown[:80]}{'...' if len(shown) > 80 else ''} where {wanted} is needed",
            "restore the original file",
        )
