"""Video instructions: scalar ones on selected bytes or halves, and those on 2 or 4 lanes.

A selector (`.b0`, `.h1`, `.h10`, `.b7654`) or a minus sign on an operand is the component of its
register. Intermediate results are kept in 64 bits, as wide as the manual's pseudocode needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ptxsearch.emulator.operation import (
    Array,
    Decoded,
    Form,
    Invalid,
    Operation,
    Rule,
    rule,
)
from ptxsearch.ptx.syntax import Operand, Register

Binary = Callable[[Array, Array], Array]


def _average(a: Array, b: Array) -> Array:
    """Half the sum, rounded away from zero."""
    total = a + b
    return (total + (total >= 0)) >> np.int64(1)


FUNCTIONS: Mapping[str, Binary] = {
    "vadd": np.add,
    "vsub": np.subtract,
    "vabsdiff": lambda a, b: np.abs(a - b),
    "vmin": np.minimum,
    "vmax": np.maximum,
    "vavrg": _average,
}
RELATIONS: Mapping[str, Binary] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
SECONDARY: Mapping[str, Binary] = {"add": np.add, "min": np.minimum, "max": np.maximum}


def _selector(operand: Operand) -> str:
    component = operand.component if isinstance(operand, Register) else ""
    return component.replace("-", "")


def _negative(operand: Operand) -> bool:
    return isinstance(operand, Register) and "-" in operand.component


def _signed(type_: str) -> bool:
    return type_.startswith("s")


def _field(word: Array, at: int, bits: int, signed: bool) -> Array:
    """Bits of a word (32 or, of two words joined, 64) as int64, extended by type."""
    value: Array = (word >> word.dtype.type(at)).astype(np.int64)
    if signed:
        value = (value << np.int64(64 - bits)) >> np.int64(64 - bits)
    else:
        value = value & np.int64((1 << bits) - 1)
    return value


def _part(word: Array, selector: str, signed: bool) -> Array:
    """The byte, half or whole that a scalar selector names."""
    if not selector:
        return _field(word, 0, 32, signed)
    bits = 8 if selector[0] == "b" else 16
    return _field(word, int(selector[1]) * bits, bits, signed)


def _clamped(value: Array, bits: int, signed: bool) -> Array:
    low = -(1 << (bits - 1)) if signed else 0
    return np.clip(value, low, low + (1 << bits) - 1)


def _finish(form: Form, signed: bool) -> Callable[[Array, Array], Array]:
    """Saturation, then the secondary operation or the merge into c of a scalar instruction."""
    selector = _selector(form.destinations[0])
    bits = 32 if not selector else (8 if selector[0] == "b" else 16)
    second = SECONDARY.get(form.one_of(*SECONDARY))

    def finish(value: Array, c: Array) -> Array:
        if form.has("sat"):
            value = _clamped(value, bits, signed)
        if second is not None:
            result = _field(value.astype(np.uint32), 0, 32, signed)
            value = second(result, _field(c, 0, 32, signed))
        word = value.astype(np.uint32)
        if not selector:
            return word
        at = np.uint32(int(selector[1]) * bits)
        mask = np.uint32((1 << bits) - 1) << at
        return ((word << at) & mask) | (c & ~mask)

    return finish


def _scalar(form: Form, types: tuple[str, str, str], function: Binary) -> Decoded:
    """An instruction d, a, b with c where there is a secondary operation or a merge."""
    result, *sources = types
    with_c = bool(form.one_of(*SECONDARY) or _selector(form.destinations[0]))
    if len(form.sources) != 2 + with_c:
        return Invalid(f"{form.opcode} takes {2 + with_c} sources here, got {len(form.sources)}")
    selectors = [_selector(operand) for operand in form.sources[:2]]
    finish = _finish(form, _signed(result))

    def run(a: Array, b: Array, *rest: Array) -> tuple[Array, ...]:
        x = _part(a, selectors[0], _signed(sources[0]))
        y = _part(b, selectors[1], _signed(sources[1]))
        return (finish(function(x, y), rest[0] if rest else a),)

    return Operation((*sources, result)[: 2 + with_c], (result,), run)


def _arithmetic(form: Form) -> Decoded:
    result, left, right = form.types
    return _scalar(form, (result, left, right), FUNCTIONS[form.opcode])


def _set(form: Form) -> Decoded:
    relation = RELATIONS.get(form.one_of(*RELATIONS))
    if relation is None:
        return Invalid(f"{form.opcode} takes a comparison")
    compare = relation
    left, right = form.types
    return _scalar(form, ("u32", left, right), lambda a, b: compare(a, b).astype(np.int64))


def _shift(form: Form) -> Decoded:
    if form.has("clamp") == form.has("wrap"):
        return Invalid(f"{form.opcode} takes one of .clamp .wrap")
    result, left, right = form.types
    wrap, to_left = form.has("wrap"), form.opcode == "vshl"

    def function(a: Array, b: Array) -> Array:
        amount = b & np.int64(31) if wrap else np.minimum(b, 32)
        return np.left_shift(a, amount) if to_left else np.right_shift(a, amount)

    return _scalar(form, (result, left, right), function)


def _mad(form: Form) -> Decoded:
    """vmad: a * b + c with negation, plus one (.po), scaling and saturation."""
    if len(form.sources) != 3:
        return Invalid("vmad takes three sources")
    result, left, right = form.types
    selectors = [_selector(operand) for operand in form.sources[:2]]
    flip = _negative(form.sources[0]) != _negative(form.sources[1])
    flip_c = _negative(form.sources[2])
    signed = _signed(left) or _signed(right) or flip or flip_c
    shift = {"shr7": 7, "shr15": 15}.get(form.one_of("shr7", "shr15"), 0)
    clamp, one = form.has("sat"), form.has("po")

    def run(a: Array, b: Array, c: Array) -> tuple[Array, ...]:
        # Python integers: a negated product of two 32-bit unsigned values leaves 64 bits.
        x = _part(a, selectors[0], _signed(left)).astype(object)
        y = _part(b, selectors[1], _signed(right)).astype(object)
        z = _field(c, 0, 32, signed).astype(object)
        total = (-(x * y) if flip else x * y) + (-z if flip_c else z) + int(one)
        total = total >> shift
        if clamp:
            total = _clamped(total, 32, signed)
        return ((total & 0xFFFFFFFF).astype(np.uint32),)

    return Operation((left, right, result), (result,), run)


def _simd(form: Form, types: tuple[str, str, str], function: Binary) -> Decoded:
    """An instruction on lanes: merged into c under a mask, or with .add summed onto c."""
    count = int(form.opcode[-1])
    bits, result = 32 // count, types[0]
    letter = "h" if count == 2 else "b"
    picks = [
        _digits(_selector(operand) or letter + default, count)
        for operand, default in zip(
            form.sources[:2], ("10", "32") if count == 2 else ("3210", "7654"), strict=True
        )
    ]
    mask = _selector(form.destinations[0])[1:] or "3210"
    kept = [str(lane) in mask for lane in range(count)]
    finish = _accumulated if form.has("add") else _merged

    def run(a: Array, b: Array, c: Array) -> tuple[Array, ...]:
        pair = (b.astype(np.uint64) << np.uint64(32)) | a
        values = []
        for lane in range(count):
            x = _field(pair, picks[0][lane] * bits, bits, _signed(types[1]))
            y = _field(pair, picks[1][lane] * bits, bits, _signed(types[2]))
            value = function(x, y)
            values.append(_clamped(value, bits, _signed(result)) if form.has("sat") else value)
        return (finish(values, kept, c),)

    return Operation((types[1], types[2], result), (result,), run)


def _digits(selector: str, count: int) -> list[int]:
    """The source part of each lane from the lowest; the selector names the highest first."""
    return [int(digit) for digit in reversed(selector[1 : 1 + count])]


def _accumulated(values: list[Array], kept: list[bool], c: Array) -> Array:
    total = c.astype(np.int64)
    for value, keep in zip(values, kept, strict=True):
        if keep:
            total = total + value
    return total.astype(np.uint32)


def _merged(values: list[Array], kept: list[bool], c: Array) -> Array:
    bits = 32 // len(values)
    result = c
    for lane, (value, keep) in enumerate(zip(values, kept, strict=True)):
        if keep:
            mask = np.uint32(((1 << bits) - 1) << (lane * bits))
            part = (value.astype(np.uint32) << np.uint32(lane * bits)) & mask
            result = (result & ~mask) | part
    return result


def _lanes(form: Form) -> Decoded:
    if len(form.sources) != 3:
        return Invalid(f"{form.opcode} takes three sources")
    if form.has("sat") and form.has("add"):
        return Invalid(f"{form.opcode} cannot both saturate and accumulate")
    result, left, right = form.types
    return _simd(form, (result, left, right), FUNCTIONS[form.opcode[:-1]])


def _lanes_set(form: Form) -> Decoded:
    relation = RELATIONS.get(form.one_of(*RELATIONS))
    if relation is None or len(form.sources) != 3:
        return Invalid(f"{form.opcode} takes a comparison and three sources")
    compare = relation
    left, right = form.types
    return _simd(form, ("u32", left, right), lambda a, b: compare(a, b).astype(np.int64))


WORDS = "u32 s32"
COMPARISONS = " ".join(RELATIONS)
SCALAR = ("vadd", "vsub", "vabsdiff", "vmin", "vmax")
RULES: Mapping[str, tuple[Rule, ...]] = {
    **{
        opcode: (rule(WORDS, "sat add min max", _arithmetic, 3, others=WORDS),) for opcode in SCALAR
    },
    "vset": (rule(WORDS, f"{COMPARISONS} add min max", _set, 2, others=WORDS),),
    "vshl": (rule(WORDS, "sat clamp wrap add min max", _shift, 3, others=WORDS),),
    "vshr": (rule(WORDS, "sat clamp wrap add min max", _shift, 3, others=WORDS),),
    "vmad": (rule(WORDS, "sat po shr7 shr15", _mad, 3, others=WORDS),),
    **{
        f"{opcode}{count}": (rule(WORDS, "sat add", _lanes, 3, others=WORDS),)
        for opcode in (*SCALAR, "vavrg")
        for count in (2, 4)
    },
    **{
        f"vset{count}": (rule(WORDS, f"{COMPARISONS} add", _lanes_set, 2, others=WORDS),)
        for count in (2, 4)
    },
}
