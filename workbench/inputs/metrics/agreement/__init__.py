"""How two models' outputs agree, by what an output means: one module for each kind of meaning, one `Judge` each.

    judges = judges_of(uses)
    numerators, denominators = judges[0].judge(outputs, reference, batch)      # [n, metrics]

A judge looks at one output (boxes at two or three) and gives its metrics sample by sample, the primary one first.
No thresholds of a sweep live here, and nothing that knows of candidates.
"""

from workbench.inputs.metrics.agreement.judges import AGAINST, MEANINGS
from workbench.inputs.metrics.agreement.readings import reading_of

__all__ = ["AGAINST", "MEANINGS", "reading_of"]
