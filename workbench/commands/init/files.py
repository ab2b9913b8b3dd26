"""All files or none: written elsewhere first and read back as a sweep reads them, then put in place together."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from workbench.commands.init.axes import compiled_lengths, differing_axes
from workbench.commands.init.data import Corpus, examine_data
from workbench.commands.init.experiment import experiment_text
from workbench.commands.init.float_run import FloatRun, check_answers, run_float
from workbench.commands.init.interface import Ask, Declared, declare, with_outputs
from workbench.commands.init.manifest import manifest_text, max_length_of
from workbench.commands.init.meanings import meanings_of
from workbench.commands.init.metric import WishedMetric, score_some, wished_metric
from workbench.commands.init.model import Outline, examine_model
from workbench.commands.init.read_back import about_the_users_files, judged_by, read_back
from workbench.commands.init.sizes import Sizes, sizes_of
from workbench.commands.init.space import space_text
from workbench.commands.init.targets import Chosen, choose_targets, present
from workbench.graph.door import open_foreign
from workbench.graph.intake.prepared import prepared
from workbench.graph.read import load_graph
from workbench.inputs.dataset import Dataset, read_manifest
from workbench.values.errors import ConfigError
from workbench.values.installed_targets import installed_target
from workbench.values.model import Model
from workbench.values.system.cpu import parse_cpu
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """All that the texts are made of, but for the targets."""

    name: str
    outline: Outline
    corpus: Corpus
    declared: Declared
    cores: int
    run: FloatRun
    dataset: Dataset
    judged: str
    padded: bool
    metric: WishedMetric | None


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
    get one each, NAME-TARGET, of the same data.

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
    if not re.fullmatch(r"\w[\w.-]*", chosen_name):
        rule = f"{chosen_name!r} cannot name a file."
        raise ConfigError(rule, key="--name", hint="Use letters, digits, '-', '_', '.'.")
    wishes, chosen = wishes or Wishes(), choose_targets(targets)
    for path in _files_of(to, chosen_name, chosen):
        if path.exists():
            raise ConfigError("exists already and is not overwritten.", file=path, hint="Choose another --name.")
    source = open_foreign(model)
    metric = None if wishes.metric is None else wished_metric(wishes.metric)
    if metric is not None and wishes.outputs:
        raise ConfigError("means nothing beside --metric, which decides what accuracy is.", key="--output")
    corpus = examine_data(data, source, tokenizer=wishes.tokenizer, labels=wishes.labels, metric=metric is not None)
    flat = tuple(target for group in chosen.groups for target in group)
    fixed = _fixed_from(source, corpus, flat)
    declared = declare(source, corpus.arrays, wishes.constants, wishes.ask, fixed_from=fixed)
    ready = prepared(source, declared.interface)
    outline = examine_model(ready, *flat, source=source, texts=bool(corpus.lengths), kind=wishes.kind)
    said: list[str] = []
    with scratch_folder("init") as staging:
        while True:
            with about_the_users_files(staging):
                facts = _facts(chosen_name, staging, outline, corpus, declared, wishes, metric)
            staged = _contents(facts, staging, chosen, _absolute)
            _write_all(staged)
            experiments = [path for path in staged if path.parent.name == "experiments"]
            groups, notes = read_back(chosen, experiments, staging, one_size=not corpus.sizes)
            said += notes
            chosen = replace(chosen, groups=groups)
            outline = outline.on([target for group in groups for target in group])
            if not facts.padded or _compiled(outline):
                break  # else the samples were padded for a target that was left out
    contents = _contents(facts, to, chosen, _relative)
    _write_all(contents)
    return Started(
        files=tuple(contents),
        notes=(*chosen.notes, *dict.fromkeys(said), *_said(facts)),
        commands=_commands(facts, to, chosen),
    )


def _fixed_from(source: Model, corpus: Corpus, targets: Sequence[str]) -> int | None:
    """How many free axes are too many, so that all samples' one size is written down.

    A branch that a size decides can be taken only where the size is known; and a target that compiles every size has
    one list of lengths.
    """
    if corpus.sizes:
        return None
    if any(node.op_type == "If" for node in load_graph(source).graph.node):
        return 1
    return 2 if all(installed_target(target).settings.compiles_shapes for target in targets) else None


def _facts(
    name: str,
    staging: Path,
    outline: Outline,
    corpus: Corpus,
    declared: Declared,
    wishes: Wishes,
    metric: WishedMetric | None,
) -> _Facts:
    """Read the data as the staged manifest says, and run the float model on them, so that the rest is known."""
    model, steps = outline.model, bool(declared.interface.state)
    axes = differing_axes(corpus, model, steps=steps)
    padded = bool(axes) and _compiled(outline)
    manifest = staging / "data" / f"{name}.yaml"
    text = manifest_text(
        name,
        lambda path: _absolute(path, manifest),
        outline,
        corpus,
        declared,
        axes=axes,
        padded=padded,
        metric=metric,
    )
    labels = {manifest.with_name(f"{name}.labels.json"): _labels_text(corpus)} if _labels_text(corpus) else {}
    _write_all({manifest: text, **labels})
    dataset = read_manifest(manifest, model)
    run = run_float(model, dataset, outline.fixed_batch)
    if metric is not None:
        score_some(dataset, model, run)
    elif corpus.task == "tensors":
        uses = meanings_of(model, run, declared.interface.state, wishes.outputs, wishes.ask)
        declared = with_outputs(declared, uses)
        dataset = replace(dataset, interface=replace(dataset.interface, outputs=uses))
        check_answers(run, uses, outline.source.path)
    elif wishes.outputs:
        hint = "Take the labels out of the data, or --output out of the command."
        raise ConfigError(f"means nothing for the task {corpus.task}, which has labels.", key="--output", hint=hint)
    judged = judged_by(dataset, model)
    return _Facts(
        name=name,
        outline=outline,
        corpus=corpus,
        declared=declared,
        cores=parse_cpu(None).cores,  # what this process may run on; `workbench doctor` warns of a quota below it
        run=run,
        dataset=dataset,
        judged=judged,
        padded=padded,
        metric=metric,
    )


def _compiled(outline: Outline) -> bool:
    return any(installed_target(target).settings.compiles_shapes for target in outline.targets)


def _name_of(model: Path) -> str:
    stem = model.resolve().parent.name if model.stem == "model" else model.stem
    return re.sub(r"[^\w.-]+", "-", stem).strip("-.")


def _group_name(name: str, chosen: Chosen, number: int) -> str:
    return name if number == 0 else f"{name}-{chosen.groups[number][0]}"


def _files_of(root: Path, name: str, chosen: Chosen) -> list[Path]:
    """All that may be written."""
    names = [_group_name(name, chosen, number) for number in range(len(chosen.groups))]
    own = [root / folder / f"{one}.yaml" for one in names for folder in ("experiments", "search_spaces")]
    return [*own, root / "calibration" / f"{name}.yaml", root / "calibration" / f"{name}.labels.json"]


def _contents(facts: _Facts, root: Path, chosen: Chosen, show: Show) -> dict[Path, str]:
    """File → text, the experiments first."""
    corpus, steps = facts.corpus, bool(facts.declared.interface.state)
    axes = differing_axes(corpus, facts.outline.model, steps=steps)
    experiments: dict[Path, str] = {}
    spaces: dict[Path, str] = {}
    for number, group in enumerate(chosen.groups):
        one, outline = _group_name(facts.name, chosen, number), facts.outline.on(group)
        experiment = root / "experiments" / f"{one}.yaml"
        sizes: Sizes = sizes_of(facts.dataset, outline, facts.run)
        experiments[experiment] = experiment_text(
            one,
            facts.name,
            lambda path, file=experiment: show(path, file),  # type: ignore[misc]  # bound now
            outline,
            sizes,
            cores=facts.cores,
            call_ms=facts.run.call_ms,
            judged=facts.judged,
            service=not steps,
        )
        spaces[root / "search_spaces" / f"{one}.yaml"] = space_text(
            one,
            outline,
            facts.cores,
            text=bool(corpus.lengths),
            lengths=corpus.lengths,
            max_length=max_length_of(outline, corpus),
            compiled_lengths=compiled_lengths(corpus, outline.model, axes if facts.padded else (), steps=steps),
            service=not steps,
            about=facts.name,
        )
    manifest = root / "calibration" / f"{facts.name}.yaml"
    text = manifest_text(
        facts.name,
        lambda path: show(path, manifest),
        facts.outline,
        corpus,
        facts.declared,
        axes=axes,
        padded=facts.padded,
        metric=facts.metric,
    )
    contents = {**experiments, manifest: text, **spaces}
    if labels := _labels_text(corpus):
        contents[manifest.with_name(f"{facts.name}.labels.json")] = labels
    return contents


def _labels_text(corpus: Corpus) -> str:
    return json.dumps(corpus.labels, indent=1) + "\n" if isinstance(corpus.labels, tuple) else ""


def _said(facts: _Facts) -> list[str]:
    kind = f"taken for a model of kind {facts.outline.kind!r}: {facts.outline.kind_reason} (--kind says otherwise)"
    reasons = facts.declared.reasons
    state = [f"state {o} → {i}: {reasons.get(f'state.{o}', '')}" for o, i in facts.declared.interface.state]
    outputs = [f"output {u.name}: {u.meaning}, {u.reason}" for u in facts.declared.interface.outputs]
    return [kind, *state, *outputs]


def _commands(facts: _Facts, to: Path, chosen: Chosen) -> tuple[str, ...]:
    lines: list[str] = []
    for number, group in enumerate(chosen.groups):
        experiment = to / "experiments" / f"{_group_name(facts.name, chosen, number)}.yaml"
        start = facts.outline.on(group).start
        if start.rehearsal and present(group[0]):
            lines.append(f"{start.rehearsal}    # {group[0]} is not on this machine: every time is modelled then")
        lines += [f"workbench plan {experiment}", f"workbench sweep {experiment}"]
    return tuple(lines)


def _relative(path: Path, file: Path) -> str:
    return Path(os.path.relpath(path.resolve(), file.parent.resolve())).as_posix()


def _absolute(path: Path, file: Path) -> str:
    return path.resolve().as_posix()


def _write_all(texts: Mapping[Path, str]) -> None:
    """Write files that do not exist yet: all under temporary names, then each gets its own; on failure none stays."""
    written: dict[Path, Path] = {}
    placed: list[Path] = []
    to_write = Path()
    try:
        for path, text in texts.items():
            to_write = path
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
            written[path] = temporary
            temporary.write_text(text, encoding="utf-8")
        for path, temporary in written.items():
            temporary.replace(path)
            placed.append(path)
    except OSError as error:
        for path in (*written.values(), *placed):
            path.unlink(missing_ok=True)
        raise ConfigError(
            f"cannot be written: {error.strerror} ({error.filename or to_write}).",
            key="--to",
            hint="Nothing was written.",
        ) from error
