"""Is a sample's answer the same whatever it is padded to and whoever runs beside it? Looked at on the float baseline,
by running a few samples.

Bins and batches rest on that (`targets.base.Session`). A model that ignores its padding mask, for example by a mean
over all positions, or whose rows know of each other, breaks it in silence: candidates with other bins or batches would
be measured as other models.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import numpy as np

from workbench.evaluation.bench import Bench
from workbench.evaluation.build import lowered_file
from workbench.evaluation.carried import first_steps, whole_samples
from workbench.inputs.dataset import Batch
from workbench.inputs.dataset.arrays import ArrayRows
from workbench.inputs.dataset.loader import LoaderRows
from workbench.inputs.experiment import Experiment
from workbench.inputs.metrics.score import Outputs, common_part
from workbench.space.dimensions import dimension_of
from workbench.targets.base import FLOAT32_ROWS, INT8_ROWS, Session, row_tolerance
from workbench.values.errors import ConfigError
from workbench.values.measurement import Split

TEXTS_LOOKED_AT, SAMPLES_LOOKED_AT = 512, 64
"""From so many of the split's first texts the shortest of each padded length and the longest are looked at; of other
samples the smallest and the largest."""
_STEPS = 8
Moved = tuple[float, str]
"""Largest difference as a share of an output's largest value, that output."""

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def _of_any_length(experiment: Experiment, bench: Bench, session: Session) -> Iterator[Session]:
    """The float baseline for any shape: its session, or its lowered model on the host where it has compiled shapes
    only."""
    baseline = experiment.baseline
    if not baseline.compile.compiles_shapes:
        yield session
        return
    with contextlib.closing(bench.target(baseline).probe(lowered_file(experiment, baseline, bench), ())) as probe:
        yield probe


def check_padding(experiment: Experiment, bench: Bench, session: Session, split: Split) -> None:
    """Run a few texts alone in their smallest length, and together in the longest: the answers must be the same.

    Up to `row_tolerance` nothing is said, up to one percent a warning. Nothing is run where texts have one length only.

    Args:
        session: of the float baseline. Where it has compiled lengths only, its lowered model runs on the host instead.

    Raises:
        ConfigError: they differ by more.
    """
    lengths, data = _offered_lengths(experiment), experiment.dataset
    if len(lengths) < 2:
        return
    (worst, output), row, length = (0.0, ""), -1, 0
    with _of_any_length(experiment, bench, session) as runs:
        (looked_at,) = data.with_bins(lengths[-1:]).batches(split, TEXTS_LOOKED_AT, stop=TEXTS_LOOKED_AT)
        tokens = looked_at.lengths
        padded = np.searchsorted(np.asarray(lengths), tokens)
        shortest = (min(np.flatnonzero(padded == place), key=lambda text: tokens[text]) for place in np.unique(padded))
        places = sorted({*map(int, shortest), int(tokens.argmax())})
        together = runs.run({name: array[places] for name, array in looked_at.feeds.items()})
        for at, place in enumerate(places):
            (alone,) = data.with_bins(lengths).batches(split, 1, start=place, stop=place + 1)
            moved = _moved(runs.run(alone.feeds), alone, together, at, lengths[-1])
            if not moved[0] <= worst:  # NaN counts
                assert alone.valid is not None
                (worst, output), row, length = moved, int(alone.indices[0]), alone.valid.shape[1]
    tolerance = row_tolerance(experiment.baseline)
    assert tolerance is not None  # the baseline is float
    if worst <= tolerance:
        return
    assert data.preprocessor is not None  # only texts have lengths
    mask = next((i.name for i in data.preprocessor.inputs if i.role == "mask"), None)
    though = f"though input {mask!r} says what is padding" if mask else "and no input tells it what is padding"
    said = (
        f"row {row} of {split} gets another answer alone at length {length} than beside others at length "
        f"{lengths[-1]}: {output!r} moves by {worst:.2g} of its largest value, {though}."
    )
    if worst <= INT8_ROWS:  # not by NaN
        _log.warning("%s: %s Candidates with other lengths or batches differ by as much.", experiment.model.path, said)
        return
    raise ConfigError(
        f"{said} Texts run at {' '.join(map(str, lengths))}, so candidates would be measured as different models.",
        file=experiment.model.path,
        key=mask,
        hint="Let pooling and attention leave out what the mask hides, and export again; or offer one length only: "
        f"sequence_bins: {{choices: [{lengths[-1]}]}} in {experiment.space.path.name}, or bins: [{lengths[-1]}] in "
        f"{data.path.name} where the space offers none.",
    )


