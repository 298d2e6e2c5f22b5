"""Checks of many sets in one job: the same results as one by one, in fewer trips to the device."""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from ptxsearch.errors import DeviceError
from ptxsearch.evaluation import Built, Failure, Inputs, Outputs
from ptxsearch.gpu import inspection
from ptxsearch.gpu.arena import Arena, Files, mapped
from ptxsearch.gpu.batches import batches
from ptxsearch.gpu.case import input_set
from ptxsearch.gpu.channel import Channel
from ptxsearch.gpu.checks import Checks, check
from ptxsearch.gpu.device import CudaDevice, Settings
from ptxsearch.gpu.driver import DriverError
from ptxsearch.gpu.sequence import program
from ptxsearch.gpu.session import Session
from ptxsearch.kernel import Kernel, Launch, Scratch
from ptxsearch.protocols import BatchDevice
from ptxsearch.tasks import Workload
from tests.fake_driver import INSTRUMENTS, FakeDriver, cubin

FAKE = "tests.fake_driver:FakeDriver"
SIZES = (700, 2000)
SETS = 5


def built(
    do: str = "double", *, block: str = "128", scratch: tuple[Scratch, ...] = (), **more: object
) -> Built:
    """A fake kernel with arguments x, y, n."""
    launch = Launch("k", ("x", "y", "n"), ("8",), (block,))
    kernel = Kernel("", "cuda", (launch,), scratch=scratch)
    return Built(cubin(do, **more), "", kernel, {})


def cases() -> list[tuple[Workload, Inputs]]:
    """Five sets of two workloads; x starts with the number of its set, 0 to 9."""
    made = []
    for n in SIZES:
        for _ in range(SETS):
            number = len(made)
            x = np.random.default_rng(number).standard_normal(n).astype(np.float32)
            x[0] = number
            values = {"x": x, "y": np.empty(n, np.float32)}
            inputs = Inputs(values, {"x": "in", "y": "out"}, {"n": n}, f"set {number}")
            made.append((Workload(f"n{n}", {"n": n}), inputs))
    return made


def told(results: Iterator[Outputs | Failure]) -> list[tuple[object, ...]]:
    """What matters of results, and that nothing comes after a failure."""
    said: list[tuple[object, ...]] = []
    for result in results:
        assert not said or said[-1][0] != "failed"
        if isinstance(result, Failure):
            assert result.fault is not None
            said.append(("failed", result.fault.kind, result.fault.object, result.message))
        else:
            array = result.arrays["y"]
            junk = bool(result.notes)
            data = b"" if junk else array.tobytes()
            said.append(("left", data, result.inputs_changed, result.notes))
    return said


def one_by_one(device: CudaDevice, kernel: Built, timeout: float) -> Iterator[Outputs | Failure]:
    """The results of `run` on each case up to the first failure."""
    for workload, inputs in cases():
        result = device.run(kernel, workload, inputs, timeout=timeout)
        yield result
        if isinstance(result, Failure):
            return


@pytest.mark.parametrize("number", [0, 3, 9])
@pytest.mark.parametrize(
    "do", ["skip", "write input", "past the end", "code 700", "code 719", "hang"]
)
def test_many_at_a_time_tell_what_one_by_one_tells(do: str, number: int) -> None:
    """A kernel that errs on one set alone has the same results, faults and messages both ways."""
    device = CudaDevice(driver=FAKE, instruments=INSTRUMENTS)
    kernel = built(do, only=number)
    many = told(device.run_all(kernel, cases(), timeout=0.1))
    assert many == told(one_by_one(device, kernel, 0.1))
    assert len(many) == (2 * SETS if do in ("skip", "write input") else number + 1)
    device.close()


def test_process_that_dies_on_one_set_is_told_of_that_set() -> None:
    """Sets before the deadly one have their results; it is the machine's fault on that one."""
    device = CudaDevice(driver=FAKE, instruments=INSTRUMENTS)
    many = told(device.run_all(built("die", only=3), cases(), timeout=0.5))
    assert [kind for kind, *_ in many] == ["left"] * 3 + ["failed"]
    assert many[-1][1] == "machine"
    device.close()


def test_hang_is_waited_for_once() -> None:
    """The set that hangs is known by its events, so that nothing is run again for it."""
    device = CudaDevice(driver=FAKE, instruments=INSTRUMENTS)
    many = told(device.run_all(built("hang", only=3), cases(), timeout=0.2))
    assert many[-1][1] == "timeout"
    assert device.restarts == 0
    device.close()


