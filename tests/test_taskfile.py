"""Tasks on disk: the bundled ones load, and every mistake is one error with file, line and key."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from ptxsearch.errors import KernelError, TaskError
from ptxsearch.expectation import References, expected
from ptxsearch.inputs import make_inputs
from ptxsearch.kernelfile import read_kernel
from ptxsearch.taskfile import bundled, folder, load_task, locate


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of level1/sum that a test may spoil."""
    target = tmp_path / "mine"
    shutil.copytree(folder() / "level1" / "sum", target)
    return target


def edit(home: Path, old: str, new: str) -> int:
    """Replace a text of task.yaml once and give the line it is on."""
    path = home / "task.yaml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return text[: text.index(old)].count("\n") + 1


def test_the_six_level_one_tasks_are_bundled() -> None:
    """What is shipped is what is listed."""
    names = {"histogram", "matmul", "saxpy", "softmax", "sum", "transpose"}
    assert {f"level1/{name}" for name in names} <= set(bundled())


@pytest.mark.parametrize("name", bundled())
def test_a_bundled_task_is_complete(name: str) -> None:
    """Each has public, hidden, awkward and timed workloads, wrong kernels, and a space."""
    task = load_task(name)
    assert task.name == name
    assert task.baseline.space is not None
    assert any(not workload.public for workload in task.workloads)
    assert any(workload.timed for workload in task.workloads)
    assert min(workload.elements for workload in task.workloads) == 1
    assert len({wrong.status for wrong in task.wrong}) >= 2
    assert any(wrong.counter for wrong in task.wrong)
    assert task.description
    assert task.provenance


@pytest.mark.parametrize("name", bundled())
def test_every_legal_configuration_binds_on_every_workload(name: str) -> None:
    """A sample of the space has launches within a block's 1,024 threads for all sizes."""
    task = load_task(name)
    space = task.baseline.space
    assert space is not None
    rows = space.sample(np.random.default_rng(0), 40)
    for row in rows:
        kernel = task.baseline.with_values(**space.values(row))
        for workload in task.workloads:
            for launch in kernel.bind(workload.sizes, task.names):
                assert launch.threads <= 1024
                assert launch.grid[0] < 2**31
                assert max(launch.grid[1:]) < 2**16


@pytest.mark.parametrize(
    ("name", "sizes", "outputs"),
    [
        ("level1/sum", {"n": 4}, {"x": [1, 2, 3, 5], "out": [11]}),
        ("level1/transpose", {"rows": 2, "cols": 3},
         {"x": [[1, 2, 3], [4, 5, 6]], "out": [[1, 4], [2, 5], [3, 6]]}),
        ("level1/matmul", {"m": 2, "n": 2, "k": 2},
         {"a": [[1, 2], [3, 4]], "b": [[5, 6], [7, 8]], "c": [[19, 22], [43, 50]]}),
        ("level1/histogram", {"n": 5}, {"x": [3, 3, 0, 255, 3], "out": None}),
        ("level1/softmax", {"rows": 1, "cols": 2}, {"x": [[0, np.log(3)]], "out": [[0.25, 0.75]]}),
        ("level1/saxpy", {"n": 2}, {"x": [4, 8], "y": [1, 2],
                                    "out": [1 + 4 * 0.7853981634, 2 + 8 * 0.7853981634]}),
    ],
)  # fmt: skip
def test_a_reference_gives_what_a_hand_does(
    name: str, sizes: dict[str, int], outputs: dict[str, list[float] | None]
) -> None:
    """References on inputs small enough to compute by hand."""
    task = load_task(name)
    workload = type(task.smallest)("hand", sizes)
    inputs = make_inputs(task, workload, seed=0)
    values = dict(inputs.values)
    for param in task.params:
        if param.role in ("in", "inout"):
            values[param.name] = np.array(outputs[param.name], dtype=param.numpy_dtype)
    given = type(inputs)(values, inputs.roles, inputs.sizes, inputs.label)
    got = expected(task, workload, given).arrays[task.outputs[0].name]
    want = outputs.get(task.outputs[0].name if name == "level1/matmul" else "out")
    if want is None:
        counts = [0] * 256
        counts[0], counts[3], counts[255] = 1, 3, 1
        want = [float(count) for count in counts]
    assert np.allclose(got.astype(np.float64), np.array(want), rtol=1e-6)