def _offered_lengths(experiment: Experiment) -> tuple[int, ...]:
    """Padded lengths at which candidates may run texts, ascending; () where the data are no texts."""
    preprocessor = experiment.dataset.preprocessor
    if preprocessor is None:
        return ()
    served = experiment.space.served_bins
    every = experiment.space.parameters if served is None else served.file.parameters
    known = [(p, dimension_of(p.name, experiment.targets)) for p in every]
    offering = [p for p, dimension in known if dimension is not None and dimension.lengths_in]
    found = {int(word) for p in offering for choice in p.choices for word in str(choice).split()}
    if all(p.when for p in offering):  # some candidates have no bins of their own
        found.update(preprocessor.bins if served is None else served.otherwise)
    return tuple(sorted(found))


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
    rows = [int(row) for row in data.split(split).rows()[:SAMPLES_LOOKED_AT]]
    key = source.sizing.key(source.shapes(rows[0]))
    sizes = {  # of those that can share a batch
        row: sum(source.sizing.size(source.shapes(row), use.name) for use in source.sizing.uses)
        for row in rows
        if source.sizing.key(source.shapes(row)) == key
    }
    if len(sizes) < 2:
        return
    small = min(sizes, key=lambda row: sizes[row])
    large = max((row for row in sizes if row != small), key=lambda row: sizes[row])
    with _of_any_length(experiment, bench, session) as any_shape:
        runs = whole_samples(any_shape, data.interface, model)
        alone, both = first_steps(source.read([np.array([small]), np.array([small, large])]), _STEPS)
        padded = {name: array[:1] for name, array in both.feeds.items()}
        reference, width = runs.run(padded), 0 if both.valid is None else both.valid.shape[1]
        by_padding, by_company = (0.0, ""), (0.0, "")
        if any(array.shape != padded[name].shape for name, array in alone.feeds.items()):
            by_padding = _moved(runs.run(alone.feeds), alone, reference, 0, width)
        if several:
            by_company = _moved(reference, alone, runs.run(both.feeds), 0, width)
    moves = f"of sample {small} of {split} moves by {{:.2g}} of its largest value"
    share, output = by_padding
    if not share <= FLOAT32_ROWS:
        said = f"{output!r} {moves.format(share)} with the padding of a larger one beside it"
        if any(p.name.endswith("sequence_bins") for p in experiment.space.parameters) and not share <= INT8_ROWS:
            raise ConfigError(
                f"{said}, so candidates with other bins are other models.",
                file=data.path,
                key="axes",
                hint="Leave the search over bins out, or give the model a mask of what is padding.",
            )
        otherwise = "Every candidate is padded alike, so they compare; a service must pad as the data here are padded."
        _log.warning("%s: %s. %s", data.path, said, otherwise)
    share, output = by_company
    if not share <= FLOAT32_ROWS:
        said = f"{output!r} {moves.format(share)} when it runs beside sample {large}."
        if not share <= INT8_ROWS:
            raise ConfigError(
                f"{said} The rows of a call are not independent, so candidates of other batches are other models.",
                file=experiment.space.path,
                key="parameters.serving.batch",
                hint="Offer batch 1 alone: serving.batch: {choices: [1]}.",
            )
        _log.warning("%s: %s Candidates of other batches differ by as much.", model.path, said)


def _moved(ours: Outputs, alone: Batch, theirs: Outputs, row: int, width: int) -> Moved:
    """How far one sample's outputs lie from a row of others, over what both have and, where positions or steps are
    counted, over those of the sample itself.

    Args:
        width: padded positions of the others.
    """
    found = (0.0, "")
    for name, array in ours.items():
        largest = float(np.abs(np.asarray(theirs[name], np.float64)).max(initial=0.0))
        a, b = common_part(np.asarray(array, np.float64), np.asarray(theirs[name][row : row + 1], np.float64))
        sizes = array.shape[1:2], theirs[name].shape[1:2]
        if alone.valid is not None and sizes in (((alone.valid.shape[1],), (width,)), ((width,), (width,))):
            steps = int(alone.lengths[0])
            a, b = a[:, :steps], b[:, :steps]
        by = float(np.abs(a - b).max(initial=0.0))
        share = by / largest if largest else by
        if not share <= found[0]:  # NaN counts
            found = (share, name)
    return found
