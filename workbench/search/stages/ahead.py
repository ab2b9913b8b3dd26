"""What of a candidate can be made without a card, before a card is free for it: calibrated, lowered, compiled.

The evaluation finds the files in the store. What cannot be made is left to it too, as it is the one that tells.
"""

from __future__ import annotations

import logging

from workbench.evaluation.bench import Bench
from workbench.evaluation.build import artifact_of, structure_of
from workbench.evaluation.shared_shapes import only_shapes
from workbench.inputs.experiment import Experiment
from workbench.search.deferred import audit_failed, known_times
from workbench.search.stages.predict import first_shape, may_wait, telling_shapes
from workbench.search.stages.request import Progress, Request
from workbench.values.candidate import Candidate
from workbench.values.errors import CandidateError
from workbench.values.results import StageTiming

_log = logging.getLogger(__name__)

SHAPES_AHEAD = 3
"""Of a set that is predicted, and of whose structure no time is known, as many of the shapes that tell most."""


def made_ahead(
    experiment: Experiment, candidate: Candidate, bench: Bench, *, whole: bool = False
) -> tuple[StageTiming, ...]:
    """Compile what its evaluation will ask for first; the stages that took.

    Args:
        whole: every shape of its set, whatever could be predicted from less.
    """
    request = Request(experiment=experiment, candidate=candidate, bench=bench)
    steps = Progress(request)
    try:
        with steps.stage("check"):
            request.check()
        known = bench.journal.evaluations().values()
        if whole or not may_wait(experiment, candidate) or audit_failed(known):
            artifact_of(experiment, candidate, bench, steps, split="validation")
        else:
            one = only_shapes(candidate, [first_shape(candidate)])
            artifact_of(experiment, one, bench, steps, split="validation")
            if structure_of(experiment, candidate, bench) not in known_times(known):
                for shape in telling_shapes(candidate)[:SHAPES_AHEAD]:
                    artifact_of(experiment, only_shapes(candidate, [shape]), bench, steps, split="validation")
    except CandidateError as error:
        _log.debug("%s cannot be made ahead: %s", candidate.short_id, error)
    return tuple(steps.timings)
