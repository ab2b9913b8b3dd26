"""All files or none: written elsewhere first and read back as a sweep reads them, with what the float model says to the
data; then put in place together.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from workbench.commands.init.data import Corpus, compiled_lengths, differing_axes, examine_data
from workbench.commands.init.experiment import experiment_text
from workbench.commands.init.interface import declare
from workbench.commands.init.manifest import Subject, manifest_text, max_length_of, wished_metric
from workbench.commands.init.meanings import first_label, held_against_labels, meanings_of
from workbench.commands.init.model import Outline, examine_model
from workbench.commands.init.space import space_text
from workbench.commands.init.targets import Chosen, about_the_users_files, choose_targets, present, read_back
from workbench.evaluation.float_run import FloatRun, check_answers, run_float
from workbench.evaluation.metric_check import decided_alike, refuse_imperfect
from workbench.graph.door import open_foreign
from workbench.graph.intake.prepared import prepared
from workbench.graph.read import load_graph
from workbench.inputs.dataset import Dataset, check_inputs, read_manifest
from workbench.inputs.metrics import MeaningScorer, scorer_of
from workbench.inputs.metrics.agreement import AGAINST
from workbench.values.errors import ConfigError
from workbench.values.installed_targets import installed_target
from workbench.values.interface import OutputUse
from workbench.values.model import Model
from workbench.values.system.cpu import this_cpu
from workbench.values.system.files import temporary_beside
from workbench.values.system.scratch import scratch_folder

Show = Callable[[Path, Path], str]
"""(file referred to, file that refers to it) → path to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the user says beside model, data and targets.

    Attributes:
        tokenizer, labels: of text data; labels are needed where they are names, whose order only training knows.
        constants: input → number, as written.
        outputs: output → meaning, as written.
        metric: `file.py:function`, or a name with options, as written; then nothing is asked of outputs.
        cfg: configurations of a vendor's quantizer, each of which becomes a candidate.
    """

    tokenizer: Path | None = None
    labels: Path | None = None
    constants: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    metric: str | None = None
    cfg: Sequence[Path] = ()


def read_data(manifest: Path, subject: Subject, wishes: Wishes) -> tuple[Subject, Dataset, FloatRun]:
    """Read the data as a manifest says, which is written, and run the float model on them; (the subject with what its
    outputs mean, the data, the run)."""
    outline, corpus, declared, metric = subject.outline, subject.corpus, subject.declared, subject.metric
    model, staged = outline.model, declared
    if corpus.truths and metric is None:  # labels are read where the manifest says something of outputs
        nothing = [OutputUse(name=spec.name, meaning="ignored") for spec in model.outputs]
        staged = replace(declared, interface=replace(declared.interface, outputs=tuple(nothing)))
    write_all(manifest_files(manifest, absolute, replace(subject, declared=staged)))
    dataset = read_manifest(manifest, model)
    check_inputs(dataset, model)
    run = run_float(model, dataset)
    if corpus.searched is not None and (metric is not None or wishes.outputs):
        raise ConfigError("a corpus decides what accuracy is.", key="--data", hint="Leave --metric and --output out.")
    if metric is None and corpus.task == "tensors" and corpus.searched is None:
        uses = meanings_of(model, run, declared.interface.state, wishes.outputs)
        uses = held_against_labels(dataset, model, run, uses, wishes.outputs)
        declared = replace(declared, interface=replace(declared.interface, outputs=uses))
        dataset = replace(dataset, interface=replace(dataset.interface, outputs=uses))
        check_answers(run, uses, outline.source.path)
    elif wishes.outputs and metric is None:
        hint = (
            "Take the labels out of the data, or --output out of the command; or say --output "
            "NAME=MEANING:against=labels where they are no classes."
        )
        raise ConfigError(f"means nothing for the task {corpus.task}, which has labels.", key="--output", hint=hint)
    refuse_imperfect(dataset, model, run.rows)
    corpus = replace(corpus, truths=corpus.truths and first_label(run) is not None)
    return replace(subject, declared=declared, corpus=corpus), dataset, run


_JUDGED = {"classification": "share of samples in the right class", "ner": "entity-level F1"}


def judged_by(dataset: Dataset, model: Model) -> str:
    """What accuracy is, for people."""
    with contextlib.closing(scorer_of(dataset, model)) as scorer:
        if dataset.metric is not None:
            return f"{scorer.primary}, the metric of the dataset's manifest"
        if dataset.retrieval is not None:
            return f"{scorer.primary} of the documents of {dataset.retrieval.corpus.path.name}"
        labelled = isinstance(scorer, MeaningScorer) and scorer.has_labels
        truth = "the data's labels" if labelled else "the float model's answers"
        return _JUDGED.get(dataset.task, f"{scorer.primary}, compared with {truth}")


def manifest_files(manifest: Path, show: Show, subject: Subject) -> dict[Path, str]:
    """The manifest's text, and that of the labels where they are no file of the user's."""
    text = manifest_text(manifest.stem, lambda path: show(path, manifest), subject)
    if not isinstance(subject.corpus.labels, tuple):
        return {manifest: text}
    labels = json.dumps(subject.corpus.labels, indent=1) + "\n"
    return {manifest: text, manifest.with_name(f"{manifest.stem}.labels.json"): labels}


def absolute(path: Path, file: Path) -> str:
    return path.resolve().as_posix()


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What was written.

    Attributes:
        files: experiments first, in the order of their targets.
        notes: what was decided or left out, a sentence each.
        commands: what to run next.
    """

    files: tuple[Path, ...]
    notes: tuple[str, ...]
    commands: tuple[str, ...]


