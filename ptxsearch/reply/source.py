"""Device code in an answer: which block is the kernel, its entries, mechanical mends.

The mends change no meaning: they supply what a compiler needs and models often leave out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice

from ptxsearch.reply.text import Fence

CUDA_TAGS = frozenset({"cuda", "cu", "c++", "cpp", "cc", "c", "cuda-c", "cuda-cpp", "cuda_cpp"})
PTX_TAGS = frozenset({"ptx", "asm", "nvptx", "assembly"})

_QUALIFIED = re.compile(r"__\w+__\s*\(|alignas\s*\(")
_CALLED = re.compile(r"([A-Za-z_]\w*)\s*\(")
_LONGEST_HEAD = 600
_MOST_ENTRIES = 64
_PTX_ENTRY = re.compile(r"\.entry\s+([A-Za-z_$%][\w$]*)")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_ELIDED = re.compile(
    r"(?://|/\*)[ \t]*(?:\.\.\.|…)[^\n]{0,20}\b(?:rest|remain\w*|existing|previous|unchanged|same"
    r"|omitted|other)\b"
    r"|(?://|/\*)[^\n]{0,60}\b(?:rest of the (?:code|kernel)|existing code|code unchanged)\b"
    r"|^[ \t]*(?:\.\.\.|…)[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
_GLOBAL = re.compile(r"^([ \t]*)((?:template\s*<[^\n]*>\s*)?)(__global__)", re.MULTILINE)
_PTX_HEADER = ".version 8.0\n.target {arch}\n.address_size 64\n\n"


def is_ptx(code: str) -> bool:
    """Whether the text is PTX."""
    return ".entry" in code and "__global__" not in code


def entries(code: str) -> tuple[str, ...]:
    """The names of the kernels that `code` defines, in order."""
    plain = uncommented(code)
    if is_ptx(code):
        return tuple(dict.fromkeys(_PTX_ENTRY.findall(plain)))
    heads = (
        plain[mark.end() : mark.end() + _LONGEST_HEAD]
        for mark in islice(re.finditer(r"\b__global__\b", plain), _MOST_ENTRIES)
    )
    return tuple(dict.fromkeys(name for head in heads if (name := _entry_name(head))))


def _entry_name(head: str) -> str:
    """The name that `head`, the text after `__global__`, declares; attributes are skipped."""
    while attribute := _QUALIFIED.search(head):
        name = _CALLED.search(head)
        if name is not None and name.start() < attribute.start():
            break
        depth, place = 1, attribute.end()
        while depth and place < len(head):
            depth += (head[place] == "(") - (head[place] == ")")
            place += 1
        head = head[place:]
    name = _CALLED.search(head)
    return name[1] if name is not None else ""


def uncommented(code: str) -> str:
    """`code` without comments."""
    return _COMMENT.sub(" ", code)


def elided(code: str) -> str:
    """The comment that stands for left-out code; empty where nothing is left out."""
    match = _ELIDED.search(code)
    return match[0].strip() if match else ""


def kernel_fence(blocks: Iterable[Fence], launched: Iterable[str]) -> Fence | None:
    """The block that holds the kernel: it defines what is launched, or else the longest entry."""
    wanted = set(launched)
    holding = [block for block in blocks if entries(block.text)]
    if not holding:
        return None
    return max(
        reversed(holding),
        key=lambda block: (bool(wanted & set(entries(block.text))), len(block.text)),
    )


def bare_code(text: str) -> str:
    """Device code of an answer without fences: from its first code line on; empty where none."""
    match = re.search(r"^[ \t]*(?:\.version|\.visible|\.entry|extern\s+\"C\"|__global__|#include|"
                      r"#define|template\s*<)", text, re.MULTILINE)  # fmt: skip
    code = text[match.start() :] if match else ""
    return code if entries(code) else ""


def mend(code: str, *, arch: str) -> str:
    """`code` with C linkage for CUDA entries, or with a header for PTX that lacks one."""
    if is_ptx(code):
        headed = re.search(r"^\s*\.version\b", code, re.MULTILINE)
        return code if headed else _PTX_HEADER.format(arch=arch) + code
    if re.search(r'extern\s+"C"\s*\{', code):
        return code
    return _GLOBAL.sub(_with_linkage, code)


def _with_linkage(match: re.Match[str]) -> str:
    # A template cannot have C linkage; an entry that has it already does not start its line.
    if match[2]:
        return match[0]
    above = match.string[max(0, match.start() - 200) : match.start()].rstrip()
    line = above.rpartition("\n")[2].lstrip()
    if line.endswith('extern "C"') or line.startswith("template"):
        return match[0]
    return f'{match[1]}extern "C" {match[3]}'


def identifiers(code: str) -> frozenset[str]:
    """Every identifier that `code` uses and does not `#define` itself."""
    plain = uncommented(code)
    defined = set(re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", plain, re.MULTILINE))
    return frozenset(re.findall(r"\b[A-Za-z_]\w*\b", plain)) - defined
