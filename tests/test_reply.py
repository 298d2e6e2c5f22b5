"""Tests of the reading of PLAN and IMPLEMENT answers."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxsearch.kernel import Idea, Kernel, Launch, Scratch
from ptxsearch.reply import PLAN_SCHEMA, Malformed, parse_implementation, parse_plan
from ptxsearch.reply.launch import as_expression
from ptxsearch.reply.source import elided, entries
from ptxsearch.space import Space

PARENT = Kernel(
    source='extern "C" __global__ void scale(const float* x, float* y, int n) {\n'
    "  int i = blockIdx.x * BLOCK + threadIdx.x;\n"
    "  if (i < n) y[i] = 2.0f * x[i];\n"
    "}\n",
    language="cuda",
    launches=(
        Launch("scale", ("x", "y", "n"), ("ceil_div(n, BLOCK)", "1", "1"), ("BLOCK", "1", "1")),
    ),
    values={"BLOCK": 256},
    space=Space({"BLOCK": (64, 128, 256)}),
)
CODE = """extern "C" __global__ void __launch_bounds__(BLOCK)
scale4(const float4* x, float4* y, int n) {
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i < n / 4) y[i] = x[i];
}"""
LAUNCH: dict[str, Any] = {
    "launches": [
        {
            "entry": "scale4",
            "args": ["x", "y", "n"],
            "grid": ["ceil_div(n, 4 * BLOCK)"],
            "block": ["BLOCK"],
        }
    ],
    "parameters": {"BLOCK": [128, 64, 256]},
    "restrictions": ["BLOCK <= 256"],
}


def answer(code: str = CODE, launch: object = LAUNCH, tag: str = "cuda") -> str:
    """An IMPLEMENT answer in the form that is asked for."""
    fenced = f"```{tag}\n{code}\n```\n\n```json\n{json.dumps(launch)}\n```\n"
    return f"Analysis: loads.\n\nPlan: float4.\n\n{fenced}"


def implemented(text: str, language: str = "cuda", parent: Kernel = PARENT) -> Kernel:
    """The kernel of an answer that must be usable."""
    kernel = parse_implementation(text, parent, language)  # type: ignore[arg-type]
    assert isinstance(kernel, Kernel), kernel
    return kernel


def reason(text: str, language: str = "cuda", parent: Kernel = PARENT) -> str:
    """The reason why an answer is not usable."""
    found = parse_implementation(text, parent, language)  # type: ignore[arg-type]
    assert isinstance(found, Malformed)
    return found.reason


def test_an_answer_as_asked_becomes_its_kernel() -> None:
    """Code, launch, parameters (first choice first) and restrictions arrive as written."""
    kernel = implemented(answer())
    assert kernel.source == CODE
    assert kernel.launches == (
        Launch(
            "scale4", ("x", "y", "n"), ("ceil_div(n, 4 * BLOCK)", "1", "1"), ("BLOCK", "1", "1")
        ),
    )
    assert kernel.values == {"BLOCK": 128}
    assert kernel.space == Space({"BLOCK": (64, 128, 256)}, ("BLOCK <= 256",))


def test_a_missing_launch_is_the_parents() -> None:
    """Without a JSON fence a kernel of the parent's entry keeps launch and parameters."""
    kernel = implemented(f"```cpp\n{PARENT.source.replace('2.0f', '3.0f')}```")
    assert kernel.launches == PARENT.launches
    assert (kernel.values, kernel.space) == (PARENT.values, PARENT.space)


def test_parameters_that_the_code_no_longer_uses_are_dropped() -> None:
    """A parent's parameter stays only where the new code or launch names it."""
    code = 'extern "C" __global__ void scale(const float* x, float* y, int n) {}'
    launch = {"launches": [{"entry": "scale", "args": ["x", "y", "n"], "grid": 1, "block": 32}]}
    kernel = implemented(answer(code, launch))
    assert (kernel.values, kernel.space) == ({}, None)


RULED = Kernel(
    PARENT.source,
    "cuda",
    PARENT.launches,
    {"BLOCK": 256, "PAD": 0},
    Space(
        {"BLOCK": (64, 128, 256), "PAD": (0, 1)},
        ("shared <= 2048",),
        {"shared": "BLOCK * (4 + PAD)"},
        {"PAD": "BLOCK == 64"},
    ),
)


def test_rules_of_the_parent_hold_where_the_answer_is_silent() -> None:
    """Derived quantities, restrictions and conditions over kept parameters are inherited."""
    code = CODE.replace("scale4", "scale").replace("int i", "int pad = PAD, i")
    silent = implemented(answer(code, {"parameters": {"BLOCK": [128, 64, 256]}}), parent=RULED)
    assert silent.space == RULED.space
    stated = {"restrictions": ["shared <= 4096"]}
    assert implemented(answer(code, stated), parent=RULED).space == Space(
        RULED.space.params if RULED.space else {},
        ("shared <= 4096",),
        {"shared": "BLOCK * (4 + PAD)"},
        {"PAD": "BLOCK == 64"},
    )