def initialize(
    model: Path,
    data: Sequence[Path],
    to: Path,
    *,
    name: str | None = None,
    targets: Sequence[str] = (),
    wishes: Wishes | None = None,
) -> Started:
    """Write `experiments/NAME.yaml`, `calibration/NAME.yaml` and `search_spaces/NAME.yaml` below `to`.

    All of them or none: they are first written elsewhere and read back with all that they refer to. Where classes
    are numbered in the data, `calibration/NAME.labels.json` comes with them. Targets that cannot share an experiment
    get one each, NAME-TARGET, of the same data; where one of them compiles every size, samples are padded for all.

    Args:
        data: a calibration file, a validation file and perhaps a holdout, told apart by their names; those whose
            names say nothing take the free places in that order. Or one `loader.py:function`.
        targets: what is to execute the model, as `--target` is written.
        name: None for the model's file name, or its folder's where the file is called model.onnx.

    Raises:
        ConfigError: a file exists already, an argument is missing, model and data do not fit, or a target that was
            named cannot run the model.
    """
    chosen_name = _name_of(model) if name is None else name
    wishes, chosen = wishes or Wishes(), choose_targets(targets)
    names = [_group_name(chosen_name, chosen, number) for number in range(len(chosen.groups))]
    files = [to / folder / f"{one}.yaml" for one in names for folder in ("experiments", "search_spaces")]
    for end in ("yaml", "labels.json"):
        files.append(to / "calibration" / f"{chosen_name}.{end}")
    check_new(chosen_name, files)
    source = open_foreign(model)
    metric = None if wishes.metric is None else wished_metric(wishes.metric)
    if metric is not None and wishes.outputs:
        raise ConfigError("means nothing beside --metric, which decides what accuracy is.", key="--output")
    corpus = examine_data(
        data,
        source,
        tokenizer=wishes.tokenizer,
        labels=wishes.labels,
        metric=metric is not None,
        held=any(f"{AGAINST}=" in meaning for meaning in wishes.outputs.values()),
    )
    compiles = [installed_target(target).settings.compiles_shapes for target in chosen.targets]
    fixed = _fixed_from(source, corpus, all(compiles))
    declared = declare(source, corpus.arrays, wishes.constants, fixed_from=fixed)
    ready = prepared(source, declared.interface)
    outline = examine_model(ready, *chosen.targets, source=source)
    axes = differing_axes(corpus, ready, steps=bool(declared.interface.state))
    subject = Subject(
        outline=outline, corpus=corpus, declared=declared, metric=metric, axes=axes, padded=bool(axes) and any(compiles)
    )
    with scratch_folder("init") as staging, about_the_users_files(staging):
        subject, dataset, run = read_data(staging / "data" / f"{chosen_name}.yaml", subject, wishes)
        judged = judged_by(dataset, ready)

        def contents(root: Path, show: Show) -> dict[Path, str]:
            """File → text, the experiments first."""
            manifest = root / "calibration" / f"{chosen_name}.yaml"
            experiments: dict[Path, str] = {}
            spaces: dict[Path, str] = {}
            cores = this_cpu().cores  # what this process may run on; `workbench doctor` warns of a quota below it
            steps = bool(declared.interface.state)
            for number, group in enumerate(chosen.groups):
                name, own = _group_name(chosen_name, chosen, number), outline.on(group)
                experiment, space = root / "experiments" / f"{name}.yaml", root / "search_spaces" / f"{name}.yaml"
                experiments[experiment] = experiment_text(
                    name,
                    manifest.stem,
                    lambda path, file=experiment: show(path, file),  # type: ignore[misc]  # bound now
                    own,
                    dataset,
                    run,
                    cores=cores,
                    judged=judged,
                    service=not steps,
                    about=chosen_name,
                )
                spaces[space] = space_text(
                    name,
                    own,
                    cores,
                    text=bool(corpus.lengths),
                    lengths=corpus.lengths,
                    max_length=max_length_of(own, corpus),
                    compiled_lengths=compiled_lengths(corpus, ready, axes if subject.padded else (), steps=steps),
                    service=not steps,
                    cfg=[show(file, space) for file in wishes.cfg],
                    about=chosen_name,
                )
            return {**experiments, **manifest_files(manifest, show, subject), **spaces}

        staged = contents(staging, absolute)
        write_all(staged)
        experiments = [path for path in staged if path.parent.name == "experiments"]
        chosen = read_back(chosen, experiments, one_size=not corpus.sizes)
    written = contents(to, relative_path)
    write_all(written)
    alike = decided_alike(dataset, ready, run.rows)
    return Started(
        files=tuple(written),
        notes=(*chosen.notes, *_said(subject, run, dataset, ready), *([f"mind: {alike}"] if alike else [])),
        commands=_commands(chosen_name, outline, to, chosen),
    )


