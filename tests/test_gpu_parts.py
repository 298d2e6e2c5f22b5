"""The parts of the GPU device apart: channel, memory, arguments, sampling order, holdings, lock."""

from __future__ import annotations

import os
import socket
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from ptxsearch.errors import DeviceError
from ptxsearch.evaluation import Built, Inputs
from ptxsearch.gpu import cuda, devices
from ptxsearch.gpu.case import input_set, load, save
from ptxsearch.gpu.channel import Channel, Closed
from ptxsearch.gpu.checks import Checks, check
from ptxsearch.gpu.driver import DriverError
from ptxsearch.gpu.faults import KINDS, failure_of, is_final, timed_out
from ptxsearch.gpu.holdings import Holdings
from ptxsearch.gpu.instruments import ENTRIES, Instruments, compile_instruments
from ptxsearch.gpu.lock import DeviceLock
from ptxsearch.gpu.memory import GUARD, Memory
from ptxsearch.gpu.sequence import ArgumentMismatch, Loaded, program
from ptxsearch.gpu.session import Session
from ptxsearch.gpu.timing import Side, repeats
from ptxsearch.kernel import Kernel, Launch, Scratch, TensorMap
from ptxsearch.tasks import Workload
from tests.fake_driver import INSTRUMENTS, FakeDriver, cubin

N = 256


def data(seed: int = 0, **more: object) -> Inputs:
    """A set with x and y of N floats and n."""
    x = np.random.default_rng(seed).standard_normal(N).astype(np.float32)
    values = {"x": x, "y": np.empty(N, np.float32), "n": np.int32(N)}
    return Inputs(values, {"x": "in", "y": "out", "n": "scalar"}, {"N": N}, f"seed {seed}")


def built(do: str = "double", args: tuple[str, ...] = ("x", "y", "n"), **more: object) -> Built:
    """A fake kernel with the given launch arguments."""
    scratch = more.pop("scratch", ())
    kernel = Kernel("", "cuda", (Launch("k", args, ("1",), ("32",)),), scratch=scratch)
    return Built(cubin(do, **more), "", kernel, {})


def session() -> tuple[Session, FakeDriver]:
    """A session on a fake driver in this process."""
    driver = FakeDriver(0)
    return Session.open(driver, cubin=INSTRUMENTS, budget=1 << 28), driver


def test_channel_carries_big_arrays_and_the_receiver_may_write() -> None:
    """An array of megabytes arrives equal, writable, and apart from the sender's."""
    left, right = (Channel(end) for end in socket.socketpair())
    sent = {"a": np.arange(1 << 19, dtype=np.float64), "b": np.arange(3), "text": "x" * 10000}
    thread = threading.Thread(target=left.send, args=(sent,))
    thread.start()
    got = right.receive(10.0)
    thread.join()
    np.testing.assert_array_equal(got["a"], sent["a"])
    np.testing.assert_array_equal(got["b"], sent["b"])
    assert got["text"] == sent["text"]
    got["a"][0] = 5.0
    assert sent["a"][0] == 0.0
    left.close()
    right.close()


def test_channel_times_out_and_sees_the_end() -> None:
    """Silence is a TimeoutError, a closed peer is Closed."""
    left, right = (Channel(end) for end in socket.socketpair())
    with pytest.raises(TimeoutError):
        right.receive(0.05)
    left.close()
    with pytest.raises(Closed):
        right.receive(1.0)
    right.close()


def test_every_poison_differs() -> None:
    """Two fills of one buffer leave different junk, so that an old answer cannot be told right."""
    made, _ = session()
    made.hold(token=1, label="", **parts(data()))
    placement = made.place(made.sets[1], [])
    made.memory.poison(placement, made.pattern())
    first = made.inspect(placement, results=True).arrays["y"].tobytes()
    made.memory.poison(placement, made.pattern())
    assert made.inspect(placement, results=True).arrays["y"].tobytes() != first


def parts(inputs: Inputs) -> dict[str, object]:
    """What the parent sends of a set."""
    split = input_set(inputs)
    return {"arrays": split.arrays, "scalars": split.scalars, "roles": split.roles}


