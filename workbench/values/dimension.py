"""Dimension: what a search space may say about one setting; a target brings those of its own settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Scalar = str | int | float | bool | None

FUSION_PREFIX = "compile.fusions."
"""A dimension 'compile.fusions.NAME' has the choices "on" and "off", its default first. What is not at its default
stands in the settings' `disabled_fusions` or `enabled_fusions`, sorted."""
MOST_BATCH, MOST_THREADS, MOST_LENGTH = 1 << 16, 1024, 1 << 20
"""Of what one call may hold and take: beyond any that pays."""
BINS_BY_WORD = (
    "optimal N: at most N lengths, those with the least padding for the dataset's texts (optimal 1: its max_length "
    "alone)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """What a parameter of that name means and which values exist at all.

    Attributes:
        words: texts that are choices beside values of `kind`.
        may_be_off: the word "off" is a choice too, and leaves the setting out.
        listed: a choice is a text of such values, separated by blanks: "32 64 128".
        lengths_in: the numbers are padded lengths, and "optimal 4" stands for multiples of this that the lengths of the
            dataset's texts decide; 0 for other numbers.
        file: a choice is the path of a folder, relative to the space file; the setting is 'PATH@sha256 of all in it'.
        excludes: what cannot be chosen together with it, or makes it void.
        source: where the vendor says so, for a setting of the vendor's.
    """

    about: str
    values: tuple[Scalar, ...] = ()
    kind: type = str
    words: tuple[str, ...] = ()
    may_be_off: bool = False
    listed: Literal["", "texts", "numbers"] = ""
    lengths_in: int = 0
    file: Literal["", "folder"] = ""
    excludes: str = ""
    source: str = ""


HOST_THREADS: Mapping[str, Dimension] = {
    "serving.intra_op_threads": Dimension(about="threads inside one operator", kind=int)
}
"""Of a target that computes on the host."""
BETWEEN_LAYERS = Dimension(
    about="what lies between layers (additions, pooling, activations): float, or int8 where all scales are known",
    values=("float", "int8"),
)
"""Of a target that takes 8-bit tensors between layers."""
ANY_LENGTH: Mapping[str, Dimension] = {
    "serving.sequence_bins": Dimension(
        about="padded lengths that texts are grouped by and padded to; where it is not offered, the bins of the "
        "dataset's manifest. " + BINS_BY_WORD,
        listed="numbers",
        lengths_in=8,
    )
}
"""Of a target whose compiled files take any padded length."""