def test_rules_of_the_parent_yield_where_they_forbid_the_answer() -> None:
    """A first value that an inherited rule forbids ends the rule, not the answer."""
    code = CODE.replace("scale4", "scale").replace("int i", "int pad = PAD, i")
    kernel = implemented(answer(code, {"parameters": {"BLOCK": [1024]}}), parent=RULED)
    assert kernel.values == {"BLOCK": 1024, "PAD": 0}
    assert kernel.space is not None
    assert kernel.space.restrictions == ()


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("(n + 255) / 256", "(n + 255) // 256"),
        ("ceil(n / 256)", "ceil_div(n, 256)"),
        ("256 * sizeof(float)", "256 * 4"),
        ("a && !b || c != 1", "a and not b or c != 1"),
        ("(int)n", "n"),
        (4.0, "4"),
        ("1024u", "1024"),
    ],
)
def test_expressions_of_c_are_read(written: object, expected: str) -> None:
    """Division, casts, sizeof and logic of C become our language."""
    assert as_expression(written) == expected


@pytest.mark.parametrize(
    ("grid", "expected"),
    [
        ("n, 2", ("n", "2", "1")),
        ("dim3(ceil_div(n, 32), m)", ("ceil_div(n, 32)", "m", "1")),
        ({"x": "n", "y": 2}, ("n", "2", "1")),
        ([1, 2, 3], ("1", "2", "3")),
        ("(n + 1) * (m + 1)", ("(n + 1) * (m + 1)", "1", "1")),
    ],
)
def test_extents_are_read_in_every_spelling(grid: object, expected: tuple[str, ...]) -> None:
    """A grid may be text, a list or an object."""
    launch = {"launches": [{"entry": "scale4", "args": ["x", "y", "n"], "grid": grid, "block": 32}]}
    assert implemented(answer(launch=launch)).launches[0].grid == expected


def test_json_with_comments_and_trailing_commas_is_read() -> None:
    """What is nearly JSON is read as it was meant."""
    sloppy = """{"launches": [{"entry": "scale4", "args": ["x", "y", "n",], // three
      'grid': ["ceil_div(n, 4 * BLOCK)"], "block": ["BLOCK"], }],
      "parameters": {"BLOCK": [64, 128]}}"""
    kernel = implemented(f"```cuda\n{CODE}\n```\n```json\n{sloppy}\n```")
    assert kernel.values == {"BLOCK": 64}
    assert kernel.launches[0].args == ("x", "y", "n")


def test_scratch_of_a_two_pass_kernel_is_read() -> None:
    """Scratch takes C names of types; several launches keep their order."""
    code = 'extern "C" __global__ void a(float* t) {}\nextern "C" __global__ void b(float* t) {}'
    launch = {
        "launches": [
            {"entry": "a", "args": ["part"], "grid": 8, "block": 32},
            {"entry": "b", "args": ["part"], "grid": 1, "block": 32},
        ],
        "scratch": [{"name": "part", "dtype": "float", "shape": ["8"], "init": "zeros"}],
    }
    kernel = implemented(answer(code, launch))
    assert [one.entry for one in kernel.launches] == ["a", "b"]
    assert kernel.scratch == (Scratch("part", "f32", ("8",), "zeros"),)


def test_c_linkage_is_supplied() -> None:
    """An entry without C linkage gets it; a template and an entry that has it stay."""
    code = "#include <x.h>\n__global__ void scale(const float* x, float* y, int n) {}"
    assert 'extern "C" __global__ void scale' in implemented(f"```cuda\n{code}\n```").source
    assert implemented(answer()).source.count('extern "C"') == 1


def test_a_ptx_header_is_supplied() -> None:
    """PTX that starts at its entry gets version, target and address size."""
    kernel = implemented("```ptx\n.visible .entry scale(.param .u64 x)\n{\nret;\n}\n```", "ptx")
    assert kernel.source.startswith(".version 8.0\n.target sm_90\n.address_size 64\n")
    assert kernel.language == "ptx"


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("", "no fenced block"),
        ("I cannot help with that.", "no fenced block"),
        ("```cuda\nint x;\n```", "no fenced block"),
        (answer(CODE[:-1]).split("\n```\n")[0], "cut off"),
        (answer(CODE.replace("if", "// ... rest of the kernel unchanged\nif")), "left out"),
        (answer(launch={"launches": []}), "at least one launch"),
        (answer(launch={**LAUNCH, "restrictions": ["BLOCK <="]}), "not an expression"),
        (answer(launch={**LAUNCH, "restrictions": ["BLOCK > 128"]}), "break a restriction"),
        (answer(launch={**LAUNCH, "parameters": {"BLOCK": []}}), "0 values"),
        (answer(CODE + CODE.replace("scale4", "other"), {"launches": [
            {"entry": "absent", "args": [], "grid": 1, "block": 1}]}), "absent"),
        ("```ptx\n.visible .entry scale()\n{\nret;\n}\n```", "takes CUDA C++ only"),
        ("x" * 500_000, "500000 characters"),
    ],
)  # fmt: skip
def test_an_unusable_answer_says_why(text: str, fragment: str) -> None:
    """Each kind of unusable answer has a reason that names the mistake."""
    assert fragment in reason(text)


