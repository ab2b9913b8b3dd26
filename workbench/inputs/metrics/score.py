"""Model outputs → outcomes, and how two models' outputs agree."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from workbench.inputs.dataset.batch import Batch, BoolArray, IntArray, Task
from workbench.inputs.metrics.agreement.judge import cosines, flat, per_position
from workbench.inputs.metrics.entities import count_entities, tag_set
from workbench.inputs.metrics.outcomes import ClassificationOutcomes, FloatArray, NerOutcomes
from workbench.values.errors import ConfigError, MeasureError
from workbench.values.model import Model

Outputs = Mapping[str, npt.NDArray[np.generic]]
"""Output name → array [n, ...]."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Agreement:
    """How a model's outputs compare with the float model's over a few samples.

    Attributes:
        cosine: [n] of the output where it is lowest; means nothing where `finite` is False.
        finite: [n] no output holds NaN or infinity.
        constant: all samples, two or more, have the same output, though the float model tells them apart.
        indices: [n] rows of the samples in their file.
    """

    cosine: FloatArray
    finite: BoolArray
    constant: bool
    indices: IntArray


def scored_output(names: Iterable[str]) -> str:
    """The output that holds the scores: the one named 'logits', or the only one."""
    found = tuple(names)
    if "logits" in found:
        return "logits"
    if len(found) != 1:
        raise ConfigError(
            f"the model has the outputs {', '.join(found)} and none is named 'logits'.",
            key="model",
            hint="Rename the output that holds the scores to 'logits', or keep that one alone.",
        )
    return found[0]


def check_outputs(task: Task, labels: Sequence[str], model: Model) -> None:
    """Compare the outputs a model declares with the task, before any work."""
    if task == "tensors":
        return
    name = scored_output(spec.name for spec in model.outputs)
    shape = next(spec.shape for spec in model.outputs if spec.name == name)
    rank = 3 if task == "ner" else 2
    if not shape:
        return  # it declares none: the first answer shows it
    if len(shape) != rank:
        raise ConfigError(f"output {name!r} has {len(shape)} dimensions; {task} needs {rank}.", file=model.path)
    if labels and isinstance(shape[-1], int) and shape[-1] != len(labels):
        raise _label_count(name, shape[-1], len(labels))


def outcomes_of(
    task: Task, outputs: Outputs, batch: Batch, *, labels: Sequence[str] = ()
) -> ClassificationOutcomes | NerOutcomes:
    """Score one batch.

    Args:
        outputs: classification [n, classes], ner [n, length, classes].
        labels: names by index; needed for ner, whose tags they are.

    Raises:
        MeasureError: an output holds NaN (names the sample) or has an impossible shape.
        ConfigError: the number of classes is not that of the labels.
    """
    if batch.targets is None:
        raise ValueError(f"a batch without targets cannot be scored as {task}")
    if task == "ner" and not labels:
        raise ValueError("the task 'ner' is scored with the names of its tags")
    name = scored_output(outputs)
    logits, targets = outputs[name], batch.targets
    if logits.shape[:-1] != targets.shape:
        raise MeasureError(f"output {name!r} has the shape {logits.shape}; expected {(*targets.shape, 'classes')}.")
    classes = logits.shape[-1]
    if classes != (len(labels) or classes) or targets.max(initial=0) >= classes:
        raise _label_count(name, classes, len(labels) or int(targets.max()) + 1)
    _refuse(np.isnan(logits.astype(np.float64, copy=False)), "NaN", name, batch)
    predicted = logits.argmax(axis=-1).astype(np.int64)
    if task == "classification":
        return ClassificationOutcomes(predicted=predicted, target=targets, lengths=batch.lengths)
    tags = tag_set(labels)
    entities, tokens, scored = count_entities(tags, predicted, targets)
    return NerOutcomes(
        types=np.array(tags.types, dtype=np.str_),
        entities=entities,
        tokens=tokens,
        scored=scored,
        lengths=batch.lengths,
    )


