"""PTX text and what can be told from it.

`parse` gives a `Module` of the records in `syntax`, or a `SyntaxFault`.
"""

from __future__ import annotations

from ptxsearch.ptx.parser import parse
from ptxsearch.ptx.syntax import Module, SyntaxFault

__all__ = ["Module", "SyntaxFault", "parse"]
