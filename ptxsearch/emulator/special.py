"""Special registers that hold one value for each lane during a whole launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ptxsearch.emulator.operation import Array

if TYPE_CHECKING:
    from ptxsearch.emulator.machine import Chunk

AXES = "xyz"
MULTIPROCESSORS = 132
BY_THREAD = ("%tid", "%ntid", "%nctaid", "%lane", "%warpid", "%nwarpid")
"""Beginnings of the names of registers that are the same in every block."""


def value(chunk: Chunk, name: str) -> Array:
    """The special register `name` of each lane; length 1 where all lanes agree."""
    launch = chunk.launch
    stem, _, axis = name.rpartition(".") if "." in name else (name, "", "")
    if axis in ("x", "y", "z") and stem in _VECTORS:
        return _VECTORS[stem](chunk, AXES.index(axis))
    fixed: dict[str, int] = {
        "%nwarpid": chunk.width // 32,
        "%nsmid": MULTIPROCESSORS,
        "%gridid": launch.number,
        "%total_smem_size": launch.static_shared + launch.dynamic_shared,
        "%aggr_smem_size": launch.static_shared + launch.dynamic_shared,
        "%dynamic_smem_size": launch.dynamic_shared,
        "%nclusterid": 1,
        "%cluster_nctarank": 1,
        "%is_explicit_cluster": 0,
        "%cluster_ctarank": 0,
    }
    if name in fixed:
        if name == "%is_explicit_cluster":
            return np.zeros(1, np.bool_)
        return np.array([fixed[name]], np.uint64 if name == "%gridid" else np.uint32)
    lane = _thread(chunk) % 32
    one = np.uint32(1)
    match name:
        case "%laneid":
            return lane
        case "%warpid":
            return _thread(chunk) // 32
        case "%smid":
            return _of_block((chunk.blocks % MULTIPROCESSORS).astype(np.uint32), chunk)
        case "%lanemask_eq":
            return one << lane
        case "%lanemask_lt":
            return (one << lane) - one
        case "%lanemask_le":
            return ((one << lane) - one) | (one << lane)
        case "%lanemask_gt":
            return ~(((one << lane) - one) | (one << lane))
        case "%lanemask_ge":
            return ~((one << lane) - one)
    return np.zeros(1, np.uint32)


def _thread(chunk: Chunk) -> Array:
    return np.tile(np.arange(chunk.width, dtype=np.uint32), chunk.rows)


def _of_block(values: Array, chunk: Chunk) -> Array:
    return values if chunk.rows == 1 else np.repeat(values, chunk.width)


def _tid(chunk: Chunk, axis: int) -> Array:
    thread = np.arange(chunk.width)
    x, y, _ = chunk.launch.block
    part = (thread % x, thread // x % y, thread // (x * y))[axis]
    if chunk.launch.block[axis] == 1:
        return np.zeros(1, np.uint32)
    return np.tile(part.astype(np.uint32), chunk.rows)


def _ctaid(chunk: Chunk, axis: int) -> Array:
    x, y, _ = chunk.launch.grid
    blocks = chunk.blocks
    part = (blocks % x, blocks // x % y, blocks // (x * y))[axis].astype(np.uint32)
    if bool((part == part[0]).all()):
        return part[:1]
    return _of_block(part, chunk)


def _ntid(chunk: Chunk, axis: int) -> Array:
    return np.array([chunk.launch.block[axis]], np.uint32)


def _nctaid(chunk: Chunk, axis: int) -> Array:
    return np.array([chunk.launch.grid[axis]], np.uint32)


def _zero(chunk: Chunk, axis: int) -> Array:
    return np.zeros(1, np.uint32)


def _one(chunk: Chunk, axis: int) -> Array:
    return np.ones(1, np.uint32)


_VECTORS = {
    "%tid": _tid,
    "%ctaid": _ctaid,
    "%ntid": _ntid,
    "%nctaid": _nctaid,
    "%clusterid": _ctaid,
    "%nclusterid": _nctaid,
    "%cluster_ctaid": _zero,
    "%cluster_nctaid": _one,
}
