"""What the independent kernels must give, from numpy in float64, Python integers and libraries."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import ml_dtypes
import networkx as nx
import numpy as np
from scipy import special


def softmax(x: Any) -> Any:
    """Softmax of rows in float64."""
    shifted = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    return shifted / shifted.sum(1, keepdims=True)


def sorted_pairs(keys: Any, values: Any) -> tuple[Any, Any]:
    """Rows sorted by key, the odd rows descending."""
    order = np.argsort(keys, axis=1, kind="stable")
    order[1::2] = order[1::2, ::-1]
    return np.take_along_axis(keys, order, 1), np.take_along_axis(values, order, 1)


def segmented_sums(x: Iterable[int], heads: Iterable[int]) -> list[int]:
    """Running sums that start anew at heads."""
    sums: list[int] = []
    for value, head in zip(x, heads, strict=True):
        sums.append(int(value) + (sums[-1] if sums and not head else 0))
    return sums


def escape_times(width: int, height: int, limit: int) -> Any:
    """Trips until |z| > 2, every operation rounded to float32 by numpy."""
    f = np.float32
    cr = np.tile(np.arange(width, dtype=f) * f(0.046875) + f(-2), (height, 1))
    ci = np.tile((np.arange(height, dtype=f) * f(0.0625) + f(-1.125))[:, None], (1, width))
    zr, zi = np.zeros_like(cr), np.zeros_like(cr)
    count, live = np.zeros(cr.shape, np.int32), np.ones(cr.shape, bool)
    for _ in range(limit):
        rr, ii = zr * zr, zi * zi
        live &= rr + ii <= 4
        count += live
        zi = np.where(live, f(2) * (zr * zi) + ci, zi)
        zr = np.where(live, rr - ii + cr, zr)
    return count


def relaxed(a: Any, sweeps: int) -> Any:
    """`sweeps` sweeps that replace inner values by the mean of their neighbours."""
    for _ in range(sweeps):
        a = np.concatenate((a[:1], 0.5 * (a[:-2] + a[2:]), a[-1:]))
    return a


def fp8(x: Any, kind: Any, largest: float) -> Any:
    """Rounded to an 8-bit format with saturation, by ml_dtypes."""
    return np.clip(x, -largest, largest).astype(kind)


def pcg(seed: int, count: int, bound: int) -> list[int]:
    """The stream of PCG32 (XSH-RR), drawn one after the other with Python integers."""
    numbers, state = [], seed
    for _ in range(count):
        mixed, turn = (((state >> 18) ^ state) >> 27) & 0xFFFFFFFF, state >> 59
        word = (mixed >> turn | mixed << (32 - turn)) & 0xFFFFFFFF
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        numbers.append((word * bound >> 32) + word % bound)
    return numbers


def components(nodes: int, edges: Any) -> list[int]:
    """The least node of each node's component, by networkx."""
    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(range(nodes))
    graph.add_edges_from(map(tuple, edges.tolist()))
    label = [0] * nodes
    for part in nx.connected_components(graph):
        for node in part:
            label[node] = min(part)
    return label


def next_life(cells: Any) -> Any:
    """A generation of life on a torus."""
    turns = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if dy or dx]
    around = sum(np.roll(cells, turn, (0, 1)).astype(int) for turn in turns)
    return ((around == 3) | ((cells == 1) & (around == 2))).astype(np.uint8)


