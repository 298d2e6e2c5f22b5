"""Parameter spaces: legality, enumeration, sampling, neighbours, conditions, what is refused."""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxsearch.errors import SpaceError
from ptxsearch.kernel import Kernel
from ptxsearch.space import Space, Value

DATA = Path(__file__).parent / "data" / "spaces"
PARAMS = {"bx": (8, 16, 32, 64), "tile": (1, 2, 3), "mode": ("row", "col"), "pad": (False, True)}
TESTS: dict[str, Callable[..., bool]] = {
    "bx * tile <= 96": lambda bx, tile, mode, pad: bx * tile <= 96,
    "mode == 'row' or bx % 16 == 0": lambda bx, tile, mode, pad: mode == "row" or bx % 16 == 0,
    "not pad or tile in (1, 3)": lambda bx, tile, mode, pad: not pad or tile in (1, 3),
    "8 <= bx // tile < 64": lambda bx, tile, mode, pad: 8 <= bx // tile < 64,
    "16 % (tile - 1) == 0 or tile == 1": lambda bx, tile, mode, pad: tile == 2 or tile == 3,
}


def product() -> list[dict[str, object]]:
    """All configurations of PARAMS in product order."""
    return [dict(zip(PARAMS, v, strict=True)) for v in itertools.product(*PARAMS.values())]


@given(st.sets(st.sampled_from(sorted(TESTS))))
@settings(max_examples=32, deadline=None)
def test_legal_is_what_python_says(chosen: set[str]) -> None:
    """Enumeration, is_legal and plain Python agree; a test without a value (16 % 0) forbids."""
    space = Space(PARAMS, tuple(sorted(chosen)))
    expected = [v for v in product() if all(TESTS[text](**v) for text in chosen)]
    rows = space.legal()
    assert rows is not None
    assert [space.values(row) for row in rows] == expected
    assert [v for v in product() if space.is_legal(v)] == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["matmul_H200", "transpose_H200"])
def test_legal_is_what_was_recorded(name: str) -> None:
    """The restrictions of a recorded space allow exactly the configurations that were measured."""
    with np.load(DATA / f"{name}.npz") as file:
        meta, rows = json.loads(str(file["meta"])), file["idx"]
    params = {key: tuple(values) for key, values in meta["params"].items()}
    legal = Space(params, tuple(meta["restrictions"])).legal()
    assert legal is not None
    assert sorted(map(tuple, legal.tolist())) == sorted(map(tuple, rows.tolist()))


def test_size_counts_the_product() -> None:
    """The size is that of the product, whatever the restrictions forbid."""
    assert Space(PARAMS, ("bx == 8",)).size == 4 * 3 * 2 * 2


def test_derived_quantities_chain() -> None:
    """A derived quantity may use those before it, and restrictions may use either."""
    space = Space(
        {"bx": (16, 32), "tile": (1, 2)},
        ("shared <= 512",),
        {"threads": "bx * tile", "shared": "threads * 8 + 4"},
    )
    assert space.derive({"bx": 32, "tile": 2}) == {"threads": 64, "shared": 516}
    assert not space.is_legal({"bx": 32, "tile": 2})
    assert space.is_legal({"bx": 32, "tile": 1})
    columns = space.derived_columns(np.array([[0, 0], [1, 1]]))
    assert columns["shared"].tolist() == [132, 516]


def test_parameter_without_effect_has_one_value() -> None:
    """Where its condition is false, only a parameter's first value is legal."""
    space = Space({"shared": (0, 1), "pad": (0, 1, 2)}, conditions={"pad": "shared == 1"})
    rows = space.legal()
    assert rows is not None
    assert [tuple(space.values(row).values()) for row in rows] == [(0, 0), (1, 0), (1, 1), (1, 2)]


def test_large_space_is_sampled_uniformly_without_enumeration() -> None:
    """Of 10^9 configurations legal ones are drawn evenly, and none is enumerated."""
    space = Space({name: tuple(range(1, 33)) for name in "abcdef"}, ("a * b % 8 == 0",))
    assert space.size == 2**30
    assert space.legal() is None
    rows = space.sample(np.random.default_rng(0), 4000)
    values = rows + 1
    assert (values[:, 0] * values[:, 1] % 8 == 0).all()
    counts = np.bincount(rows[:, 2], minlength=32)
    assert 4000 / 32 - 5 * np.sqrt(125) < counts.min()
    assert counts.max() < 4000 / 32 + 5 * np.sqrt(125)