def test_a_folder_loads_by_path_and_by_its_file(copied: Path) -> None:
    """A user's own task is named by where it is."""
    assert load_task(copied).digest == load_task(copied / "task.yaml").digest
    assert load_task(str(copied)).name == "level1/sum"


def test_a_task_is_located_by_name_and_by_path(copied: Path) -> None:
    """The folder that calibrations are stored in is the task's own."""
    assert locate("level1/sum") == folder() / "level1" / "sum"
    assert locate(copied) == locate(copied / "task.yaml") == copied


@pytest.mark.parametrize(
    ("name", "near"),
    [("level1/summ", "level1/sum"), ("transposed", "level1/transpose"), ("xyzzy", "level1/matmul")],
)
def test_an_unknown_task_names_near_ones(name: str, near: str) -> None:
    """A misspelt name gets the names it is close to, or all of them."""
    with pytest.raises(TaskError, match=near):
        load_task(name)


@pytest.mark.parametrize(
    ("old", "new", "key", "words"),
    [
        ("role: in,", "role: inn,", "params[0]", "role 'inn'"),
        ("dtype: f32, shape: [n]", "dtype: f33, shape: [n]", "params[0]", "dtype 'f33'"),
        ("flops_min:", "flops_mim:", "flops_mim", "flops_min?"),
        ("level: 1", "level: one", "level", "'one'"),
        ("{n: 262144}", "{n: -5}", "workloads[1].sizes.n", "-5"),
        ("{n: 262144}", "{n: many}", "workloads[1].sizes.n", "'many'"),
        ("source: baseline.cu", "source: other.cu", "baseline.source", "other.cu"),
        ("source: baseline.cu", "source: baseline.exe", "baseline.source", ".ptx"),
        ("allow: [atomics_order]", "allow: [cheating]", "allow", "cheating"),
        ("block: BLOCK}", "block: BLOKC}", "workloads[0]", "BLOKC"),
        ("- UNROLL <= ITEMS", "- UNROLL <= ITEM", "space", "ITEM"),
        ("file: wrong/tail.cu", "file: wrong/absent.cu", "wrong[0].file", "absent"),
        ("status: WRONG", "status: BAD", "wrong[0].status", "CRASHED"),
        ("allow:", "calibrated_at: {huge: {n: 1}}\nallow:", "calibrated_at.huge", "medium"),
    ],
)
def test_a_mistake_is_told_with_file_line_and_key(
    copied: Path, old: str, new: str, key: str, words: str
) -> None:
    """One line says where it is and what is allowed."""
    edit(copied, old, new)
    with pytest.raises(TaskError) as caught:
        load_task(copied)
    message = str(caught.value)
    assert f"{copied}/task.yaml:" in message
    assert f": {key}: " in message
    assert words in message
    assert "\n" not in message
    assert caught.value.remedy


def test_the_line_of_a_mistake_is_the_one_in_the_file(copied: Path) -> None:
    """The number points at the key, not at the top of the document."""
    line = edit(copied, "allow: [atomics_order]", "allow: [nothing]")
    with pytest.raises(TaskError, match=f"task.yaml:{line}:"):
        load_task(copied)


def test_text_that_is_not_yaml_is_told_with_its_line(copied: Path) -> None:
    """A syntax error has file and line too."""
    line = edit(copied, "level: 1", "level: [1")
    with pytest.raises(TaskError, match="not YAML") as caught:
        load_task(copied)
    number = int(str(caught.value).split("task.yaml:")[1].split(":")[0])
    assert line <= number <= line + 2


