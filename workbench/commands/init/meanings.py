"""What the outputs mean: as the user says, as the model and its values tell, or not at all; and the labels in the data.

Labels are class ids or tags, which are a task of their own, or anything else that an output is held against.
"""

from __future__ import annotations

import contextlib
import json
import math
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from workbench.commands.console import ask
from workbench.commands.options import pairs
from workbench.evaluation.float_run import FloatRun
from workbench.evaluation.metric_check import refuse_shared
from workbench.graph.read import load_graph
from workbench.inputs.dataset import Dataset
from workbench.inputs.dataset.arrays import SIZES
from workbench.inputs.dataset.stored import npz_arrays
from workbench.inputs.metrics import InferredOutput, MeaningScorer, infer_outputs, scorer_of
from workbench.inputs.metrics.agreement import AGAINST, reading_of
from workbench.inputs.metrics.inference import PASSED
from workbench.values.errors import ConfigError, nearest
from workbench.values.interface import Meaning, OutputUse
from workbench.values.model import Model

_INFORMS = ("state", "values", "ignored")
"""Meanings that say little of what a model is for: they stand behind the others, since the first is the primary one."""


def meanings_of(
    model: Model,
    run: FloatRun,
    state: Sequence[tuple[str, str]],
    written: Mapping[str, str],
) -> tuple[OutputUse, ...]:
    """Every output, that which decides first.

    Args:
        written: output → meaning, of `--output NAME=MEANING`.
    """
    names = [spec.name for spec in model.outputs]
    for name, word in written.items():
        if name not in names:
            raise ConfigError(f"the model has no output {name!r}.", key="--output", hint=nearest(name, names))
        if word.partition(":")[0] not in get_args(Meaning):
            rule = f"{word!r} is no meaning of an output."
            raise ConfigError(rule, key=f"--output {name}", hint=nearest(word, get_args(Meaning)))
    found = infer_outputs(model, load_graph(model), run.outputs, state=state)
    uses: list[OutputUse] = []
    unknown: list[InferredOutput] = []
    for one in found:
        if one.name in written and (one.use is None or one.use.reason != PASSED):
            uses.append(_as_written(one, written[one.name]))
        elif one.use is not None:
            uses.append(one.use)
        elif (told := told_by_labels(one.name, run)) is not None:
            uses.append(OutputUse(name=one.name, meaning=told[0], reason=told[1]))
        elif answer := ask(f"What does the output {one.name!r} mean? ({one.reason})", (*_choices(one, run), "ignored")):
            uses.append(_as_written(one, answer))
        else:
            unknown.append(one)
    batch, outputs = run.rows[0]
    every = [*uses, *(OutputUse(name=one.name, meaning="values") for one in unknown)]
    refuse_shared(outputs, every, batch, model.path if model.origin is None else model.origin.path, model)
    if unknown:
        raise _cannot_know(unknown, model, run)
    return tuple(sorted(uses, key=lambda use: use.meaning in _INFORMS))


def _as_written(one: InferredOutput, written: str) -> OutputUse:
    """`boxes`, or `boxes:scores=scores,format=xyxy,score=0.7`."""
    word, _, rest = written.partition(":")
    options: dict[str, str | int | float | bool] = {}
    reason = "as you say"
    if one.use is not None and one.use.meaning == word:  # with what was found about it
        options, reason = dict(one.use.options), f"{one.use.reason}; so said"
    for key, text in pairs(filter(None, rest.split(",")), f"--output {one.name}").items():
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        options[key] = value if isinstance(value, bool | int | float) else text
    meaning: Meaning = word  # type: ignore[assignment]  # checked by the caller
    return OutputUse(name=one.name, meaning=meaning, options=tuple(sorted(options.items())), reason=reason)


def _choices(one: InferredOutput, run: FloatRun) -> tuple[str, ...]:
    """What would fit, the likeliest first: boxes with their options, where its values can be read as boxes with shares
    for scores."""
    read = reading_of(OutputUse(name=one.name, meaning="boxes"), run.rows)
    return (read, *one.candidates) if "class_column" in read and "activation" not in read else one.candidates


