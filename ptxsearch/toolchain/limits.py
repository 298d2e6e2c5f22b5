"""What a source must keep to before any compiler sees it: sizes that would hang or fool one.

ptxas takes minutes for inputs far beyond any real kernel, and 32-bit sums of sizes wrap silently
(a `.shared` array of 10^12 bytes assembles).
"""

from __future__ import annotations

import re

SOURCE_BYTES = 1 << 20
INSTRUCTIONS = 50_000
REGISTERS = 100_000
IDENTIFIER = 1024
ENTRIES = 64
ARRAY_BYTES = 1 << 20

_REGISTERS = re.compile(r"<\s*(\d+)\s*>")
_ARRAY = re.compile(r"\.(shared|local)\b([^;={}()\[\]]*)((?:\[\s*\w+\s*\])+)")
_EXTENT = re.compile(r"\[\s*(\w+)\s*\]")
_WIDTH = re.compile(r"\.[bsuf](\d+)\b")
_SURROGATE = re.compile("[\ud800-\udfff]")
_LONG = re.compile(rf"[\w$]{{{IDENTIFIER + 1},}}")
_ENTRY = re.compile(r"\.entry\s+([\w$%]+)")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def refuse_text(source: str) -> str:
    """Why `source` is no text a compiler should get; empty when it is."""
    size = len(source.encode("utf-8", "surrogatepass"))
    if size > SOURCE_BYTES:
        return f"source of {size} bytes exceeds {SOURCE_BYTES}; write a shorter kernel"
    if "\x00" in source or _SURROGATE.search(source):
        return "source holds bytes that are no text; give CUDA C++ or PTX as UTF-8"
    if not source.strip():
        return "source is empty; give CUDA C++ or PTX"
    if match := _LONG.search(source):
        return f"a word of {len(match[0])} characters exceeds {IDENTIFIER}; use shorter names"
    return ""


def refuse_ptx(ptx: str) -> str:
    """Why `ptx` must not reach ptxas; empty when it may."""
    text = _COMMENT.sub(" ", ptx)
    if (count := text.count(";")) > INSTRUCTIONS:
        return f"{count} PTX statements exceed {INSTRUCTIONS}; unroll less"
    for match in _REGISTERS.finditer(text):
        if len(match[1]) > 9 or int(match[1]) > REGISTERS:
            return f"{match[1][:20]} virtual registers exceed {REGISTERS}; declare fewer"
    if len(entries(ptx)) > ENTRIES:
        return f"{len(entries(ptx))} entries exceed {ENTRIES}; split the module"
    for match in _ARRAY.finditer(text):
        size = _array_bytes(match[2], match[3])
        if size > ARRAY_BYTES:
            return (
                f".{match[1]} array of {size} bytes exceeds {ARRAY_BYTES}; "
                "no multiprocessor has as much"
            )
    return ""


def entries(ptx: str) -> tuple[str, ...]:
    """The names of the kernels that a PTX module defines, in order."""
    return tuple(dict.fromkeys(_ENTRY.findall(_COMMENT.sub(" ", ptx))))


def _array_bytes(declared: str, extents: str) -> int:
    width = _WIDTH.search(declared)
    size = int(width[1]) // 8 if width else 1
    for extent in _EXTENT.findall(extents):
        digits = extent.rstrip("uU")
        if not re.fullmatch(r"\d{1,30}|0[xX][0-9a-fA-F]{1,30}", digits):
            return 0
        size *= int(digits, 16 if digits[:2] in ("0x", "0X") else 10)
    return size
