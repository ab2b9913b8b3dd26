"""Labels in the data: class ids or tags, which are a task of their own, or anything else that an output is held
against."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from workbench.evaluation.float_run import FloatRun
from workbench.inputs.dataset import Dataset
from workbench.inputs.dataset.arrays import SIZES
from workbench.inputs.dataset.stored import StoredArray, npz_arrays
from workbench.inputs.metrics import MeaningScorer, scorer_of
from workbench.inputs.metrics.agreement import AGAINST
from workbench.values.errors import ConfigError
from workbench.values.interface import Meaning, OutputUse
from workbench.values.model import Model

LABEL_COLUMNS = ("label", "labels", "class", "category", "intent", "target", "y", "label_id")
"""Names looked for, the likeliest first; upper and lower case are the same."""
LABELS = "labels"
"""Array that a manifest reads where it names no other."""
_UNLABELLED = ("state", "ignored", "scores")
"""Meanings that are never held against anything, or with another output only."""
_DETECTIONS = ("boxes", "classes")
"""What the labels of a detector are made of, where they have names."""
RANK_OF_TAGS = 2
_FAR, _SURE = 2.0, 0.5
"""Standard deviations above chance, and of what lies between chance and certainty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayLabels:
    """
    Attributes:
        name: of the array, or what the names of several begin with: NAME.KEY.
        rank: axes of class ids (1) or tags (2); None for labels of any other kind.
    """

    name: str
    rank: int | None


def labels_of(files: Sequence[Path], inputs: Collection[str], *, free: bool) -> ArrayLabels | None:
    """What the arrays beside the inputs say of each sample; None where there are no labels.

    Args:
        free: an output is to be held against them, so that they are no classes.

    Raises:
        ConfigError: a file is damaged.
    """
    first = npz_arrays(files[0], texts=LABEL_COLUMNS)
    numbers = {n: len(a.shape) for n, a in first.items() if n not in inputs and _is_ids(n, a, first)}
    ids = None if free else match(numbers, LABEL_COLUMNS)
    if ids is not None:
        return ArrayLabels(name=ids, rank=numbers[ids])
    for path in files if not first.keys().isdisjoint(inputs) else ():  # else they are inputs by another name
        others = [name for name in npz_arrays(path, texts=LABEL_COLUMNS) if name not in inputs]
        found = match({name.partition(".")[0] for name in others} - set(inputs), LABEL_COLUMNS)
        if found is not None:
            return ArrayLabels(name=found, rank=None)
    return None


def match(columns: Collection[str], known: Sequence[str]) -> str | None:
    """The column whose name stands first among the known ones, as the file spells it."""
    spelled = {column.strip().lower(): column for column in columns}
    return next((spelled[name] for name in known if name in spelled), None)


def _is_ids(name: str, array: StoredArray, beside: Collection[str]) -> bool:
    whole = np.dtype(array.dtype).kind in "iu"
    return whole and len(array.shape) <= RANK_OF_TAGS and name + SIZES not in beside


def held_against_labels(
    dataset: Dataset, model: Model, run: FloatRun, uses: Sequence[OutputUse], written: Collection[str]
) -> tuple[OutputUse, ...]:
    """The outputs, each with the labels that it is held against, those that have some first.

    Nothing is added to an output that the user spoke of, nor a label to two outputs.

    Args:
        dataset: with targets of any kind.
        written: outputs of `--output`.

    Raises:
        ConfigError: labels are none that an output can be held against.
    """
    first = first_label(run)
    if isinstance(first, Mapping):
        uses = _by_name(dataset, model, run, uses, written, sorted(map(str, first)))
    elif first is not None and not any(AGAINST in dict(use.options) for use in uses):
        uses = _by_order(dataset, model, run, uses, written, first)
    if any(AGAINST in dict(use.options) for use in uses):
        _try(dataset, model, run, uses)
    return tuple(sorted(uses, key=lambda use: AGAINST not in dict(use.options)))


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


