"""How far a time can be trusted on this GPU.

`python benchmarks/timing_proof.py [OUT.json] [PART ...]`. Parts: table (equal kernels by group, as
placement and modules change), races (how often equal kernels are called faster), power (how often
planted gains are found), phantom (the best of fifty equal kernels), agreement (our events, ncu's
duration, Triton's do_bench), cost (time a candidate takes). Raw pairs are kept in the JSON, so
that rules can be tried again without the GPU.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ptxsearch.evaluation import Array, Built, Failure
from ptxsearch.gpu import CudaDevice
from ptxsearch.race import Rules, judge
from ptxsearch.tasks import Workload
from tests.gpu.kernels import built, inputs, workload

MEGABYTE = 1 << 18
RACES = 50
POWER_RACES = 40


def groups(device: CudaDevice, sides: list[Built], where: Workload, count: int) -> list[Array]:
    """`count` groups of 20 rounds, each by a call of its own."""
    made = []
    for _ in range(count):
        samples = device.time(sides, where, 20)
        if isinstance(samples, Failure):
            raise SystemExit(samples.message)
        made.append(samples)
    return made


def prepare(device: CudaDevice, n: int, kernel: Built, sets: int = 4) -> Workload:
    """The workload of n floats with `sets` input sets on the device."""
    for seed in range(sets):
        device.run(kernel, workload(n), inputs(n, seed), timeout=5.0)
    return workload(n)


def percent(values: Array) -> list[float]:
    return [round(100 * float(v), 3) for v in values]


def table(device: CudaDevice) -> list[dict[str, Any]]:
    """Medians of log ratios of one cubin against itself, eight groups of twenty pairs."""
    rows = []
    kernel = built("double_it", device.arch)
    before = device.settings
    modes = {
        "same buffers": replace(before, group=160, placements=1),
        "new modules and buffers": replace(before, group=20, placements=1),
        "four placements rotated": replace(before, group=20, placements=4),
    }
    for megabytes in (4, 16, 128):
        where = Workload(f"table{megabytes}", {"n": megabytes * MEGABYTE})
        device.run(kernel, where, inputs(megabytes * MEGABYTE, 0), timeout=5.0)
        for mode, settings in modes.items():
            device.settings = settings
            samples = device.time([kernel, kernel], where, 160)
            assert isinstance(samples, np.ndarray), samples
            logs = np.log(samples[:, 0] / samples[:, 1]).reshape(8, 20)
            assert device.last_times is not None
            rows.append(
                {
                    "megabytes": megabytes,
                    "mode": mode,
                    "m": device.last_times.repeats[0],
                    "us": round(1e6 * float(np.median(samples)), 2),
                    "group medians %": percent(np.median(logs, axis=1)),
                    "group times %": percent(
                        np.log(np.median(samples.reshape(8, 40), axis=1) / np.median(samples))
                    ),
                    "pair sd %": round(100 * float(logs.std()), 3),
                    "discarded": device.last_times.discarded,
                }
            )
            print(rows[-1], flush=True)
    device.settings = before
    return rows


def races(device: CudaDevice) -> dict[str, Any]:
    """Equal kernels raced with the rules for the family best, by size and kernel."""
    cases = [
        ("double_it", 4 * MEGABYTE, {}),
        ("double_it", 16 * MEGABYTE, {}),
        ("work", 1 << 20, {"STEPS": 4000}),
        ("divergent", 1 << 20, {}),
    ]
    found: dict[str, Any] = {"raw": {}, "false": 0, "races": 0, "seconds": 0.0}
    for name, n, values in cases:
        kernel = built(name, device.arch, **values)
        where = prepare(device, n, kernel)
        started = time.perf_counter()
        raw = [groups(device, [kernel, kernel], where, 3) for _ in range(RACES)]
        found["seconds"] += time.perf_counter() - started
        verdicts = [first_verdict(race, Rules()) for race in raw]
        found["races"] += RACES
        found["false"] += sum(verdict == "faster" for verdict in verdicts)
        logs = np.log(np.array(raw)[..., 0] / np.array(raw)[..., 1])
        found["raw"][f"{name} {n}"] = {
            "log ratios": np.round(logs, 5).tolist(),
            "pair sd %": round(100 * float(logs.std()), 3),
            "us": round(1e6 * float(np.median(np.array(raw)[..., 0])), 2),
            "verdicts": {v: verdicts.count(v) for v in sorted(set(verdicts))},
        }
        print(name, n, {k: v for k, v in found["raw"][f"{name} {n}"].items() if k != "log ratios"})
    print("false accepts", found["false"], "of", found["races"], flush=True)
    return found


def first_verdict(race: list[Array], rules: Rules) -> str:
    """The verdict at the end of the first group that has one."""
    for end in range(1, len(race) + 1):
        verdict = judge(race[:end], rules).verdict
        if verdict != "undecided":
            return verdict
    return "undecided"


def power(device: CudaDevice) -> list[dict[str, Any]]:
    """Kernels with 1, 2 and 5 % less work against the full one."""
    n, steps = 1 << 20, 4000
    full = built("work", device.arch, STEPS=steps)
    where = prepare(device, n, full)
    rows = []
    for gain in (0.01, 0.02, 0.05):
        lighter = built("work", device.arch, STEPS=round(steps * (1 - gain) / 8) * 8)
        raw = [groups(device, [lighter, full], where, 3) for _ in range(POWER_RACES)]
        logs = np.log(np.array(raw)[..., 0] / np.array(raw)[..., 1])
        verdicts = [first_verdict(race, Rules()) for race in raw]
        rows.append(
            {
                "planted %": 100 * gain,
                "measured %": round(-100 * float(np.median(logs)), 3),
                "pair sd %": round(100 * float((logs - np.median(logs)).std()), 3),
                "races": POWER_RACES,
                "found": verdicts.count("faster"),
                "log ratios": np.round(logs, 5).tolist(),
            }
        )
        print({k: v for k, v in rows[-1].items() if k != "log ratios"}, flush=True)
    return rows


def phantom(device: CudaDevice) -> list[dict[str, float]]:
    """How much faster the best of fifty equal kernels looks, at first and in fresh processes."""
    kernel = built("double_it", device.arch)
    where = prepare(device, 4 * MEGABYTE, kernel)
    rows = []
    for _ in range(4):
        samples = device.time([kernel] * 51, where, 7)
        assert isinstance(samples, np.ndarray), samples
        medians = np.median(samples[:, 1:], axis=0)
        best = int(np.argmin(medians))
        ratios = []
        for _ in range(5):
            device.restart()
            again = device.time([kernel, kernel], where, 20)
            assert isinstance(again, np.ndarray), again
            ratios.append(np.log(again[:, 0] / again[:, 1]))
        rows.append(
            {
                "selected %": round(100 * float(np.log(medians[best] / np.median(medians))), 3),
                "final %": round(100 * float(np.median(np.concatenate(ratios))), 3),
            }
        )
        print(rows[-1], flush=True)
    return rows


def agreement(device: CudaDevice) -> list[dict[str, Any]]:
    """Our event times, ncu's durations and, with torch and Triton, do_bench on the same cubins."""
    cases = [
        ("double_it", 4 * MEGABYTE, {}),
        ("double_it", 64 * MEGABYTE, {}),
        ("double_it", 256 * MEGABYTE, {}),
        ("work", 1 << 20, {"STEPS": 4000}),
        ("uncoalesced", 16 * MEGABYTE, {}),
        ("bank_conflicts", 16 * MEGABYTE, {}),
    ]
    rows = []
    for name, n, values in cases:
        kernel = built(name, device.arch, **values)
        where = prepare(device, n, kernel)
        samples = device.time([kernel], where, 20)
        assert isinstance(samples, np.ndarray), samples
        counters = device.profile(kernel, where)
        warm = device.warm(kernel, where)
        assert isinstance(warm, list), warm
        rows.append(
            {
                "kernel": name,
                "n": n,
                "events us": round(1e6 * float(np.median(samples)), 2),
                "ncu us": None if counters.duration is None else round(1e6 * counters.duration, 2),
                "graph us": round(1e6 * float(np.median(warm)), 2),
                "do_bench us": do_bench(kernel, n),
            }
        )
        print(rows[-1], flush=True)
    return rows