def window_sums(rows: Any) -> Any:
    """Per column: sum, sum, xor and maximum with 0, columns mirrored within groups of 64."""
    count, width, _ = rows.shape
    rows = rows.reshape(count, width // 64, 64, 4)[:, :, ::-1].reshape(count, width, 4)
    out = np.empty((width, 4), np.int32)
    out[:, :2] = rows[:, :, :2].sum(0)
    out[:, 2] = np.bitwise_xor.reduce(rows[:, :, 2], 0)
    out[:, 3] = np.maximum(rows[:, :, 3].max(0), 0)
    return out


def double_functions(x: Any, y: Any) -> Any:
    """The eight functions of the kernel, from the C library by Python's math and from scipy."""
    pairs = list(zip(x.tolist(), y.tolist(), strict=True))
    return np.array(
        [
            [math.pow(abs(a), b) for a, b in pairs],
            [math.sin(a) for a, _ in pairs],
            [math.log1p(abs(b)) for _, b in pairs],
            [math.erf(b) for _, b in pairs],
            special.cbrt(x),
            [math.gamma(1 + abs(b)) for _, b in pairs],
            [math.fmod(a, 0.375) for a, _ in pairs],
            [math.hypot(a, b) for a, b in pairs],
        ]
    )


def resized(image: Any, height: int, width: int) -> Any:
    """Bilinear interpolation with half-pixel centres in float64, alpha 255."""

    def axis(source: int, target: int) -> tuple[Any, Any, Any]:
        at = np.maximum((np.arange(target) + 0.5) * source / target - 0.5, 0)
        low = at.astype(int)
        return low, np.minimum(low + 1, source - 1), at - low

    (y0, y1, fy), (x0, x1, fx) = axis(image.shape[0], height), axis(image.shape[1], width)
    pixels, fx, fy = image.astype(float), fx[None, :, None], fy[:, None, None]
    top = pixels[y0][:, x0] * (1 - fx) + pixels[y0][:, x1] * fx
    low = pixels[y1][:, x0] * (1 - fx) + pixels[y1][:, x1] * fx
    out = np.rint(top * (1 - fy) + low * fy).astype(np.uint8)
    out[:, :, 3] = 255
    return out


def morton(points: Any) -> list[int]:
    """Bits of x, y and z in turn, from the highest."""
    return [
        int("".join(f"{x:021b}"[k] + f"{y:021b}"[k] + f"{z:021b}"[k] for k in range(21)), 2)
        for x, y, z in points.tolist()
    ]


def common_prefix(codes: list[int]) -> list[int]:
    """Leading bits (of 64) that a code shares with the next; -1 for the last."""
    return [64 - (a ^ b).bit_length() for a, b in pairwise(codes)] + [-1]


def products(a: Any, b: Any, c: Any) -> list[list[int]]:
    """Per row: the four words of a * b - c modulo 2^256, and -1 where it borrows."""

    def number(words: Any) -> int:
        return sum(int(word) << 64 * k for k, word in enumerate(words))

    rows = []
    for x, y, z in zip(a, b, c, strict=True):
        difference = number(x) * number(y) - number(z)
        words = [(difference >> 64 * k) % 2**64 for k in range(4)]
        rows.append([*words, (2**32 - 1) if difference < 0 else 0])
    return rows


def groups(keys: Any, values: Any) -> Any:
    """Per lane: sum, minimum and xor of its group if it is its first lane, else the mask."""
    rows = []
    for lane, key in enumerate(keys):
        peers = np.flatnonzero(keys == key)
        mask = sum(1 << int(peer) for peer in peers)
        every = 0xFFFFFFFF if len(peers) == 32 else int(peers[0])
        own = values[peers]
        known = [int(own.sum()), int(own.min()), int(np.bitwise_xor.reduce(own)), every]
        rows.append(known if lane == peers[0] else [mask, 0, 0, every])
    return np.array(rows, np.int64) & 0xFFFFFFFF


def mirrored_horner(x: Any) -> list[int]:
    """The Horner sums of the columns of x at 3, mirrored, modulo 2^32."""
    sums = [0] * 32
    for row in x.tolist():
        sums = [(3 * total + value) % 2**32 for total, value in zip(sums, row[::-1], strict=True)]
    return sums


def chain(seed: int, blocks: int, threads: int) -> list[list[int]]:
    """Messages of each block: the last block's turned left by 5 and changed by its number."""
    rows = [[seed + t for t in range(threads)]]
    for block in range(1, blocks):
        rows.append([((v << 5 | v >> 27) & 0xFFFFFFFF) ^ block for v in rows[-1]])
    return rows


def letters(data: bytes) -> bytes:
    """Base64 by the standard library."""
    return base64.b64encode(data)


E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2


def horner_rounds(a: Any, turns: int) -> Any:
    """Two rounds that replace each word by the Horner sum at 3 of words from 7 times its place."""
    for _ in range(2):
        total = np.zeros_like(a)
        for k in range(turns):
            total = total * np.uint32(3) + a[(np.arange(4096) * 7 + k) % 4096]
        a = total
    return a
