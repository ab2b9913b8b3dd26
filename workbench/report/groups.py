"""Compact letters: members that share a letter cannot be told apart.

"Cannot be told apart" is not transitive: a fast one may be like a middling one, which is like a slow one, while fast
and slow differ for certain. Cutting such a chain into groups would claim a difference that nobody measured. The
letter display of multiple comparisons (Piepho, Journal of Computational and Graphical Statistics 13, 2004, 456-466)
gives one letter to each largest set of members that are all alike, so a member may carry several.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator


def letters(count: int, alike: Callable[[int, int], bool]) -> list[str]:
    """For members 0..count-1 their letters, in the order of the members; empty for one that is like no other.

    Args:
        alike: symmetric; asked once per pair i < j.
    """
    neighbours: list[set[int]] = [set() for _ in range(count)]
    for i in range(count):
        for j in range(i + 1, count):
            if alike(i, j):
                neighbours[i].add(j)
                neighbours[j].add(i)
    groups = sorted(sorted(g) for g in _largest_groups(neighbours, set(), set(range(count)), set()) if len(g) > 1)
    marks = [""] * count
    for number, group in enumerate(groups):
        for member in group:
            marks[member] += _letter(number)
    return marks


def _largest_groups(
    neighbours: list[set[int]], group: set[int], possible: set[int], done: set[int]
) -> Iterator[set[int]]:
    """Maximal cliques (Bron and Kerbosch, Communications of the ACM 16, 1973, algorithm 457, with a pivot)."""
    if not possible and not done:
        yield group
        return
    pivot = max(possible | done, key=lambda v: (len(neighbours[v] & possible), -v), default=None)
    for v in sorted(possible - (neighbours[pivot] if pivot is not None else set())):
        yield from _largest_groups(neighbours, group | {v}, possible & neighbours[v], done & neighbours[v])
        possible = possible - {v}
        done = done | {v}


def _letter(number: int) -> str:
    """a … z, then a1 … z1, and so on."""
    round_, place = divmod(number, len(string.ascii_lowercase))
    return string.ascii_lowercase[place] + (str(round_) if round_ else "")