def test_fault_that_does_not_come_again_is_still_a_failure(tmp_path: Path) -> None:
    """A kernel that crashed among many sets and then on none of them has not passed."""
    device = CudaDevice(driver=FAKE, instruments=INSTRUMENTS)
    many = told(
        device.run_all(built("code 700", only=2, once=str(tmp_path / "once")), cases(), timeout=0.5)
    )
    assert many[-1][:2] == ("failed", "launch_failure")
    device.close()


def opened(sets: int) -> tuple[Session, FakeDriver]:
    """A session in this process that holds the first sets, by number."""
    driver = FakeDriver(0)
    session = Session.open(driver, cubin=INSTRUMENTS, budget=1 << 28)
    for number, (_, inputs) in enumerate(cases()[:sets]):
        split = input_set(inputs)
        session.hold(
            token=number, label=split.label, arrays=split.arrays, scalars={}, roles=split.roles
        )
    return session, driver


def plan(kernel: Built, sets: int, **more: float) -> Checks:
    """Checks of the first sets."""
    programs = [program(kernel, inputs) for _, inputs in cases()[:sets]]
    return Checks(programs, list(range(sets)), 1.0, **more)


@pytest.mark.parametrize(("sets", "trips"), [(1, 1), (5, 2), (10, 4)])
def test_trips_to_the_device(sets: int, trips: int) -> None:
    """One trip for the first set of a size, one for all others of it; it was 7 for each set.

    So it is once the session has memory to spare.
    """
    session, driver = opened(sets)
    check(session, plan(built(), sets))
    driver.waits = 0
    assert len(check(session, plan(built(), sets)).lefts) == sets
    assert driver.waits == trips


def test_driver_is_not_asked_for_memory_while_a_kernel_runs() -> None:
    """A fresh session waits for what is queued before it allocates: the kernel may hang."""
    session, driver = opened(10)
    check(session, plan(built(), 10))
    assert driver.asked_while_running == 0


def test_slow_kernel_is_never_queued_ahead() -> None:
    """Where 8 launches would take longer than a job may, the sets go one by one."""
    session, driver = opened(5)
    driver.waits = 0
    assert len(check(session, plan(built(seconds=0.1), 5)).lefts) == 5
    assert driver.waits == 5


def test_job_ends_when_its_time_is_up() -> None:
    """Whoever waits to time a kernel gets the device; what was run is handed back."""
    session, _ = opened(10)
    assert len(check(session, plan(built(), 10, seconds=0.0)).lefts) == 1


def test_every_set_is_preceded_by_junk_and_wiped() -> None:
    """Outputs are filled before and after each launch, with the guards looked at in between."""
    session, driver = opened(2)
    driver.launches.clear()
    check(session, plan(built(), 2))
    assert driver.launches == 2 * [
        "ptxsearch_guard_fill", "ptxsearch_fill", "double", "ptxsearch_guard_check",
        "ptxsearch_digest", "ptxsearch_unwritten", "ptxsearch_fill",
    ]  # fmt: skip


@pytest.mark.parametrize("do", ["double", "past the end"])
def test_memory_is_given_back_whatever_happened(do: str) -> None:
    """After checks that end well or not as many bytes are in use as before."""
    session, _ = opened(5)
    before = session.memory.used
    check(session, plan(built(do, only=2), 5))
    assert session.memory.used == before


