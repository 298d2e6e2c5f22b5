"""From source to cubin: limits, NVRTC, ptxas and the cache in one call.

A kernel that does not compile is a `CompileFailure`; ToolchainError means that a compiler is
missing or broken, UsageError that an argument is.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ptxsearch.arch import find_arch
from ptxsearch.errors import UsageError
from ptxsearch.evaluation import Built
from ptxsearch.kernel import Kernel, Value
from ptxsearch.toolchain import nvrtc, ptxas
from ptxsearch.toolchain.cache import Cache, key
from ptxsearch.toolchain.diagnostics import warnings
from ptxsearch.toolchain.find import Toolchain, machine_toolchain
from ptxsearch.toolchain.limits import entries as entries_of
from ptxsearch.toolchain.limits import refuse_ptx, refuse_text
from ptxsearch.toolchain.prelude import prepare
from ptxsearch.toolchain.result import (
    Assembled,
    Compiled,
    CompileFailure,
    Translated,
    pack,
    unpack,
)
from ptxsearch.toolchain.sandbox import Limits, Sandbox

_NAME = re.compile(r"[A-Za-z_]\w*\Z")
_TEXT = re.compile(r"[\w \t.,:*&<>()+\-/%|^~]*\Z")
_HOLE = re.compile(r"\$\{(\w+)\}")
_TARGET = re.compile(r"^[ \t]*\.target[ \t]+(sm_\d+[af]?)", re.MULTILINE)
_FEATURE = re.compile(r"\b(wgmma|setmaxnreg|tcgen05)\b|__CUDA_ARCH_(FEAT|SPECIFIC|FAMILY)")
_VALUES_BYTES = 8192
_RECENT = 256
# Counted up when a stage records more, so that older cache entries are left alone.
_EDITION = "3"


class _Request(NamedTuple):
    """Everything that decides what a compilation gives."""

    source: str
    language: str
    values: tuple[tuple[str, str], ...]
    arch: str
    entries: tuple[str, ...]
    nvrtc_options: tuple[str, ...]
    ptxas_options: tuple[str, ...]


class Compiler:
    """The compilers of one toolchain with their children and a cache; usable from any thread."""

    def __init__(
        self,
        toolchain: Toolchain,
        *,
        cache: Cache | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.toolchain = toolchain
        self.cache = cache if cache is not None else Cache()
        self.limits = limits if limits is not None else Limits()
        self._compiled = functools.lru_cache(_RECENT)(self._compile)
        self._assemblers = Sandbox()
        self._translators = Sandbox(toolchain.nvrtc)

    def compile(
        self,
        source: str,
        language: str,
        values: Mapping[str, Value],
        *,
        arch: str,
        entries: Sequence[str],
        nvrtc_options: Sequence[str] = (),
        ptxas_options: Sequence[str] = (),
    ) -> Compiled | CompileFailure:
        """`source` with `values` filled in, compiled for `arch`; it must define `entries`."""
        started = time.perf_counter()
        request = _Request(
            source, language, tuple(texts_of(values).items()), arch, tuple(entries),
            tuple(nvrtc_options), tuple(ptxas_options),
        )  # fmt: skip
        known = self._compiled(request)
        if isinstance(known, CompileFailure):
            return known
        return replace(known, seconds=time.perf_counter() - started)

    def _compile(self, request: _Request) -> Compiled | CompileFailure:
        source, language, arch = request.source, request.language, request.arch
        find_arch(arch)
        texts = dict(request.values)
        if problem := refuse_text(source) or refuse_values(texts):
            return CompileFailure(
                "limits", problem, language="ptx" if language == "ptx" else "cuda"
            )
        if language == "cuda":
            front = self.translate(source, texts, arch=arch, options=request.nvrtc_options)
        elif language == "ptx":
            front = substitute(source, texts)
        else:
            raise UsageError(f"language {language!r} cannot be compiled", "use cuda or ptx")
        if isinstance(front, CompileFailure):
            return front
        if absent := [name for name in request.entries if name not in entries_of(front.ptx)]:
            return _absent(absent, front.ptx, language)
        if self.toolchain.ptxas is None:
            return Compiled(front.ptx, b"", {}, front.log, 0.0, self.toolchain.name)
        target = target_of(front.ptx, arch)
        if problem := _beyond(front.ptx, arch):
            return CompileFailure("ptxas", problem, language="ptx")
        back = self.assemble(front.ptx, target=target, options=request.ptxas_options)
        if isinstance(back, CompileFailure):
            return back
        log = "\n".join(part for part in (front.log, back[0].log) if part)
        return Compiled(
            ptx=front.ptx,
            cubin=back[1],
            resources=back[0].resources,
            log=log,
            seconds=0.0,
            toolchain=self.toolchain.name,
            target=target,
            warnings=warnings(log),
        )

    def translate(
        self, source: str, texts: Mapping[str, str], *, arch: str, options: Sequence[str] = ()
    ) -> Translated | CompileFailure:
        """The PTX of CUDA C++ with a macro for each text. Raises ToolchainError without NVRTC."""
        self.toolchain.require_nvrtc()
        target = f"{arch}a" if _specific(arch) and _FEATURE.search(source) else arch
        argv = nvrtc.arguments(target, options)
        prepared = prepare(source, self.toolchain.headers, texts)
        if prepared.refused:
            return CompileFailure("limits", prepared.refused)
        parts = [prepared.text, *argv, *prepared.headers.values()]
        name = key("nvrtc", self.toolchain.nvrtc_version, *parts)
        if held := self.cache.get(name):
            record = unpack(held)[0]
            assert not isinstance(record, Assembled)
            return record
        made = nvrtc.translate(
            prepared,
            argv,
            toolchain=self.toolchain,
            sandbox=self._translators,
            limits=self.limits,
        )
        self.cache.put(name, pack(made), lasting=_lasting(made))
        return made

    def assemble(
        self, ptx: str, *, target: str, options: Sequence[str] = ()
    ) -> tuple[Assembled, bytes] | CompileFailure:
        """What ptxas says of a module, and its cubin. Raises ToolchainError without ptxas."""
        argv = ptxas.arguments(options)
        if problem := refuse_ptx(ptx):
            return CompileFailure("limits", problem, language="ptx")
        name = key(
            "ptxas",
            _EDITION,
            self.toolchain.ptxas_version,
            self.toolchain.build,
            target,
            *argv,
            ptx,
        )
        if held := self.cache.get(name):
            record, cubin = unpack(held)
            assert not isinstance(record, Translated)
            return record if isinstance(record, CompileFailure) else (record, cubin)
        made = ptxas.assemble(
            ptx,
            argv,
            target,
            toolchain=self.toolchain,
            sandbox=self._assemblers,
            limits=self.limits,
        )
        if isinstance(made, CompileFailure):
            self.cache.put(name, pack(made), lasting=_lasting(made))
        else:
            self.cache.put(name, pack(*made))
        return made

    def close(self) -> None:
        """End the children; the next compilation starts them again."""
        self._assemblers.close()
        self._translators.close()


@functools.cache
def default_compiler() -> Compiler:
    """The compiler for this machine's driver, with a cache in memory."""
    return Compiler(machine_toolchain())


