"""Greedy answers to prompts: where a model first says another token than the float model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from workbench.values.measurement import Estimate
from workbench.values.significance import mcnemar


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerAgreement:
    """Attributes:
    same: share of prompts whose whole answers are equal, with Tango's interval.
    first_different: of each prompt the token, counted from 0, at which the answers part; None where they are equal.
    kept: share of the float model's tokens before the answers part, over all prompts.
    """

    prompts: int
    tokens: int
    same: Estimate
    first_different: tuple[int | None, ...]
    kept: float


def compare_continuations(
    reference: Sequence[torch.Tensor], given: Sequence[torch.Tensor], *, tokens: int
) -> AnswerAgreement:
    """A model's answers beside the float model's.

    One rounding turns an answer where two tokens are nearly as likely, and all behind it differ; so equal answers say
    much, and different ones little.

    Args:
        reference, given: ids behind each prompt, [n] each.
        tokens: that were asked for.
    """
    parts = [_parting(ours.tolist(), theirs.tolist()) for ours, theirs in zip(reference, given, strict=True)]
    same = np.array([part is None for part in parts])
    drop = mcnemar(np.ones(len(same), dtype=np.bool_), same).drop_pp
    total = sum(len(each) for each in reference)
    before = sum(
        len(ours) if part is None else min(part, len(ours)) for ours, part in zip(reference, parts, strict=True)
    )
    return AnswerAgreement(
        prompts=len(parts),
        tokens=tokens,
        same=Estimate(value=float(same.mean()), low=max(1 - drop.high / 100, 0.0), high=min(1 - drop.low / 100, 1.0)),
        first_different=tuple(parts),
        kept=before / total if total else 1.0,
    )


def _parting(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    if list(ours) == list(theirs):
        return None
    shared = min(len(ours), len(theirs))
    return next((place for place in range(shared) if ours[place] != theirs[place]), shared)
