"""Tests of feedback texts on counters that an H200 recorded and on verdicts written by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ptxsearch.evaluation import Counters, Evaluation, Fault, Resources, Timing
from ptxsearch.feedback import MOST_LINES, failure, feedback
from ptxsearch.feedback.rules import RULES, Facts, stalls
from ptxsearch.gpu.metrics import counters
from ptxsearch.tasks import Workload
from tests.golden import matches
from tests.model_task import kernel, passed, task

DATA = Path(__file__).parent / "data"
CORPUS: dict[str, Any] = json.loads((DATA / "llm" / "feedback" / "counters.json").read_text())
PROFILES: dict[str, Any] = json.loads((DATA / "gpu" / "ncu" / "profiles.json").read_text())


def recorded(name: str) -> Evaluation:
    """A verdict with the counters ncu recorded for a kernel of the corpus."""
    case = CORPUS[name]
    took = case["ptxas"]
    resources = Resources(
        took["registers"],
        spill_stores=took["spill_stores"],
        spill_loads=took["spill_loads"],
        stack_bytes=took["stack_frame"],
        static_shared=took["static_shared"],
    )
    return measured(counters([case["values"]]), {case["entry"]: resources})


def measured(found: Counters, resources: dict[str, Resources] | None = None) -> Evaluation:
    """A measured verdict with these counters."""
    seconds = found.duration or 1e-5
    return Evaluation(
        "OK",
        "profile",
        source="measured",
        times={"run": Timing(seconds, seconds, seconds, 7)},
        resources=resources or {},
        counters={"run": found},
    )


def metric(name: str, found: Counters) -> float | None:
    """The value of one rule's metric."""
    rule = next(rule for rule in RULES if rule.name == name)
    return rule.metric(Facts(found, {}))


def fired(lines: tuple[str, ...]) -> str:
    """The advice lines as one text."""
    return "\n".join(line for line in lines if line.startswith("- "))


def texts() -> Iterator[tuple[str, tuple[str, ...]]]:
    """(name, feedback) of every recording."""
    for name in CORPUS:
        yield name, feedback(recorded(name))
    for name, profile in sorted(PROFILES.items()):
        if profile.get("counters"):
            yield f"ncu {name}", feedback(measured(Counters.from_dict(profile["counters"])))
    yield (
        "transpose_tile after transpose_naive",
        feedback(recorded("transpose_tile.64x64"), recorded("transpose_naive.64x64")),
    )


def test_texts_on_recorded_counters_are_those_of_the_golden_file() -> None:
    """Every sentence for every recording of an H200."""
    text = "".join(f"## {name}\n" + "\n".join(lines) + "\n\n" for name, lines in texts())
    matches(DATA / "llm" / "feedback" / "feedback.txt", text)


def test_bank_conflicts_are_as_theory_and_ncu_say() -> None:
    """A 32-word row read by columns is 32-way: 16.5 on average beside as many clean writes.

    ncu's own rule text for the planted kernel says 32.0-way for loads and stores.
    """
    tile = metric("bank_conflicts", counters([CORPUS["transpose_tile.64x64"]["values"]]))
    assert tile == pytest.approx((1 + 32) / 2, rel=1e-3)
    swizzled = metric("bank_conflicts", counters([CORPUS["transpose_swizzle.64x96"]["values"]]))
    assert swizzled == pytest.approx(1.0)
    planted = Counters.from_dict(PROFILES["bank_conflicts"]["counters"])
    assert "32.0 - way bank conflict" in str(PROFILES["bank_conflicts"]["advice"])
    assert metric("bank_conflicts", planted) == pytest.approx(32.0, rel=1e-3)


@pytest.mark.parametrize(("stride", "used"), [(1, 1.0), (2, 0.5), (8, 0.125), (33, 0.125)])
def test_load_efficiency_is_as_the_stride_says(stride: int, used: float) -> None:
    """A float every `stride` floats uses 4 bytes of each 32-byte sector it touches, at least."""
    found = metric("load_efficiency", counters([CORPUS[f"copy_strided.stride{stride}"]["values"]]))
    assert found == pytest.approx(used, rel=0.02)


