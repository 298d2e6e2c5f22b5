"""PTX to a cubin by ptxas, one bounded process a module, with what it says of each entry."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ptxsearch.errors import ToolchainError, UsageError
from ptxsearch.evaluation import Resources
from ptxsearch.toolchain.diagnostics import errors, excerpt, first_message, scrub
from ptxsearch.toolchain.ending import UNABLE, exceeded, read_log
from ptxsearch.toolchain.facts import with_facts
from ptxsearch.toolchain.find import Toolchain
from ptxsearch.toolchain.result import Assembled, CompileFailure
from ptxsearch.toolchain.sandbox import Job, Limits, Sandbox

OPTION = re.compile(
    r"--?(O[0-3]|maxrregcount=\d{1,3}|maxntid=\d{1,4}|minnctapersm=\d{1,2}|regUsageLevel=\d{1,2}"
    r"|override-directive-values|d[ls]cm=c[agsv]|warn-spills|warn-lmem-usage)\Z"
)
_ENTRY = re.compile(r"Compiling entry function '([^']+)' for")
_PROPERTIES = re.compile(r"Function properties for (\S+)")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(?:, used (\d+) barriers)?")
_TOO_MUCH = re.compile(
    r"Entry function '([^']+)' uses too much shared data \((0x[0-9a-f]+) bytes, (0x[0-9a-f]+) max\)"
)
_SHARED = re.compile(r"(\d+)(?:\+\d+)? bytes smem")


def arguments(options: Sequence[str]) -> list[str]:
    """The options as ptxas takes them. Raises UsageError for one not among those allowed."""
    for option in options:
        if not OPTION.match(option):
            raise UsageError(
                f"ptxas option {option!r} is not allowed",
                "use -maxrregcount=N, -minnctapersm=N, -dlcm=cg, -O2 and the like",
            )
    return ["-v", "-lineinfo", *options]


def assemble(
    ptx: str,
    argv: Sequence[str],
    target: str,
    *,
    toolchain: Toolchain,
    sandbox: Sandbox,
    limits: Limits,
) -> tuple[Assembled, bytes] | CompileFailure:
    """What ptxas says of `ptx`, with the cubin for `target`; or why there is none."""
    tool = toolchain.require_ptxas()
    with sandbox.folder() as folder:
        # Ptxas takes no character beyond ASCII, not even in a comment.
        (folder / "kernel.ptx").write_bytes(ptx.encode("ascii", "replace"))
        command = [str(tool), *argv, f"-arch={target}", "kernel.ptx", "-o", "kernel.cubin"]
        outcome = sandbox.run(Job("exec", command), folder, limits)
        raw = read_log(folder)
        log = scrub(raw, (folder, tool.parent))
        if outcome.code == 0:
            cubin = (folder / "kernel.cubin").read_bytes()
            return Assembled(log, with_facts(cubin, usage(raw), target)), cubin
    beyond = exceeded("ptxas", outcome, log, limits)
    if not beyond and outcome.code == UNABLE:
        raise ToolchainError(f"ptxas cannot be run: {log}", toolchain.remedy)
    if beyond:
        return CompileFailure("limits", beyond, log=log, language="ptx")
    return CompileFailure(
        "ptxas", _plain(first_message(log)), excerpt(ptx, errors(log)), log, "ptx"
    )


def _plain(message: str) -> str:
    """The message, with what to do where ptxas's own words do not say."""
    match = _TOO_MUCH.search(message)
    if match is None:
        return message
    entry, declared, most = match[1], int(match[2], 16), int(match[3], 16)
    return (
        f"{entry} declares {declared} bytes of static shared memory, {most} are allowed; declare "
        "less, or one `extern __shared__` array whose bytes the launch gives as shared_bytes"
    )


def usage(log: str) -> dict[str, Resources]:
    """The resources of each entry in what `ptxas -v` prints."""
    found: dict[str, Resources] = {}
    entry = ""
    stack: dict[str, tuple[int, int, int]] = {}
    function = ""
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            entry = match[1]
        elif match := _PROPERTIES.search(line):
            function = match[1]
        elif match := _STACK.search(line):
            stack[function] = (int(match[1]), int(match[2]), int(match[3]))
        elif entry and (match := _USED.search(line)):
            frame, stores, loads = stack.get(entry, (0, 0, 0))
            shared = _SHARED.search(line)
            found[entry] = Resources(
                registers=int(match[1]),
                spill_stores=stores,
                spill_loads=loads,
                stack_bytes=frame,
                static_shared=int(shared[1]) if shared else 0,
                barriers=int(match[2] or 0),
            )
            entry = ""
    return found
