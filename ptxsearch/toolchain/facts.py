"""What a cubin says of its entries beyond ptxas's own report."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import replace

from ptxsearch.arch import block_threads
from ptxsearch.elf import Cubin, read
from ptxsearch.evaluation import Resources

# Attributes of `.nv.info.<entry>`: threads declared by .maxntid and by .reqntid.
_THREADS = frozenset({0x05, 0x10})


def with_facts(cubin: bytes, reported: Mapping[str, Resources], arch: str) -> dict[str, Resources]:
    """The resources of each entry with the facts that only its cubin holds."""
    code = read(cubin)
    return {
        entry: replace(resources, max_threads=_max_threads(code, entry, resources, arch))
        for entry, resources in reported.items()
    }


def _max_threads(code: Cubin, entry: str, resources: Resources, arch: str) -> int:
    """The most threads of a block, as the driver's function attribute gives it."""
    most = block_threads(arch, resources.registers)
    for attribute, payload in code.attributes(f".nv.info.{entry}"):
        if attribute in _THREADS and len(payload) >= 12:
            most = min(most, math.prod(struct.unpack_from("<3I", payload)))
    return most
