"""Does the data fit the model and the compiled lengths? Asked before any work."""

from __future__ import annotations

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
from workbench.values.measurement import Split
from workbench.values.preprocess import check_vocabulary

_LABELS_LOOKED_AT = 32
"""Of each split's first samples; a wrong one behind them is found when it is scored."""


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
    try:
        states_of(data.interface, model)
    except ConfigError as error:
        raise ConfigError(error.rule, file=error.file or data.path, key=error.key, hint=error.hint) from error
    _check_shapes(experiment)
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


def _wrong(experiment: Experiment, parameter: str, rule: str, hint: str) -> ConfigError:
    return ConfigError(rule, file=experiment.space.path, key=f"parameters.{parameter}", hint=hint)


def _check_bins(experiment: Experiment) -> None:
    """A model exported for one length can be padded to no other, and data without bins to none at all."""
    data, model, space = experiment.dataset, experiment.model, experiment.space
    every = space.parameters if space.served_bins is None else space.served_bins.file.parameters
    length = next((s.shape[1] for s in model.inputs if len(s.shape) > 1 and isinstance(s.shape[1], int)), None)
    for parameter in (p for p in every if p.name == BINS):
        if data.sizing is None and length is not None and parameter.choices != (str(length),):
            rule = f"the model takes texts of {length} tokens and no others."
            raise _wrong(experiment, parameter.name, rule, "Leave it out, or export the model with a dynamic length.")
        if data.sizing is not None and len(data.sizing.binned) != 1:
            binned = data.sizing.binned
            several = f"{len(binned)} axes have bins" if binned else "no axis of the samples has bins"
            hint = (
                f"Leave it out, or give one axis bins in {data.path.name}: axes: {{NAME: {{bins: [64, 128], pad: 0}}}}."
            )
            raise _wrong(experiment, parameter.name, f"says how far samples are padded, and {several}.", hint)


def _check_shapes(experiment: Experiment) -> None:
    """Batches and compiled lengths that the space offers, held against the model and the samples."""
    data, model, space = experiment.dataset, experiment.model, experiment.space
    # a model of a fixed batch takes calls of that size and no others; where shapes are compiled, sessions fill them up
    fixed = model.fixed_batch
    offered = {b for p in space.parameters if p.name == "serving.batch" for b in p.choices}
    offered = offered or {experiment.baseline.serving.batch}
    if fixed is not None and not experiment.baseline.compile.compiles_shapes and offered != {fixed}:
        raise _wrong(
            experiment,
            "serving.batch",
            f"the model takes {fixed} sample{'' if fixed == 1 else 's'} in a call and no other number; offered are "
            f"{', '.join(map(str, sorted(offered, key=str)))}.",
            f"Write {fixed} alone, or export the model with a free first axis.",
        )
    # arrays run in the smallest compiled length that holds them: one must
    free = {s.name for s in model.inputs if len(s.shape) > 1 and not isinstance(s.shape[1], int)}
    lengths = set()
    for source in (rows.source for rows in (data.calibration, data.validation, data.holdout)):
        if isinstance(source, ArrayRows | LoaderRows):
            at = int(source.sizing.steps)
            each = (shape for _, shapes in source.distinct() for shape in shapes if shape[0] in free)
            lengths |= {source.sizing.padded(*one)[at] for one in each}
    compiled = [p for p in space.parameters if p.name == "compile.sequence_bins"] if lengths else []
    for parameter, choice in ((p, choice) for p in compiled for choice in p.choices):
        bins = [int(word) for word in str(choice).split()]
        if bins[-1] < max(lengths):
            rule = f"no length of {str(choice)!r} holds the dataset's samples, arrays of length {max(lengths)}."
            raise _wrong(experiment, parameter.name, rule, f"Add {max(lengths)}.")