def test_breach_names_buffer_and_distance() -> None:
    """A byte written 20 before a buffer is found and named."""
    made, driver = session()
    made.hold(token=1, label="", **parts(data()))
    placement = made.place(made.sets[1], [64])
    assert made.inspect(placement).breach is None
    driver.view(placement.scratch[0].pointer - 20, 1)[0] = 0
    fault = made.inspect(placement).breach
    assert fault is not None
    assert fault.object == "scratch 0"
    assert "20 before it" in fault.message


def test_memory_is_given_back() -> None:
    """After a run and a drop, as many bytes are in use as before."""
    made, _ = session()
    before = made.memory.used
    made.hold(token=1, label="", **parts(data()))
    check(made, Checks([program(built(), data())], [1], 1.0))
    made.drop(token=1)
    assert made.memory.used == before


def test_no_answer_stays_on_the_device() -> None:
    """After a run no block of memory holds its outputs for the next kernel to find."""
    made, driver = session()
    made.hold(token=1, label="", **parts(data()))
    (left,) = check(made, Checks([program(built(), data())], [1], 1.0)).lefts
    answer = left.arrays["y"].tobytes()
    assert answer == (2 * np.asarray(data().values["x"])).tobytes()
    assert all(answer not in block.tobytes() for block in driver.blocks.values())


def test_budget_is_a_bound() -> None:
    """An allocation beyond the budget fails as out of memory, before the driver is asked."""
    driver = FakeDriver(0)
    memory = Memory(driver, Instruments(driver, INSTRUMENTS), 4 * GUARD)
    with pytest.raises(DriverError, match="OUT_OF_MEMORY"):
        memory.allocate(5 * GUARD)


def test_sampling_order() -> None:
    """Poison, persisting lines reset, scrub, spin, then the kernel, and nothing in between."""
    made, driver = session()
    made.hold(token=1, label="", **parts(data()))
    placement = made.place(made.sets[1], [])
    loaded = Loaded(driver, program(built(), data()))
    side = Side([loaded.bind(placement)], (), 1.0)
    driver.launches.clear()
    made.sampler.repeat(side, 0)
    assert driver.launches[-5:] == [
        "ptxsearch_fill", "forget", "ptxsearch_scrub", "ptxsearch_spin", "double",
    ]  # fmt: skip


def test_event_time_holds_the_kernel_alone() -> None:
    """Neither scrub nor spin is inside the events."""
    made, driver = session()
    made.hold(token=1, label="", **parts(data()))
    loaded = Loaded(driver, program(built(seconds=7e-6), data()))
    side = Side([loaded.bind(made.place(made.sets[1], []))], (), 1.0)
    assert made.sampler.repeat(side, 0) == pytest.approx(7e-6)


def test_slow_host_lengthens_the_filler() -> None:
    """A repeat whose launch outlasts the filler is thrown away and the filler grows."""
    made, driver = session()
    made.hold(token=1, label="", **parts(data()))
    loaded = Loaded(driver, program(built("slow host", host=2e-4), data()))
    side = Side([loaded.bind(made.place(made.sets[1], []))], (), 1.0)
    made.sampler.repeat(side, 0)
    assert made.sampler.discarded > 0
    assert made.sampler.filler > 1.5 * 2e-4


@pytest.mark.parametrize(
    ("seconds", "count"), [(1e-6, 16), (11e-6, 16), (64e-6, 5), (140e-6, 2), (1e-3, 1)]
)
def test_repeats_fill_280_microseconds(seconds: float, count: int) -> None:
    """M is 280 us over the time, rounded up, from 1 to 16."""
    assert repeats(seconds) == count


