"""`sanitise`: labels that ptxas refuses, renamed."""

from __future__ import annotations

import re

from ptxsearch.ptx import limits
from ptxsearch.ptx.tokens import Tokens

_DOTTED = re.compile(r"\.[A-Za-z_$][\w$]*", re.ASCII)


def sanitise(text: str) -> str:
    """The text with labels such as `.L_3` renamed to `$L_3`, definition and every use.

    Nothing else changes: qualifiers such as `.L1::evict_last`, directives, comments and strings
    stay. A new name avoids every word of the text. Applying it twice changes nothing more.
    """
    if len(text) > limits.SOURCE_BYTES or "." not in text:
        return text
    tokens = Tokens(text)
    labels = [
        word
        for word, following in zip(tokens.texts, tokens.texts[1:], strict=False)
        if following == ":" and _DOTTED.fullmatch(word)
    ]
    if not labels:
        return text
    names = _new_names(dict.fromkeys(labels), set(tokens.texts))
    parts: list[str] = []
    done = 0
    for word, start in zip(tokens.texts, tokens.starts, strict=True):
        if word in names:
            parts += (text[done:start], names[word])
            done = start + len(word)
    return "".join(parts) + text[done:]


def _new_names(labels: dict[str, None], taken: set[str]) -> dict[str, str]:
    names: dict[str, str] = {}
    for label in labels:
        name = "$" + label[1:]
        while name in taken:
            name += "_"
        taken.add(name)
        names[label] = name
    return names
