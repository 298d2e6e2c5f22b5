"""Basic blocks of a function and what follows from their graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ptxsearch.ptx.syntax import Function, Instruction, Name

if TYPE_CHECKING:
    # It takes a tenth of a second to import: at run time only where a graph is asked for.
    import networkx as nx

EXIT = -1
_ENDS = frozenset({"ret", "exit", "trap"})


@dataclass(frozen=True, slots=True)
class Block:
    """Instructions `start` up to, not including, `end`; `successors` are block numbers or EXIT."""

    start: int
    end: int
    successors: tuple[int, ...]


class ControlFlow:
    """The basic blocks of `function` in source order; block 0 is the entry."""

    def __init__(self, function: Function) -> None:
        self.function = function
        starts = _leaders(function)
        number = {start: position for position, start in enumerate(starts)}
        ends = [*starts[1:], len(function.instructions)] if starts else []
        self.blocks = tuple(
            Block(start, end, tuple(_successors(function, end, number)))
            for start, end in zip(starts, ends, strict=True)
        )

    @cached_property
    def graph(self) -> nx.DiGraph[int]:
        """Block numbers and EXIT with an edge to each successor."""
        import networkx as nx

        graph: nx.DiGraph[int] = nx.DiGraph()
        graph.add_nodes_from((*range(len(self.blocks)), EXIT))
        for position, block in enumerate(self.blocks):
            graph.add_edges_from((position, successor) for successor in block.successors)
        return graph

    def block_of(self, index: int) -> int:
        """The number of the block that holds an instruction."""
        low, high = 0, len(self.blocks)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.blocks[middle].start <= index else (low, middle)
        return low

    @cached_property
    def reachable(self) -> frozenset[int]:
        """Blocks that control can reach from the entry."""
        import networkx as nx

        found = nx.descendants(self.graph, 0) | {0} if self.blocks else ()
        return frozenset(found) - {EXIT}

    @cached_property
    def dominators(self) -> dict[int, int]:
        """The immediate dominator of each reachable block; the entry's is itself."""
        import networkx as nx

        if not self.blocks:
            return {}
        found = nx.immediate_dominators(self.graph, 0)
        return {block: found[block] for block in found if block not in (0, EXIT)} | {0: 0}

    @cached_property
    def post_dominators(self) -> dict[int, int]:
        """The immediate post-dominator (a block or EXIT) of each block that can end."""
        import networkx as nx

        found = dict(nx.immediate_dominators(self.graph.reverse(copy=False), EXIT))
        return {block: found[block] for block in found if block != EXIT}

    @cached_property
    def back_edges(self) -> frozenset[tuple[int, int]]:
        """Edges (from, to) into a block that dominates their start: one a way round a loop."""
        return frozenset(
            (start, end)
            for start, end in self.graph.edges
            if end != EXIT and start in self.reachable and self._dominates(end, start)
        )

    @cached_property
    def loops(self) -> dict[int, frozenset[int]]:
        """The blocks of each natural loop by its header."""
        found: dict[int, frozenset[int]] = {}
        for start, header in self.back_edges:
            body, waiting = {header}, [start]
            while waiting:
                block = waiting.pop()
                if block not in body:
                    body.add(block)
                    waiting += self.graph.predecessors(block)
            found[header] = found.get(header, frozenset()) | body
        return found

    @cached_property
    def _spans(self) -> dict[int, tuple[int, int]]:
        """When a walk of the dominator tree enters and leaves each block."""
        import networkx as nx

        tree: nx.DiGraph[int] = nx.DiGraph()
        tree.add_node(0)
        tree.add_edges_from((above, block) for block, above in self.dominators.items() if block)
        entered: dict[int, int] = {}
        spans: dict[int, tuple[int, int]] = {}
        for clock, (_, block, way) in enumerate(nx.dfs_labeled_edges(tree, 0)):
            if way == "forward":
                entered[block] = clock
            elif way == "reverse":
                spans[block] = (entered[block], clock)
        return spans

    def _dominates(self, block: int, other: int) -> bool:
        first, last = self._spans[block]
        return first <= self._spans[other][0] <= last


def _leaders(function: Function) -> list[int]:
    count = len(function.instructions)
    leaders = {0, *(index for index in function.labels.values() if index < count)}
    for index, instruction in enumerate(function.instructions):
        if index + 1 < count and (instruction.opcode in _ENDS or _jumps(instruction)):
            leaders.add(index + 1)
    return sorted(leaders) if count else []


def _jumps(instruction: Instruction) -> bool:
    return instruction.opcode in ("bra", "brx")


def targets(function: Function, instruction: Instruction) -> tuple[str, ...]:
    """The labels that a branch may go to, none for other instructions."""
    if not _jumps(instruction) or not instruction.operands:
        return ()
    last = instruction.operands[-1]
    if not isinstance(last, Name):
        return ()
    return function.tables.get(last.name, ()) if instruction.opcode == "brx" else (last.name,)


def _successors(function: Function, end: int, number: dict[int, int]) -> Iterator[int]:
    """Where control goes from the block that ends ahead of instruction `end`."""
    count = len(function.instructions)
    last = function.instructions[end - 1]
    falls = last.guard is not None or not (last.opcode in _ENDS or _jumps(last))
    seen: dict[int, None] = {}
    for label in targets(function, last):
        index = function.labels.get(label, count)
        seen[number[index] if index < count else EXIT] = None
    if last.opcode in _ENDS:
        seen[EXIT] = None
    if falls:
        seen[number[end] if end < count else EXIT] = None
    yield from seen