def test_results_larger_than_pinned_memory_come_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large results are copied when the launch is done: two trips a set, one to end the job."""
    monkeypatch.setattr(inspection, "STAGE_BYTES", 256)
    session, driver = opened(3)
    driver.waits = 0
    lefts = check(session, plan(built(), 3)).lefts
    for left, (_, inputs) in zip(lefts, cases(), strict=False):
        np.testing.assert_array_equal(left.arrays["y"], 2 * np.asarray(inputs.values["x"]))
    assert driver.waits == 2 * 3 + 1


def test_scratch_that_does_not_fit_is_the_kernels_fault() -> None:
    """Out of memory on a set is told after those before it, and nothing is lost."""
    device = CudaDevice(driver=FAKE, instruments=INSTRUMENTS, settings=Settings(memory=8 << 20))
    huge = (Scratch("s", "f32", ("n * (n - 700) * 1000",)),)
    many = told(device.run_all(built(scratch=huge), cases(), timeout=1.0))
    assert [kind for kind, *_ in many] == ["left"] * SETS + ["failed"]
    assert many[-1][1] == "out_of_memory"
    device.close()


def test_sets_that_do_not_fit_together_go_one_by_one() -> None:
    """A device too small for all sets at once runs them all the same."""
    device = CudaDevice(driver=FAKE, instruments=INSTRUMENTS, settings=Settings(memory=560_000))
    assert len(told(device.run_all(built(), cases(), timeout=1.0))) == 2 * SETS
    device.close()


def test_device_takes_cases_as_it_goes() -> None:
    """Cases beyond the first batch are not made while nobody asks for their results."""
    device = CudaDevice(driver=FAKE, instruments=INSTRUMENTS, settings=Settings(sets=2))
    assert isinstance(device, BatchDevice)
    source = iter(cases())
    results = device.run_all(built(), source, timeout=1.0)
    assert isinstance(next(results), Outputs)
    assert len(list(source)) == 7
    device.close()


def test_batches_bound_results_and_inputs() -> None:
    """Results of a batch take 64 MB at most, its arrays a quarter of the memory, sets 8 a size."""
    small = cases()[0]
    assert [len(b) for b in batches([small] * 20, memory=1 << 34, sets=8)] == [8, 8, 4]
    assert [len(b) for b in batches([small] * 6, memory=64 * 700, sets=8)] == [2, 2, 2]
    big = np.empty(5 << 20, np.float32)
    large = Workload("large", {"n": 1}), Inputs({"y": big}, {"y": "out"}, {"n": 1})
    assert [len(b) for b in batches([large] * 7, memory=1 << 34, sets=8)] == [3, 3, 1]


def test_arrays_of_an_arena_are_sent_as_they_are() -> None:
    """A write to the array after `put` is seen through the descriptor; nothing was copied."""
    arena = Arena()
    array = arena.array((3, 1000), np.dtype(np.float32))
    offset = arena.put(memoryview(array).cast("B"))
    array[2, 999] = 7.0
    _, (view,) = mapped(arena.descriptor, [(offset, array.nbytes)])
    arena.close()
    assert np.frombuffer(view, np.float32)[-1] == 7.0
    assert arena.array((4,), np.dtype(ml_dtypes.bfloat16)).shape == (4,)


@pytest.mark.parametrize("sizes", [(1024, 3000, 5000), (1 << 20, 3000, 1 << 21)])
@pytest.mark.parametrize("before", [0, 1 << 20, 1 << 22])
def test_file_used_again_holds_the_same(before: int, sizes: tuple[int, ...]) -> None:
    """Arrays within the old pages, across their end and beyond it all arrive."""
    files = Files()
    if before:
        arena = Arena(files)
        arena.array((before,), np.dtype(np.int32))[:] = 77
        number = arena.lend()
        arena.close()
        files.released([number])
    arena = Arena(files)
    arrays = [arena.array((size,), np.dtype(np.int32)) for size in sizes]
    for number, array in enumerate(arrays):
        array[:] = number + np.arange(array.size)
    raw = [memoryview(array).cast("B") for array in arrays]
    places = [(arena.put(part), part.nbytes) for part in [*raw, memoryview(bytes(9000))]]
    _, views = mapped(arena.descriptor, places)
    arena.close()
    for number, (array, view) in enumerate(zip(arrays, views, strict=False)):
        assert np.array_equal(np.frombuffer(view, np.int32), number + np.arange(array.size))
    assert not any(views[-1])


LARGE = 1 << 20


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    """Two connected channels."""
    ours, theirs = (Channel(end) for end in socket.socketpair())
    yield ours, theirs
    ours.close()
    theirs.close()


def ask(ends: tuple[Channel, Channel], value: int, size: int = LARGE) -> tuple[np.ndarray, int]:
    """An array of `value` from the other end's arena, and the inode of the file it lies in."""
    ours, theirs = ends
    ours.send("next")
    theirs.receive()
    arena = theirs.arena()
    array = arena.array((size,), np.dtype(np.int32))
    array[:] = value
    inode = os.fstat(arena.descriptor).st_ino
    theirs.send(array, arena)
    return ours.receive(1.0), inode


def descriptors() -> int:
    """How many files this process has open; each array that was received counts as one."""
    return len(os.listdir("/proc/self/fd"))


def test_file_waits_until_nobody_looks_at_it(ends: tuple[Channel, Channel]) -> None:
    """Results that are still held stay as they are; those let go make room for the next."""
    (first, one), (second, two) = ask(ends, 1), ask(ends, 2)
    part = second[:3]
    del second
    third, three = ask(ends, 3)
    assert len({one, two, three}) == 3
    del first
    fourth, four = ask(ends, 4)
    assert four == one
    assert set(part) == {2}
    assert set(third) == {3}
    assert set(fourth) == {4}
    del part, third
    fifth, sixth = ask(ends, 5), ask(ends, 6)
    assert {fifth[1], sixth[1]} == {two, three}


