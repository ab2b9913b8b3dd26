"""Every window of a split through a candidate's checkpoint, and what came of each beside the float model."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from workbench.evaluation.accuracy_pass import Growing
from workbench.evaluation.bench import Bench
from workbench.evaluation.build import artifact_of
from workbench.inputs.dataset.language import windows
from workbench.inputs.experiment import Experiment
from workbench.inputs.metrics import MeasuredOutcomes
from workbench.inputs.metrics.outcomes import measured
from workbench.targets.language import Scores, language_target
from workbench.values.artifact import Artifact
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import digest
from workbench.values.measurement import Split
from workbench.values.paired_scores import WindowOutcomes
from workbench.values.system.source_closure import closure_digest

NLL, KL, TOP1 = "nll", "kl", "top1_agreement"
_UNITS = {NLL: "nats", KL: "nats", TOP1: ""}
_BOUNDS = {NLL: None, KL: (0.0, None), TOP1: (0.0, 1.0)}
_PRIMARY = {"perplexity": NLL, "kl": KL}
"""What the dataset measures → what is kept of every window: a perplexity's logarithm is a mean."""


class WindowPass(Growing[MeasuredOutcomes]):
    """Outcomes of one candidate over a split, window by window.

    Candidates whose checkpoints give equal outputs share them: the key is what decides outputs, not the recipe.

    Attributes:
        key: of the outcomes over the whole split, 64 hex digits.
    """

    def __init__(
        self,
        experiment: Experiment,
        candidate: Candidate,
        bench: Bench,
        split: Split,
        *,
        artifact: Artifact,
        directory: Path,
    ) -> None:
        self.experiment, self.candidate, self.bench = experiment, candidate, bench
        self.split: Split = split
        self.total = experiment.dataset.size(split)
        self._artifact, self._directory = artifact, directory
        self._scores: Scores | None = None
        super().__init__(bench.store, self._key_of(candidate, artifact))
        self.key = digest(self.stored_under)

    def _run(self, start: int, stop: int) -> MeasuredOutcomes:
        """Raises MeasureError: a logit is NaN or infinite, or the checkpoint cannot be executed."""
        if self._scores is None:
            self._scores = self._opened(self.candidate, self._artifact, self._directory)
        return self._outcomes(self._scores(start, stop))

    def reference(self) -> MeasuredOutcomes:
        """Of the float model over the whole split; run once for all candidates."""
        baseline = self.experiment.baseline
        if self.candidate.id == baseline.id:
            return self.full()
        artifact, directory = artifact_of(self.experiment, baseline, self.bench)
        key = self._key_of(baseline, artifact)
        found = self._stored(key)
        if found is None:
            found = self._outcomes(self._opened(baseline, artifact, directory)(0, self.total))
            self._keep(key, found)
        return found

    def _opened(self, candidate: Candidate, artifact: Artifact, directory: Path) -> Scores:
        target, chosen = language_target(self.bench.target(candidate)), windows(self.experiment.dataset, self.split)
        model = self.experiment.model
        kept = self.bench.store.get_or_build(
            "float_states",
            self._scored() | {"of": "float states"},
            lambda folder: target.keep_reference(model, chosen, folder),
        )
        return target.scores(model, candidate, artifact, directory, chosen, kept.path)

    def _outcomes(self, scores: WindowOutcomes) -> MeasuredOutcomes:
        primary = _PRIMARY[self.experiment.dataset.measure]
        names = sorted(_UNITS, key=lambda name: name != primary)
        sums = {NLL: scores.nll, KL: scores.kl, TOP1: scores.agreed.astype(np.float64)}
        counted = scores.predictions.astype(np.float64)
        metrics = [(name, _UNITS[name], name == TOP1, _BOUNDS[name], "ratio") for name in names]
        fractions = np.stack([sums[name] for name in names], axis=1), np.stack([counted] * len(names), axis=1)
        return measured(metrics, fractions, scores.predictions)

    def _key_of(self, candidate: Candidate, artifact: Artifact) -> dict[str, object]:
        target = language_target(self.bench.target(candidate))
        measure = self.experiment.dataset.measure
        return self._scored() | {"outputs": target.decides_outputs(artifact), "measure": measure}

    def _scored(self) -> dict[str, object]:
        """On what, and by what code."""
        baseline = self.experiment.baseline
        target = self.bench.target(baseline)
        return {
            "data": self.experiment.dataset.digest(self.split),
            "model": self.experiment.model.sha256,
            "toolchain": self.bench.toolchain(baseline),
            "code": closure_digest(type(target).__module__, "workbench.inputs.dataset.language", alone=(__name__,)),
        }