def test_rare_legal_configurations_are_found() -> None:
    """Restrictions that one product in 10^7 meets are met parameter by parameter."""
    chain = tuple(f"{a} == {b} * 2 % 61" for a, b in zip("bcde", "abcd", strict=True))
    space = Space({name: tuple(range(61)) for name in "abcde"}, chain)
    rows = space.sample(np.random.default_rng(1), 50)
    assert all(row[1] == row[0] * 2 % 61 and row[4] == row[3] * 2 % 61 for row in rows.tolist())
    assert len({tuple(row) for row in rows.tolist()}) > 10


def test_impossible_space_cannot_be_sampled() -> None:
    """No legal configuration is an error with a remedy, not an endless search."""
    space = Space({"a": (1, 2), "b": (3, 4)}, ("a > b",))
    with pytest.raises(SpaceError, match="no legal configuration"):
        space.sample(np.random.default_rng(0), 1)


def test_neighbours_move_one_parameter_or_two_by_a_step() -> None:
    """Neighbours are the legal configurations that the definition names, each once."""
    space = Space(PARAMS, ("bx * tile <= 96",))
    start: dict[str, Value] = {"bx": 16, "tile": 2, "mode": "row", "pad": False}

    def near(other: dict[str, object]) -> bool:
        moved = [
            abs(values.index(other[name]) - values.index(start[name]))
            for name, values in PARAMS.items()
            if other[name] != start[name]
        ]
        return len(moved) == 1 or moved == [1, 1]

    expected = [v for v in product() if near(v) and v["bx"] * v["tile"] <= 96]  # type: ignore
    found = space.neighbours(start)
    assert sorted(map(str, found)) == sorted(map(str, expected))


def test_json_gives_an_equal_space_back() -> None:
    """A space, alone or in a kernel, survives JSON and pickling; equal spaces hash alike."""
    space = Space(PARAMS, ("bx < 64",), {"t": "bx * tile"}, {"pad": "mode == 'row'"})
    copy = Space.from_dict(json.loads(json.dumps(space.to_dict())))
    assert copy == space
    assert hash(copy) == hash(space)
    assert pickle.loads(pickle.dumps(space)) == space
    kernel = Kernel("", "recorded", (), {"bx": 8, "tile": 1, "mode": "row", "pad": True}, space)
    assert Kernel.from_dict(json.loads(json.dumps(kernel.to_dict()))).space == space


def test_space_of_rows_allows_exactly_these() -> None:
    """A space made from recorded rows allows them and nothing else, also after JSON."""
    rows = np.array([[0, 2], [3, 1], [1, 1]])
    params = {"a": (1, 2, 4, 8), "b": ("x", "y", "z")}
    space = Space.from_dict(json.loads(json.dumps(Space.from_rows(params, rows).to_dict())))
    legal = space.legal()
    assert legal is not None
    assert legal.tolist() == [[0, 2], [1, 1], [3, 1]]
    assert not space.is_legal({"a": 1, "b": "x"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"params": {"a": ()}}, "no values"),
        ({"params": {"a": (1, 1)}}, "repeats a value"),
        ({"params": {"2a": (1,)}}, "not usable"),
        ({"params": {"a": (1,)}, "restrictions": ("a < b",)}, "names b"),
        ({"params": {"a": (1,)}, "restrictions": ("a <",)}, "not an expression"),
        ({"params": {"a": (1,)}, "derived": {"a": "1"}}, "not usable"),
        ({"params": {"a": (1,)}, "derived": {"x": "y", "y": "a"}}, "names y"),
        ({"params": {"a": (1,)}, "conditions": {"b": "a == 1"}}, "unknown parameter"),
        ({"params": {"a": (1, 2)}, "mask": "????"}, "mask cannot be read"),
    ],
)
def test_impossible_spaces_are_refused(arguments: dict[str, object], message: str) -> None:
    """A space that cannot exist is refused with what was wrong."""
    with pytest.raises(SpaceError, match=message):
        Space(**arguments)  # type: ignore[arg-type]


def test_undeclared_values_are_illegal_and_named() -> None:
    """A value outside the space is illegal, and `row` says what is allowed."""
    space = Space({"a": (1, 2)})
    assert not space.is_legal({"a": 3})
    assert not space.is_legal({"b": 1})
    with pytest.raises(SpaceError, match="a = 3; use 1, 2"):
        space.row({"a": 3})
