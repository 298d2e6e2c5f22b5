"""What a cubin says of its entries beyond ptxas's own report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ptxsearch import sass
from ptxsearch.arch import block_threads
from ptxsearch.evaluation import Resources


def with_facts(cubin: bytes, reported: Mapping[str, Resources], arch: str) -> dict[str, Resources]:
    """The resources of each entry with the facts that only its machine code holds.

    `max_threads` is what the driver's function attribute gives: registers bound it as well as the
    entry's directives do.
    """
    known = sass.facts(cubin)
    return {entry: _joined(known.get(entry), took, arch) for entry, took in reported.items()}


def _joined(facts: sass.Facts | None, reported: Resources, arch: str) -> Resources:
    most = block_threads(arch, reported.registers)
    if facts is None:
        return replace(reported, max_threads=most)
    return replace(
        reported,
        max_threads=min(most, facts.max_threads or most),
        instructions=facts.instructions,
        opcodes=facts.opcodes,
        global_load_bits=facts.global_load_bits,
        global_store_bits=facts.global_store_bits,
        tensor=facts.tensor,
    )
