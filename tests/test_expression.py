"""The small language: equal to Python where allowed, refused elsewhere, the same over columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxsearch.errors import ExpressionError
from ptxsearch.expression import evaluate, evaluate_integer, parse

NUMBERS = st.integers(1, 50)


@st.composite
def texts(draw: st.DrawFn, depth: int = 3) -> str:
    """Expressions over a, b, c that always have a value."""
    if depth == 0:
        return draw(st.sampled_from(["a", "b", "c", "2", "7", "64"]))
    left, right = draw(texts(depth=depth - 1)), draw(texts(depth=depth - 1))
    form = draw(
        st.sampled_from(
            ["({} + {})", "({} - {})", "({} * {})", "min({}, {})", "max({}, {})", "({} < {})",
             "({} == {})", "({} and {})", "({} or {})", "({} // ({} * 0 + 3))"]
        )
    )  # fmt: skip
    return form.format(left, right)


@given(texts(), NUMBERS, NUMBERS, NUMBERS)
def test_value_is_pythons(text: str, a: int, b: int, c: int) -> None:
    """An allowed expression has the value Python gives it."""
    names = {"a": a, "b": b, "c": c}
    expected = eval(text, {"min": min, "max": max}, dict(names))
    assert evaluate(text, names) == expected


@given(texts(), st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=5))
def test_columns_equal_single_values(text: str, rows: list[tuple[int, int, int]]) -> None:
    """Evaluating numpy columns gives the truth or number of each row."""
    columns = {name: np.array([row[i] for row in rows]) for i, name in enumerate("abc")}
    found = np.broadcast_to(np.asarray(evaluate(text, columns)), len(rows))
    single = [evaluate(text, dict(zip("abc", row, strict=True))) for row in rows]
    if found.dtype == bool:
        assert [bool(value) for value in single] == found.tolist()
    else:
        assert single == found.tolist()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ceil_div(10, 4)", 3), ("round_up(10, 4)", 12), ("log2(8)", 3.0), ("sqrt(9)", 3.0),
        ("2 ** 5", 32), ("1 if x > 3 else 2", 1), ("x in (4, 8)", True), ("x not in (4,)", False),
        ("2 <= x < 5", True), ("not x", False), ("-x", -4), ("abs(-x)", 4), ("'a' == 'a'", True),
    ],
)  # fmt: skip
def test_forms(text: str, expected: Any) -> None:
    """Every allowed form, with x = 4."""
    assert evaluate(text, {"x": 4}) == expected


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')", "x.y", "x[0]", "lambda: 1", "[i for i in x]", "open('f')", "f'{x}'",
        "min(*x)", "max(key=x)", "x := 1", "b''", "None", "", "1 +", "x @ x", "x << 40", "{1: 2}",
        "await x", "(" * 500 + "x" + ")" * 500, "1" * 3000,
    ],
)  # fmt: skip
def test_everything_else_is_refused(text: str) -> None:
    """What is outside the language raises one clear error."""
    with pytest.raises(ExpressionError):
        evaluate(text, {"x": 4})


@pytest.mark.parametrize("text", ["x // 0", "x % 0", "9 ** 999999", "log2(0)", "y", "x + 'a'"])
def test_no_value_is_an_error(text: str) -> None:
    """An expression without a value says so, never a Python error."""
    with pytest.raises(ExpressionError):
        evaluate(text, {"x": 4})


def test_whole_numbers() -> None:
    """Sizes must be whole; 4.0 is, 4.5 and True are not."""
    assert evaluate_integer("x / 2", {"x": 8}) == 4
    for text in ("x / 3", "x > 1"):
        with pytest.raises(ExpressionError, match="whole number"):
            evaluate_integer(text, {"x": 8})


def test_names() -> None:
    """An expression tells the names it reads, functions left out."""
    assert parse("ceil_div(n, BLOCK) + max(n, 1)").names == {"n", "BLOCK"}