def _cannot_know(unknown: Sequence[InferredOutput], model: Model, run: FloatRun) -> ConfigError:
    label = first_label(run)
    choices = {one.name: (*_choices(one, run), "ignored") for one in unknown}
    told = "; ".join(f"{one.name!r} ({one.reason}): {', '.join(choices[one.name])}" for one in unknown)
    written = []
    for place, one in enumerate(unknown):
        against = f":{AGAINST}=labels" if label is not None and not place else ""  # one alone can have those
        if isinstance(label, Mapping):
            against = f":{AGAINST}=labels.{one.name}" if one.name in label else ""
        written.append(f"--output {shlex.quote(f'{one.name}={choices[one.name][0]}{against}')}")
    which = "an output means" if len(unknown) == 1 else "some outputs mean"
    return ConfigError(
        f"nothing tells what {which}, and a wrong guess would give a wrong accuracy. {told}.",
        file=model.origin.path if model.origin is not None else model.path,
        key="outputs",
        hint=f"Say it, such as {' '.join(written)}",
    )


LABEL_COLUMNS = ("label", "labels", "class", "category", "intent", "target", "y", "label_id")
"""Names looked for, the likeliest first; upper and lower case are the same."""
LABELS = "labels"
"""Array that a manifest reads where it names no other."""
_UNLABELLED = ("state", "ignored", "scores", "embedding")
"""Meanings that are held against nothing, or with another output only."""
_DETECTIONS = ("boxes", "classes")
"""What the labels of a detector are made of, where they have names."""
RANK_OF_TAGS = 2
_FAR, _SURE = 2.0, 0.5
"""Standard deviations above chance, and of what lies between chance and certainty."""


def labels_of(files: Sequence[Path], inputs: Collection[str], *, free: bool) -> tuple[str, int | None] | None:
    """What the arrays beside the inputs say of each sample, None where there are no labels: (the array's name, or what
    the names of several begin with: NAME.KEY; 1 for class ids, 2 for tags, None for labels of any other kind).

    Args:
        free: an output is to be held against them, so that they are no classes.
    """
    first = npz_arrays(files[0], texts=LABEL_COLUMNS)
    ids_or_tags = {
        name: len(array.shape)
        for name, array in first.items()
        if name not in inputs and np.dtype(array.dtype).kind in "iu" and name + SIZES not in first
    }
    numbers = {name: rank for name, rank in ids_or_tags.items() if rank <= RANK_OF_TAGS}
    ids = None if free else match(numbers, LABEL_COLUMNS)
    if ids is not None:
        return ids, numbers[ids]
    for path in files if not first.keys().isdisjoint(inputs) else ():  # else they are inputs by another name
        others = [name for name in npz_arrays(path, texts=LABEL_COLUMNS) if name not in inputs]
        found = match({name.partition(".")[0] for name in others} - set(inputs), LABEL_COLUMNS)
        if found is not None:
            return found, None
    return None


def match(columns: Collection[str], known: Sequence[str]) -> str | None:
    """The column whose name stands first among the known ones, as the file spells it."""
    spelled = {column.strip().lower(): column for column in columns}
    return next((spelled[name] for name in known if name in spelled), None)


