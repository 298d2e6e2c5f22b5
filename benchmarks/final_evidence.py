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

from ptxsearch.correctness import check
from ptxsearch.evaluation import Failure, Inputs, Outputs
from ptxsearch.expectation import References, standard_sets
from ptxsearch.gpu import CudaDevice
from ptxsearch.gpu.final import Certificate, certify, differences
from ptxsearch.taskfile import load_task
from ptxsearch.toolchain import CompileFailure, build, find

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
    references = References(task, limit=4 << 30)
    large, small = task.timed[0], task.smallest
    expected = [references.get(large, *which) for which in standard_sets(task, large)]
    first = references.get(small, *standard_sets(task, small)[0])
    for where, one in [(small, first), *((large, item) for item in expected)]:
        left = device.run(finalists[0], where, one.inputs, timeout=10.0)
        assert isinstance(left, Outputs), left

    def wrong(inputs: Inputs, left: Outputs) -> str:
        one = next(item for item in expected if item.inputs is inputs)
        verdict = check(task, left, one)
        return "" if verdict.passed else verdict.message

    certificates = []
    for _ in range(2):
        started = time.perf_counter()
        certificate = certify(
            device, finalists, finalists[0], workload=large, small=small, check=wrong,
            toolchain=find.machine_toolchain().name,
        )  # fmt: skip
        assert not isinstance(certificate, Failure), certificate
        certificates.append(certificate)
        print(f"{time.perf_counter() - started:.1f} s")
    out.write_text(json.dumps(certificates[0].to_dict(), indent=1))
    print({k: v for k, v in certificates[0].to_dict().items() if k != "counters"})
    assert Certificate.from_dict(json.loads(out.read_text())) == certificates[0]
    print("differences:", differences(*certificates) or "none")
    device.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