def do_bench(kernel: Built, n: int) -> float | None:
    """Microseconds of Triton's do_bench (median) on the cubin; None without torch and Triton."""
    try:
        import torch
        from triton.testing import do_bench as measure
    except ImportError:
        return None
    from ptxsearch.gpu.case import input_set
    from ptxsearch.gpu.cuda import CudaDriver
    from ptxsearch.gpu.memory import Placement, Region
    from ptxsearch.gpu.sequence import Loaded, program

    data = inputs(n, 0)
    x = torch.randn(n, device="cuda")
    y = torch.empty(n, device="cuda")
    driver = CudaDriver(0)
    regions = {"x": Region(x.data_ptr(), 4 * n), "y": Region(y.data_ptr(), 4 * n)}
    bound = Loaded(driver, program(kernel, data)).bind(
        Placement(input_set(data), regions, [], 0, 0)
    )
    with torch.cuda.stream(torch.cuda.ExternalStream(int(driver._stream))):
        return round(1e3 * float(measure(bound.launch, return_mode="median")), 2)


def cost(device: CudaDevice) -> dict[str, float]:
    """Milliseconds of each step for a kernel of 16 MB, inputs already there."""
    n = 4 * MEGABYTE
    kernel, rival = built("double_it", device.arch), built("bank_conflicts", device.arch)
    where = prepare(device, n, kernel)
    device.time([kernel, rival, rival], where, 3)
    steps: dict[str, float] = {}

    def step(name: str, work: Any, times: int) -> None:
        started = time.perf_counter()
        for _ in range(times):
            work()
        steps[name] = round(1e3 * (time.perf_counter() - started) / times, 2)

    tiny = inputs(4096, 0)
    step("run once, 16 KB", lambda: device.run(kernel, workload(4096), tiny, timeout=5.0), 50)
    step("20 rounds, 16 KB", lambda: device.time([kernel, rival], workload(4096), 20), 3)
    data = inputs(n, 0)
    step("run once", lambda: device.run(kernel, where, data, timeout=5.0), 10)
    step("7 rounds of 3 sides", lambda: device.time([kernel, rival, rival], where, 7), 5)
    step("20 rounds of 2 sides", lambda: device.time([kernel, rival], where, 20), 5)
    device.restart()
    step("restart and run", lambda: device.run(kernel, where, data, timeout=5.0), 1)
    step("ncu profile", lambda: device.profile(kernel, where), 1)
    print(steps, flush=True)
    return steps


PARTS = {
    "table": table,
    "races": races,
    "power": power,
    "phantom": phantom,
    "agreement": agreement,
    "cost": cost,
}


def main(arguments: list[str]) -> None:
    out = Path(arguments[0]) if arguments else Path("timing_proof.json")
    chosen = arguments[1:] or list(PARTS)
    device = CudaDevice()
    found: dict[str, Any] = {"device": device.name, "driver": device.properties.driver}
    for part in chosen:
        print(f"-- {part}", flush=True)
        started = time.perf_counter()
        found[part] = PARTS[part](device)
        print(f"{part}: {time.perf_counter() - started:.1f} s", flush=True)
        out.write_text(json.dumps(found))
    device.close()


if __name__ == "__main__":
    main(sys.argv[1:])