def _by_order(
    dataset: Dataset, model: Model, run: FloatRun, uses: Sequence[OutputUse], written: Collection[str], label: Any
) -> Sequence[OutputUse]:
    """One value of each sample: it is what the first output says whose meaning can have labels."""
    able = [use for use in uses if use.meaning not in (*_UNLABELLED, "embedding")]
    if not able:
        what = ", ".join(f"{use.name!r} is {use.meaning}" for use in uses)
        raise _refused(f"no output can be held against them ({what})", uses[0], label)
    if able[0].name in written:
        return uses
    held = _held(able[0], LABELS)
    try:
        _try(dataset, model, run, _alone(held, uses))
    except ConfigError as error:
        rule = f"the output {held.name!r} ({held.meaning}) cannot be held against them: {error.rule.rstrip('.')}"
        raise _refused(rule, held, label) from error
    return [held if use.name == held.name else use for use in uses]


def _by_name(
    dataset: Dataset,
    model: Model,
    run: FloatRun,
    uses: Sequence[OutputUse],
    written: Collection[str],
    keys: Sequence[str],
) -> Sequence[OutputUse]:
    """Several values of each sample: each is what the output of its name says; boxes and classes are of the boxes."""
    found = {use.name: use for use in uses}
    boxes = next((use.name for use in uses if use.meaning == "boxes"), None)
    if found.keys() <= set(written):
        return uses
    taken = {str(dict(use.options).get(AGAINST)) for use in uses}
    for key in keys:
        if f"{LABELS}.{key}" in taken:
            continue
        owner = boxes if boxes is not None and key in _DETECTIONS else key
        if owner not in found:
            names = ", ".join(found)
            raise ConfigError(
                f"the data have labels, but no output is called {key!r}, as {LABELS}.{key} is; there are {names}.",
                key="labels",
                hint=f"Say whose they are: --output NAME=MEANING:{AGAINST}={LABELS}.{key}; or leave them out.",
            )
        if owner in written:
            continue
        held = _held(found[owner], LABELS if owner == boxes else f"{LABELS}.{key}")
        try:
            _try(dataset, model, run, _alone(held, uses))
        except ConfigError as error:
            rule = (
                f"the output {owner!r} ({held.meaning}) cannot be held against {LABELS}.{key}: {error.rule.rstrip('.')}"
            )
            raise _refused(rule, held, key, key=key) from error
        found[owner] = held
    return list(found.values())


def _held(use: OutputUse, labels: str) -> OutputUse:
    options = {**dict(use.options), AGAINST: labels}
    reason = f"{use.reason}; held against the data's {labels}, whose first samples fit it"
    return replace(use, options=tuple(sorted(options.items())), reason=reason)


def _alone(held: OutputUse, uses: Sequence[OutputUse]) -> list[OutputUse]:
    """All outputs, of which one alone is judged, so that an error is about its labels."""
    own = [held if use.name == held.name else use for use in uses]
    return [
        use if use.name == held.name or use.meaning in _UNLABELLED else OutputUse(name=use.name, meaning="ignored")
        for use in own
    ]


def _try(dataset: Dataset, model: Model, run: FloatRun, uses: Sequence[OutputUse]) -> None:
    """Ask the meanings' judges about the labels of the first samples.

    Raises:
        ConfigError: a label is missing, or none of its output's meaning.
    """
    tried = replace(dataset, interface=replace(dataset.interface, outputs=tuple(uses)))
    scorer = scorer_of(tried, model)
    with contextlib.closing(scorer):
        for batch, outputs in run.rows:
            if isinstance(scorer, MeaningScorer):
                scorer.check_labels(batch)
            scorer.score(outputs, batch, outputs)


def _refused(rule: str, use: OutputUse, label: Any, *, key: str = "") -> ConfigError:
    array = f"{LABELS}.{key}" if key else LABELS
    texts = not key and isinstance(label, str)
    own = "--metric wer:… or " if texts else ""
    return ConfigError(
        f"the data have labels, but {rule}.",
        key="labels",
        hint=f"Say how they are scored: {own}--metric file.py:function; or --output NAME=MEANING:{AGAINST}={array} for "
        f"another output or meaning. --output {use.name}={use.meaning} compares it with the float model alone, and so "
        "does leaving them out of the data.",
    )
