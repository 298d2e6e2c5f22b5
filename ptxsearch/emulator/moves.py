"""mov: copies, packing a vector into a word and unpacking a word into a vector."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ptxsearch.emulator.operation import (
    STORAGE,
    WIDTHS,
    Array,
    Decoded,
    Form,
    Invalid,
    Operation,
    Rule,
    Run,
    rule,
)


def _mov(form: Form) -> Decoded:
    inputs, outputs = len(form.sources), len(form.destinations)
    if inputs == 1 and outputs == 1:
        return Operation((form.type,), (form.type,), lambda a: (a,))
    if form.type not in ("b16", "b32", "b64", "b128") or 1 not in (inputs, outputs):
        return Invalid(f"mov.{form.type} cannot move {inputs} values into {outputs}")
    width, count = WIDTHS[form.type], max(inputs, outputs)
    if count not in (2, 4, 8) or width // count < 8 or (width == 128 and count > 2):
        return Invalid(f"mov.{form.type} cannot be split into {count} parts")
    part = f"b{width // count}"
    if outputs == 1:
        return Operation((part,) * count, (form.type,), _pack(width, width // count))
    return Operation((form.type,), (part,) * count, _unpack(width, width // count))


def _pack(width: int, part: int) -> Run:
    """The word whose parts, from the lowest bits up, are the sources."""
    if width == 128:
        return lambda low, high: (np.stack(np.broadcast_arrays(low, high), axis=-1),)
    kind = STORAGE[width].type

    def run(*parts: Array) -> tuple[Array, ...]:
        word = parts[0].astype(kind)
        for index, value in enumerate(parts[1:], 1):
            word = word | (value.astype(kind) << kind(index * part))
        return (word,)

    return run


def _unpack(width: int, part: int) -> Run:
    """The parts of a word from the lowest bits up."""
    if width == 128:
        return lambda word: (word[..., 0], word[..., 1])
    kind, narrow = STORAGE[width].type, STORAGE[part]

    def run(word: Array) -> tuple[Array, ...]:
        return tuple((word >> kind(at)).astype(narrow) for at in range(0, width, part))

    return run


MOVED = "pred b16 b32 b64 b128 u16 u32 u64 s16 s32 s64 f16 bf16 f32 f64"
RULES: Mapping[str, tuple[Rule, ...]] = {"mov": (rule(MOVED, "", _mov),)}
