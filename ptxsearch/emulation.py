"""A kernel file run on the emulator as a case file says: what `ptxsearch emulate` does.

docs/kernels.md describes the fields of a case.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ptxsearch.config import DEFAULT_ARCH
from ptxsearch.emulator.case import CaseLaunch, case_launches
from ptxsearch.errors import UsageError
from ptxsearch.kernelfile import read_source
from ptxsearch.toolchain import Compiled, CompileFailure, default_compiler
from ptxsearch.toolchain.compiler import substitute, texts_of
from ptxsearch.toolchain.result import Translated


def emulate(
    kernel: Path, case: Path, *, arch: str | None = None
) -> list[CaseLaunch] | CompileFailure:
    """Every launch of a case with its report; or why CUDA C++, compiled for `arch`, is no kernel.

    Raises UsageError for a case that is none, KernelError for a kernel that cannot be read.
    """
    described = _read_case(case)
    text = _ptx(kernel, described, arch or DEFAULT_ARCH)
    return text if isinstance(text, CompileFailure) else case_launches(text, described)


def _ptx(kernel: Path, case: Mapping[str, Any], arch: str) -> str | CompileFailure:
    source, language = read_source(kernel)
    values = case.get("values", {})
    made: Translated | Compiled | CompileFailure
    if language == "ptx":
        made = substitute(source, texts_of(values))
    else:
        entries = [case["entry"]]
        made = default_compiler().compile(source, language, values, arch=arch, entries=entries)
    return made if isinstance(made, CompileFailure) else made.ptx


def _read_case(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise UsageError(f"{path}, line {error.lineno}: {error.msg}", "mend the JSON") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read ({error})", "give a case in JSON") from error
    except RecursionError as error:
        raise UsageError(f"{path} is nested too deeply", "mend the JSON") from error
    entry = data.get("entry") if isinstance(data, dict) else None
    if not isinstance(entry, str) or not isinstance(data.get("runs"), list):
        raise UsageError(
            f"{path} is no case: `entry` names the kernel, `runs` lists its runs",
            'write {"entry": "k", "runs": [{"grid": 1, "block": 32, "args": [...]}]}; '
            "docs/kernels.md has an example",
        )
    if not isinstance(data.get("values", {}), dict):
        raise UsageError(f"{path}: values is {data['values']!r}", 'write {"NAME": value}')
    return dict(data)
