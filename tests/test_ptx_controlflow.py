"""Control flow: blocks, loops and dominators of functions drawn by hand."""

from __future__ import annotations

from ptxsearch.ptx.controlflow import EXIT, ControlFlow
from tests.ptx_corpus import entry, module, source

# 0 head -> 1 body -> 0; 0 -> 2 tail, which branches over 3 to 4.
LOOP = """
.reg .pred p; .reg .b32 x;
HEAD: add.u32 x, x, 1;
@p bra TAIL;
mov.b32 x, 2;
bra HEAD;
TAIL: mov.b32 x, 3;
@!p bra END;
mov.b32 x, 4;
END: ret;
"""


def flow(body: str) -> ControlFlow:
    """The control flow of one entry around a body."""
    return ControlFlow(module(entry(body)).functions["k"])


def test_blocks_and_edges_of_a_loop() -> None:
    """Blocks end at branches and begin at labels; edges go to the target and fall through."""
    blocks = flow(LOOP).blocks
    assert [(b.start, b.end) for b in blocks] == [(0, 2), (2, 4), (4, 6), (6, 7), (7, 8)]
    assert [set(b.successors) for b in blocks] == [{1, 2}, {0}, {3, 4}, {4}, {EXIT}]


def test_back_edges_loops_and_dominators() -> None:
    """The one edge back to the head makes a loop of head and body."""
    found = flow(LOOP)
    assert found.back_edges == {(1, 0)}
    assert found.loops == {0: {0, 1}}
    assert found.dominators == {0: 0, 1: 0, 2: 0, 3: 2, 4: 2}
    assert found.post_dominators == {0: 2, 1: 0, 2: 4, 3: 4, 4: EXIT}


def test_endless_loop_has_no_post_dominator() -> None:
    """A block that never ends is in no post-dominator tree, and what follows is unreachable."""
    found = flow("L: bra L; ret;")
    assert found.post_dominators.get(0) is None
    assert found.reachable == {0}


def test_indexed_branch_reaches_every_target() -> None:
    """`brx.idx` has one edge for each label of its table."""
    function = module(source("ptx_brx_table")).functions["ptx_brx_table"]
    found = ControlFlow(function)
    at = next(i for i, ins in enumerate(function.instructions) if ins.opcode == "brx")
    block = found.blocks[found.block_of(at)]
    targets = {function.labels[name] for name in ("L0", "L1", "L2")}
    assert {found.blocks[number].start for number in block.successors} == targets


def test_empty_body_and_guarded_exit() -> None:
    """A function without instructions has no blocks; a guarded `ret` also falls through."""
    assert flow("").blocks == ()
    assert flow("").reachable == frozenset()
    assert flow(".reg .pred p; @p ret; exit;").blocks[0].successors == (EXIT, 1)
