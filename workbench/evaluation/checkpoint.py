"""From a candidate to its checkpoint, for language models: ranked where it leaves something float, quantized, written.

What candidates share is paid for once: the tokens of the calibration texts are the dataset's, the ranking of what is
sensitive is kept in the store, and so is the checkpoint of every recipe. Ranges are not shared between recipes: the
tool's come out of a pass in which the blocks before are quantized already (msmodelslim.md §9), so every recipe has a
pass of its own by contract.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from workbench.evaluation.bench import Bench, StageClock, log_kept
from workbench.inputs.dataset.language import samples
from workbench.inputs.experiment import Experiment
from workbench.targets.language import LanguageTarget, language_target
from workbench.values.artifact import Artifact
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import canonical_json, decode
from workbench.values.system.source_closure import closure_digest


def checkpoint_of(
    experiment: Experiment, candidate: Candidate, bench: Bench, clock: StageClock
) -> tuple[Artifact, Path]:
    """A candidate's checkpoint and its folder; of the float baseline the model's own.

    Raises:
        CandidateError: the recipe does not fit the model.
        ConfigError: there is too little memory or disk for it.
    """
    target = language_target(bench.target(candidate))
    if candidate.quantization.scheme == "none":
        own = experiment.model.path
        return target.write_checkpoint(experiment.model, candidate, (), dict, own), own
    chosen = samples(experiment.dataset, experiment.calibration.samples)

    def build(to: Path) -> None:
        with log_kept(bench, candidate):
            artifact = target.write_checkpoint(
                experiment.model, candidate, chosen, lambda: ranking_of(experiment, bench, target), to
            )
        (to / "artifact.json").write_text(canonical_json(artifact), encoding="utf-8")

    with clock.stage("calibrate"):
        key = {**_key(experiment, bench, target), "recipe": candidate.compile}
        entry = bench.store.get_or_build("checkpoint", key, build)
        clock.cached = entry.cached
    data = json.loads((entry.path / "artifact.json").read_text(encoding="utf-8"))
    return decode(Artifact, data), entry.path


def ranking_of(experiment: Experiment, bench: Bench, target: LanguageTarget) -> Mapping[str, float]:
    """How much each group of linears of each block hurts when it alone is quantized, the worst first."""

    def rank() -> list[tuple[str, float]]:
        chosen = samples(experiment.dataset, experiment.calibration.samples)
        return list(target.rank(experiment.model, chosen).items())

    found = bench.store.json_of("language_ranking", _key(experiment, bench, target), rank)
    return {str(name): float(error) for name, error in found}


def _key(experiment: Experiment, bench: Bench, target: LanguageTarget) -> dict[str, object]:
    return {
        "model": experiment.model.sha256,
        "data": experiment.dataset.digest("calibration"),
        "samples": experiment.calibration.samples,
        "toolchain": bench.toolchains[target.name],
        "code": closure_digest(type(target).__module__, alone=(__name__,)),
    }
