"""All that the texts are made of: the data as their manifest gives them, and what the float model says to them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from workbench.commands.init.interface import Ask, with_outputs
from workbench.commands.init.manifest import Subject, manifest_text
from workbench.commands.init.meanings import first_label, held_against_labels, meanings_of
from workbench.commands.init.targets import judged_by
from workbench.evaluation.float_run import FloatRun, check_answers, run_float
from workbench.evaluation.metric_check import decided_alike, refuse_imperfect
from workbench.inputs.dataset import Dataset, check_inputs, read_manifest
from workbench.values.errors import ConfigError
from workbench.values.interface import OutputUse

Show = Callable[[Path, Path], str]
"""(file referred to, file that refers to it) → path to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the user says beside model, data and targets.

    Attributes:
        tokenizer, labels: of text data; labels are needed where they are names, whose order only training knows.
        kind: of model, where it is not what is inferred.
        constants: input → number, as written.
        outputs: output → meaning, as written.
        metric: `file.py:function`, or a name with options, as written; then nothing is asked of outputs.
        ask: asks whoever sits before the terminal; None where nobody does.
    """

    tokenizer: Path | None = None
    labels: Path | None = None
    kind: str | None = None
    constants: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    metric: str | None = None
    ask: Ask | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """
    Attributes:
        name: of the model.
        judged: what accuracy is, in words.
        alike: that the float model decides the first samples alike; empty where it does not.
    """

    name: str
    subject: Subject
    run: FloatRun
    dataset: Dataset
    judged: str
    alike: str


def facts_of(name: str, manifest: Path, subject: Subject, wishes: Wishes) -> Facts:
    """Read the data as a manifest says, and run the float model on them.

    Args:
        manifest: is written.
        subject: outputs that it tells already are not asked for again.
    """
    outline, corpus, declared, metric = subject.outline, subject.corpus, subject.declared, subject.metric
    model = outline.model
    known = declared.interface.outputs
    staged = declared
    if corpus.truths and metric is None and not known:  # labels are read where the manifest says something of outputs
        nothing = [OutputUse(name=spec.name, meaning="ignored") for spec in model.outputs]
        staged = with_outputs(declared, nothing)
    texts = manifest_files(manifest, absolute, replace(subject, declared=staged))
    manifest.parent.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    dataset = read_manifest(manifest, model)
    check_inputs(dataset, model)
    run = run_float(model, dataset)
    if metric is None and corpus.task == "tensors":
        uses = known or meanings_of(model, run, declared.interface.state, wishes.outputs, wishes.ask)
        uses = held_against_labels(dataset, model, run, uses, wishes.outputs)
        declared = with_outputs(declared, uses)
        dataset = replace(dataset, interface=replace(dataset.interface, outputs=uses))
        check_answers(run, uses, outline.source.path)
    elif wishes.outputs and metric is None:
        hint = (
            "Take the labels out of the data, or --output out of the command; or say --output "
            "NAME=MEANING:against=labels where they are no classes."
        )
        raise ConfigError(f"means nothing for the task {corpus.task}, which has labels.", key="--output", hint=hint)
    refuse_imperfect(dataset, model, run.rows)
    known_truths = corpus.truths and first_label(run) is not None
    subject = replace(subject, declared=declared, corpus=replace(corpus, truths=known_truths))
    alike = decided_alike(dataset, model, run.rows)
    return Facts(name=name, subject=subject, run=run, dataset=dataset, judged=judged_by(dataset, model), alike=alike)


def manifest_files(manifest: Path, show: Show, subject: Subject) -> dict[Path, str]:
    """The manifest's text, and that of the labels where they are no file of the user's."""
    text = manifest_text(manifest.stem, lambda path: show(path, manifest), subject)
    if not isinstance(subject.corpus.labels, tuple):
        return {manifest: text}
    labels = json.dumps(subject.corpus.labels, indent=1) + "\n"
    return {manifest: text, manifest.with_name(f"{manifest.stem}.labels.json"): labels}


def absolute(path: Path, file: Path) -> str:
    return path.resolve().as_posix()
