"""The built-in proposer: edits that an engineer would try first, each with its precondition.

An edit rewrites the source of a template and adds a parameter to its space, so that the tuner
finds the value; none needs a model. An edit that does not apply to a kernel is not proposed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ptxsearch.kernel import Edit, Kernel, Launch, Proposal, Value
from ptxsearch.space import Space
from ptxsearch.tree import Node, TreeView

Rewrite = Callable[[Kernel], Kernel | None]

_ENTRY = re.compile(
    r"__global__\s+void\s+(?P<bounds>__launch_bounds__\s*\([^{;]*?\)\s*)?(?P<name>\w+)\s*\("
)
_POINTER = re.compile(r"\*\s*(?!__restrict__|const\b)(?P<name>[A-Za-z_]\w*)\s*(?=[,)])")
_LOOP = re.compile(r"^(?P<indent>[ \t]*)for\s*\(", re.MULTILINE)
_TILE = re.compile(
    r"__shared__\s+(?P<type>\w+)\s+(?P<name>\w+)\s*\[(?P<rows>[^\]]+)\]\s*\[(?P<columns>[^\]]+)\]\s*;"
)
_FAST_MATH = {
    "expf": "__expf",
    "logf": "__logf",
    "log2f": "__log2f",
    "sinf": "__sinf",
    "cosf": "__cosf",
    "powf": "__powf",
}
_SLOW_MATH = re.compile(rf"\b({'|'.join(_FAST_MATH)})\s*\(")
_STORE = re.compile(
    r"^(?P<indent>[ \t]*)(?P<target>\w+\s*\[[^;\]]+\])\s*=(?!=)\s*(?P<value>[^;]+);", re.M
)
_ELEMENT = {"float": 4, "double": 8, "int": 4, "unsigned": 4, "half": 2, "__half": 2, "char": 1}


@dataclass(frozen=True)
class MenuEdit:
    """One kind of edit: its strategy tag, what it does in a sentence, and how likely it helps."""

    strategy: str
    summary: str
    prior: float
    apply: Rewrite


class Menu:
    """Proposes the edits of `EDITS` that apply to a node and were not made on the way to it."""

    def __init__(self, edits: tuple[MenuEdit, ...] | None = None) -> None:
        self.edits = EDITS if edits is None else edits

    def propose(
        self, view: TreeView, node: Node, n: int, rng: np.random.Generator
    ) -> list[Proposal]:
        """Up to `n` edits not tried at `node`, the most promising first."""
        if node.kernel is None:
            return []
        made = {step.edit.strategy for step in view.lineage(node)}
        tried = {child.edit.strategy for child in view.children(node)}
        found: list[Proposal] = []
        for edit in sorted(self.edits, key=lambda e: (-e.prior, e.strategy)):
            if edit.strategy in made | tried:
                continue
            kernel = edit.apply(node.kernel)
            if kernel is not None:
                what = Edit(edit.strategy, edit.summary)
                found.append(Proposal("", node.id, kernel, what, prior=edit.prior))
            if len(found) == n:
                break
        return found


def grown(
    kernel: Kernel,
    source: str,
    name: str,
    choices: tuple[Value, ...],
    *,
    first: Value,
    restrictions: tuple[str, ...] = (),
) -> Kernel:
    """`kernel` with a new source and one more parameter, set to `first`."""
    space = kernel.space or Space(params={})
    wider = replace(
        space,
        params={**space.params, name: choices},
        restrictions=(*space.restrictions, *restrictions),
    )
    return replace(kernel, source=source, space=wider, values={**kernel.values, name: first})


def _fresh(kernel: Kernel, name: str) -> bool:
    return name not in kernel.values and not re.search(rf"\b{name}\b", kernel.source)


def bound_registers(kernel: Kernel) -> Kernel | None:
    """`__launch_bounds__(threads, MIN_BLOCKS)` on every entry; needs threads as C text."""
    if kernel.language != "cuda" or not _fresh(kernel, "MIN_BLOCKS"):
        return None
    threads = {launch.entry: _threads(launch, kernel) for launch in kernel.launches}
    if not all(threads.values()):
        return None

    def bound(match: re.Match[str]) -> str:
        text = threads.get(match["name"])
        if text is None:
            return match[0]
        return f"__global__ void __launch_bounds__({text}, MIN_BLOCKS) {match['name']}("

    source, count = _ENTRY.subn(bound, kernel.source)
    if not count:
        return None
    limits = tuple(f"MIN_BLOCKS * ({text}) <= 2048" for text in dict.fromkeys(threads.values()))
    known = set(kernel.space.params if kernel.space else ()) | {"MIN_BLOCKS"}
    usable = tuple(limit for limit in limits if limit and _only(limit, known))
    return grown(kernel, source, "MIN_BLOCKS", (1, 2, 3, 4, 6, 8), first=2, restrictions=usable)


def _only(text: str | None, known: set[str]) -> bool:
    return set(re.findall(r"[A-Za-z_]\w*", text or "")) <= known


def _threads(launch: Launch, kernel: Kernel) -> str | None:
    """Threads of a block as C text: products of values and numbers only."""
    parts = [part for part in launch.block if part != "1"]
    text = " * ".join(f"({part})" for part in parts) or "1"
    plain = re.fullmatch(r"[\w\s*+()-]+", text) is not None
    names = set(re.findall(r"[A-Za-z_]\w*", text))
    return text if plain and names <= set(kernel.values) else None


def restrict_pointers(kernel: Kernel) -> Kernel | None:
    """`__restrict__` on the pointers of every entry, so that loads may be cached and moved."""
    if kernel.language != "cuda":
        return None
    pieces, last = [], 0
    for match in _ENTRY.finditer(kernel.source):
        end = kernel.source.find(")", match.end())
        params = kernel.source[match.end() : end + 1]
        pieces += [
            kernel.source[last : match.end()],
            _POINTER.sub(lambda m: f"* __restrict__ {m['name']}", params),
        ]
        last = end + 1
    source = "".join(pieces) + kernel.source[last:]
    return replace(kernel, source=source) if source != kernel.source else None


def unroll_loops(kernel: Kernel) -> Kernel | None:
    """`#pragma unroll UNROLL` on loops that carry none; the value is a parameter."""
    if kernel.language != "cuda" or not _fresh(kernel, "UNROLL"):
        return None
    lines = kernel.source.split("\n")
    out: list[str] = []
    for line in lines:
        match = _LOOP.match(line)
        pragma = bool(out) and out[-1].lstrip().startswith("#pragma")
        if match and not pragma:
            out.append("#pragma unroll UNROLL")
        out.append(line)
    source = "\n".join(out)
    if source == kernel.source:
        return None
    return grown(kernel, source, "UNROLL", (1, 2, 4, 8, 16), first=4)


def parametrise_block(kernel: Kernel) -> Kernel | None:
    """A literal block size becomes BLOCK, in the grid too; the source must not repeat it."""
    if len(kernel.launches) != 1 or not _fresh(kernel, "BLOCK"):
        return None
    launch = kernel.launches[0]
    literal = launch.block[0]
    if not literal.isdigit() or int(literal) < 32 or launch.block[1:] != ("1", "1"):
        return None
    number = re.compile(rf"\b{literal}\b")
    if number.search(kernel.source) or not any(number.search(part) for part in launch.grid):
        return None
    grid = (
        number.sub("BLOCK", launch.grid[0]),
        number.sub("BLOCK", launch.grid[1]),
        number.sub("BLOCK", launch.grid[2]),
    )
    moved = replace(kernel, launches=(replace(launch, grid=grid, block=("BLOCK", "1", "1")),))
    choices = tuple(sorted({64, 128, 256, 512, 1024, int(literal)}))
    first = 512 if literal != "512" else 256
    return grown(moved, kernel.source, "BLOCK", choices, first=first)


def pad_tiles(kernel: Kernel) -> Kernel | None:
    """Padding columns on two-dimensional shared arrays against bank conflicts.

    Where the source moves vectors, the padding keeps rows aligned to the widest of them.
    """
    if kernel.language != "cuda" or not _fresh(kernel, "PADDING"):
        return None
    if re.search(r"__shared__[^;]*\[[^\]]*(PAD|\+\s*1)[^\]]*\]\s*;", kernel.source):
        return None
    tiles = list(_TILE.finditer(kernel.source))
    if not tiles:
        return None
    source = _TILE.sub(
        lambda m: f"__shared__ {m['type']} {m['name']}[{m['rows']}][({m['columns']}) + PADDING];",
        kernel.source,
    )
    element = min(_ELEMENT.get(m["type"], 4) for m in tiles)
    widest = 16 if re.search(r"\b(float4|int4|uint4|double2)\b", kernel.source) else element
    step = max(1, widest // element)
    return grown(kernel, source, "PADDING", (0, step, 2 * step), first=step)


def approximate_math(kernel: Kernel) -> Kernel | None:
    """Hardware approximations of exp, log, sin and cos; the tolerance decides if they may stay."""
    if kernel.language != "cuda" or not _SLOW_MATH.search(kernel.source):
        return None
    source = _SLOW_MATH.sub(lambda m: f"{_FAST_MATH[m[1]]}(", kernel.source)
    return replace(kernel, source=source) if source != kernel.source else None


def stream_stores(kernel: Kernel) -> Kernel | None:
    """Stores through `__stcs`, which leave L2 to data that is read again."""
    if kernel.language != "cuda" or "__stcs" in kernel.source:
        return None
    # Parameters of entries alone: another pointer may lead to shared or local memory.
    outputs: set[str] = set()
    for match in _ENTRY.finditer(kernel.source):
        params = kernel.source[match.end() : kernel.source.find(")", match.end())]
        for param in params.split(","):
            found = re.search(r"\bfloat\s*\*\s*(?:__restrict__\s*)?(\w+)\s*$", param)
            if found and "const" not in param:
                outputs.add(found[1])

    def stream(match: re.Match[str]) -> str:
        name = re.match(r"\w+", match["target"])
        if name is None or name[0] not in outputs:
            return match[0]
        return f"{match['indent']}__stcs(&{match['target']}, {match['value']});"

    source = _STORE.sub(stream, kernel.source)
    return replace(kernel, source=source) if source != kernel.source else None


def cap_ptx_registers(kernel: Kernel) -> Kernel | None:
    """`.minnctapersm` beside `.maxntid` on PTX entries: ptxas then trades registers for blocks."""
    if kernel.language != "ptx" or not _fresh(kernel, "MIN_BLOCKS"):
        return None
    if len(kernel.launches) != 1 or ".minnctapersm" in kernel.source:
        return None
    threads = _threads(kernel.launches[0], kernel)
    if threads is None or not re.fullmatch(r"\((\w+)\)", threads):
        return None
    name = threads[1:-1]
    size = name if name.isdigit() else "${" + name + "}"
    head = f".maxntid {size}, 1, 1\n.minnctapersm ${{MIN_BLOCKS}}\n"
    if ".maxntid" in kernel.source:
        head = ".minnctapersm ${MIN_BLOCKS}\n"
    source, count = re.subn(r"(\.entry\s+\w+\s*\([^)]*\)[^{]*)\{", rf"\1{head}{{", kernel.source)
    if count != 1:
        return None
    limits = (f"MIN_BLOCKS * {name} <= 2048",) if not name.isdigit() else ()
    return grown(kernel, source, "MIN_BLOCKS", (1, 2, 3, 4, 6, 8), first=2, restrictions=limits)


def read_only_loads(kernel: Kernel) -> Kernel | None:
    """`ld.global.nc` for PTX loads of a kernel whose entries store to other pointers only."""
    if kernel.language != "ptx" or "ld.global.nc" in kernel.source:
        return None
    stored = set(
        re.findall(r"\b(?:st|red|atom)\.global[\w.]*\s+(?:%?\w+,\s*)?\[(%\w+)", kernel.source)
    )
    source = re.sub(
        r"\bld\.global\.(?=[\w.]+\s+[^;]*\[(%\w+))",
        lambda m: m[0] if m[1] in stored else "ld.global.nc.",
        kernel.source,
    )
    return replace(kernel, source=source) if source != kernel.source else None


EDITS: tuple[MenuEdit, ...] = (
    MenuEdit("block_size", "make the block size a parameter", 0.9, parametrise_block),
    MenuEdit("pad_shared", "pad shared tiles against bank conflicts", 0.8, pad_tiles),
    MenuEdit("unroll", "unroll loops by a parameter", 0.7, unroll_loops),
    MenuEdit("restrict", "declare pointers free of aliases", 0.6, restrict_pointers),
    MenuEdit("launch_bounds", "bound registers for more resident blocks", 0.5, bound_registers),
    MenuEdit("ptx_launch_bounds", "bound registers in PTX", 0.5, cap_ptx_registers),
    MenuEdit("read_only_loads", "load through the read-only path", 0.4, read_only_loads),
    MenuEdit("fast_math", "use hardware approximations", 0.4, approximate_math),
    MenuEdit("streaming_stores", "store past the cache", 0.3, stream_stores),
)
