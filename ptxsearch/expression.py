"""The small language of sizes, grids and restrictions: arithmetic over named numbers.

Python syntax limited to numbers, names, strings, `+ - * / // % **`, comparisons (chained and
`in`), `and or not`, `a if c else b`, tuples after `in`, and the functions `min max abs
ceil_div round_up log2 sqrt`. Nothing else can be written, so an expression from a task file or
a model is data. The same expression evaluates over numbers or over whole numpy columns.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from ptxsearch.errors import ExpressionError

_LONGEST = 2000
_LARGEST_POWER = 128


def _ceil_div(a: Any, b: Any) -> Any:
    return -(-a // b)


def _power(a: Any, b: Any) -> Any:
    if np.any(np.abs(b) > _LARGEST_POWER):
        raise ExpressionError(f"exponent {b} exceeds {_LARGEST_POWER}", "use a smaller exponent")
    return a**b


def _smallest(*values: Any) -> Any:
    if any(isinstance(value, np.ndarray) for value in values):
        return np.minimum.reduce(np.broadcast_arrays(*values))
    return min(values)


def _largest(*values: Any) -> Any:
    if any(isinstance(value, np.ndarray) for value in values):
        return np.maximum.reduce(np.broadcast_arrays(*values))
    return max(values)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "min": _smallest,
    "max": _largest,
    "abs": abs,
    "ceil_div": _ceil_div,
    "round_up": lambda a, b: _ceil_div(a, b) * b,
    "log2": lambda a: np.log2(a) if isinstance(a, np.ndarray) else math.log2(a),
    "sqrt": lambda a: np.sqrt(a) if isinstance(a, np.ndarray) else math.sqrt(a),
}
_BINARY: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
_COMPARE: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class Expression:
    """A parsed expression: `names` it reads, `evaluate(values)` to a number, bool or column."""

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > _LONGEST:
            raise ExpressionError(
                f"expression of {len(text)} characters exceeds {_LONGEST}", "write a shorter one"
            )
        try:
            tree = ast.parse(text.strip(), mode="eval")
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            raise ExpressionError(
                f"{text!r} is not an expression ({error})",
                "write arithmetic over named sizes, such as ceil_div(n, 256)",
            ) from error
        self._body = tree.body
        self.names = frozenset(
            node.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Name) and node.id not in FUNCTIONS
        )
        for node in ast.walk(tree):
            self._refuse_outside(node)

    def _refuse_outside(self, node: ast.AST) -> None:
        allowed = (
            ast.Expression, ast.Constant, ast.Name, ast.Load, ast.BinOp, ast.UnaryOp, ast.BoolOp,
            ast.Compare, ast.IfExp, ast.Call, ast.Tuple, ast.List, ast.operator, ast.unaryop,
            ast.boolop, ast.cmpop,
        )  # fmt: skip
        bad_call = isinstance(node, ast.Call) and (
            not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS or node.keywords
        )
        bad_constant = isinstance(node, ast.Constant) and not isinstance(
            node.value, int | float | str
        )
        unknown = isinstance(node, ast.operator) and type(node) not in _BINARY
        if not isinstance(node, allowed) or bad_call or bad_constant or unknown:
            raise ExpressionError(
                f"{type(node).__name__} is not allowed in {self.text!r}",
                f"use numbers, names, + - * / // % **, comparisons, and, or, not, if-else "
                f"and {', '.join(FUNCTIONS)}",
            )

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """The value where each name has the number, string or numpy column in `values`."""
        try:
            return self._visit(self._body, values)
        except (ZeroDivisionError, ValueError, OverflowError, TypeError) as error:
            raise ExpressionError(
                f"{self.text!r} has no value ({error})", "check the sizes it is given"
            ) from error

    def _visit(self, node: ast.expr, values: Mapping[str, Any]) -> Any:
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                if node.id not in values:
                    raise ExpressionError(
                        f"{self.text!r} names {node.id!r}, which is not defined",
                        f"use one of {', '.join(sorted(values)) or 'no names'}",
                    )
                return values[node.id]
            case ast.BinOp():
                left, right = self._visit(node.left, values), self._visit(node.right, values)
                return _BINARY[type(node.op)](_number(left), _number(right))
            case ast.UnaryOp():
                return _unary(node.op, self._visit(node.operand, values))
            case ast.BoolOp():
                return self._boolean(node, values)
            case ast.Compare():
                return self._compare(node, values)
            case ast.IfExp():
                return self._choose(node, values)
            case ast.Call(func=ast.Name(id=name)):
                return FUNCTIONS[name](*(self._visit(arg, values) for arg in node.args))
            case ast.Tuple() | ast.List():
                return tuple(self._visit(element, values) for element in node.elts)
        raise ExpressionError(f"{self.text!r} cannot be evaluated", "simplify it")

    def _boolean(self, node: ast.BoolOp, values: Mapping[str, Any]) -> Any:
        """The operand that decides, as in Python; by row where one is a column."""
        is_and = isinstance(node.op, ast.And)
        result = self._visit(node.values[0], values)
        for operand in node.values[1:]:
            if not isinstance(result, np.ndarray):
                if bool(result) is not is_and:
                    return result
                result = self._visit(operand, values)
                continue
            other = self._visit(operand, values)
            truth = result.astype(bool)
            result = np.where(truth, other, result) if is_and else np.where(truth, result, other)
        return result

    def _compare(self, node: ast.Compare, values: Mapping[str, Any]) -> Any:
        left = self._visit(node.left, values)
        result: Any = True
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            right = self._visit(comparator, values)
            if isinstance(op, ast.In | ast.NotIn):
                inside = np.isin(left, right) if isinstance(left, np.ndarray) else left in right
                value = np.logical_not(inside) if isinstance(op, ast.NotIn) else inside
            else:
                value = _COMPARE[type(op)](left, right)
            result = value if result is True else np.logical_and(result, value)
            left = right
        return result if isinstance(result, np.ndarray) else bool(result)

    def _choose(self, node: ast.IfExp, values: Mapping[str, Any]) -> Any:
        test = self._visit(node.test, values)
        if isinstance(test, np.ndarray):
            return np.where(test, self._visit(node.body, values), self._visit(node.orelse, values))
        return self._visit(node.body if test else node.orelse, values)

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"


def _number(value: Any) -> Any:
    """A column of truth values as numbers: numpy does not subtract those as Python does."""
    is_truth = isinstance(value, np.ndarray) and value.dtype == bool
    return value.astype(np.int64) if is_truth else value


def _unary(op: ast.unaryop, value: Any) -> Any:
    if isinstance(op, ast.Not):
        return np.logical_not(value) if isinstance(value, np.ndarray) else not value
    value = _number(value)
    if isinstance(op, ast.USub):
        return -value
    if isinstance(op, ast.UAdd):
        return +value
    return ~value


@lru_cache(maxsize=4096)
def parse(text: str) -> Expression:
    """The expression `text` stands for, cached. Raises ExpressionError where it is none."""
    return Expression(text)


def evaluate(text: str | int | float, values: Mapping[str, Any]) -> Any:
    """The value of `text` (a number stands for itself) under `values`."""
    return parse(text).evaluate(values) if isinstance(text, str) else text


def evaluate_integer(text: str | int, values: Mapping[str, Any]) -> int:
    """The value of `text`, which must be a whole number: a size, an extent, a count of bytes."""
    value = evaluate(text, values)
    if isinstance(value, bool) or value != int(value):
        raise ExpressionError(
            f"{text!r} is {value!r} where a whole number is needed",
            "divide with // or ceil_div",
        )
    return int(value)