def test_small_results_take_no_large_file(ends: tuple[Channel, Channel]) -> None:
    """What is kept of small results is as small, and their files are closed when they are sent."""
    ask(ends, 1)
    large = ask(ends, 1)[1]
    before = descriptors()
    kept = [ask(ends, value, 2048) for value in range(30)]
    assert large not in {inode for _, inode in kept}
    assert descriptors() == before + len(kept)
    for value, (array, _) in enumerate(kept):
        assert set(array) == {value}
    assert ask(ends, 2, LARGE // 5)[1] != large


def test_files_are_bounded(ends: tuple[Channel, Channel], monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bounds files are sent and forgotten, or closed when they come back."""
    monkeypatch.setattr("ptxsearch.gpu.arena.MOST_FILES", 4)
    before = descriptors()
    kept = [ask(ends, value) for value in range(9)]
    assert descriptors() == before + len(kept) + 4
    for value, (array, _) in enumerate(kept):
        assert array[0] == array[-1] == value
    monkeypatch.setattr("ptxsearch.gpu.arena.SPARE_BYTES", 2 * 4 * LARGE)
    del array, kept
    # What comes back does so with the next message, whose own array is held.
    small = ask(ends, 1, 2048)
    assert descriptors() == before + 2 + len(small[:1])


def test_message_that_cannot_be_sent_leaves_nothing_open(ends: tuple[Channel, Channel]) -> None:
    """A failing pickle closes its file, and the next message arrives."""
    before = descriptors()
    for _ in range(5):
        with pytest.raises((AttributeError, pickle.PicklingError)):
            ends[1].send([np.zeros(1 << 16), lambda: 0])
    assert descriptors() == before
    assert set(ask(ends, 3)[0]) == {3}


def many(outputs: int) -> tuple[Built, tuple[Workload, Inputs]]:
    """A kernel and a case with so many outputs of 64 KB, of which it writes the first."""
    names = [f"y{number}" for number in range(outputs)]
    values = {"x": np.ones(16384, np.float32), **{n: np.empty(16384, np.float32) for n in names}}
    roles = {name: "in" if name == "x" else "out" for name in values}
    launch = Launch("k", ("x", "y0", "n"), ("8",), ("128",))
    kernel = Built(cubin("double"), "", Kernel("", "cuda", (launch,)), {})
    return kernel, (Workload("many", {"n": 16384}), Inputs(values, roles, {"n": 16384}, "many"))


def test_more_buffers_than_can_be_looked_at_are_refused_before_a_launch() -> None:
    """However often, the process that refused them goes on with others."""
    device = CudaDevice(driver=FAKE, instruments=INSTRUMENTS)
    kernel, case = many(127)
    for _ in range(10):
        with pytest.raises(DeviceError, match="128 buffers are more than 127"):
            next(device.run_all(kernel, [case], timeout=1.0))
    assert told(device.run_all(built(), cases()[:1], timeout=1.0))[0][0] == "left"
    assert device.restarts == 0
    device.close()


def test_very_many_large_outputs_are_checked_without_digests() -> None:
    """Seventy outputs leave no room for digests of results, which are of use alone."""
    device = CudaDevice(driver=FAKE, instruments=INSTRUMENTS)
    kernel, case = many(70)
    for _ in range(10):
        (left,) = device.run_all(kernel, [case], timeout=1.0)
        assert isinstance(left, Outputs)
        assert set(left.arrays["y0"]) == {2.0}
    assert device.restarts == 0
    device.close()


def test_refused_launch_frees_its_events() -> None:
    """More launches are refused one after the other than there are events for."""
    session, _ = opened(1)
    for _ in range(2 * inspection.SLOTS):
        made = check(session, plan(built(block="2048"), 1))
        assert made.failure is not None
        assert made.failure.status == "CRASHED"


def test_error_that_the_driver_recovers_from_is_the_kernels_alone() -> None:
    """A cubin that does not load is a failure of the first set, and the session goes on."""
    session, _ = opened(1)
    bad = Built(b"not a cubin", "", built().kernel, {})
    made = check(session, plan(bad, 1))
    assert made.failure is not None
    assert "cannot be loaded" in made.failure.message
    assert not session.sampler.lost
    with pytest.raises(DriverError):
        session.driver.load(b"not a cubin")
