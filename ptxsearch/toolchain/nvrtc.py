"""CUDA C++ to PTX by NVRTC in a bounded child."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ptxsearch.errors import ToolchainError, UsageError
from ptxsearch.toolchain.diagnostics import errors, excerpt, first_message, scrub
from ptxsearch.toolchain.ending import UNABLE, exceeded, read_log
from ptxsearch.toolchain.find import Toolchain
from ptxsearch.toolchain.prelude import NAME, Prepared, missing_headers
from ptxsearch.toolchain.result import CompileFailure, Translated
from ptxsearch.toolchain.sandbox import Job, Limits, Sandbox

OPTION = re.compile(
    r"--?(use_fast_math|extra-device-vectorization|(fmad|ftz|prec-div|prec-sqrt)=(true|false)"
    r"|maxrregcount=\d{1,3}|std=c\+\+(14|17|20))\Z"
)


def arguments(target: str, options: Sequence[str]) -> list[str]:
    """NVRTC's options. Raises UsageError for one that is not among those allowed."""
    for option in options:
        if not OPTION.match(option):
            raise UsageError(
                f"NVRTC option {option!r} is not allowed",
                "use --use_fast_math, --maxrregcount=N, --fmad=false, --std=c++20 and the like",
            )
    # nvcc takes functions without a side as the host's, and constant expressions may call them;
    # NVRTC refuses both unless such functions are the device's.
    chosen = [
        f"--gpu-architecture={target.replace('sm_', 'compute_')}",
        "-lineinfo",
        "--device-as-default-execution-space",
    ]
    if not any("std=" in option for option in options):
        chosen.append("--std=c++17")
    chosen.append(f"--pre-include={NAME}")
    return [*chosen, *options]


def translate(
    source: Prepared,
    argv: Sequence[str],
    *,
    toolchain: Toolchain,
    sandbox: Sandbox,
    limits: Limits,
) -> Translated | CompileFailure:
    """The PTX of a prepared source, or why there is none."""
    job = Job("nvrtc", argv, tuple(map(str, toolchain.headers)), source.headers)
    with sandbox.folder() as folder:
        (folder / "kernel.cu").write_text(source.text, encoding="utf-8")
        outcome = sandbox.run(job, folder, limits)
        log = scrub(read_log(folder), (folder, *toolchain.headers))
        if outcome.code == 0:
            # The job's folder would make every PTX unlike the last, and lead into this machine.
            ptx = (folder / "kernel.ptx").read_text(encoding="utf-8").replace(f"{folder}/", "")
            return Translated(ptx, log)
    beyond = exceeded("NVRTC", outcome, log, limits)
    if not beyond and outcome.code == UNABLE:
        raise ToolchainError(f"NVRTC cannot be run: {log}", toolchain.remedy)
    if beyond:
        return CompileFailure("limits", beyond, log=log)
    message = first_message(log)
    if headers := missing_headers(source.text):
        message += f" (perhaps for want of #include <{'>, <'.join(headers)}>)"
    return CompileFailure("nvrtc", message, excerpt(source.text, errors(log)), log, "cuda")
