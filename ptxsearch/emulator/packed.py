"""Two 16-bit lanes in a word: the views, and integer arithmetic on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ptxsearch.emulator.operation import Array, Decoded, Form, Invalid, Operation, Rule, Run, rule


def lanes(words: Array, part: type[np.generic] = np.uint16) -> Array:
    """Words as rows of their parts, the lowest first; one word stays one row."""
    return np.ascontiguousarray(words)[:, None].view(part)


def joined(parts: Array, word: type[np.generic] = np.uint32) -> Array:
    """Rows of parts as words."""
    return np.ascontiguousarray(parts).view(word)[:, 0]


def paired(run: Run) -> Run:
    """An operation on 16-bit values as one on words that hold two."""

    def packed(*words: Array) -> tuple[Array, ...]:
        size = max(len(word) for word in words)
        parts = [_flat(word, size) for word in words]
        return tuple(result.view(np.uint32) for result in run(*parts))

    return packed


def _flat(word: Array, size: int) -> Array:
    """The halves of words in one row, those of a uniform word repeated to the size."""
    halves = np.ascontiguousarray(word).view(np.uint16)
    return np.tile(halves, size) if len(word) < size else halves


SIGNED_VIEW: Mapping[str, type[np.generic]] = {"u16x2": np.uint16, "s16x2": np.int16}


def _integers(form: Form) -> Decoded:
    seen, relu = SIGNED_VIEW[form.type], form.has("relu")
    functions: Mapping[str, Callable[[Array, Array], Array]] = {
        "add": np.add,
        "min": np.minimum,
        "max": np.maximum,
    }
    function = functions[form.opcode]
    if relu and form.type != "s16x2":
        return Invalid(f"{form.opcode}.relu needs a signed type")

    def run(a: Array, b: Array) -> tuple[Array, ...]:
        result = function(a.view(seen), b.view(seen))
        if relu:
            result = np.maximum(result, result.dtype.type(0))
        return (result.view(np.uint16),)

    return Operation((form.type, form.type), (form.type,), paired(run))


RULES: Mapping[str, tuple[Rule, ...]] = {
    "add": (rule("u16x2 s16x2", "", _integers),),
    "min": (rule("u16x2 s16x2", "relu", _integers),),
    "max": (rule("u16x2 s16x2", "relu", _integers),),
}
