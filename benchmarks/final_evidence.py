"""The certificate of a task's kernels: `python benchmarks/final_evidence.py TASK OUT.json`.

Finalists are the baseline's template at a few legal values; the certificate is written as JSON,
made a second time and compared with the first.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ptxsearch.evaluation import Failure
from ptxsearch.gpu import CudaDevice
from ptxsearch.gpu.final import Certificate, certify_task, differences
from ptxsearch.taskfile import load_task
from ptxsearch.toolchain import CompileFailure, build
from ptxsearch.toolchain.find import machine_toolchain

FINALISTS = 4


def main(name: str, out: Path) -> None:
    task = load_task(name)
    device = CudaDevice()
    space = task.baseline.space
    assert space is not None
    rows = space.sample(np.random.Generator(np.random.Philox(5)), FINALISTS)
    kernels = [task.baseline, *(task.baseline.with_values(**space.values(r)) for r in rows)]
    made = [build(kernel, device.arch) for kernel in kernels]
    finalists = [item for item in made if not isinstance(item, CompileFailure)]
    found: list[dict[str, Certificate]] = []
    for _ in range(2):
        started = time.perf_counter()
        certificates = certify_task(
            device, task, finalists, finalists[0], toolchain=machine_toolchain().name, seed=99
        )
        assert not isinstance(certificates, Failure), certificates
        found.append(certificates)
        print(f"{time.perf_counter() - started:.1f} s")
    first, second = found
    out.write_text(json.dumps({k: c.to_dict() for k, c in first.items()}, indent=1))
    for workload, certificate in first.items():
        shown = {k: v for k, v in certificate.to_dict().items() if k != "counters"}
        print(workload, shown)
        print("differences:", differences(certificate, second[workload]) or "none")
    device.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