def test_ordinary_comments_are_not_taken_for_left_out_code() -> None:
    """Words such as "remaining" with dots are fine; a stand-in for code is not."""
    assert elided("// handle the remaining elements ...\n// the rest ...\n") == ""
    assert elided("a();\n// ... existing code ...\nb();") == "// ... existing"


def test_the_entry_is_found_behind_attributes() -> None:
    """Launch bounds with nested parentheses and alignment do not hide an entry's name."""
    code = "__global__ void __launch_bounds__(max(A, (B)), 2) k1(int n) {}\n"
    code += (
        "// __global__ void ghost(int n)\n__launch_bounds__(32) __global__ static void\nk2(int n){}"
    )
    assert entries(code) == ("k1", "k2")


def test_the_last_of_several_kernels_that_the_launch_names_is_taken() -> None:
    """A sketch in the analysis loses against the block whose entry is launched."""
    sketch = "```cuda\n__global__ void sketch(int n) {" + " n++;" * 200 + "}\n```\n"
    assert implemented(sketch + answer()).source == CODE


def test_reasoning_is_cut_away() -> None:
    """A kernel inside a reasoning block is not the answer."""
    assert "no fenced block" in reason(f"<think>```cuda\n{CODE}\n```</think>Done.")


EDIT = """<<<<<<< SEARCH
  if (i < n) y[i] = 2.0f * x[i];
=======
  if (i < n) y[i] = x[i] + x[i];
>>>>>>> REPLACE"""


def test_a_search_and_replace_edit_changes_only_its_place() -> None:
    """The parent's lines around the edit stay as they are."""
    kernel = implemented(EDIT.replace("  if (i < n) y[i] = 2", "if (i < n) y[i] = 2"))
    assert kernel.source == PARENT.source.replace("2.0f * x[i]", "x[i] + x[i]")


@pytest.mark.parametrize(
    ("edit", "fragment"),
    [
        (EDIT.replace("2.0f", "9.0f"), "nearest line is `if (i < n) y[i] = 2.0f * x[i];`"),
        ("<<<<<<< SEARCH\n=======\nx\n>>>>>>> REPLACE", "SEARCH part is empty"),
    ],
)
def test_an_edit_that_does_not_fit_says_where(edit: str, fragment: str) -> None:
    """An edit without its place names the nearest line."""
    assert fragment in reason(edit)


def test_a_place_that_is_not_unique_is_refused() -> None:
    """An edit whose lines stand twice asks for more lines."""
    parent = Kernel("  a;\n  b;\n  a;\n", "cuda", PARENT.launches, PARENT.values, PARENT.space)
    text = "<<<<<<< SEARCH\n  a;\n=======\n  c;\n>>>>>>> REPLACE"
    assert "stands 2 times" in reason(text, parent=parent)


def test_ptx_is_never_patched() -> None:
    """A search/replace edit of PTX is refused."""
    ptx = Kernel(".entry scale() {}", "ptx", PARENT.launches, PARENT.values, PARENT.space)
    assert "whole PTX" in reason(EDIT, "ptx", ptx)


IDEA = {
    "kind": "edit",
    "strategy": "vector-loads",
    "title": "Load four floats at once",
    "mechanism": "Fewer requests.",
    "limiter": "memory",
    "p_correct": 0.9,
    "p10": -0.05,
    "p50": 0.2,
    "p90": 0.4,
    "parameters": [{"name": "VEC", "value": 4}],
    "registers": 24,
    "shared_bytes": 0,
    "risk": "tail",
}


def test_a_plan_as_asked_becomes_its_ideas() -> None:
    """Every field of an idea arrives."""
    expected = Idea(
        "Load four floats at once", "vector-loads", "edit", "Fewer requests.", "memory", 0.9,
        (-0.05, 0.2, 0.4), {"VEC": 4}, 24, 0, "tail",
    )  # fmt: skip
    assert parse_plan(json.dumps({"ideas": [IDEA, IDEA]})) == (expected, expected)


