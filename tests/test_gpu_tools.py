"""ncu's and compute-sanitizer's output as recorded on an H200: counters, advice, faults."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from ptxsearch.gpu import ncu, sanitizer, tool
from ptxsearch.gpu.metrics import METRICS, counters

DATA = Path(__file__).parent / "data" / "gpu"
N = 1 << 20
FINDINGS = json.loads((DATA / "sanitizer" / "findings.json").read_text())
ENDED = json.loads((DATA / "ncu" / "failures.json").read_text())


def raw(name: str) -> str:
    """A recorded raw page."""
    return (DATA / "ncu" / f"{name}.raw.csv").read_text()


def report() -> tuple[tuple[Mapping[str, float], ...], tuple[str, ...]]:
    """What the recorded report holds, by ncu's reader; skips where there is none."""
    try:
        return ncu.read_report(DATA / "ncu" / "bank_conflicts.ncu-rep")
    except ImportError:
        pytest.skip("the report reader is not installed")


def test_report_and_csv_agree() -> None:
    """The report's reader and the CSV give the same counters, to the digits that CSV keeps."""
    launches, _ = report()
    from_report = counters(launches).known()
    from_csv = counters(ncu.read_csv(raw("bank_conflicts"))).known()
    assert len(from_csv) > 60
    for name, value in from_csv.items():
        assert value == pytest.approx(from_report[name], rel=1e-2, abs=6e-3), name


@pytest.mark.parametrize(
    "name",
    ["double_it", "bank_conflicts", "uncoalesced", "low_occupancy", "divergent"],
)
def test_bytes_are_what_the_source_moves(name: str) -> None:
    """Each kernel loads and stores n floats once."""
    found = counters(ncu.read_csv(raw(name)))
    assert found.global_load_bytes == 4 * N
    assert found.global_store_bytes == 4 * N
    assert found.source == "ncu"


def test_conflicts_of_column_reads() -> None:
    """32-way conflicts on loads and stores: 31 extra wavefronts for each of 2 n / 32 requests."""
    found = counters(ncu.read_csv(raw("bank_conflicts")))
    assert found.bank_conflicts == 2 * 31 * N / 32
    assert found.shared_load_requests == N / 32
    assert counters(ncu.read_csv(raw("double_it"))).bank_conflicts == 0


def test_sectors_of_scattered_loads() -> None:
    """A warp whose lanes are 128 bytes apart touches 32 sectors a request."""
    found = counters(ncu.read_csv(raw("uncoalesced")))
    assert found.global_load_sectors == 32 * found.global_load_requests
    assert counters(ncu.read_csv(raw("double_it"))).global_load_sectors == N / 8


def test_spills_show_as_local_accesses() -> None:
    """Only the kernel that spills uses local memory."""
    assert (counters(ncu.read_csv(raw("spills"))).local_store_requests or 0) > 1e6
    assert counters(ncu.read_csv(raw("divergent"))).local_store_requests == 0


def test_one_warp_on_each_multiprocessor() -> None:
    """One of 64 warps is 1/64 occupancy."""
    found = counters(ncu.read_csv(raw("low_occupancy")))
    assert found.achieved_occupancy == pytest.approx(1 / 64, rel=1e-3)


def test_times_are_seconds() -> None:
    """The recorded 12,192 ns is 12.192e-6."""
    assert counters(ncu.read_csv(raw("bank_conflicts"))).duration == pytest.approx(
        12.192e-6, rel=1e-3
    )


def test_counters_of_a_sequence_add_up() -> None:
    """Two launches count twice and last twice as long; a ratio stays a ratio."""
    one = ncu.read_csv(raw("bank_conflicts"))
    single, double = counters(one), counters([*one, *one])
    assert double.bank_conflicts == 2 * (single.bank_conflicts or 0)
    assert double.duration == pytest.approx(2 * (single.duration or 0))
    assert double.achieved_occupancy == pytest.approx(single.achieved_occupancy)


def test_missing_metric_leaves_its_counter_unknown() -> None:
    """A counter whose metric is absent is None, and the others stay."""
    launch = dict(ncu.read_csv(raw("double_it"))[0])
    del launch["dram__bytes_read.sum"]
    found = counters([launch])
    assert found.dram_read_bytes is None
    assert found.dram_write_bytes is not None


def test_half_precision_constants_are_no_tensor_work() -> None:
    """A plain kernel that loads a constant by HFMA2 executed no matrix instruction."""
    launches, _ = report()
    assert launches[0]["opcode HFMA2"] > 0
    assert counters(launches).tensor_instructions == 0


def test_advice_names_the_conflicts() -> None:
    """The rules' sentences come through, without ncu's link marks."""
    _, advice = report()
    assert any("32.0 - way bank conflict" in text for text in advice)
    assert all("@section" not in text and "@url" not in text for text in advice)
    from_csv = ncu.advice_of_csv((DATA / "ncu" / "bank_conflicts.details.csv").read_text())
    assert any("32.0 - way bank conflict" in text for text in from_csv)


