"""Promotion: may this bundle take the place of that one? Checks with a figure, a limit and a reason each.

    verdict = evaluate(candidate, current, limits=Limits(), load=load_once)
    verdict.passed            # nothing failed; what was not checked says why

Both bundles must be sound here (every byte, golden samples replayed). Their accuracies are compared sample by sample,
their services under load in turns. What cannot be compared has not passed: a gate that is open by absence is none.
"""

from workbench.shipping.promotion.gate import LoadOnce, evaluate
from workbench.shipping.promotion.verdict import Check, Limits, LoadRound, Verdict

__all__ = ["Check", "Limits", "LoadOnce", "LoadRound", "Verdict", "evaluate"]