def held_against_labels(
    dataset: Dataset, model: Model, run: FloatRun, uses: Sequence[OutputUse], written: Collection[str]
) -> tuple[OutputUse, ...]:
    """The outputs, each with the labels that it is held against, those that have some first.

    One value of each sample is what the first output says whose meaning can have labels; of several, each is what the
    output of its name says, and boxes and classes are of the boxes. Nothing is added to an output that the user spoke
    of, nor a label to two outputs.

    Args:
        dataset: with targets of any kind.
        written: outputs of `--output`.
    """
    first, found = first_label(run), {use.name: use for use in uses}
    against = {str(dict(use.options)[AGAINST]) for use in uses if AGAINST in dict(use.options)}
    labels: dict[str, str] = {}
    if isinstance(first, Mapping):
        boxes = next((use.name for use in uses if use.meaning == "boxes"), None)
        for key in sorted(map(str, first)) if not found.keys() <= set(written) else ():
            owner = boxes if boxes is not None and key in _DETECTIONS else key
            if f"{LABELS}.{key}" in against or owner in written:
                continue
            if owner not in found:
                names = ", ".join(found)
                raise ConfigError(
                    f"the data have labels, but no output is called {key!r}, as {LABELS}.{key} is; there are {names}.",
                    key="labels",
                    hint=f"Say whose they are: --output NAME=MEANING:{AGAINST}={LABELS}.{key}; or leave them out.",
                )
            labels[owner] = LABELS if owner == boxes else f"{LABELS}.{key}"
    elif first is not None and not against:
        able = next((use.name for use in uses if use.meaning not in _UNLABELLED), None)
        labels = {} if able is None or able in written else {able: LABELS}
    for name, label in labels.items():
        use = found[name]
        options = tuple(sorted({**dict(use.options), AGAINST: label}.items()))
        reason = f"{use.reason}; held against the data's {label}, whose first samples fit it"
        found[name] = replace(use, options=options, reason=reason)
    held = [use for use in found.values() if AGAINST in dict(use.options)]
    if held:
        tried = replace(dataset, interface=replace(dataset.interface, outputs=tuple(found.values())))
        try:
            with contextlib.closing(scorer_of(tried, model)) as scorer:
                for batch, outputs in run.rows:
                    if isinstance(scorer, MeaningScorer):
                        scorer.check_labels(batch)
                    scorer.score(outputs, batch, outputs)
        except ConfigError as error:
            whose = ", ".join(f"{use.name!r} ({use.meaning})" for use in held)
            raise ConfigError(
                f"the data have labels, but {whose} cannot be held against them: {error.rule}",
                key="labels",
                hint="Say how they are scored: --metric file.py:function, or --metric wer:… where they are texts; or "
                f"--output NAME=MEANING:{AGAINST}={LABELS} for another output or meaning. --output {held[0].name}="
                f"{held[0].meaning} compares with the float model alone, and so does leaving them out of the data.",
            ) from error
    return tuple(sorted(found.values(), key=lambda use: use not in held))


def first_label(run: FloatRun) -> Any:
    """The first that the data say of a sample; None where they say nothing."""
    truths = (truth for batch, _ in run.rows for truth in batch.truths or ())
    return next((truth for truth in truths if truth is not None), None)


def told_by_labels(name: str, run: FloatRun) -> tuple[Meaning, str] | None:
    """What an output means by the labels of the first samples: classes where its largest is the label far more often
    than by chance, numbers where labels are numbers of its size and no classes. None where they do not tell."""
    pairs = [
        (np.asarray(outputs[name][row]), truth.get(name) if isinstance(truth, Mapping) else truth)
        for batch, outputs in run.rows
        for row, truth in enumerate(batch.truths or ())
    ]
    try:
        found = [(output, np.asarray(label, np.float64)) for output, label in pairs if label is not None]
    except (TypeError, ValueError):  # texts, mappings, or lists of different lengths
        return None
    if not found:
        return None
    whole = all((label == np.rint(label)).all() for _, label in found)
    if all(label.size == output.size for output, label in found) and not whole:
        return "values", "the data's labels are numbers of its size"
    if not whole or any(label.size != 1 or output.ndim != 1 or output.size < 2 for output, label in found):
        return None
    said, right = (
        np.array([int(x) for x in of]) for of in zip(*((o.argmax(), y.item()) for o, y in found), strict=True)
    )
    chance = sum(float((said == kind).mean() * (right == kind).mean()) for kind in np.union1d(said, right))
    same, above = int((said == right).sum()), float((said == right).mean()) - chance
    if above <= max(_SURE * (1 - chance), _FAR * math.sqrt(chance * (1 - chance) / len(found))):
        return None
    return "logits", f"its largest is the data's label for {same} of {len(found)} samples"