def compile_kernel(
    source: str,
    language: str,
    values: Mapping[str, Value],
    *,
    arch: str,
    entries: Sequence[str],
    compiler: Compiler | None = None,
) -> Compiled | CompileFailure:
    """`source` in "cuda" or "ptx", compiled for `arch` by `compiler` or this machine's own."""
    chosen = compiler if compiler is not None else default_compiler()
    return chosen.compile(source, language, values, arch=arch, entries=entries)


def build(kernel: Kernel, arch: str, *, compiler: Compiler | None = None) -> Built | CompileFailure:
    """What a device runs of `kernel`, or why there is nothing to run."""
    compiled = compile_kernel(
        kernel.source,
        kernel.language,
        kernel.values,
        arch=arch,
        entries=tuple(dict.fromkeys(launch.entry for launch in kernel.launches)),
        compiler=compiler,
    )
    if isinstance(compiled, CompileFailure):
        return compiled
    return Built(compiled.cubin, compiled.ptx, kernel, compiled.resources)


def texts_of(values: Mapping[str, Value]) -> dict[str, str]:
    """The values as they stand in a source: true is 1, the rest as written."""
    return {
        name: str(int(value)) if isinstance(value, bool) else str(value)
        for name, value in values.items()
    }


def refuse_values(texts: Mapping[str, str]) -> str:
    """Why the values cannot stand in a source; empty when they can."""
    for name, text in texts.items():
        if not _NAME.match(name) or not _TEXT.match(text):
            return (
                f"value {name[:80]}={text[:80]!r} cannot become a macro; name it as an identifier "
                "and keep to numbers, type names and operators"
            )
    if sum(len(name) + len(text) for name, text in texts.items()) > _VALUES_BYTES:
        return f"values exceed {_VALUES_BYTES} characters; pass fewer or shorter ones"
    return ""


def substitute(source: str, texts: Mapping[str, str]) -> Translated | CompileFailure:
    """PTX with every `${NAME}` replaced by its value; a name without one is a failure."""
    if missing := sorted(set(_HOLE.findall(source)) - set(texts)):
        known = ", ".join(texts) or "none"
        return CompileFailure(
            "limits", f"${{{missing[0]}}} has no value; the values are {known}", language="ptx"
        )
    return Translated(_HOLE.sub(lambda hole: texts[hole[1]], source))


def target_of(ptx: str, arch: str) -> str:
    """What to assemble for: `arch`, in the specific variant that the module's `.target` names."""
    named = _TARGET.search(ptx)
    return named[1] if named and named[1].rstrip("af") == arch else arch


def _beyond(ptx: str, arch: str) -> str:
    """Why a module written for a newer architecture cannot be assembled for `arch`."""
    named = _TARGET.search(ptx)
    if named is None or _number(named[1]) <= _number(arch):
        return ""
    return f".target {named[1]} is newer than {arch}; write .target {arch} and only its features"


def _number(target: str) -> int:
    return int(re.sub(r"\D", "", target))


def _specific(arch: str) -> bool:
    """Whether `arch` has a variant with features of its own alone (sm_90a, sm_100a)."""
    match = re.fullmatch(r"sm_(\d+)", arch)
    return match is not None and int(match[1]) >= 90


def _lasting(made: Translated | CompileFailure) -> bool:
    """Whether it would come out the same on any day: a limit may have been the machine's load."""
    return not (isinstance(made, CompileFailure) and made.stage == "limits")


def _absent(names: Sequence[str], ptx: str, language: str) -> CompileFailure:
    defined = ", ".join(entries_of(ptx)[:8]) or "none"
    form = 'extern "C" __global__' if language == "cuda" else ".visible .entry"
    return CompileFailure(
        "nvrtc" if language == "cuda" else "ptxas",
        f"entry {names[0]!r} is not defined; the module defines {defined}; declare it {form}",
        language="cuda" if language == "cuda" else "ptx",
    )
