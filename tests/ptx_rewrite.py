"""Rewrites of PTX text that leave the machine code alone, made from its tokens."""

from __future__ import annotations

import re
from collections.abc import Callable

from ptxsearch.ptx.tokens import Tokens
from ptxsearch.ptx.vocabulary import OPCODES

_OUTSIDE = {"vprintf", "__assertfail"}


def declared_registers(text: str) -> set[str]:
    """Names of the registers a text declares, ranges by their prefix with `<`."""
    names: set[str] = set()
    for match in re.finditer(r"\.reg\s+(?:\.v\d\s+)?\.\w+\s+([^;()]+)[;)]", text):
        for name in re.sub(r"\.reg\s+\.\w+", "", match[1]).split(","):
            names.add(re.sub(r"<.*", "<", name.strip()))
    return names


def declared_labels(text: str) -> set[str]:
    """Names followed by a colon."""
    return set(re.findall(r"([\w$%]+):(?!:)", re.sub(r'//[^\n]*|"[^"\n]*"', "", text)))


def declared_objects(text: str) -> set[str]:
    """Names of functions, parameters and variables, without those defined elsewhere."""
    plain = re.sub(r"//[^\n]*", "", text)
    names = set(re.findall(r"\.(?:entry|func)\s+(?:\([^)]*\)\s*)?([\w$]+)", plain))
    spaces = (
        r"\.(?:param|shared|local|global|const)\b((?:\s*\.\w+(?:\s+\d+)?)+)\s*([A-Za-z_$][\w$]*)"
    )
    names |= {match[2] for match in re.finditer(spaces, plain)}
    return names - _OUTSIDE - {"_"}


def _renamed(text: str, names: set[str], new: Callable[[str], str]) -> str:
    """The text with every token among the names replaced; `x<` stands for x and digits."""
    prefixes = {name[:-1] for name in names if name.endswith("<")}
    tokens = Tokens(text)
    parts, done = [], 0
    for word, start in zip(tokens.texts, tokens.starts, strict=True):
        base, dot, part = word.partition(".")
        number = re.fullmatch(r"(.*?)(\d*)", base)
        if dot and base in OPCODES:
            continue
        if base in names:
            base = new(base)
        elif number and number[1] in prefixes:
            base = new(number[1]) + number[2]
        else:
            continue
        parts += [text[done:start], base + dot + part]
        done = start + len(word)
    return "".join(parts) + text[done:]


def rename_registers(text: str) -> str:
    """Every register under another name."""
    return _renamed(text, declared_registers(text), lambda n: "%zz_" + n.lstrip("%") + "_")


def rename_labels(text: str) -> str:
    """Every label under another name."""
    return _renamed(text, declared_labels(text), lambda n: "ZL_" + n.lstrip("$%"))


def rename_objects(text: str) -> str:
    """Every function, parameter and variable under another name."""
    return _renamed(text, declared_objects(text), lambda n: "obj_" + n.lstrip("$%"))


def spread_out(text: str) -> str:
    """Each token on a line of its own between comments; ptxas wants `.version 8.0` on one line."""
    version, number, *words = Tokens(text).texts
    return " /* ; { */\n// %r1 ret;\n".join([f"{version} {number}", *words]) + "\n"


def reorder_declarations(text: str) -> str:
    """Neighbouring lines that declare registers, or module tables, in reverse order."""
    lines = text.split("\n")
    for start in (r"\s*\.reg\b", r"\.global\b.*;"):
        done = 0
        while done < len(lines):
            end = done
            while end < len(lines) and re.match(start, lines[end]):
                end += 1
            lines[done:end] = lines[done:end][::-1]
            done = max(end, done + 1)
    return "\n".join(lines)


def add_line_information(text: str) -> str:
    """A `.loc` ahead of each instruction that begins a line."""
    lines = text.split("\n")
    for at, line in enumerate(lines):
        if re.match(r"\s+(?:@!?[%\w]+\s+)?[a-z]+\w*(?:\.\w|\s).*;", line) and "{" not in line:
            lines[at] = f"\t.loc 77 {at + 1} 0\n{line}"
    head = next(at for at, line in enumerate(lines) if line.startswith(".address_size"))
    lines.insert(head + 1, '.file 77 "elsewhere.cu"')
    return "\n".join(lines)


def add_dead_code(text: str) -> str:
    """A value that nothing reads ahead of each last `ret`, and a block behind it."""
    dead = "\tmov.u32 zdead, 77;\n\tadd.u32 zdead, zdead2, 3;\n"
    behind = "\tmul.lo.u32 zdead, zdead2, 5;\n\tbar.sync 0;\n\tret;\n"
    parts = re.split(r"(?m)^(\s*(?:ret|exit);[^\n]*\n\s*\})", text)
    for at in range(1, len(parts), 2):
        head, tail = re.fullmatch(r"(?s)(\s*(?:ret|exit);[^\n]*\n)(\s*\})", parts[at]).groups()  # type: ignore[union-attr]
        parts[at] = f"\t.reg .u32 zdead, zdead2;\n{dead}{head}{behind}{tail}"
    return "".join(parts)


REWRITES = (
    rename_registers,
    rename_labels,
    rename_objects,
    spread_out,
    reorder_declarations,
    add_line_information,
    add_dead_code,
)