def test_integers_take_the_width_of_their_parameter() -> None:
    """An expression's value is laid out at the entry's width, negative ones too."""
    made, driver = session()
    made.hold(token=1, label="", **parts(data()))
    placement = made.place(made.sets[1], [])
    loaded = Loaded(driver, program(built(args=("x", "y", "N - 300"), sizes=(8, 8, 2)), data()))
    assert loaded._cell(-44, 2, placement, where="") == (-44).to_bytes(2, "little", signed=True)
    with pytest.raises(ArgumentMismatch, match="too few for 70000"):
        loaded._cell(70000, 2, placement, where="k parameter 2")
    with pytest.raises(ArgumentMismatch, match="has 4 bytes, the pointer x has 8"):
        loaded._cell("x", 4, placement, where="k parameter 0")


def test_program_evaluates_scratch_and_tiles() -> None:
    """Scratch bytes and a tensor map's extents come from sizes and values."""
    tile = TensorMap("map", "x", "f32", ("N", "4"), ("N * 4",), ("BOX", "1"))
    kernel = Kernel(
        "", "cuda", (Launch("k", ("map", "s"), ("N // 32",), ("32",)),), values={"BOX": 64},
        scratch=(Scratch("s", "f64", ("N", "2"), "zeros"),), tensor_maps=(tile,),
    )  # fmt: skip
    made = program(Built(b"x", "", kernel, {}), data())
    assert made.scratch == {"s": N * 2 * 8}
    assert made.zero_fills == ((0, N * 2 * 8),)
    buffer, shape = made.tiles["map"]
    assert (buffer, shape.dims, shape.strides, shape.box) == ("x", (N, 4), (4 * N,), (64, 1))
    assert made.launches[0].grid == (N // 32, 1, 1)


def test_cubin_that_was_not_judged_does_not_run() -> None:
    """A program whose cubin was exchanged on the way is refused."""
    _, driver = session()
    made = replace(program(built(), data()), cubin=cubin("skip"))
    with pytest.raises(DeviceError, match="not the one that was judged"):
        Loaded(driver, made)


def test_case_survives_its_file(tmp_path: Path) -> None:
    """What a tool's process reads is what was written."""
    save(tmp_path, program(built(), data()), data())
    again, inputs = load(tmp_path)
    assert again == program(built(), data())
    np.testing.assert_array_equal(inputs.arrays["x"], data().values["x"])
    assert inputs.scalars["n"] == N.to_bytes(4, "little")


def test_holdings_keep_the_latest_and_know_equal_sets() -> None:
    """Equal contents share a token, the oldest set makes room for a new one."""
    held = Holdings(2)
    where = Workload("w", {"N": N})
    first, _ = held.keep(where, data(1))
    again, _ = held.keep(where, data(1))
    assert first.token == again.token
    held.keep(where, data(2))
    _, dropped = held.keep(where, data(3))
    assert [old.token for old in dropped] == [first.token]


def test_holdings_tell_tasks_of_one_workload_name_apart() -> None:
    """Two tasks may both have a workload "full" of equal sizes; a kernel finds its own sets."""
    held = Holdings(2)
    where = Workload("full", {"N": N})
    held.keep(where, data(1))
    other = Inputs({"a": np.zeros(N), "b": np.zeros(N)}, {"a": "in", "b": "out"}, {"N": N})
    held.keep(where, other)
    assert set(held.of(where, built().kernel)[0].inputs.values) == {"x", "y", "n"}
    assert set(held.of(where, built(args=("a", "b", "N")).kernel)[0].inputs.values) == {"a", "b"}
    assert held.of(where, built(args=("a", "z")).kernel) == ()


def test_lock_excludes_another_process_and_lets_a_thread_in_again() -> None:
    """While one holds the lock, a second holder of the same GPU waits."""
    uuid = f"test-{os.getpid()}"
    ours, theirs = DeviceLock(uuid), DeviceLock(uuid)
    entered = threading.Event()

    def enter() -> None:
        with theirs.held():
            entered.set()

    with ours.held(), ours.held():
        thread = threading.Thread(target=enter)
        thread.start()
        assert not entered.wait(0.2)
    assert entered.wait(5.0)
    thread.join()


@pytest.mark.parametrize("code", sorted(KINDS))
def test_known_codes_are_the_kernels_or_the_launchs(code: int) -> None:
    """No code that a kernel can cause counts as the machine's fault."""
    failure = failure_of(DriverError("call", code, "CUDA_ERROR_X", "text"))
    assert failure.status in ("CRASHED", "TIMEOUT")


def test_unknown_code_is_the_machines_and_ends_the_process() -> None:
    """An uncorrectable memory error is INFRA, not a verdict."""
    error = DriverError("call", 214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error")
    assert failure_of(error).status == "INFRA"
    assert is_final(error)


def test_hang_says_how_long() -> None:
    """The message of a timeout names the limit."""
    assert "within 2 s" in timed_out(2.0).message


@pytest.mark.skipif(devices() > 0, reason="a CUDA device is visible")
def test_no_driver_is_one_clear_error() -> None:
    """Without a driver the first CudaDriver says so and what to do instead."""
    with pytest.raises(Exception, match="use the emulated device"):
        cuda.CudaDriver(0)


def test_instruments_compile() -> None:
    """The device's own kernels compile for a GPU of today and define every entry."""
    made = compile_instruments("sm_90")
    for name in ENTRIES:
        assert name.encode() in made


def test_checks_share_the_gpu_and_timing_waits_for_them() -> None:
    """Two checks are on the GPU at once; a timer enters when both are gone, before a third."""
    uuid = f"shared-{os.getpid()}"
    locks = [DeviceLock(uuid) for _ in range(4)]
    order: list[str] = []

    def enter(lock: DeviceLock, name: str, shared: bool) -> None:
        with lock.held(shared=shared):
            order.append(name)

    with locks[0].held(shared=True):
        with locks[1].held(shared=True):
            timer = threading.Thread(target=enter, args=(locks[2], "timer", False))
            timer.start()
            timer.join(0.2)
            third = threading.Thread(target=enter, args=(locks[3], "third", True))
            third.start()
            third.join(0.2)
        assert order == []
    timer.join(5.0)
    third.join(5.0)
    assert order == ["timer", "third"]


def test_idleness_counts_from_the_last_use_by_anyone() -> None:
    """A GPU used a moment ago, by whichever process, is not idle; one left alone is."""
    uuid = f"idle-{os.getpid()}"
    ours, theirs = DeviceLock(uuid), DeviceLock(uuid)
    os.utime(theirs._descriptor, (0, 0))
    assert ours.idle() > 1e6
    with theirs.held():
        pass
    assert ours.idle() < 5.0


def test_holdings_tell_equal_labels_with_other_contents_apart() -> None:
    """One NaN more is another set; NaNs in the same places are the same set."""
    held = Holdings(8)
    where = Workload("w", {"N": N})
    made = [data(1) for _ in range(3)]
    for inputs, places in zip(made, ([3], [3, 4], [3]), strict=True):
        np.asarray(inputs.values["x"])[places] = np.nan
    tokens = [held.keep(where, inputs)[0].token for inputs in made]
    assert tokens[0] == tokens[2] != tokens[1]


def test_pinned_memory_is_that_which_the_driver_gave() -> None:
    """The array lies at the driver's address, has its bytes, and can be written."""
    given = np.arange(64, dtype=np.uint8)
    driver = object.__new__(cuda.CudaDriver)
    driver._d = SimpleNamespace(cuMemHostAlloc=lambda size, flags: (0, given.ctypes.data))
    made = driver.pinned(64)
    assert made.tobytes() == bytes(range(64))
    made[5] = 200
    assert given[5] == 200


def test_arrays_of_other_types_travel_outside_the_pickle() -> None:
    """A bf16 array of megabytes arrives equal although numpy alone would keep it in the pickle."""
    left, right = (Channel(end) for end in socket.socketpair())
    sent = np.arange(1 << 20, dtype=np.float32).astype(ml_dtypes.bfloat16)
    # More than a socket's buffer would block this thread, which sends and receives.
    left.send(sent)
    got = right.receive(10.0)
    assert got.dtype == sent.dtype
    assert got.tobytes() == sent.tobytes()
    left.close()
    right.close()
