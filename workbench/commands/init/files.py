"""All files or none: written elsewhere first and read back as a sweep reads them, with what the float model says to the
data; then put in place together.

What can be read off the model and the data is written with a comment saying why; what nobody can know (the order of
the classes) is asked for.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from workbench.commands.init.data import compiled_lengths, differing_axes, examine_data
from workbench.commands.init.experiment import experiment_text
from workbench.commands.init.interface import declare
from workbench.commands.init.manifest import Subject, manifest_text, max_length_of, wished_metric
from workbench.commands.init.meanings import first_label, held_against_labels, meanings_of
from workbench.commands.init.model import about_the_users_files, choose_targets, examine_model, present, read_back
from workbench.commands.init.space import space_text
from workbench.evaluation.float_run import FloatRun, check_answers, run_float
from workbench.evaluation.metric_check import decided_alike, refuse_imperfect
from workbench.graph.door import open_foreign
from workbench.graph.intake.prepared import prepared
from workbench.graph.read import load_graph
from workbench.inputs.dataset import Dataset, check_inputs, read_manifest
from workbench.inputs.metrics import scorer_of
from workbench.inputs.metrics.agreement import AGAINST
from workbench.values.errors import ConfigError
from workbench.values.installed_targets import installed_target
from workbench.values.interface import OutputUse
from workbench.values.model import Model, axes_text
from workbench.values.system.cpu import this_cpu
from workbench.values.system.files import temporary_beside
from workbench.values.system.scratch import scratch_folder

Show = Callable[[Path, Path], str]
"""(file referred to, file that refers to it) → path to write."""


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
    tokenizer: Path | None = None,
    labels: Path | None = None,
    constants: Mapping[str, str] | None = None,
    outputs: Mapping[str, str] | None = None,
    metric: str | None = None,
    cfg: Sequence[Path] = (),
) -> Started:
    """Write `experiments/NAME.yaml`, `calibration/NAME.yaml` and `search_spaces/NAME.yaml` below `to`.

    All of them or none: they are first written elsewhere and read back with all that they refer to. Where classes
    are numbered in the data, `calibration/NAME.labels.json` comes with them. Targets that cannot share an experiment
    get one each, NAME-TARGET, of the same data; where one of them compiles every size, samples are padded for all.

    Args:
        data: a calibration file, a validation file and perhaps a holdout, told apart by their names; those whose
            names say nothing take the free places in that order. Or one `loader.py:function`.
        name: None for the model's file name, or its folder's where the file is called model.onnx.
        targets: what is to execute the model, as `--target` is written.
        tokenizer, labels: of text data; labels are needed where they are names, whose order only training knows.
        constants: input → number, as written.
        outputs: output → meaning, as written.
        metric: `file.py:function`, or a name with options, as written; then nothing is asked of outputs.
        cfg: configurations of a vendor's quantizer, each of which becomes a candidate.

    Raises:
        ConfigError: a file exists already, an argument is missing, model and data do not fit, or a target that was
            named cannot run the model.
    """
    called, outputs = _name_of(model) if name is None else name, outputs or {}
    groups, each_named, notes = choose_targets(targets)
    chosen = [target for group in groups for target in group]

    def names() -> list[str]:
        return [called if not number else f"{called}-{group[0]}" for number, group in enumerate(groups)]

    files = [to / folder / f"{n}.yaml" for n in names() for folder in ("experiments", "search_spaces")]
    check_new(called, [*files, *(to / "calibration" / f"{called}.{end}" for end in ("yaml", "labels.json"))])
    source = open_foreign(model)
    own_metric = None if metric is None else wished_metric(metric)
    if metric is not None and outputs:
        raise ConfigError("means nothing beside --metric, which decides what accuracy is.", key="--output")
    held = any(f"{AGAINST}=" in meaning for meaning in outputs.values())
    corpus = examine_data(data, source, tokenizer=tokenizer, labels=labels, metric=metric is not None, held=held)
    compiles = [installed_target(target).settings.compiles_shapes for target in chosen]
    fixed: int | None = None  # how many free axes are too many, so that all samples' one size is written down
    if not corpus.sizes:
        # a branch that a size decides can be taken only where it is known; what compiles sizes has one list of them
        branches = any(node.op_type == "If" for node in load_graph(source).graph.node)
        fixed = 1 if branches else 2 if all(compiles) else None
    declared, reasons = declare(source, corpus.arrays, constants or {}, fixed_from=fixed)
    ready, steps = prepared(source, declared), bool(declared.state)
    outline = examine_model(ready, *chosen, source=source)
    axes = differing_axes(corpus, ready, steps=steps)
    padded = bool(axes) and any(compiles)
    subject = Subject(
        outline=outline,
        corpus=corpus,
        interface=declared,
        reasons=reasons,
        metric=own_metric,
        axes=axes,
        padded=padded,
    )
    cores = this_cpu().cores  # what this process may run on; `workbench doctor` warns of a quota below it
    with scratch_folder("init") as staging, about_the_users_files(staging):
        subject, dataset, run = _read_data(staging / "data" / f"{called}.yaml", subject, outputs)

        def contents(root: Path, show: Show) -> dict[Path, str]:
            """File → text, the experiments first."""
            experiments: dict[Path, str] = {}
            spaces: dict[Path, str] = {}
            for name, group in zip(names(), groups, strict=True):
                own = outline.on(group)
                experiment, space = root / "experiments" / f"{name}.yaml", root / "search_spaces" / f"{name}.yaml"
                shown = show(source.path, experiment)
                experiments[experiment] = experiment_text(
                    name, called, shown, own, dataset, run, cores=cores, service=not steps
                )
                spaces[space] = space_text(
                    name,
                    own,
                    cores,
                    lengths=corpus.lengths,
                    max_length=max_length_of(own, corpus),
                    compiled_lengths=compiled_lengths(corpus, ready, axes if padded else {}, steps=steps),
                    service=not steps,
                    cfg=[show(file, space) for file in cfg],
                    about=called,
                )
            return experiments | _manifest_files(root / "calibration" / f"{called}.yaml", show, subject) | spaces

        staged = contents(staging, _absolute)
        write_all(staged)
        experiments = [path for path in staged if path.parent.name == "experiments"]
        groups, left_out = read_back(groups, experiments, named=each_named, one_size=not corpus.sizes)
    written = contents(to, relative_path)
    write_all(written)
    commands: list[str] = []
    for experiment, group in zip(written, groups, strict=False):
        start = outline.on(group).start
        if start.rehearsal and present(group[0]):
            commands.append(f"{start.rehearsal}    # {group[0]} is not on this machine: every time is modelled then")
        commands += [f"workbench plan {experiment}", f"workbench sweep {experiment}"]
    alike = decided_alike(dataset, ready, run.rows)
    notes += [*left_out, *_understood(subject, run, dataset), *([f"mind: {alike}"] if alike else [])]
    return Started(files=tuple(written), notes=tuple(notes), commands=tuple(commands))


def _name_of(model: Path) -> str:
    stem = model.resolve().parent.name if model.stem == "model" else model.stem
    return re.sub(r"[^\w.-]+", "-", stem).strip("-.")


def _read_data(manifest: Path, subject: Subject, outputs: Mapping[str, str]) -> tuple[Subject, Dataset, FloatRun]:
    """Read the data as a manifest says, which is written, and run the float model on them; (the subject with what its
    outputs mean, the data, the run)."""
    outline, corpus, declared, metric = subject.outline, subject.corpus, subject.interface, subject.metric
    model, staged = outline.model, declared
    if corpus.truths and metric is None:  # labels are read where the manifest says something of outputs
        nothing = [OutputUse(name=spec.name, meaning="ignored") for spec in model.outputs]
        staged = replace(declared, outputs=tuple(nothing))
    write_all(_manifest_files(manifest, _absolute, replace(subject, interface=staged)))
    dataset = read_manifest(manifest, model)
    check_inputs(dataset, model)
    run = run_float(model, dataset)
    if corpus.searched is not None and (metric is not None or outputs):
        raise ConfigError("a corpus decides what accuracy is.", key="--data", hint="Leave --metric and --output out.")
    if metric is None and corpus.task == "tensors" and corpus.searched is None:
        uses = meanings_of(model, run, declared.state, outputs)
        uses = held_against_labels(dataset, model, run, uses, outputs)
        declared = replace(declared, outputs=uses)
        dataset = replace(dataset, interface=replace(dataset.interface, outputs=uses))
        check_answers(run, uses, outline.source.path)
    elif outputs and metric is None:
        hint = (
            "Take the labels out of the data, or --output out of the command; or say --output "
            "NAME=MEANING:against=labels where they are no classes."
        )
        raise ConfigError(f"means nothing for the task {corpus.task}, which has labels.", key="--output", hint=hint)
    refuse_imperfect(dataset, model, run.rows)
    corpus = replace(corpus, truths=corpus.truths and first_label(run) is not None)
    return replace(subject, interface=declared, corpus=corpus), dataset, run


def _manifest_files(manifest: Path, show: Show, subject: Subject) -> dict[Path, str]:
    """The manifest's text, and that of the labels where they are no file of the user's."""
    text = manifest_text(manifest.stem, lambda path: show(path, manifest), subject)
    if not isinstance(subject.corpus.labels, tuple):
        return {manifest: text}
    labels = json.dumps(subject.corpus.labels, indent=1) + "\n"
    return {manifest: text, manifest.with_name(f"{manifest.stem}.labels.json"): labels}


def _understood(subject: Subject, run: FloatRun, dataset: Dataset) -> list[str]:
    """Of the data, and of each state and output that the manifest declares."""
    declared, model = subject.interface, subject.outline.model
    sizes = [dataset.size(split) for split in ("calibration", "validation", "holdout")]
    with contextlib.closing(scorer_of(dataset, model)) as scorer:
        fed = ", ".join(spec.name for spec in model.inputs if spec.name not in dict(declared.state).values())
        data = (
            f"understood: {dataset.task}, fed {fed}, scored by {scorer.primary}; {sizes[0]} samples to calibrate, "
            f"{sizes[1]} to score, {sizes[2]} held back"
        )
    files = [path.name for path in (subject.corpus.tokenizer, subject.corpus.labels) if isinstance(path, Path)]
    data += f"; with {' and '.join(files)}" if files else ""
    state = [f"state {o} → {i}: {subject.reasons.get(f'state.{o}', '')}" for o, i in declared.state]
    uses = declared.outputs
    outputs = [f"output {u.name}: {u.meaning}, {u.reason}" for u in uses]
    unused = uses and first_label(run) is not None and not any(AGAINST in dict(use.options) for use in uses)
    labels = ["the data's labels are not used: --output NAME=MEANING:against=labels would"] if unused else []
    return [data, *state, *outputs, *labels]


def check_new(name: str, files: Iterable[Path]) -> None:
    """Refuse what cannot name a file, and files that are there."""
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise ConfigError(f"{name!r} cannot name a file.", key="--name", hint="Use letters, digits, '-', '_', '.'.")
    for path in files:
        if path.exists():
            raise ConfigError("exists already and is not overwritten.", file=path, hint="Choose another --name.")


def _absolute(path: Path, file: Path) -> str:
    return path.resolve().as_posix()


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


def write_template(model: Model, to: Path) -> None:
    """Raises ConfigError where the file exists already or cannot be written."""
    if to.suffix != ".py":
        raise ConfigError(f"{to} is no Python file.", key="--loader-template", hint="Write loader.py.")
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        with to.open("x", encoding="utf-8") as stream:
            stream.write(template_text(model))
    except FileExistsError as error:
        raise ConfigError("exists already and is not overwritten.", file=to) from error
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}.", file=to, key="--loader-template") from error


def template_text(model: Model) -> str:
    """One sample is input → array without the axis that counts samples."""
    arrays = ""
    for spec in (spec for spec in model.inputs if spec.shape):
        sizes = tuple(size if isinstance(size, int) else 1 for size in spec.shape[1:])
        without = f"without the first of {axes_text(spec.shape)}"
        arrays += f'\n            "{spec.name}": np.zeros({sizes}, np.{spec.dtype}),  # {without}'
    return f'''\
"""Samples for {model.path.name}. The manifest names it: `loader: loader.py:load`."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

FOLDERS = {{"calibration": "data/train", "validation": "data/valid"}}
"""Split → where its samples lie. Without a holdout, half of the validation is set aside as one."""


def load(split: str) -> Iterator[tuple[dict[str, np.ndarray], object]] | None:
    """(inputs of one sample, its label) in an order that never changes; None for a split that there is not.

    The label is a class id, a list of tag ids, whatever an output is held against (`against: labels`) or the
    manifest's `metric:` wants, or None without labels.
    """
    if split not in FOLDERS:
        return None
    return samples(Path(__file__).parent / FOLDERS[split])


def samples(folder: Path) -> Iterator[tuple[dict[str, np.ndarray], object]]:
    for file in sorted(folder.iterdir()):
        # Read and prepare the file here exactly as the service will: size, order of axes, scaling.
        sample = {{{arrays}
        }}
        yield sample, None
'''
