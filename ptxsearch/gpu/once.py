"""Run the case saved in a folder once, for tools that watch a process.

Every buffer is an allocation of exactly its size, so that memcheck sees each byte out of bounds.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ptxsearch.errors import DeviceError
from ptxsearch.gpu import case
from ptxsearch.gpu.cuda import CudaDriver
from ptxsearch.gpu.driver import Driver
from ptxsearch.gpu.memory import InputSet, Placement, Region
from ptxsearch.gpu.sequence import Loaded, Program

__all__ = ["run"]


def run(driver: Driver, program: Program, inputs: InputSet) -> None:
    """Launch the sequence and wait for it. Outputs and scratch are not initialised."""
    arrays = {
        name: Region(driver.allocate(max(array.nbytes, 1)), array.nbytes)
        for name, array in inputs.arrays.items()
    }
    for name, region in arrays.items():
        if inputs.roles[name] != "out":
            driver.upload(region.pointer, inputs.arrays[name])
    scratch = [Region(driver.allocate(max(s, 1)), s) for s in program.scratch.values()]
    for index, size in program.zero_fills:
        driver.zero(scratch[index].pointer, size)
    loaded = Loaded(driver, program)
    loaded.bind(Placement(inputs, arrays, scratch, 0, 0)).launch()
    driver.synchronise()


def main(folder: str) -> int:
    """Run the case of a folder. Returns 0, or 3 where the driver refused something."""
    program, inputs = case.load(Path(folder))
    try:
        run(CudaDriver(0), program, inputs)
    except DeviceError as error:
        sys.stderr.write(f"ptxsearch: {error}\n")
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
