"""Does the data fit the model and the compiled lengths? Asked before any work."""

from __future__ import annotations

import logging

from workbench.graph.read import embedding_rows, load_graph
from workbench.inputs.dataset import check_inputs
from workbench.inputs.dataset.arrays import ArrayRows
from workbench.inputs.experiment import Experiment
from workbench.inputs.metrics import scorer_of
from workbench.values.errors import ConfigError
from workbench.values.preprocess import check_vocabulary

_log = logging.getLogger(__name__)


def check_data(experiment: Experiment) -> None:
    """Compare data, tokenizer and labels with the model before any work.

    Raises:
        ConfigError: an input, the number of classes or the vocabulary does not fit.
    """
    data, model = experiment.dataset, experiment.model
    check_inputs(data, model)
    _check_bins(experiment)
    _check_compiled_lengths(experiment)
    scorer_of(data, model).check(model)
    if data.preprocessor is not None:
        rows = embedding_rows(load_graph(model))
        for token_input in data.preprocessor.inputs:
            if token_input.role == "ids" and token_input.name in rows:
                check_vocabulary(data.preprocessor, rows[token_input.name])


def _check_bins(experiment: Experiment) -> None:
    """A model exported for one length can be padded to no other."""
    sizes = (spec.shape[1] for spec in experiment.model.inputs if len(spec.shape) > 1)
    fixed = next((size for size in sizes if isinstance(size, int)), None)
    for parameter in experiment.space.parameters if fixed is not None else ():
        if parameter.name == "serving.sequence_bins" and parameter.choices != (str(fixed),):
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
    """Lengths of the splits' samples, where these are arrays and the model takes any length; else none."""
    free = {s.name for s in experiment.model.inputs if len(s.shape) > 1 and not isinstance(s.shape[1], int)}
    data = experiment.dataset
    sources = [rows.source for rows in (data.calibration, data.validation, data.holdout)]
    return {
        array.shape[1]
        for source in sources
        if isinstance(source, ArrayRows)
        for name, array in source.inputs
        if name in free
    }