@pytest.mark.parametrize(
    ("profile", "sentence"),
    [
        ("bank_conflicts", "the ideal wavefronts (bank conflicts)"),
        ("uncoalesced", "global loads use 12% of the bytes they move"),
        ("spills", "access local memory"),
        ("divergent", "16.1 of 32 lanes are active"),
        ("low_occupancy", "occupancy is at most 2%"),  # one warp of 64
    ],
)
def test_each_planted_fault_is_named(profile: str, sentence: str) -> None:
    """A kernel written with one fault gets that fault's sentence, and the clean one does not."""
    planted = feedback(measured(Counters.from_dict(PROFILES[profile]["counters"])))
    clean = feedback(measured(Counters.from_dict(PROFILES["double_it"]["counters"])))
    assert sentence in fired(planted)
    assert sentence not in fired(clean)


def test_a_mended_fault_is_a_delta_to_the_parent() -> None:
    """What the parent suffered from is named with both numbers once it is gone."""
    lines = feedback(recorded("transpose_tile.64x64"), recorded("transpose_naive.64x64"))
    (mended,) = [line for line in lines if line.startswith("- mended: global ")]
    assert "fill 100% of the bytes they move (parent 12%)" in mended
    assert any("19 (parent 10) registers" in line for line in lines)


def test_a_spare_warp_is_no_fault() -> None:
    """`not_selected` and `selected` are never the stall that is named."""
    name = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
    extra = {name.format("not_selected"): 9.0, name.format("selected"): 1.0}
    extra |= {name.format("long_scoreboard"): 3.0, name.format("wait"): 2.0}
    found = Counters(source="ncu", extra=extra)
    assert stalls(found) == [("long_scoreboard", 3.0), ("wait", 2.0)]
    assert "waits most on long_scoreboard" in fired(feedback(measured(found)))


def test_without_counters_there_is_no_advice() -> None:
    """Static facts remain, and how to allow counters is said for a measured run."""
    bare = Evaluation(
        "OK", "quick", source="measured", times={"full": Timing(1e-4, 1e-4, 1e-4, 7)},
        resources={"k": Resources(40, spill_loads=8)},
    )  # fmt: skip
    lines = feedback(bare)
    assert lines[0] == "time on full: 100 us (measured)"
    assert lines[1] == "k: 40 registers, 8 spill bytes"
    assert "permission to profile" in lines[2]
    assert fired(lines) == ""


def test_times_are_beside_the_parents_and_the_floor() -> None:
    """Speed over the parent and the share of the least time stand first."""
    lines = feedback(passed(50), passed(100), task=task())
    assert lines[0] == "time on full: 50 us (modelled), 2x the parent's speed (100 us)"
    assert lines[1] == "least time by bytes and operations: 27.96 us; this kernel is at 56%"


def test_traffic_is_measured_against_what_the_task_needs() -> None:
    """Twice the sectors for the same bytes is twice the traffic."""
    twice = feedback(passed(50, sectors=8.4e6), task=task())
    once = feedback(passed(50, sectors=4.2e6), task=task())
    assert "global accesses move 2.00x the bytes" in fired(twice)
    assert "global accesses move" not in fired(once)


def test_asynchronous_copies_are_not_taken_for_scattered_loads() -> None:
    """The emulator counts their sectors among the loads; ncu does not; neither is a fault."""
    copied = {"async_copy_requests": 1e6, "async_copy_sectors": 16e6, "async_copy_bytes": 512e6}
    emulated = Counters(
        global_load_requests=1e6, global_load_sectors=16e6, global_load_bytes=0.0,
        global_store_sectors=16e6, global_store_bytes=512e6, **copied,
    )  # fmt: skip
    recorded = Counters(
        source="ncu", global_load_requests=0.0, global_load_sectors=0.0, global_load_bytes=0.0,
        global_store_sectors=16e6, global_store_bytes=512e6, **copied,
    )  # fmt: skip
    for found in (emulated, recorded):
        assert fired(feedback(measured(found))) == ""
        rule = next(rule for rule in RULES if rule.name == "global_traffic")
        assert rule.metric(Facts(found, {}, needed_bytes=1024e6)) == pytest.approx(1.0)


@pytest.mark.parametrize(("atomics", "named"), [(500.0, False), (50_000.0, True)])
def test_atomics_matter_where_they_are_many(atomics: float, named: bool) -> None:
    """One atomic a block is nothing to mend; one in twenty instructions is."""
    found = Counters(ptx_warp_instructions=1e6, global_atomic_requests=atomics)
    assert ("atomic requests" in fired(feedback(measured(found)))) is named


@pytest.mark.parametrize("name", list(CORPUS))
def test_there_are_at_most_fifteen_lines_and_numbers_with_every_advice(name: str) -> None:
    """No advice without a number before it."""
    lines = feedback(recorded(name))
    assert len(lines) <= MOST_LINES
    for line in lines:
        sentence, _, advice = line.partition("; try: ")
        assert not advice or any(character.isdigit() for character in sentence)


