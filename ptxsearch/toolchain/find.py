"""Which compilers there are: the wheels beside us, else what PATH offers, chosen by the driver.

A driver of CUDA 13 takes cubins of both lines, one of CUDA 12 only those of the 12 line. Without a
driver any compiler will do: nothing it makes is loaded.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ptxsearch.errors import ToolchainError

INSTALL = {
    13: "pip install 'cuda-toolkit[nvcc,nvrtc]==13.0.*' 'nvidia-nvvm==13.0.*' "
    "'nvidia-cuda-crt==13.0.*' 'nvidia-cuda-runtime==13.0.*'",
    12: "pip install '.[cu12]' in the checkout",
}
# The PTX ISA each ptxas release accepts at most (PTX ISA manual, release notes table).
_ISA = {
    (12, 0): "8.0", (12, 1): "8.1", (12, 2): "8.2", (12, 3): "8.3", (12, 4): "8.4",
    (12, 5): "8.5", (12, 6): "8.5", (12, 7): "8.6", (12, 8): "8.7", (12, 9): "8.8",
}  # fmt: skip
_PROBE = (
    "import ctypes\n"
    "version = ctypes.c_int()\n"
    "ctypes.CDLL('libcuda.so.1').cuDriverGetVersion(ctypes.byref(version))\n"
    "print(version.value)\n"
)


@dataclass(frozen=True)
class Toolchain:
    """The compilers to use. `ptxas` or `nvrtc` is None where it is missing.

    `isa` is the newest PTX `.version` that this ptxas assembles, `build` tells two builds of one
    version apart, `headers` are the folders of CUDA headers, `line` is 12 or 13 (0: none found).
    """

    line: int = 0
    ptxas: Path | None = None
    ptxas_version: str = ""
    build: str = ""
    isa: str = ""
    nvrtc: Path | None = None
    nvrtc_version: str = ""
    headers: tuple[Path, ...] = ()

    @property
    def name(self) -> str:
        """The toolchain in words, as evidence keeps it."""
        parts = [
            f"ptxas {self.ptxas_version}" if self.ptxas else "no ptxas",
            f"NVRTC {self.nvrtc_version}" if self.nvrtc else "no NVRTC",
        ]
        return ", ".join(parts)

    @property
    def remedy(self) -> str:
        """The command that installs what is missing."""
        return INSTALL[self.line or 13]

    def require_ptxas(self) -> Path:
        """The path of ptxas. Raises ToolchainError where there is none."""
        if self.ptxas is None:
            raise ToolchainError("ptxas was not found", self.remedy)
        return self.ptxas

    def require_nvrtc(self) -> Path:
        """The path of NVRTC. Raises ToolchainError where it is missing or newer than ptxas."""
        if self.nvrtc is None:
            raise ToolchainError(
                "CUDA C++ needs NVRTC, which was not found (PTX does not need it)", self.remedy
            )
        if self.ptxas is not None and _newer(self.nvrtc_version, self.ptxas_version):
            raise ToolchainError(
                f"NVRTC {self.nvrtc_version} is newer than ptxas {self.ptxas_version}, "
                "which cannot assemble the PTX it emits",
                self.remedy,
            )
        return self.nvrtc


@cache
def driver_version() -> int | None:
    """The CUDA version of the driver as it reports it (13000 is 13.0); None without a driver.

    The driver is asked in a child process: a broken one can hang or end the process.
    """
    try:
        answer = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _PROBE],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = answer.stdout.strip()
    return int(text) if answer.returncode == 0 and text.isdigit() and int(text) else None


@cache
def toolchain_for(driver: int | None) -> Toolchain:
    """The toolchain for a driver version, None standing for no driver.

    A driver older than CUDA 12 loads neither line's cubins and counts as none: the emulator runs
    all the same. Missing compilers are no error here.
    """
    lines = (12,) if driver is not None and 12000 <= driver < 13000 else (13, 12)
    found = [_wheels(folder, line) for line in lines for folder in _wheel_folders()]
    best = max(found, key=_completeness, default=Toolchain())
    if best.ptxas is None and (path := shutil.which("ptxas")):
        outside = _with_ptxas(Path(path))
        if outside.line in lines and (best.nvrtc is None or best.line == outside.line):
            best = _merge(best, outside)
    return best if best.ptxas or best.nvrtc else Toolchain(line=lines[0])


def machine_toolchain() -> Toolchain:
    """The toolchain for this machine's driver, or for none."""
    return toolchain_for(driver_version())


def _completeness(toolchain: Toolchain) -> int:
    return 2 * (toolchain.ptxas is not None) + (toolchain.nvrtc is not None)


def _merge(wheels: Toolchain, outside: Toolchain) -> Toolchain:
    return Toolchain(
        line=outside.line, ptxas=outside.ptxas, ptxas_version=outside.ptxas_version,
        build=outside.build, isa=outside.isa, nvrtc=wheels.nvrtc,
        nvrtc_version=wheels.nvrtc_version, headers=wheels.headers,
    )  # fmt: skip


def _wheel_folders() -> list[Path]:
    spec = importlib.util.find_spec("nvidia")
    return [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []


def _wheels(folder: Path, line: int) -> Toolchain:
    if line == 13:
        tools, library = folder / "cu13" / "bin", folder / "cu13" / "lib"
        headers = [folder / "cu13" / "include", folder / "cu13" / "include" / "cccl"]
    else:
        tools, library = folder / "cuda_nvcc" / "bin", folder / "cuda_nvrtc" / "lib"
        headers = [folder / "cuda_runtime" / "include", folder / "cuda_cccl" / "include"]
    base = Toolchain(line=line)
    if (path := tools / "ptxas").is_file():
        found = _with_ptxas(path)
        base = found if found.line == line else base
    nvrtc = library / f"libnvrtc.so.{line}"
    builtins = sorted(library.glob(f"libnvrtc-builtins.so.{line}.*"))
    known = nvrtc.is_file() and builtins
    return Toolchain(
        line=line, ptxas=base.ptxas, ptxas_version=base.ptxas_version, build=base.build,
        isa=base.isa, nvrtc=nvrtc if known else None,
        nvrtc_version=builtins[-1].name.partition(".so.")[2] if known else "",
        headers=tuple(path for path in headers if path.is_dir()),
    )  # fmt: skip


@cache
def _with_ptxas(path: Path) -> Toolchain:
    """What `ptxas --version` says; an empty toolchain where the program does not run."""
    try:
        text = subprocess.run(
            [str(path), "--version"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=False,
        ).stdout  # fmt: skip
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return Toolchain()
    match = re.search(r"release (\d+)\.(\d+), V([\d.]+)", text)
    if not match:
        return Toolchain()
    major, minor = int(match[1]), int(match[2])
    isa = _ISA.get((major, minor), f"9.{minor}" if major == 13 else "")
    build = re.search(r"^Build (\S+)", text, re.MULTILINE)
    return Toolchain(
        line=major, ptxas=path, ptxas_version=match[3], build=build[1] if build else "", isa=isa
    )


def _newer(version: str, than: str) -> bool:
    first, second = (tuple(int(part) for part in v.split(".")[:2]) for v in (version, than))
    return first > second
