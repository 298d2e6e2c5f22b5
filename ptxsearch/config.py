"""Names and files to objects: policies, devices, models, stores. The environment is read here."""

from __future__ import annotations

import difflib
import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ptxsearch.emulator.device import EmulatedDevice
from ptxsearch.errors import DeviceError, PolicyError, RecordingError, UsageError
from ptxsearch.gpu import CudaDevice, CudaDevices, devices
from ptxsearch.pipeline import Pipeline
from ptxsearch.policy import Policy
from ptxsearch.protocols import Device, Evaluator, Store
from ptxsearch.store import SQLiteStore
from ptxsearch.toolchain import Cache, Compiler, cache_folder, machine_toolchain

_HERE = Path(__file__).resolve().parent
DEFAULT_ARCH = "sm_90"


def policy_folder() -> Path:
    """Where the policies that ship lie: beside the package in a checkout, inside it installed."""
    inside = _HERE / "policies"
    return inside if inside.is_dir() else _HERE.parent / "policies"


def policies() -> tuple[str, ...]:
    """Names of the policies that ship."""
    return tuple(sorted(path.stem for path in policy_folder().glob("*.yaml")))


def load_policy(name: str | os.PathLike[str]) -> Policy:
    """The policy of a shipped name or of a YAML file. Raises PolicyError with file, line, key."""
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        path = policy_folder() / f"{name}.yaml"
        if not path.is_file():
            near = difflib.get_close_matches(str(name), policies(), n=3, cutoff=0.3)
            raise PolicyError(
                f"no policy {str(name)!r}", f"use one of {', '.join(near or policies())}, or a file"
            )
    data = read_yaml(path)
    try:
        return Policy.from_dict(data)
    except RecordingError as error:
        raise PolicyError(f"{path}: {error.message}", error.remedy) from error


def read_yaml(path: Path) -> Mapping[str, Any]:
    """The mapping in a YAML file. Raises PolicyError with the line where it is malformed."""
    try:
        text = path.read_text(encoding="utf-8")
        data = yaml.safe_load(text)
    except OSError as error:
        raise PolicyError(f"{path} cannot be read ({error.strerror})", "check the path") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or str(error).split("\n")[0]
        raise PolicyError(f"{path}{where}: {problem}", "mend the YAML") from error
    if not isinstance(data, Mapping):
        raise PolicyError(f"{path} holds no mapping", "write `key: value` lines")
    return data


def make_policy(policy: Policy | str | os.PathLike[str] | None) -> Policy:
    """The policy itself, or the one a name or file stands for; None is the default."""
    if policy is None:
        return Policy()
    return policy if isinstance(policy, Policy) else load_policy(policy)


def make_evaluator(
    device: Device | Evaluator | str | None, *, arch: str | None = None
) -> Evaluator:
    """What judges kernels: `device` itself if it evaluates, else a pipeline on the device.

    None takes GPUs where some answer and the emulator elsewhere. Strings: "cuda" (every visible GPU
    of the first one's model), "cuda:INDEX", "emulated". Raises DeviceError where the device is not
    there.
    """
    if device is not None and not isinstance(device, str):
        if isinstance(device, Evaluator):
            return device
        if isinstance(device, Device):
            return Pipeline(device, compiler=_compiler())
        raise UsageError(
            f"device {device!r} neither evaluates nor runs kernels",
            "give None, 'cuda', 'emulated', a Device or an Evaluator",
        )
    return Pipeline(_named_device(device, arch), compiler=_compiler())


@functools.cache
def _compiler() -> Compiler:
    """This machine's compilers, with what they made before in the user's cache folder."""
    return Compiler(machine_toolchain(), cache=Cache(cache_folder(os.environ)))


def _named_device(name: str | None, arch: str | None) -> Device:
    if name is None:
        name = "cuda" if devices() else "emulated"
    kind, _, index = name.partition(":")
    if kind == "emulated" and not index:
        return EmulatedDevice(arch or DEFAULT_ARCH)
    if kind == "cuda" and (not index or index.isdigit()):
        if arch is not None:
            raise UsageError(f"arch {arch} with device {name}", "leave arch out: a GPU has its own")
        if index or devices() < 2:
            return CudaDevice(int(index or 0))
        return CudaDevices([CudaDevice(number) for number in range(devices())])
    raise DeviceError(f"no device {name!r}", "use cuda, cuda:INDEX or emulated")


def open_store(store: Store | str | os.PathLike[str] | None) -> Store | None:
    """A store as it is, the SQLite store at a path, or None."""
    if isinstance(store, str | os.PathLike):
        return SQLiteStore(store)
    return store
