"""Do the rows of a call know of each other, or of their padding? For data that are no texts, by running a few of them.

Texts have `padding_check`. Here a sample is run alone, padded as beside the largest, and together with it: where that
moves the answer, batches or bins change what is measured.
"""

from __future__ import annotations

import logging

import numpy as np

from workbench.evaluation.bench import Bench
from workbench.evaluation.carried import first_steps, whole_samples
from workbench.evaluation.padding_check import of_any_length
from workbench.inputs.dataset import Batch
from workbench.inputs.dataset.arrays import ArrayRows
from workbench.inputs.dataset.loader import LoaderRows
from workbench.inputs.experiment import Experiment
from workbench.inputs.metrics import Outputs
from workbench.inputs.metrics.score import common_part
from workbench.targets.base import FLOAT32_ROWS, INT8_ROWS, Feeds, Session
from workbench.values.errors import ConfigError
from workbench.values.measurement import Split

LOOKED_AT = 64
"""Samples among which the smallest and the largest are looked for."""
_STEPS = 8

_log = logging.getLogger(__name__)


def check_batch_invariance(experiment: Experiment, bench: Bench, session: Session, split: Split) -> None:
    """Nothing is run where samples are texts, or neither padded nor offered in batches of several.

    Padding that is the same for all candidates only warns: it is part of the question. Padding that the space varies,
    and rows that change each other in batches that it offers, make candidates other models.

    Args:
        session: of the float baseline. Where it has compiled shapes only, its lowered model runs on the host instead.

    Raises:
        ConfigError: the answer moves by more than one percent of the output's largest value.
    """
    data, model = experiment.dataset, experiment.model
    sizing = data.sizing
    batches = {b for p in experiment.space.parameters if p.name == "serving.batch" for b in p.choices}
    several = model.fixed_batch is None and any(isinstance(b, int) and b > 1 for b in batches)
    if sizing is None or not (sizing.uses or several):
        return
    source = data.split(split).source
    assert isinstance(source, ArrayRows | LoaderRows)  # texts have no sizing
    rows = _chosen(experiment, split, source)
    if rows is None:
        return
    with of_any_length(experiment, bench, session) as runs:
        _check(experiment, whole_samples(runs, data.interface, model), split, source, rows, several=several)


def _check(
    experiment: Experiment,
    runs: Session,
    split: Split,
    source: ArrayRows | LoaderRows,
    rows: tuple[int, int],
    *,
    several: bool,
) -> None:
    small, large = rows
    read = source.read([np.array([small]), np.array([small, large])])
    alone, both = first_steps(read, _STEPS)
    padded = {name: array[:1] for name, array in both.feeds.items()}
    reference = runs.run(padded)
    if not _same(alone.feeds, padded):
        moved, output = _moved(runs.run(alone.feeds), reference, alone)
        _judge_padding(experiment, moved, f"{output!r} of sample {small} of {split}")
    if several:
        moved, output = _moved(reference, {n: array[:1] for n, array in runs.run(both.feeds).items()}, alone)
        if moved > FLOAT32_ROWS:
            said = f"{output!r} of sample {small} of {split} moves by {moved:.2g} of its largest value when it runs "
            said += f"beside sample {large}."
            if not moved <= INT8_ROWS:
                raise ConfigError(
                    f"{said} The rows of a call are not independent, so candidates of other batches are other models.",
                    file=experiment.space.path,
                    key="parameters.serving.batch",
                    hint="Offer batch 1 alone: serving.batch: {choices: [1]}.",
                )
            _log.warning("%s: %s Candidates of other batches differ by as much.", experiment.model.path, said)


def _judge_padding(experiment: Experiment, moved: float, what: str) -> None:
    if moved <= FLOAT32_ROWS:
        return
    said = f"{what} moves by {moved:.2g} of its largest value with the padding of a larger one beside it"
    if any(p.name.endswith("sequence_bins") for p in experiment.space.parameters) and not moved <= INT8_ROWS:
        raise ConfigError(
            f"{said}, so candidates with other bins are other models.",
            file=experiment.dataset.path,
            key="axes",
            hint="Leave the search over bins out, or give the model a mask of what is padding.",
        )
    _log.warning(
        "%s: %s. Every candidate is padded alike, so they compare; a service must pad as the data here are padded.",
        experiment.dataset.path,
        said,
    )


def _chosen(experiment: Experiment, split: Split, source: ArrayRows | LoaderRows) -> tuple[int, int] | None:
    """Rows of the smallest and the largest sample that can share a batch; None where there is only one."""
    rows = [int(row) for row in experiment.dataset.split(split).rows()[:LOOKED_AT]]
    key = source.sizing.key(source.shapes(rows[0]))
    sizes = {
        row: sum(source.sizing.size(source.shapes(row), use.name) for use in source.sizing.uses)
        for row in rows
        if source.sizing.key(source.shapes(row)) == key
    }
    if len(sizes) < 2:
        return None
    small = min(sizes, key=lambda row: sizes[row])
    return small, max((row for row in sizes if row != small), key=lambda row: sizes[row])


def _same(ours: Feeds, theirs: Feeds) -> bool:
    return all(array.shape == theirs[name].shape for name, array in ours.items())


def _moved(ours: Outputs, theirs: Outputs, alone: Batch) -> tuple[float, str]:
    """(largest difference as a share of the output's largest value, that output), over what both have and, where
    positions or steps are counted, over those of the sample itself."""
    found = (0.0, "")
    for name, array in ours.items():
        a, b = common_part(np.asarray(array, np.float64), np.asarray(theirs[name], np.float64))
        if alone.valid is not None and a.ndim > 1 and a.shape[1] >= alone.valid.shape[1]:
            steps = int(alone.lengths[0])
            a, b = a[:, :steps], b[:, :steps]
        largest = float(np.abs(b).max(initial=0.0))
        by = float(np.abs(a - b).max(initial=0.0))
        share = by / largest if largest else by
        if not share <= found[0]:  # NaN counts
            found = (share, name)
    return found