@pytest.mark.parametrize("content", ["", "- a\n- b\n", "\x00\x01", "name: x\n"])
def test_a_file_without_a_task_is_refused(copied: Path, content: str) -> None:
    """Empty, a list, binary, or without the keys that every task has."""
    (copied / "task.yaml").write_text(content, encoding="utf-8")
    with pytest.raises(TaskError):
        load_task(copied)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (None, "missing"),
        ("x = 1\n", "no reference"),
        ("def reference(:\n", "SyntaxError"),
        ("import absent_module_of_nobody\n", "absent_module_of_nobody"),
        ("raise ValueError('no')\n", "ValueError: no"),
    ],
)
def test_a_reference_that_is_missing_or_fails_to_import_is_told(
    copied: Path, source: str | None, words: str
) -> None:
    """The file of the reference is named with what happened."""
    if source is None:
        (copied / "reference.py").unlink()
    else:
        (copied / "reference.py").write_text(source, encoding="utf-8")
    with pytest.raises(TaskError, match=words):
        load_task(copied)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return np.zeros(2)", r"shape \(2,\)"),
        ("return 1 / 0", "ZeroDivisionError"),
        ("return {'other': np.zeros(1)}", "keys other"),
        ("x[0] = 1; return x[:1]", "read-only"),
        ("return x.nothing", "AttributeError"),
    ],
)
def test_a_reference_that_fails_or_has_the_wrong_shape_is_told(
    copied: Path, body: str, words: str
) -> None:
    """What the reference did is the task's mistake, with the sizes it happened on."""
    (copied / "reference.py").write_text(
        f"import numpy as np\n\n\ndef reference(x, n):\n    {body}\n\n\nmagnitude = reference\n",
        encoding="utf-8",
    )
    task = load_task(copied)
    with pytest.raises(TaskError, match=words):
        References(task).get(task.smallest, 0, "normal")


def test_a_broken_calibration_is_told(copied: Path) -> None:
    """A calibration that cannot be read says how to make it again."""
    (copied / "calibration.json").write_text('{"entries": {"out small normal": 3}}')
    with pytest.raises(TaskError, match="--calibrate"):
        load_task(copied)


def test_a_kernel_file_takes_its_launches_from_the_json_beside_it(tmp_path: Path) -> None:
    """Extents may be a number, a text or a list."""
    (tmp_path / "k.cu").write_text("extern __global__ void k();")
    (tmp_path / "k.json").write_text(
        json.dumps({"launches": [{"entry": "k", "args": ["x", 3], "grid": ["n", 2], "block": 64}]})
    )
    kernel = read_kernel(tmp_path / "k.cu")
    (bound,) = kernel.bind({"n": 5}, frozenset({"x"}))
    assert (bound.grid, bound.block, bound.args) == ((5, 2, 1), (64, 1, 1), ("x", 3))


def test_a_kernel_file_alone_takes_the_launches_of_the_baseline(tmp_path: Path) -> None:
    """The task's own launch is the default."""
    (tmp_path / "k.cu").write_text("extern __global__ void k();")
    baseline = load_task("level1/sum").baseline
    assert read_kernel(tmp_path / "k.cu", like=baseline).launches == baseline.launches


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("k.txt", b"text", "neither PTX nor CUDA"),
        ("k.cu", b"\x7fELF\x02\x01\x01\xff\xfe", "not text"),
        ("k.ptx", b"abc\x00def", "binary"),
        ("k.ptx", b"  \n", "empty"),
        ("k.cu", b"x" * (50 << 20), "bytes, more than"),
    ],
)
def test_a_file_that_is_no_kernel_source_is_refused(
    tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    """Wrong names, binaries, empty and huge files are one clear error."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(KernelError, match=words):
        read_kernel(tmp_path / name, like=load_task("level1/sum").baseline)


@pytest.mark.parametrize(
    "content", ["[]", "{", '{"launch": []}', '{"launches": [{"entry": "k"}]}', '{"launches": [3]}']
)
def test_a_json_that_describes_no_launch_is_refused(tmp_path: Path, content: str) -> None:
    """The JSON beside a kernel is named in the error."""
    (tmp_path / "k.cu").write_text("extern __global__ void k();")
    (tmp_path / "k.json").write_text(content)
    with pytest.raises(KernelError, match=r"k\.json"):
        read_kernel(tmp_path / "k.cu")
