"""One launch sequence in a process of its own, for tools that watch a whole process.

`save` writes program and inputs to a folder, and `once` runs what is there.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import numpy as np

from ptxsearch.evaluation import Inputs
from ptxsearch.gpu.memory import InputSet
from ptxsearch.gpu.sequence import Program

__all__ = ["command", "input_set", "load", "save"]

_FILE = "case.pickle"
_BARE = Path(__file__).with_name("bare.py")


def input_set(inputs: Inputs) -> InputSet:
    """The arrays, scalar bytes and roles of inputs, apart."""
    arrays = {
        name: np.ascontiguousarray(value)
        for name, value in inputs.values.items()
        if inputs.roles[name] != "scalar"
    }
    scalars = {
        name: np.asarray(value).tobytes()
        for name, value in inputs.values.items()
        if inputs.roles[name] == "scalar"
    }
    return InputSet(inputs.label, arrays, scalars, dict(inputs.roles))


def save(folder: Path, program: Program, inputs: Inputs) -> None:
    """Write a case that `command(folder)` runs."""
    with (folder / _FILE).open("wb") as file:
        pickle.dump((program, input_set(inputs)), file, protocol=5)


def load(folder: Path) -> tuple[Program, InputSet]:
    """The case that `save` wrote."""
    with (folder / _FILE).open("rb") as file:
        program, inputs = pickle.load(file)
    return program, inputs


def command(folder: Path) -> list[str]:
    """The command that runs a saved case."""
    return [sys.executable, str(_BARE), "ptxsearch.gpu.once", str(folder)]
