"""Does the data fit the model and the compiled lengths? Asked before any work."""

from __future__ import annotations

import logging

from workbench.evaluation.carried import states_of
from workbench.graph.read import embedding_rows, load_graph
from workbench.inputs.dataset import check_inputs
from workbench.inputs.dataset.arrays import ArrayRows
from workbench.inputs.dataset.loader import LoaderRows
from workbench.inputs.experiment import Experiment
from workbench.inputs.metrics import scorer_of
from workbench.inputs.metrics.meaning_scorer import MeaningScorer
from workbench.space.space import BINS
from workbench.values.errors import ConfigError
from workbench.values.installed_targets import installed_target
from workbench.values.measurement import Split
from workbench.values.preprocess import check_vocabulary

_LABELS_LOOKED_AT = 32
"""Of each split's first samples; a wrong one behind them is found when it is scored."""
_log = logging.getLogger(__name__)


def check_data(experiment: Experiment) -> None:
    """Compare data, tokenizer and labels with the model before any work.

    Raises:
        ConfigError: an input, the number of classes or the vocabulary does not fit.
    """
    data, model = experiment.dataset, experiment.model
    if model.is_language_model:
        return  # its tokens are the model's own, and were held against its context when the texts were read
    _check_bins(experiment)
    check_inputs(data, model)
    _check_states(experiment)
    _check_batches(experiment)
    _check_compiled_lengths(experiment)
    scorer = scorer_of(data, model)
    scorer.check(model)
    if isinstance(scorer, MeaningScorer) and scorer.has_labels:
        splits: tuple[Split, ...] = ("validation", "holdout")
        for batch in (b for s in splits for b in data.batches(s, _LABELS_LOOKED_AT, stop=_LABELS_LOOKED_AT)):
            scorer.check_labels(batch)
    if data.preprocessor is not None:
        rows = embedding_rows(load_graph(model))
        for token_input in data.preprocessor.inputs:
            if token_input.role == "ids" and token_input.name in rows:
                check_vocabulary(data.preprocessor, rows[token_input.name])


def _check_states(experiment: Experiment) -> None:
    try:
        states = states_of(experiment.dataset.interface, experiment.model)
    except ConfigError as error:
        if error.file is not None:
            raise
        raise ConfigError(error.rule, file=experiment.dataset.path, key=error.key, hint=error.hint) from error
    growing = next((state for state in states if state.grows is not None), None)
    fixed = [name for name in experiment.space.targets if installed_target(name).settings.compiles_shapes]
    if growing is not None and fixed:
        raise ConfigError(
            f"{growing.spec.name!r} grows along {growing.axis or growing.grows!r} from step to step, and {fixed[0]} "
            "runs compiled shapes alone.",
            file=experiment.dataset.path,
            key=f"state.{growing.output}",
            hint="Export the model with a cache of one size, written at a position that is fed, and give that size: "
            f"inputs: {{{growing.spec.name}: {{axes: [batch, ..., SIZE, ...]}}}}. Or take targets that run any shape.",
        )


def _check_batches(experiment: Experiment) -> None:
    """A model of a fixed batch takes calls of that size and no others."""
    fixed = experiment.model.fixed_batch
    if fixed is None or experiment.baseline.compile.compiles_shapes:  # its sessions fill batches up themselves
        return
    offered = {b for p in experiment.space.parameters if p.name == "serving.batch" for b in p.choices}
    offered = offered or {experiment.baseline.serving.batch}
    if offered != {fixed}:
        raise ConfigError(
            f"the model takes {fixed} sample{'' if fixed == 1 else 's'} in a call and no other number; offered are "
            f"{', '.join(map(str, sorted(offered, key=str)))}.",
            file=experiment.space.path,
            key="parameters.serving.batch",
            hint=f"Write {fixed} alone, or export the model with a free first axis.",
        )


def _check_bins(experiment: Experiment) -> None:
    """A model exported for one length can be padded to no other, and data without bins to none at all."""
    served = experiment.space.served_bins
    every = experiment.space.parameters if served is None else served.file.parameters
    searched = [p for p in every if p.name == BINS]
    sizing = experiment.dataset.sizing
    if sizing is not None:
        for parameter in searched if len(sizing.binned) != 1 else ():
            several = f"{len(sizing.binned)} axes have bins" if sizing.binned else "no axis of the samples has bins"
            raise ConfigError(
                f"says how far samples are padded, and {several}.",
                file=experiment.space.path,
                key=f"parameters.{parameter.name}",
                hint=f"Leave it out, or give one axis bins in {experiment.dataset.path.name}: "
                "axes: {NAME: {bins: [64, 128], pad: 0}}.",
            )
        return
    sizes = (spec.shape[1] for spec in experiment.model.inputs if len(spec.shape) > 1)
    fixed = next((size for size in sizes if isinstance(size, int)), None)
    for parameter in searched if fixed is not None else ():
        if parameter.choices != (str(fixed),):
            raise ConfigError(
                f"the model takes texts of {fixed} tokens and no others.",
                file=experiment.space.path,
                key=f"parameters.{parameter.name}",
                hint="Leave it out, or export the model with a dynamic length.",
            )


def _check_compiled_lengths(experiment: Experiment) -> None:
    """Arrays have one length, and run in the smallest compiled one that holds it: one must, and others are no use."""
    lengths = _array_lengths(experiment)
    for parameter in experiment.space.parameters if lengths else ():
        if parameter.name != "compile.sequence_bins":
            continue
        for choice in parameter.choices:
            bins = [int(word) for word in str(choice).split()]
            if bins[-1] < max(lengths):
                raise ConfigError(
                    f"no length of {str(choice)!r} holds the dataset's samples, arrays of length {max(lengths)}.",
                    file=experiment.space.path,
                    key=f"parameters.{parameter.name}",
                    hint=f"Add {max(lengths)}.",
                )
            used = {min(found for found in bins if found >= length) for length in lengths}
            if unused := [found for found in bins if found not in used]:
                _log.warning(
                    "%s: parameters.%s: every sample is an array of length %s, so of '%s' nothing ever runs in %s: "
                    "compiled and loaded for nothing.",
                    experiment.space.path,
                    parameter.name,
                    " or ".join(map(str, sorted(lengths))),
                    choice,
                    " and ".join(map(str, unused)),
                )


def _array_lengths(experiment: Experiment) -> set[int]:
    """Lengths of the splits' samples as the model is fed them, where these are no texts and it takes any length."""
    free = {s.name for s in experiment.model.inputs if len(s.shape) > 1 and not isinstance(s.shape[1], int)}
    data, found = experiment.dataset, set()
    for rows in (data.calibration, data.validation, data.holdout):
        if isinstance(rows.source, ArrayRows | LoaderRows):
            sizing = rows.source.sizing
            for _, shapes in rows.source.distinct():
                found |= {sizing.padded(name, shape)[int(sizing.steps)] for name, shape in shapes if name in free}
    return found
