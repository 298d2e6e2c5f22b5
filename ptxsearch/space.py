"""The declared choices of a kernel template: parameters, restrictions, derived quantities.

A configuration is a mapping name -> value. Inside, and for the tuner, it is a *row*: the position
of each parameter's value, one integer a parameter. Restrictions are evaluated over whole columns
of rows, so that 10^6 configurations and more are sampled and filtered without a Python loop.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ptxsearch import expression
from ptxsearch.errors import ExpressionError, SpaceError
from ptxsearch.record import Record

Value: TypeAlias = int | float | bool | str
Values: TypeAlias = Mapping[str, Value]
Rows: TypeAlias = NDArray[np.int64]

_ENUMERATION_LIMIT = 2_000_000
_REJECTION_DRAWS = 1 << 20
_PARTICLES = 4096


@dataclass(frozen=True)
class Space(Record):
    """The parameters of a kernel template and which of their combinations may be built.

    `restrictions` are expressions that must hold; `derived` names quantities computed from the
    values (in order, each may use those before it), usable in restrictions. `conditions` says
    where a parameter matters: elsewhere only its first value is legal, so that two equal kernels
    are never two configurations. `mask` is for recordings whose restrictions are unknown: the
    legality bits over the product of the parameters (in order, the last varying fastest), packed,
    deflated, in base64; `from_rows` makes it.
    """

    params: Mapping[str, tuple[Value, ...]]
    restrictions: tuple[str, ...] = ()
    derived: Mapping[str, str] = field(default_factory=dict)
    conditions: Mapping[str, str] = field(default_factory=dict)
    mask: str = ""

    def __post_init__(self) -> None:
        params = {name: tuple(_plain(v) for v in vs) for name, vs in self.params.items()}
        object.__setattr__(self, "params", params)
        object.__setattr__(self, "restrictions", tuple(str(r) for r in self.restrictions))
        object.__setattr__(self, "derived", {k: str(v) for k, v in self.derived.items()})
        object.__setattr__(self, "conditions", {k: str(v) for k, v in self.conditions.items()})
        self._check_params()
        self._check_expressions()

    def _check_params(self) -> None:
        for name, values in self.params.items():
            if not name.isidentifier() or name in expression.FUNCTIONS:
                raise SpaceError(f"parameter name {name!r} is not usable", "use a plain identifier")
            if not values:
                raise SpaceError(f"parameter {name!r} has no values", "give at least one")
            if len(set(values)) != len(values):
                raise SpaceError(f"parameter {name!r} repeats a value: {values}", "list each once")
            if not all(isinstance(value, int | float | str) for value in values):
                raise SpaceError(
                    f"parameter {name!r} has the values {values}", "use numbers, booleans, strings"
                )
        if self.mask and len(self._bits) != -(-self.size // 8):
            raise SpaceError(
                f"mask of {len(self._bits)} bytes for a product of {self.size} configurations",
                f"pack one bit a configuration, {-(-self.size // 8)} bytes",
            )

    def _check_expressions(self) -> None:
        known = set(self.params)
        for name, text in self.derived.items():
            if not name.isidentifier() or name in known:
                raise SpaceError(f"derived quantity {name!r} is not usable", "use a new identifier")
            self._check_names(text, known)
            known.add(name)
        for text in self.restrictions:
            self._check_names(text, known)
        for name, text in self.conditions.items():
            if name not in self.params:
                raise SpaceError(f"condition on unknown parameter {name!r}", _one_of(self.names))
            self._check_names(text, known - {name})

    def _check_names(self, text: str, known: set[str]) -> None:
        try:
            unknown = expression.parse(text).names - known
        except ExpressionError as error:
            raise SpaceError(error.message, error.remedy) from error
        if unknown:
            raise SpaceError(f"{text!r} names {', '.join(sorted(unknown))}", _one_of(sorted(known)))

    def __hash__(self) -> int:
        return hash((tuple(self.params.items()), self.restrictions, self.mask))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The parameters' names, in order."""
        return tuple(self.params)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The number of values of each parameter."""
        return tuple(len(values) for values in self.params.values())

    @property
    def size(self) -> int:
        """The number of configurations of the whole product, legal or not."""
        return math.prod(self.shape)

    @cached_property
    def _bits(self) -> NDArray[np.uint8]:
        try:
            packed = zlib.decompress(base64.b64decode(self.mask, validate=True))
        except (ValueError, zlib.error) as error:
            raise SpaceError(f"mask cannot be read ({error})", "use Space.from_rows") from error
        return np.frombuffer(packed, dtype=np.uint8)

    @cached_property
    def _positions(self) -> dict[str, dict[Value, int]]:
        return {name: {v: i for i, v in enumerate(vs)} for name, vs in self.params.items()}

    @cached_property
    def _columns(self) -> dict[str, NDArray[Any]]:
        return {name: _column(values) for name, values in self.params.items()}

    @cached_property
    def _tests(self) -> list[tuple[str, tuple[str, ...], int]]:
        """Each restriction, the parameters it needs, and the first prefix that decides it."""
        texts = list(self.restrictions)
        for name, condition in self.conditions.items():
            texts.append(f"({condition}) or {name} == {self.params[name][0]!r}")
        needs: dict[str, set[str]] = {name: {name} for name in self.names}
        for name, text in self.derived.items():
            needs[name] = set().union(*(needs[n] for n in expression.parse(text).names))
        tests = []
        for text in texts:
            used = set().union(*(needs[name] for name in expression.parse(text).names))
            ordered = tuple(name for name in self.names if name in used)
            last = max((self.names.index(name) for name in ordered), default=0)
            tests.append((text, ordered, last))
        return tests

    def row(self, values: Values) -> tuple[int, ...]:
        """The positions of `values`. Raises SpaceError where a name or a value is not declared."""
        if set(values) != set(self.names):
            raise SpaceError(f"values name {', '.join(map(str, values))}", _one_of(self.names))
        found = []
        for name in self.names:
            position = self._positions[name].get(_plain(values[name]))
            if position is None:
                raise SpaceError(f"{name} = {values[name]!r}", _one_of(self.params[name]))
            found.append(position)
        return tuple(found)

    def values(self, row: Sequence[int] | NDArray[Any]) -> dict[str, Value]:
        """The configuration whose positions are `row`."""
        return {name: self.params[name][int(i)] for name, i in zip(self.names, row, strict=True)}

    def derive(self, values: Values) -> dict[str, Any]:
        """The derived quantities of `values`, by name."""
        known: dict[str, Any] = dict(values)
        for name, text in self.derived.items():
            known[name] = expression.evaluate(text, known)
        return {name: known[name] for name in self.derived}

    def columns(self, rows: Rows, *, names: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
        """The parameters' values of `rows` as columns, for expressions over all of them at once."""
        chosen = self.names if names is None else names
        return {name: self._columns[name][rows[:, self.names.index(name)]] for name in chosen}

    def derived_columns(self, rows: Rows) -> dict[str, NDArray[np.float64]]:
        """The numeric derived quantities of `rows` as columns; nan where one has no value."""
        found = {}
        for name in self.derived:
            column = self._evaluate(name, rows, self.names)
            if column.dtype.kind in "biuf":
                found[name] = column.astype(float)
        return found

    def is_legal(self, values: Values) -> bool:
        """Whether every value is declared and every restriction holds."""
        try:
            row = self.row(values)
        except SpaceError:
            return False
        return bool(self.legal_rows(np.array([row], dtype=np.int64))[0])

    def legal_rows(self, rows: Rows) -> NDArray[np.bool_]:
        """Which of `rows` the restrictions allow. One without a value (n % 0) forbids."""
        allowed = self._masked(rows)
        for text, needed, _ in self._tests:
            if not allowed.any():
                break
            allowed[allowed] = self._holds(text, needed, rows[allowed])
        return allowed

    def _masked(self, rows: Rows) -> NDArray[np.bool_]:
        if not self.mask or not len(rows):
            return np.ones(len(rows), dtype=bool)
        place = np.ravel_multi_index(tuple(rows.T), self.shape)
        bits = self._bits[place // 8]
        allowed: NDArray[np.bool_] = (bits >> (7 - place % 8)) & 1 == 1
        return allowed

    def _holds(self, text: str, needed: tuple[str, ...], rows: Rows) -> NDArray[np.bool_]:
        column = self._evaluate(text, rows, needed)
        holds: NDArray[np.bool_] = (column == column) & column.astype(bool)
        return holds

    def _evaluate(self, text: str, rows: Rows, needed: tuple[str, ...]) -> NDArray[Any]:
        """The column of `text` (an expression or a derived name); nan where it has no value."""
        try:
            with np.errstate(divide="raise", invalid="raise", over="raise"):
                known: dict[str, Any] = self.columns(rows, names=needed)
                column = np.asarray(self._resolve(text, known))
            return np.broadcast_to(column, len(rows))
        except (FloatingPointError, ExpressionError):
            pass
        where = [self.names.index(name) for name in needed]
        distinct, back = np.unique(rows[:, where], axis=0, return_inverse=True)
        results = np.full(len(distinct), np.nan)
        for i, row in enumerate(distinct):
            one = {n: self.params[n][int(p)] for n, p in zip(needed, row, strict=True)}
            try:
                results[i] = self._resolve(text, one)
            except ExpressionError:
                continue
        return results[back.reshape(-1)]

    def _resolve(self, text: str, known: dict[str, Any]) -> Any:
        for name in expression.parse(text).names - set(known):
            known[name] = self._resolve(self.derived[name], known)
        return expression.evaluate(text, known)

    def legal(self, *, limit: int = _ENUMERATION_LIMIT) -> Rows | None:
        """All legal rows in product order, or None where more than `limit` would be held at once.

        Restrictions are applied as soon as their parameters are placed, so a product far larger
        than `limit` can still be enumerated where few of its prefixes are legal.
        """
        rows = np.zeros((1, 0), dtype=np.int64)
        for k, count in enumerate(self.shape):
            if len(rows) * count > limit:
                return None
            rows = np.column_stack(
                [np.repeat(rows, count, axis=0), np.tile(np.arange(count), len(rows))]
            )
            rows = self._prune_prefix(rows, k)
        return rows[self._masked(rows)]

    def _prune_prefix(self, rows: Rows, last: int) -> Rows:
        for text, needed, decided in self._tests:
            if decided == last and len(rows):
                rows = rows[self._holds(text, needed, rows)]
        return rows

    def sample(self, rng: np.random.Generator, n: int) -> Rows:
        """`n` legal rows (repeats are possible), uniform where legality is not rarer than 10^-5.

        Rarer spaces are sampled parameter by parameter with resampling of the prefixes that no
        restriction has refused, which reaches every legal row but not with equal chance.
        Raises SpaceError where no legal configuration turns up.
        """
        found: list[Rows] = []
        count = drawn = 0
        chunk = max(256, 4 * n)
        while count < n and drawn < _REJECTION_DRAWS:
            rows = rng.integers(0, self.shape, size=(chunk, len(self.shape)), dtype=np.int64)
            rows = rows[self.legal_rows(rows)]
            found.append(rows)
            count += len(rows)
            drawn += chunk
            chunk = min(2 * chunk, 1 << 16)
        if count < n:
            found.append(self._sample_by_prefix(rng, n - count))
        return np.concatenate(found)[:n]

    def _sample_by_prefix(self, rng: np.random.Generator, n: int) -> Rows:
        for _ in range(8):
            rows = np.zeros((max(_PARTICLES, 4 * n), 0), dtype=np.int64)
            for k, count in enumerate(self.shape):
                rows = np.column_stack([rows, rng.integers(0, count, size=len(rows))])
                rows = self._prune_prefix(rows, k)
                if not len(rows):
                    break
                rows = rows[rng.integers(0, len(rows), size=max(_PARTICLES, 4 * n))]
            rows = rows[self._masked(rows)] if rows.shape[1] == len(self.shape) else rows[:0]
            if len(rows):
                return rows[rng.integers(0, len(rows), size=n)]
        raise SpaceError(
            f"no legal configuration was found among {self.size}",
            "loosen the restrictions, or order the parameters so that restrictions decide early",
        )

    def neighbour_rows(self, row: Sequence[int] | NDArray[Any]) -> Rows:
        """Legal rows near `row`: one parameter moved to any value, or two moved one step each."""
        near = []
        for i, count in enumerate(self.shape):
            near += [_moved(row, {i: v}) for v in range(count) if v != row[i]]
        steps = [
            (i, int(row[i]) + d)
            for i, count in enumerate(self.shape)
            for d in (-1, 1)
            if 0 <= row[i] + d < count
        ]
        near += [_moved(row, {i: a, j: b}) for i, a in steps for j, b in steps if i < j]
        rows = np.array(near, dtype=np.int64).reshape(-1, len(self.shape))
        return rows[self.legal_rows(rows)]

    def neighbours(self, values: Values) -> list[dict[str, Value]]:
        """Legal configurations near `values`, as in `neighbour_rows`."""
        return [self.values(row) for row in self.neighbour_rows(self.row(values))]

    @classmethod
    def from_rows(cls, params: Mapping[str, tuple[Value, ...]], rows: Rows) -> Space:
        """The space in which exactly `rows` are legal, for recordings without restrictions."""
        shape = tuple(len(values) for values in params.values())
        bits = np.zeros(math.prod(shape), dtype=bool)
        bits[np.ravel_multi_index(tuple(np.asarray(rows, dtype=np.int64).T), shape)] = True
        packed = zlib.compress(np.packbits(bits).tobytes(), 9)
        return cls(params=params, mask=base64.b64encode(packed).decode("ascii"))


def _moved(row: Sequence[int] | NDArray[Any], changes: Mapping[int, int]) -> list[int]:
    return [changes.get(i, int(position)) for i, position in enumerate(row)]


def _column(values: tuple[Value, ...]) -> NDArray[Any]:
    kinds = {isinstance(value, str) for value in values}
    if len(kinds) == 2:
        return np.array(values, dtype=object)
    column = np.array(values)
    return column.astype(np.int64) if column.dtype == bool else column


def _plain(value: Any) -> Value:
    """A Python number or string for `value`, which may be numpy's."""
    plain: Value = value.item() if isinstance(value, np.generic) else value
    return plain


def _one_of(allowed: Any) -> str:
    return f"use {', '.join(str(value) for value in allowed)}"
