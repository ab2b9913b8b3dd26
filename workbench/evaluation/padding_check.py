"""Whether a model heeds its padding mask: an answer must not depend on how far a text is padded or what runs beside it.

Bins and batches rest on that (`targets.base.Session`). A model that ignores its mask, for example by a mean over all
positions, breaks it in silence: candidates with other bins would be measured as other models.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from workbench.evaluation.bench import Bench
from workbench.evaluation.build import lowered_file
from workbench.inputs.dataset import Batch
from workbench.inputs.dataset.batch import IntArray
from workbench.inputs.experiment import Experiment
from workbench.inputs.metrics import Outputs, cut_alike
from workbench.space.dimensions import dimension_of
from workbench.targets.base import INT8_ROWS, Session, row_tolerance
from workbench.values.errors import ConfigError
from workbench.values.measurement import Split

TEXTS_LOOKED_AT = 512
"""From so many of the split's first texts those are chosen that cover all lengths."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """The output that moves most with padding and company.

    Attributes:
        share: of the output's largest value.
        row: of the split's file.
        alone: the length at which the text ran by itself.
    """

    output: str
    share: float
    row: int
    alone: int


def check_padding(experiment: Experiment, bench: Bench, session: Session, split: Split, samples: int) -> None:
    """Run a few texts alone in their smallest length, and together in the longest: the answers must be the same.

    Up to `row_tolerance` nothing is said, up to one percent a warning. Nothing is run where texts have one length only.

    Args:
        samples: so many texts, or more where that takes more to have one of every length (`covering`).
        session: of the float baseline. Where it has compiled lengths only, its lowered model runs on the host instead.

    Raises:
        ConfigError: they differ by more.
    """
    lengths = offered_lengths(experiment)
    if len(lengths) < 2:
        return
    with of_any_length(experiment, bench, session) as runs:
        moved = _most_moved(experiment, runs, split, lengths, samples)
    tolerance = row_tolerance(experiment.baseline)
    assert tolerance is not None  # the baseline is float
    if moved.share <= tolerance:
        return
    preprocessor = experiment.dataset.preprocessor
    assert preprocessor is not None  # only texts have lengths
    mask = next((i.name for i in preprocessor.inputs if i.role == "mask"), None)
    though = f"though input {mask!r} says what is padding" if mask else "and no input tells it what is padding"
    said = (
        f"row {moved.row} of {split} gets another answer alone at length {moved.alone} than beside others at length "
        f"{lengths[-1]}: {moved.output!r} moves by {moved.share:.2g} of its largest value, {though}."
    )
    if moved.share <= INT8_ROWS:  # not by NaN
        _log.warning("%s: %s Candidates with other lengths or batches differ by as much.", experiment.model.path, said)
        return
    words = " ".join(map(str, lengths))
    raise ConfigError(
        f"{said} Texts run at {words}, so candidates would be measured as different models.",
        file=experiment.model.path,
        key=mask,
        hint="Let pooling and attention leave out what the mask hides, and export again; or offer one length only: "
        f"sequence_bins: {{choices: [{lengths[-1]}]}} in {experiment.space.path.name}, or bins: [{lengths[-1]}] in "
        f"{experiment.dataset.path.name} where the space offers none.",
    )


def offered_lengths(experiment: Experiment) -> tuple[int, ...]:
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


@contextlib.contextmanager
def of_any_length(experiment: Experiment, bench: Bench, session: Session) -> Iterator[Session]:
    """The float baseline for any shape: its session, or its lowered model on the host where it has compiled shapes
    only."""
    baseline = experiment.baseline
    if not baseline.compile.compiles_shapes:
        yield session
        return
    probe = bench.target(baseline).probe(lowered_file(experiment, baseline, bench), ())
    try:
        yield probe
    finally:
        probe.close()


def _most_moved(
    experiment: Experiment, session: Session, split: Split, lengths: tuple[int, ...], samples: int
) -> Moved:
    data = experiment.dataset
    (looked_at,) = data.with_bins(lengths[-1:]).batches(split, TEXTS_LOOKED_AT, stop=TEXTS_LOOKED_AT)
    places = covering(looked_at.lengths, lengths, samples)
    padded = _only(looked_at, places)
    together = session.run(padded.feeds)
    largest = {name: float(np.abs(array.astype(np.float64)).max(initial=0.0)) for name, array in together.items()}
    found = Moved(output="", share=0.0, row=-1, alone=0)
    for row, place in enumerate(places):
        (alone,) = data.with_bins(lengths).batches(split, 1, start=place, stop=place + 1)
        reference = {name: array[row : row + 1] for name, array in together.items()}
        for name, by in _differences(session.run(alone.feeds), alone, reference, _only(padded, [row])).items():
            share = by / largest[name] if largest[name] else by
            if not share <= found.share:  # NaN counts
                assert alone.valid is not None  # texts have a mask
                found = Moved(output=name, share=share, row=int(alone.indices[0]), alone=alone.valid.shape[1])
    return found


def covering(tokens: IntArray, lengths: tuple[int, ...], count: int) -> list[int]:
    """Places of texts, ascending: the shortest of each padded length, which is padded most, the longest of all, and
    from the first on as many more as make `count`.

    Args:
        tokens: of each text, none longer than the last of `lengths`, which are sorted.
    """
    padded = np.searchsorted(np.asarray(lengths), tokens)
    shortest = [int(min(np.flatnonzero(padded == place), key=lambda text: tokens[text])) for place in np.unique(padded)]
    chosen = dict.fromkeys((*shortest, int(tokens.argmax())))
    for text in range(len(tokens)):
        if len(chosen) >= count:
            break
        chosen[text] = None
    return sorted(chosen)


def _only(batch: Batch, rows: list[int]) -> Batch:
    assert batch.valid is not None  # texts have a mask
    feeds = {name: array[rows] for name, array in batch.feeds.items()}
    return Batch(feeds=feeds, targets=None, indices=batch.indices[rows], valid=batch.valid[rows])


def _differences(outputs: Outputs, batch: Batch, reference: Outputs, other: Batch) -> dict[str, float]:
    """Output → largest difference, positions of padding left out."""
    ours, theirs, common = cut_alike(outputs, batch, reference, other)
    widths = [b.valid.shape[1] for b in (batch, other, common) if b.valid is not None]
    found = {}
    for name, array in ours.items():
        difference = np.abs(array.astype(np.float64) - theirs[name].astype(np.float64))
        if [a.shape[1] for a in (outputs[name], reference[name], array) if a.ndim > 1] == widths:
            difference = difference[common.valid]  # a value for each position
        found[name] = float(difference.max(initial=0.0))
    return found
