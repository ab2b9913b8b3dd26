"""Dimension: what a search space may say about one setting; a target brings those of its own settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """What a parameter of that name means and which values exist at all.

    Attributes:
        targets: the only targets that know it; empty for all of them.
        words: texts that are choices beside values of `kind`.
        may_be_off: the word "off" is a choice too, and leaves the setting out.
        listed: a choice is a text of such values, separated by blanks: "32 64 128".
        lengths_in: the numbers are padded lengths, and "optimal 4" and "quantiles 4" stand for multiples of this that
            the lengths of the dataset's texts decide; 0 for other numbers.
        excludes: what cannot be chosen together with it, or makes it void.
        source: where the vendor says so, for a setting of the vendor's.
    """

    about: str
    values: tuple[Scalar, ...] = ()
    kind: type = str
    targets: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    may_be_off: bool = False
    listed: Literal["", "texts", "numbers"] = ""
    lengths_in: int = 0
    excludes: str = ""
    source: str = ""