def test_no_matching_kernel_is_classified() -> None:
    """Exit code 0 with nothing profiled is not success."""
    ended = ENDED["no kernel"]
    assert ended["code"] == 0
    assert ncu.classify(ended["code"], ended["text"], produced=False) == "no_kernel_matched"


@pytest.mark.parametrize(
    ("code", "text", "produced", "outcome"),
    [
        (0, "==PROF== Report: r.ncu-rep", True, "ok"),
        (None, "", False, "timeout"),
        (5, "==ERROR== The application returned an error code (5).", False, "failed"),
        (5, "==ERROR== The application returned an error code (5).", True, "partial"),
        (
            1,
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU"
            " Performance Counters on the target device 0.",
            False,
            "no_permission",
        ),
        (
            1,
            "==ERROR== Failed to initialize the profiler: LibraryNotLoaded",
            False,
            "not_supported",
        ),
    ],
)
def test_outcomes_of_ncu(code: int | None, text: str, produced: bool, outcome: str) -> None:
    """Each way a run can end has its own outcome."""
    assert ncu.classify(code, text, produced=produced) == outcome


def test_unknown_metric_is_left_out_silently() -> None:
    """This ncu profiles without a metric it does not know, so presence is what is looked at."""
    assert ENDED["unknown metric"]["code"] == 0
    assert "no__such" not in ENDED["unknown metric"]["text"]


def test_command_filters_entries_and_leaves_the_clocks() -> None:
    """Only the named entries are profiled, in one process, clocks untouched."""
    made = ncu.command("ncu", Path("r.ncu-rep"), ["a", "b", "a"], metrics=METRICS)
    assert made[made.index("--kernel-name") + 1] == "regex:^(a|b)$"
    assert made[made.index("--clock-control") + 1] == "none"
    assert "SpeedOfLight" in made


def test_text_that_is_no_csv_gives_nothing() -> None:
    """Messages alone hold no launches."""
    assert ncu.read_csv("==ERROR== nothing here\n") == ()


@pytest.mark.parametrize(
    ("name", "kind", "space"),
    [
        ("illegal_address memcheck", "out_of_bounds_write", "global"),
        ("misaligned memcheck", "misaligned_access", "global"),
        ("past_the_end memcheck", "out_of_bounds_write", "global"),
        ("trap memcheck", "trap", "control"),
        ("stack_overflow memcheck", "launch_failure", "control"),
        ("shared_race racecheck", "data_race", "shared"),
        ("uninitialised initcheck", "uninitialised_read", "global"),
        ("barrier_half synccheck", "divergent_barrier", "control"),
    ],
)
def test_finding_becomes_a_fault(name: str, kind: str, space: str) -> None:
    """Every tool's finding has its kind, its space and the source line it names."""
    faults, count = sanitizer.parse(FINDINGS[name]["text"])
    assert faults
    assert count >= len(faults)
    assert (faults[0].kind, faults[0].space) == (kind, space)
    assert faults[0].source_line is not None


def test_place_of_a_bad_write() -> None:
    """The first illegal write was that of thread 5 of block 0, on the file's fourth line."""
    faults, _ = sanitizer.parse(FINDINGS["illegal_address memcheck"]["text"])
    assert faults[0].thread == (5, 0, 0)
    assert faults[0].block == (0, 0, 0)
    assert faults[0].source_line == 4
    assert "write of size 4" in faults[0].message


@pytest.mark.parametrize(
    "name",
    [
        "writes_input memcheck", "writes_input initcheck", "past_the_end racecheck",
        "unwritten_tail initcheck", "unwritten_tail memcheck", "uninitialised memcheck",
    ],
)  # fmt: skip
def test_what_is_not_the_kernels_doing_is_no_fault(name: str) -> None:
    """Errors of driver calls and of copies to the host are left out."""
    assert sanitizer.parse(FINDINGS[name]["text"]) == ((), 0)


def test_messages_hold_no_folders() -> None:
    """Paths of the machine are cut to file names."""
    text = (
        "========= Invalid __global__ read of size 4 bytes\n"
        "=========     at k+0x10 in /home/someone/private/kernel.cu:7\n"
        "=========     by thread (1,2,3) in block (4,5,6)\n"
        "=========     Address 0x10 is out of bounds\n"
    )
    faults, _ = sanitizer.parse(text)
    assert "someone" not in faults[0].message
    assert faults[0].source_line == 7
    assert faults[0].thread == (1, 2, 3)
    assert faults[0].block == (4, 5, 6)


def test_device_explained_its_failures() -> None:
    """The recorded failures of the device carry memcheck's place."""
    failures = json.loads((DATA / "failures.json").read_text())
    assert failures["illegal_address"]["kind"] == "out_of_bounds_write"
    assert failures["illegal_address"]["source_line"] == 4
    assert failures["past_the_end"]["kind"] == "guard_written"


def test_late_tool_is_killed() -> None:
    """A tool that takes too long has no exit code."""
    assert tool.run(["sleep", "30"], timeout=0.2).code is None
