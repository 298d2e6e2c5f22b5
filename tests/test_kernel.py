"""Kernels: binding to sizes, values, templates, what cannot exist."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ptxsearch.errors import KernelError
from ptxsearch.kernel import BoundLaunch, Kernel, Launch, Scratch, TensorMap
from ptxsearch.space import Space

SPACE = Space({"B": (64, 128, 256)}, derived={"smem": "4 * B"})
KERNEL = Kernel(
    "void k() {}  // comment",
    "cuda",
    (Launch("k", ("x", "n // 2"), ("ceil_div(n, B)",), ("B",), shared_bytes="smem"),),
    {"B": 128},
    SPACE,
)


def test_bind_evaluates_everything() -> None:
    """Extents, bytes and numeric arguments follow sizes, values and derived quantities."""
    (launch,) = KERNEL.bind({"n": 1000}, frozenset({"x"}))
    assert launch == BoundLaunch("k", ("x", 500), (8, 1, 1), (128, 1, 1), (1, 1, 1), 512)
    assert (launch.threads, launch.blocks) == (128, 8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"grid": ("n - n",)}, "at least 1"),
        ({"grid": ("m",)}, "not defined"),
        ({"block": ("n / 3",)}, "whole number"),
        ({"shared_bytes": "-1"}, "0 or more"),
        ({"grid": ("1", "1", "1", "1")}, "one to three"),
        ({"entry": "k; rm"}, "identifier"),
    ],
)
def test_bad_launches(change: dict[str, object], message: str) -> None:
    """A launch without positive whole extents is refused with the reason."""

    def bind() -> None:
        launch = replace(KERNEL.launches[0], **change)  # type: ignore[arg-type]
        replace(KERNEL, launches=(launch,)).bind({"n": 1000}, frozenset({"x"}))

    with pytest.raises(KernelError, match=message):
        bind()


def test_with_values_keeps_to_the_space() -> None:
    """Values change the configuration, not the template; illegal ones are refused."""
    other = KERNEL.with_values(B=64)
    assert other.values == {"B": 64}
    assert other.template == KERNEL.template
    with pytest.raises(KernelError, match="break the space"):
        KERNEL.with_values(B=65)
    with pytest.raises(KernelError, match="unknown parameters"):
        KERNEL.with_values(C=1)


def test_template_ignores_layout_of_text_only() -> None:
    """Comments and white space leave a template equal; code and launches do not."""
    assert replace(KERNEL, source="\n  void  k() {} /* x */\n").template == KERNEL.template
    assert replace(KERNEL, source="void k() { ; }").template != KERNEL.template
    split, joined = "#define A\nB", "#define A B"
    assert replace(KERNEL, source=split).template != replace(KERNEL, source=joined).template
    launch = replace(KERNEL.launches[0], shared_bytes="0")
    assert replace(KERNEL, launches=(launch,)).template != KERNEL.template


def test_size_and_value_of_one_name() -> None:
    """A name cannot be both a size and a value."""
    with pytest.raises(KernelError, match="both a size and a value"):
        KERNEL.bind({"n": 10, "B": 3}, frozenset({"x"}))


def test_scratch_shapes_and_zeros_limit() -> None:
    """Scratch follows the sizes; zeros are limited to 64 KB in all."""
    kernel = replace(KERNEL, scratch=(Scratch("t", "f32", ("n",), "zeros"),))
    assert kernel.scratch_shapes({"n": 16384}) == {"t": (16384,)}
    with pytest.raises(KernelError, match="exceeds 65536"):
        kernel.scratch_shapes({"n": 16385})


def test_what_cannot_exist() -> None:
    """A kernel needs launches, values for its space, and distinct buffer names."""
    with pytest.raises(KernelError, match="without launches"):
        replace(KERNEL, launches=())
    with pytest.raises(KernelError, match="no value"):
        replace(KERNEL, values={})
    with pytest.raises(KernelError, match="repeat"):
        replace(KERNEL, scratch=(Scratch("t", "f32", ("1",)), Scratch("t", "s32", ("1",))))
    with pytest.raises(KernelError, match="dtype"):
        Scratch("t", "f31", ("1",))


def test_tensor_map_dimensions() -> None:
    """A tensor map has 1 to 5 dims, as many box extents and one stride fewer."""
    with pytest.raises(KernelError, match="strides"):
        TensorMap("m", "x", "f32", ("8", "8"), (), ("8", "8"))
    with pytest.raises(KernelError, match="box"):
        TensorMap("m", "x", "f32", ("8", "8"), ("32",), ("8",))
