"""PTX text and what can be told from it.

`parse` gives a `Module` of the records in `syntax`, or a `SyntaxFault`; `render` writes it back.
`sanitise` mends labels that ptxas refuses, `lint` tells what a launch of the module must not do,
`normalise` gives one text for all modules that differ in names and layout alone.
"""

from __future__ import annotations

from ptxsearch.ptx.canonical import normalise
from ptxsearch.ptx.finding import Finding
from ptxsearch.ptx.labels import sanitise
from ptxsearch.ptx.parser import parse
from ptxsearch.ptx.render import render
from ptxsearch.ptx.rules import lint
from ptxsearch.ptx.syntax import Module, SyntaxFault

__all__ = ["Finding", "Module", "SyntaxFault", "lint", "normalise", "parse", "render", "sanitise"]