def _fixed_from(source: Model, corpus: Corpus, compiled: bool) -> int | None:
    """How many free axes are too many, so that all samples' one size is written down.

    A branch that a size decides can be taken only where the size is known; and a target that compiles every size has
    one list of lengths.
    """
    if corpus.sizes:
        return None
    if any(node.op_type == "If" for node in load_graph(source).graph.node):
        return 1
    return 2 if compiled else None


def _name_of(model: Path) -> str:
    stem = model.resolve().parent.name if model.stem == "model" else model.stem
    return re.sub(r"[^\w.-]+", "-", stem).strip("-.")


def _group_name(name: str, chosen: Chosen, number: int) -> str:
    return name if number == 0 else f"{name}-{chosen.groups[number][0]}"


def _said(subject: Subject, run: FloatRun, dataset: Dataset, model: Model) -> list[str]:
    """What was understood: of the data, and of each state and output that the manifest declares."""
    declared, sizes = subject.declared, [dataset.size(split) for split in ("calibration", "validation", "holdout")]
    with contextlib.closing(scorer_of(dataset, model)) as scorer:
        fed = ", ".join(spec.name for spec in model.inputs if spec.name not in dict(declared.interface.state).values())
        data = (
            f"understood: {dataset.task}, fed {fed}, scored by {scorer.primary}; {sizes[0]} samples to calibrate, "
            f"{sizes[1]} to score, {sizes[2]} held back"
        )
    files = [path.name for path in (subject.corpus.tokenizer, subject.corpus.labels) if isinstance(path, Path)]
    data += f"; with {' and '.join(files)}" if files else ""
    state = [f"state {o} → {i}: {declared.reasons.get(f'state.{o}', '')}" for o, i in declared.interface.state]
    uses = declared.interface.outputs
    outputs = [f"output {u.name}: {u.meaning}, {u.reason}" for u in uses]
    unused = uses and first_label(run) is not None and not any(AGAINST in dict(use.options) for use in uses)
    labels = ["the data's labels are not used: --output NAME=MEANING:against=labels would"] if unused else []
    return [data, *state, *outputs, *labels]


def _commands(name: str, outline: Outline, to: Path, chosen: Chosen) -> tuple[str, ...]:
    lines: list[str] = []
    for number, group in enumerate(chosen.groups):
        experiment = to / "experiments" / f"{_group_name(name, chosen, number)}.yaml"
        start = outline.on(group).start
        if start.rehearsal and present(group[0]):
            lines.append(f"{start.rehearsal}    # {group[0]} is not on this machine: every time is modelled then")
        lines += [f"workbench plan {experiment}", f"workbench sweep {experiment}"]
    return tuple(lines)


def check_new(name: str, files: Iterable[Path]) -> None:
    """Refuse what cannot name a file, and files that are there."""
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise ConfigError(f"{name!r} cannot name a file.", key="--name", hint="Use letters, digits, '-', '_', '.'.")
    for path in files:
        if path.exists():
            raise ConfigError("exists already and is not overwritten.", file=path, hint="Choose another --name.")


def relative_path(path: Path, file: Path) -> str:
    """A path as a file refers to it."""
    return Path(os.path.relpath(path.resolve(), file.parent.resolve())).as_posix()


def write_all(texts: Mapping[Path, str]) -> None:
    """Write files that do not exist yet: all under temporary names, then each gets its own; on failure none stays."""
    path = Path()
    try:
        with contextlib.ExitStack() as drafts:
            for path, text in texts.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                drafts.enter_context(temporary_beside(path)).write_text(text, encoding="utf-8")
    except OSError as error:
        rule = f"cannot be written: {error.strerror} ({error.filename or path})."
        raise ConfigError(rule, key="--to", hint="Nothing was written.") from error