def test_the_schema_asks_for_every_field_that_is_read() -> None:
    """The schema's required fields are exactly those of the example."""
    assert PLAN_SCHEMA["properties"]["ideas"]["items"]["required"] == list(IDEA)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([IDEA]),
        "Here you are [as asked]:\n```json\n" + json.dumps([IDEA], indent=1) + "\n```\nGood luck!",
        json.dumps({"plan": {"ideas": [IDEA]}}),
        json.dumps({"ideas": [IDEA]}).replace("}]}", "},],}"),
        str({"ideas": [IDEA]}),
        json.dumps({"ideas": [IDEA, IDEA]})[:-60],
        "<think>[{}]</think>" + json.dumps(IDEA),
    ],
)
def test_a_plan_in_another_dress_is_read(text: str) -> None:
    """Prose, fences, Python's dict, trailing commas, a cut end: the whole ideas survive."""
    ideas = parse_plan(text)
    assert isinstance(ideas, tuple)
    assert (ideas[0].title, ideas[0].gain, ideas[0].parameters) == (
        IDEA["title"], (-0.05, 0.2, 0.4), {"VEC": 4},
    )  # fmt: skip


def test_numbers_out_of_range_are_drawn_in() -> None:
    """Probabilities stay in 0..1, quantiles are sorted and finite, unknown kinds are edits."""
    odd = {**IDEA, "p_correct": 7, "p10": 0.9, "p50": "nan", "p90": -1e400, "kind": "wild"}
    ideas = parse_plan(json.dumps({"ideas": [odd]}))
    assert isinstance(ideas, tuple)
    assert (ideas[0].p_correct, ideas[0].gain, ideas[0].kind) == (1.0, (0.9, 0.9, 0.9), "edit")


@pytest.mark.parametrize("text", ["", "no", "{}", "[]", '{"ideas": []}', '{"ideas": [{"x": 1}]}'])
def test_a_plan_without_ideas_is_malformed(text: str) -> None:
    """Nothing that lacks a titled idea passes for a plan."""
    assert isinstance(parse_plan(text), Malformed)


PIECES = st.sampled_from(
    ["```", "```cuda\n", "```json\n", "~~~", "{", "}", "[", "]", '"launches"', ":", ",", "'", '"',
     "\\", "//", "/*", "*/", "\n", "<think>", "</think>", "__global__ void k(", ".entry k(", ")",
     "<<<<<<< SEARCH\n", "=======\n", ">>>>>>> REPLACE\n", '{"ideas": [', '{"title": "a",',
     '"entry": "k"', '"grid": [1]', "NaN", "1e999", "-", "9" * 30, "ceil_div(n,", "\x00", "é",
     '"parameters": {"A": [1, "x"]}', json.dumps(LAUNCH), CODE, json.dumps(IDEA)]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=40).map("".join) | st.text(max_size=300))
def test_no_text_makes_the_readers_raise(text: str) -> None:
    """Whatever a model writes becomes a record or a Malformed."""
    assert isinstance(parse_plan(text), tuple | Malformed)
    for language in ("cuda", "ptx", "both"):
        assert isinstance(parse_implementation(text, PARENT, language), Kernel | Malformed)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)


SECTIONS = ("launches", "parameters", "restrictions", "scratch", "tensor_maps", "derived")


@settings(max_examples=300, deadline=None)
@given(
    st.fixed_dictionaries({}, optional=dict.fromkeys(SECTIONS, JSON)),
    st.dictionaries(st.sampled_from(list(IDEA)), JSON),
)
def test_no_json_makes_the_readers_raise(
    launch: dict[str, object], idea: dict[str, object]
) -> None:
    """Well-formed JSON of any shape in place of the launch or of an idea is a value too."""
    assert isinstance(
        parse_implementation(answer(launch=launch), PARENT, "cuda"), Kernel | Malformed
    )
    odd = {**LAUNCH, "launches": [{**LAUNCH["launches"][0], **launch}]}
    assert isinstance(parse_implementation(answer(launch=odd), PARENT, "cuda"), Kernel | Malformed)
    assert isinstance(parse_plan(json.dumps([{**IDEA, **idea}])), tuple | Malformed)


@pytest.mark.parametrize(
    "piece", ["{", "[", '{"a":', "/*", "//", '"', '\\"', "'", "```\n", "<think>", "__global__ ",
              "__a__(", "<<<<<<< SEARCH\n", "(", "&&", '{"ideas": [{"title": '],
)  # fmt: skip
def test_hostile_repetition_is_read_in_bounded_time(piece: str) -> None:
    """A repeated piece of 200,000 characters costs at most two CPU seconds."""
    text = piece * (200_000 // len(piece))
    start = time.process_time()
    assert isinstance(parse_plan(text), tuple | Malformed)
    assert isinstance(parse_implementation(text, PARENT, "both"), Kernel | Malformed)
    assert isinstance(
        parse_implementation(f"```cuda\n{CODE}\n{text}\n```", PARENT, "both"), Kernel | Malformed
    )
    assert time.process_time() - start < 2.0
