"""A kernel's launches bound to device memory: `Program` describes them, `Bound` launches them.

A program is plain data for one problem size and crosses to the worker; binding lays out each
argument at the width its entry declares.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from ptxsearch.errors import DeviceError
from ptxsearch.evaluation import Built, Failure, Fault, Inputs
from ptxsearch.expression import evaluate_integer
from ptxsearch.gpu.driver import Driver, DriverError, Function, TileShape
from ptxsearch.gpu.instruments import Arguments
from ptxsearch.gpu.memory import Placement
from ptxsearch.kernel import ELEMENT_BYTES, BoundLaunch

__all__ = ["Bound", "Loaded", "Program", "program"]

_TILE_BYTES = 128


@dataclass(frozen=True)
class Program:
    """One kernel at one problem size; `sha256` is that of the cubin that was judged.

    `scratch` maps a name to its bytes, `zeros` names those that start as zeros, `tiles` maps a
    tensor map to its buffer and shape.
    """

    cubin: bytes
    launches: tuple[BoundLaunch, ...]
    scratch: Mapping[str, int]
    zeros: frozenset[str]
    tiles: Mapping[str, tuple[str, TileShape]]
    sha256: str = ""

    @property
    def zero_fills(self) -> tuple[tuple[int, int], ...]:
        """(index, bytes) of each scratch buffer that starts as zeros."""
        return tuple(
            (index, size)
            for index, (name, size) in enumerate(self.scratch.items())
            if name in self.zeros
        )


def program(built: Built, inputs: Inputs) -> Program:
    """The program of a compiled kernel for the sizes of `inputs`. Raises KernelError."""
    kernel = built.kernel
    shapes = kernel.scratch_shapes(inputs.sizes)
    names = kernel.names(inputs.sizes)

    def numbers(texts: Sequence[str]) -> tuple[int, ...]:
        return tuple(evaluate_integer(text, names) for text in texts)

    return Program(
        cubin=built.cubin,
        launches=kernel.bind(inputs.sizes, frozenset(inputs.values)),
        scratch={s.name: prod(shapes[s.name]) * ELEMENT_BYTES[s.dtype] for s in kernel.scratch},
        zeros=frozenset(s.name for s in kernel.scratch if s.init == "zeros"),
        tiles={
            tile.name: (
                tile.buffer,
                TileShape(
                    tile.dtype,
                    numbers(tile.dims),
                    numbers(tile.strides),
                    numbers(tile.box),
                    tile.swizzle,
                ),
            )
            for tile in kernel.tensor_maps
        },
        sha256=hashlib.sha256(built.cubin).hexdigest(),
    )


class ArgumentMismatch(Exception):
    """An argument does not fit the entry's parameter; `failure` says how."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.failure = Failure(Fault(kind="launch_failure", message=message))


class Loaded:
    """A program's module on the device, its entries looked up; that of `like` where it is equal.

    Raises DeviceError where the cubin is not the one the program was made of.
    """

    def __init__(self, driver: Driver, program: Program, *, like: Loaded | None = None) -> None:
        self.program = program
        self._driver = driver
        if like is not None and _same_code(like.program, program):
            self._module: Any = like._module
        elif hashlib.sha256(program.cubin).hexdigest() != program.sha256:
            raise DeviceError("the cubin to run is not the one that was judged")
        else:
            self._module = driver.load(program.cubin)
        try:
            self.functions: list[Function] = [
                driver.function(
                    self._module, launch.entry, launch.shared_bytes, prod(launch.cluster)
                )
                for launch in program.launches
            ]
        except DriverError:
            if like is None:
                driver.unload(self._module)
            raise

    def unload(self) -> None:
        """Give the module back."""
        self._driver.unload(self._module)

    def bind(self, placement: Placement) -> Bound:
        """The launches with their arguments at a placement. Raises ArgumentMismatch."""
        steps = []
        for function, launch in zip(self.functions, self.program.launches, strict=True):
            if len(function.sizes) != len(launch.args):
                raise ArgumentMismatch(
                    f"{launch.entry} takes {len(function.sizes)} parameters, the launch passes"
                    f" {len(launch.args)}: {', '.join(map(str, launch.args))}"
                )
            cells = [
                self._cell(argument, size, placement, where=f"{launch.entry} parameter {index}")
                for index, (argument, size) in enumerate(
                    zip(launch.args, function.sizes, strict=True)
                )
            ]
            steps.append((function, launch, Arguments(cells)))
        return Bound(self._driver, steps, placement)

    def _cell(self, argument: str | int, size: int, placement: Placement, *, where: str) -> bytes:
        """The bytes of one argument at the width its parameter has."""
        if isinstance(argument, int):
            return _integer(argument, size, where)
        inputs = placement.inputs
        if argument in inputs.scalars:
            value = inputs.scalars[argument]
            if len(value) != size:
                raise ArgumentMismatch(
                    f"{where} has {size} bytes, the scalar {argument} has {len(value)}"
                )
            return value
        if argument in self.program.tiles:
            buffer, tile = self.program.tiles[argument]
            encoded = self._driver.tensor_map(self._address(buffer, placement), tile)
            if size != _TILE_BYTES:
                raise ArgumentMismatch(f"{where} has {size} bytes, a tensor map has {_TILE_BYTES}")
            return encoded
        if size != 8:
            raise ArgumentMismatch(f"{where} has {size} bytes, the pointer {argument} has 8")
        return self._address(argument, placement).to_bytes(8, "little")

    def _address(self, name: str, placement: Placement) -> int:
        if name in placement.arrays:
            return placement.arrays[name].pointer
        names = list(self.program.scratch)
        if name not in names:
            raise ArgumentMismatch(f"no buffer is named {name}")
        return placement.scratch[names.index(name)].pointer


def _same_code(left: Program, right: Program) -> bool:
    return left.sha256 == right.sha256 and left.cubin == right.cubin


def _integer(value: int, size: int, where: str) -> bytes:
    try:
        return value.to_bytes(size, "little", signed=value < 0)
    except OverflowError as error:
        raise ArgumentMismatch(f"{where} has {size} bytes, too few for {value}") from error


class Bound:
    """A launch sequence ready to be queued at one placement."""

    def __init__(
        self,
        driver: Driver,
        steps: Sequence[tuple[Function, BoundLaunch, Arguments]],
        placement: Placement,
    ) -> None:
        self._driver = driver
        self._steps = steps
        self.placement = placement

    def launch(self) -> None:
        """Queue every launch in order. Raises DriverError where the driver refuses one."""
        for function, launch, arguments in self._steps:
            self._driver.launch(
                function,
                launch.grid,
                launch.block,
                shared=launch.shared_bytes,
                arguments=arguments.address,
                cluster=launch.cluster,
            )
