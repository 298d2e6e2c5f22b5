"""CPU time of the emulator with every check on, against its goals and Numba's CUDA simulator."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

PTX = Path(__file__).parent.parent / "tests" / "data" / "emulator" / "speed.ptx"
GOALS = {"vadd": 100, "block_sum": 80, "matmul": 600, "softmax": 250, "broken_sum": 50}


def launches() -> dict[str, tuple[dict[str, Any], Callable[[], bool]]]:
    """Entry -> (launch, check of the result)."""
    rng = np.random.default_rng(0)
    n = 1 << 20
    a, b = (rng.standard_normal(n).astype(np.float32) for _ in range(2))
    c = np.zeros(n, np.float32)
    sums = np.zeros(n // 256, np.float32)
    p, q = (rng.standard_normal((256, 256)).astype(np.float32) for _ in range(2))
    r = np.zeros((256, 256), np.float32)
    x = rng.standard_normal((1024, 1024)).astype(np.float32)
    y = np.zeros_like(x)
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    i = np.int32
    blocks: dict[str, Any] = {"grid": n // 256, "block": 256}
    return {
        "vadd": (blocks | {"args": [a, b, c, i(n)]}, lambda: np.array_equal(c, a + b)),
        "block_sum": (
            blocks | {"args": [a, sums, i(n)]},
            lambda: np.allclose(sums, a.reshape(-1, 256).sum(axis=1), atol=1e-4),
        ),
        "matmul": (
            {"grid": (16, 16), "block": (16, 16), "args": [p, q, r, i(256), i(256), i(256)]},
            lambda: np.allclose(r, p.astype(np.float64) @ q, atol=1e-4),
        ),
        "softmax": (
            {"grid": 1024, "block": 256, "args": [x, y, i(1024)]},
            lambda: np.allclose(y, e / e.sum(axis=1, keepdims=True), rtol=1e-5),
        ),
        "broken_sum": (blocks | {"args": [a, sums, i(n)]}, lambda: True),
    }


def emulated(repeats: int) -> dict[str, float]:
    """CPU milliseconds of each launch, the module loaded anew for the broken one."""
    from ptxsearch.emulator import load, undefined

    text = PTX.read_text()
    times = {}
    for entry, (launch, right) in launches().items():
        best = float("inf")
        for _ in range(repeats):
            module = load(text)
            args = list(launch["args"])
            out = 2 if entry in ("vadd", "matmul") else 1
            args[out] = undefined(args[out])
            began = time.process_time()
            report = module.launch(entry, **{**launch, "args": args})
            best = min(best, time.process_time() - began)
            expected = "fault" if entry.startswith("broken") else "ok"
            if report.status != expected or not right():
                raise SystemExit(f"{entry}: {report.status} {report.message}")
        times[entry] = best * 1e3
    return times


def simulated() -> dict[str, float]:
    """CPU milliseconds that Numba's simulator needs for the whole launch, from a small part."""
    os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
    from benchmarks.numba_kernels import block_sum, matmul, vadd

    table = launches()
    a, b, c, n = table["vadd"][0]["args"]
    p, q, r, *_ = table["matmul"][0]["args"]
    sums = table["block_sum"][0]["args"][1]
    parts: dict[str, tuple[Callable[[], object], float]] = {
        "vadd": (lambda: vadd[4, 256](a, b, c, n), 4096 / 4),
        "block_sum": (lambda: block_sum[2, 256](a, sums, n), 4096 / 2),
        "matmul": (lambda: matmul[(1, 1), (16, 16)](p, q, r, 256), 256),
    }
    times = {}
    for entry, (run, share) in parts.items():
        began = time.process_time()
        run()
        times[entry] = (time.process_time() - began) * 1e3 * share
    return times


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--numba", action="store_true", help="also time Numba's simulator")
    options = parser.parse_args()
    ours = emulated(options.repeats)
    theirs = simulated() if options.numba else {}
    print(f"{'kernel':12s} {'CPU ms':>8s} {'goal':>6s} {'Numba simulator':>16s} {'ratio':>8s}")
    for entry, spent in ours.items():
        line = f"{entry:12s} {spent:8.1f} {GOALS[entry]:6d}"
        if entry in theirs:
            line += f" {theirs[entry]:16.0f} {theirs[entry] / spent:8.0f}"
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
