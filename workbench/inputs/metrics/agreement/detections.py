"""Agreement of detections: which of the float model's boxes are found again, after thresholds and suppression."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.inputs.dataset.batch import Batch
from workbench.inputs.metrics.agreement.boxes import Detections, detections_of, overlaps
from workbench.inputs.metrics.agreement.judge import Floats, Fractions, MetricSpec, Outputs, columns, number, option
from workbench.values.interface import OutputUse


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectionsJudge:
    """Boxes of one class match one to one, the best score first, where they overlap by at least `match` (0.5).

    A sample on which neither model finds anything says nothing.
    """

    use: OutputUse

    @property
    def reads(self) -> tuple[str, ...]:
        more = (str(option(self.use, name, "")) for name in ("scores", "labels"))
        return (self.use.name, *(name for name in more if name))

    @property
    def metrics(self) -> tuple[MetricSpec, ...]:
        return (
            MetricSpec(name="f1", about="of the float model's detections"),
            MetricSpec(name="recall", about="float model's detections that are found again"),
            MetricSpec(name="precision", about="detections that are the float model's too"),
            MetricSpec(name="matched_iou", about="mean overlap of detections that match"),
        )

    def judge(self, outputs: Outputs, reference: Outputs, batch: Batch) -> Fractions:
        least = number(self.use, "match", 0.5)
        both = zip(detections_of(self.use, outputs, batch), detections_of(self.use, reference, batch), strict=True)
        counts = np.array([_counts(ours, theirs, least) for ours, theirs in both], dtype=np.float64)
        matched, found, there, overlap = counts.T
        return columns((2 * matched, found + there), (matched, there), (matched, found), (overlap, matched))


def _counts(ours: Detections, theirs: Detections, least: float) -> tuple[int, int, int, float]:
    """Matched, found, there to find, and the sum of the matches' overlaps."""
    matched = match(ours, theirs, least)
    return int(np.count_nonzero(matched > 0)), len(ours.boxes), len(theirs.boxes), float(matched.sum())


def match(ours: Detections, theirs: Detections, least: float) -> Floats:
    """[k] overlap of each of our boxes with the one it is matched with; 0 where there is none.

    Each in the order of its score takes the box of its class that it overlaps most and nobody took before.
    """
    found = np.zeros(len(ours.boxes))
    if not len(ours.boxes) or not len(theirs.boxes):
        return found
    shared = overlaps(ours.boxes, theirs.boxes) * (ours.classes[:, None] == theirs.classes[None])
    for row in range(len(found)):
        best = int(shared[row].argmax())
        if shared[row, best] >= least and shared[row, best] > 0:
            found[row] = shared[row, best]
            shared[:, best] = 0.0
    return found
