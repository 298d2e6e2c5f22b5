"""Ideas in order of promise, without those that say what was said before."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ptxsearch.kernel import Idea
from ptxsearch.tree import Node

SAME = 0.6
_FIRST_STRATEGIES = 5
_REPEATED = 0.7
_FLOOR = 0.05
# Words that every idea uses tell nothing apart.
_EMPTY = frozenset(
    {"a", "an", "and", "the", "of", "to", "in", "for", "with", "per", "by", "on", "use", "using",
     "add", "into", "from", "kernel", "each", "more", "at", "as", "instead", "via", "make", "let",
     "its", "one"}
)  # fmt: skip


def worth(idea: Idea) -> float:
    """A number above 0 that orders ideas: the chance to be right times the gain if so."""
    low, middle, high = idea.gain
    expected = 0.3 * low + 0.4 * middle + 0.3 * high
    return _FLOOR + idea.p_correct * max(0.0, expected)


def words(text: str) -> frozenset[str]:
    """The telling words of a title, without endings."""
    found = re.findall(r"[a-z]+|\d+", text.lower())
    return frozenset(_stem(word) for word in found if word not in _EMPTY)


def _stem(word: str) -> str:
    for ending in ("ization", "isation", "izing", "ising", "ized", "ised", "ize", "ise", "ing",
                   "ed", "es", "s"):  # fmt: skip
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word.removesuffix(ending)
    return word


def similar(title: str, other: str) -> float:
    """The share of telling words that two titles have in common (Jaccard), 0 to 1."""
    mine, theirs = words(title), words(other)
    union = mine | theirs
    return len(mine & theirs) / len(union) if union else 1.0


def fresh(ideas: Iterable[Idea], known: Sequence[str]) -> list[Idea]:
    """The ideas whose title is not close to a known title or to one of an idea before it."""
    titles, kept = list(known), []
    for idea in ideas:
        if all(similar(idea.title, title) < SAME for title in titles):
            kept.append(idea)
            titles.append(idea.title)
    return kept


def best(ideas: Sequence[Idea], children: Sequence[Node], *, at_root: bool) -> Idea | None:
    """The idea to try next: the worthiest, strategies that were tried here counting less.

    The first five children of the root differ in strategy where the ideas allow it, because the
    families of a tree should not all follow one thought.
    """
    if not ideas:
        return None
    tried = [child.edit.strategy for child in children]
    pool = list(ideas)
    if at_root and len(set(tried)) < _FIRST_STRATEGIES:
        pool = [idea for idea in ideas if idea.strategy not in tried] or pool
    return max(
        pool,
        key=lambda idea: (
            worth(idea) * _REPEATED ** tried.count(idea.strategy),
            -ideas.index(idea),
        ),
    )
