"""`compare` of language models: folders of float models and checkpoints, or an experiment's candidates."""

from __future__ import annotations

from pathlib import Path

from workbench.api.opening import named_candidate
from workbench.evaluation.bench import Bench
from workbench.evaluation.build import artifact_of
from workbench.inputs.dataset.language import windows
from workbench.inputs.experiment import Experiment
from workbench.study.compared import Comparison
from workbench.study.language import SAMPLES, TOKENS, compare_language, comparing_target
from workbench.study.limits import Limits
from workbench.values.errors import ConfigError

FLOAT_MODEL = "float"
"""What the model of an experiment is called, as no target has lowered it."""


def is_model_folder(text: str) -> bool:
    """Whether a name is that of a language model's folder, or of a checkpoint's."""
    return (Path(text) / "config.json").is_file()


def compare_folders(a: Path, b: Path, data: Path | None, samples: int | None, limits: Limits | None) -> Comparison:
    """Two folders over the beginnings of texts.

    Raises:
        ConfigError: there are no texts, a folder is wrong, or they are models of different sizes.
        MeasureError: one cannot be executed.
    """
    if data is None:
        raise ConfigError("language models are compared over texts.", key="data", hint="Give a .jsonl or .json file.")
    target = comparing_target()
    found = target.ids_of(a, data, samples=samples or SAMPLES, tokens=TOKENS)
    return compare_language(
        a,
        b,
        found,
        target=target,
        names=(a.name or str(a), b.name or str(b)),
        data=f"{data.name}, the first {TOKENS} tokens of each text",
        limits=limits,
    )


def compare_candidates(
    question: Experiment, bench: Bench, a: str, b: str, samples: int | None, limits: Limits | None
) -> Comparison:
    """Two candidates, or the float model, over windows of the validation split.

    Raises:
        ConfigError: no such candidate.
        CandidateError: one cannot be quantized or executed.
    """
    sides = []
    for text in (a, b):
        if text == FLOAT_MODEL:
            sides.append((f"{question.name} in float", question.model.path))
            continue
        candidate = named_candidate(text, question)
        sides.append((candidate.short_id, artifact_of(question, candidate, bench)[1]))
    return compare_language(
        sides[0][1],
        sides[1][1],
        [window.ids.tolist() for window in windows(question.dataset, "validation")[: samples or SAMPLES]],
        target=comparing_target(question.baseline.target),
        names=(sides[0][0], sides[1][0]),
        data=f"{question.name}, windows of the validation split",
        limits=limits,
    )