def test_a_failure_names_fault_place_and_pattern() -> None:
    """Status, message, faults that the message lacks, the share of right elements, the pattern."""
    verdict = Evaluation(
        "WRONG", "smoke", "y[3] is 0 where 2 is expected",
        faults=(Fault("data_race", "two threads write tile[0]", line=40, source_line=7),),
        evidence={"share_right": 0.25, "pattern": "the last 4 of every 32"},
    )  # fmt: skip
    assert failure(verdict) == (
        "WRONG at smoke",
        "y[3] is 0 where 2 is expected",
        "data_race at line 7: two threads write tile[0]",
        "25.0% of the elements are right",
        "pattern of the errors: the last 4 of every 32",
    )
    assert feedback(verdict) == failure(verdict)


def modelled(seconds: dict[str, float], **counts: Any) -> Evaluation:
    """A verdict of the emulated device whose time model saw these parts busy."""
    extra = {f"modelled_{part}": took for part, took in seconds.items()}
    found = replace(passed(100).counters["full"], source="emulated", extra=extra, **counts)
    return replace(passed(100), counters={"full": found})


def test_what_the_time_model_is_bound_by_is_named_first() -> None:
    """The three longest parts of the modelled time stand under the source, longest first."""
    parts = {"dram": 40e-6, "latency": 90e-6, "issue": 20e-6, "shared": 1e-6}
    lines = feedback(modelled(parts), task=task())
    at = lines.index("counters from the emulator on full:")
    assert lines[at + 1].startswith("- busy longest (modelled): latency 90 us, DRAM 40 us, issue")
    assert "more loads in flight" in lines[at + 1]


@pytest.mark.parametrize(("shared", "felt"), [(10e-6, False), (70e-6, True)])
def test_conflicts_behind_memory_are_no_advice(shared: float, felt: bool) -> None:
    """Doubled wavefronts ask for padding only where shared memory is busy about as long as DRAM."""
    verdict = modelled(
        {"dram": 100e-6, "shared": shared}, bank_conflicts=100.0, shared_wavefronts_ideal=100.0
    )
    (line,) = [line for line in feedback(verdict, task=task()) if "2.00x the ideal" in line]
    assert ("try: pad" in line) is felt
    assert ("hidden: shared memory is busy 10 us, DRAM 100 us" in line) is not felt


def test_a_heading_without_counters_to_tell_of_is_left_out() -> None:
    """Counters in which no rule fires leave no empty heading."""
    quiet = replace(passed(50), counters={"full": Counters(source="emulated")})
    assert not any(line.startswith("counters from") for line in feedback(quiet, task=task()))


def test_what_is_attainable_is_told_beside_the_least_time() -> None:
    """100 us with 80 us attainable and a floor of 50 us is at 50 % and at 80 %."""
    verdict = replace(passed(100), evidence={"floor_seconds": 50e-6, "attainable_seconds": 80e-6})
    assert "this kernel is at 50%, at 80% of what is attainable (80 us)" in "\n".join(
        feedback(verdict)
    )


def test_occupancy_counts_dynamic_shared_memory() -> None:
    """100 KB of dynamic shared memory leave an H200 two blocks of 256 threads: 16 of 64 warps."""
    launch = replace(kernel().launches[0], shared_bytes="102400")
    staged = replace(kernel(), launches=(launch,))
    bare = replace(passed(100), resources={"twice": Resources(16)})
    (line,) = [
        line for line in feedback(bare, task=task(), kernel=staged) if line.startswith("twice: ")
    ]
    assert "102,400 shared bytes, occupancy 25% (limited by shared)" in line
    (line,) = [
        line
        for line in feedback(bare, bare, task=task(), kernel=staged, parent_kernel=kernel())
        if line.startswith("twice: ")
    ]
    assert "102,400 (parent 0) shared bytes" in line


def test_the_counters_shown_are_those_of_the_workload_with_most_to_gain() -> None:
    """Of two timed sizes the one that is further from its least time is told of."""
    two = replace(
        task(),
        workloads=(
            Workload("near", {"n": 1 << 24}, timed=True),
            Workload("far", {"n": 1 << 22}, timed=True),
        ),
    )
    counted = passed(100).counters["full"]
    verdict = replace(
        passed(100),
        times={name: Timing(1e-4, 1e-4, 1e-4, 1) for name in ("near", "far")},
        counters={"near": counted, "far": counted},
    )
    assert "counters from the emulator on far:" in feedback(verdict, task=two)