def agreement(runs: Iterable[tuple[Outputs, Outputs, Batch]], apart: Collection[str] = ()) -> Agreement:
    """Compare outputs with the float model's over (outputs, float outputs, batch) of several batches, for any task.

    All batches are seen together: that a model answers the same to everything does not show on one sample.

    Args:
        apart: outputs that distance says nothing of, and that may differ in length; they must be finite all the same.

    Raises:
        MeasureError: the other outputs differ from the float model's in name or shape.
    """
    cosine, finite, indices = [], [], []
    seen: list[FloatArray] = []
    expected: list[FloatArray] = []
    for outputs, reference, batch in runs:
        rows = np.ones(len(batch), dtype=np.bool_)
        for array in outputs.values():
            rows &= np.isfinite(array.astype(np.float64)).reshape(len(batch), -1).all(axis=1)
        outputs, reference = ({n: a for n, a in of.items() if n not in apart} for of in (outputs, reference))
        _check_alike(outputs, reference)
        safe = {
            name: np.nan_to_num(array.astype(np.float64), posinf=0.0, neginf=0.0) for name, array in outputs.items()
        }
        cosine.append(_lowest_cosine(safe, reference, batch))
        finite.append(rows)
        indices.append(batch.indices)
        if outputs:
            seen.append(_signatures(safe, batch))
            expected.append(_signatures(reference, batch))
    if not cosine:
        raise ValueError("no batches to compare")
    return Agreement(
        cosine=np.concatenate(cosine),
        finite=np.concatenate(finite),
        constant=bool(seen) and _all_alike(seen) and not _all_alike(expected),
        indices=np.concatenate(indices),
    )


def cut_alike(outputs: Outputs, batch: Batch, reference: Outputs, other: Batch) -> tuple[Outputs, Outputs, Batch]:
    """Outputs for the same texts padded to two lengths, both cut to the shorter one, and the batch with its mask.

    An axis in which the two differ is the length; nothing is cut where they were padded alike.

    Args:
        other: the batch that gave `reference`: the same rows.
    """
    if batch.valid is None or other.valid is None or batch.valid.shape == other.valid.shape:
        return outputs, reference, batch
    width = min(batch.valid.shape[1], other.valid.shape[1])
    ours, theirs = dict(outputs), dict(reference)
    for name in ours.keys() & theirs.keys():
        if ours[name].ndim == theirs[name].ndim:
            common = tuple(slice(min(sizes)) for sizes in zip(ours[name].shape, theirs[name].shape, strict=True))
            ours[name], theirs[name] = ours[name][common], theirs[name][common]
    return ours, theirs, replace(batch, valid=batch.valid[:, :width])


def _lowest_cosine(outputs: Outputs, reference: Outputs, batch: Batch) -> FloatArray:
    """[n] over the outputs."""
    found = np.ones(len(batch))
    for name, array in outputs.items():
        found = np.minimum(found, cosines(flat(array, batch), flat(reference[name], batch)))
    return found


def _signatures(outputs: Outputs, batch: Batch) -> FloatArray:
    """[n, values] that do not depend on padding: positions are averaged, other outputs are taken as they are."""
    parts = []
    for array in outputs.values():
        values = flat(array, batch)
        if per_position(array, batch):
            summed = values.reshape(array.shape).sum(axis=1).reshape(len(batch), -1)
            values = summed / np.maximum(batch.lengths, 1)[:, None]
        parts.append(values)
    return np.concatenate(parts, axis=1)


def _all_alike(batches: Sequence[FloatArray]) -> bool:
    """Whether two samples or more, of batches [n, values], are all the same; a longer one is another one."""
    width = max(rows.shape[1] for rows in batches)
    rows = np.concatenate([np.pad(rows, ((0, 0), (0, width - rows.shape[1]))) for rows in batches])
    return len(rows) > 1 and bool(np.allclose(rows, rows[0], rtol=1e-6, atol=1e-9))


def _check_alike(outputs: Outputs, reference: Outputs) -> None:
    ours = {name: array.shape for name, array in outputs.items()}
    theirs = {name: array.shape for name, array in reference.items()}
    if ours != theirs:
        raise MeasureError(f"the outputs are {ours}; the float model gives {theirs}.")


def _refuse(bad: BoolArray, what: str, name: str, batch: Batch) -> None:
    if bad.any():
        row = int(np.flatnonzero(bad.reshape(len(batch), -1).any(axis=1))[0])
        raise MeasureError(
            f"output {name!r} holds {what} for sample {int(batch.indices[row])} (counted from 0 in its file). "
            "Compare layer by layer, or keep the most sensitive layers in float."
        )


def _label_count(name: str, classes: int, labels: int) -> ConfigError:
    return ConfigError(
        f"the model's output {name!r} has {classes} classes, the dataset has {labels} labels.",
        key="labels",
        hint="Use the label file the model was trained with. Where labels are no classes: "
        f"outputs: {{{name}: {{meaning: values, against: labels}}}} (--output {name}=values:against=labels).",
    )
