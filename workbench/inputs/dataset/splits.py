"""Dataset: three splits of one task as batches of feeds, and the check of those feeds against a model.

Every split has an order of its own, shuffled from the manifest's seed, so that the first n samples are a fair
sample of it: files are often sorted by class, and the early stages of an evaluation look at the first samples only.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from workbench.inputs.dataset.arrays import ArrayRows
from workbench.inputs.dataset.batch import Batch, IntArray, Source, Task
from workbench.inputs.dataset.loader import LoaderRows
from workbench.inputs.dataset.metric_reader import MetricUse
from workbench.inputs.dataset.retrieval import Retrieval
from workbench.inputs.dataset.sizing import Sizing
from workbench.inputs.dataset.text import TextRows
from workbench.values.documents.canonical import digest
from workbench.values.documents.yaml_reader import Section
from workbench.values.errors import ConfigError, nearest
from workbench.values.interface import NOTHING_DECLARED, Interface
from workbench.values.measurement import Split
from workbench.values.model import Model, TensorSpec, axes_text
from workbench.values.preprocess import Array, Feeds, Preprocessor, Text

LENGTH_SAMPLE = 2000
"""So many texts of a split say how long its texts are: a quantile's standard error is about one percentage point."""
MOST_FEED_BYTES, _MOST_DRAWN = 1 << 29, 1 << 24

_counted: dict[tuple[str, str, int], IntArray] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRows:
    """The rows `start` to `stop` of a source's shuffled order. Two of them that do not overlap share no row."""

    source: Source
    seed: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start

    @property
    def digest(self) -> str:
        return digest([self.source.sha256, self.seed, self.start, self.stop])

    def rows(self) -> IntArray:
        """Row numbers in the split's order; ascending where the source can be read in no other."""
        rows = _shuffled(self.source.size, self.source.sha256, self.seed)[self.start : self.stop]
        return np.sort(rows) if self.source.sequential else rows


def divided(
    top: Section, validation: Source, holdout: Source | None, seed: int, fraction: float
) -> tuple[SplitRows, SplitRows]:
    """Validation and holdout; where the latter has no rows of its own, this share of the validation's (rounded).

    Raises:
        ConfigError: one of them would have none.
    """
    seen = validation.size
    if holdout is None:
        seen -= round(fraction * validation.size)
        if not 0 < seen < validation.size:
            raise top.section("split").error(
                "holdout_fraction",
                f"{fraction:g} of {validation.size} samples of the validation leaves a split empty.",
                "Add some, change the fraction, or name a file under files.holdout.",
            )
    rest = SplitRows(source=validation, seed=seed, start=seen, stop=validation.size)
    own = rest if holdout is None else SplitRows(source=holdout, seed=seed, start=0, stop=holdout.size)
    return SplitRows(source=validation, seed=seed, start=0, stop=seen), own


def read_division(top: Section, named: Collection[str]) -> tuple[int, float]:
    """`split: {seed: 0, holdout_fraction: 0.5}`, beside the splits that have files of their own."""
    with top.section("split") as section:
        seed = section.integer("seed", 0, minimum=0)
        if section.has("holdout_fraction") and "holdout" in named:
            section.refuse("holdout_fraction", "means nothing beside files.holdout.", "Leave one of them out.")
        return seed, section.number("holdout_fraction", 0.5, minimum=0.0, maximum=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Calibration, validation (the search sees it) and holdout (it never does) of one task.

    Picklable. Text is held in memory, arrays are read where they lie; tokens exist for one batch at a time.

    Attributes:
        path: the manifest.
        labels: name of each class or tag id; empty when nobody named them.
        preprocessor: None when the data are not text.
        interface: what the manifest says of the model's inputs, axes, state and outputs.
        measure: of a language model, what "accuracy" is: 'perplexity' or 'kl'; '' of any other.
        metric: the user's own, or a library's, which decides what "accuracy" is.
        retrieval: the documents that samples look for, which decide it then.
    """

    path: Path
    task: Task
    labels: tuple[str, ...]
    preprocessor: Preprocessor | None
    calibration: SplitRows
    validation: SplitRows
    holdout: SplitRows
    interface: Interface = NOTHING_DECLARED
    metric: MetricUse | None = None
    measure: str = ""
    retrieval: Retrieval | None = None

    @property
    def identity(self) -> str:
        """64 hex digits over the content of all splits, all that changes feeds or targets, what outputs mean, and the
        metric."""
        parts: dict[str, object] = {split: self.digest(split) for split in get_args(Split)}
        if self.interface != NOTHING_DECLARED:
            parts["interface"] = self.interface
        if self.metric is not None:
            parts["metric"] = self.metric.identity
        if self.measure:
            parts["measure"] = self.measure
        if self.retrieval is not None:
            parts["retrieval"] = self.retrieval.identity
        return digest(parts)

    def digest(self, split: Split) -> str:
        """64 hex digits over one split's content, order, labels and preprocessing."""
        preprocessing = self.preprocessor.identity if self.preprocessor is not None else None
        parts = [self.task, self.labels, preprocessing, self.split(split).digest]
        fed = replace(self.interface, outputs=())
        return digest(parts if fed == NOTHING_DECLARED else [*parts, fed])

    def size(self, split: Split) -> int:
        return self.split(split).size

    def first(self, *, validation: int | None = None, holdout: int | None = None) -> Dataset:
        """The same with only the first samples of a split, which are a fair sample of it; None for all of them."""

        def cut(rows: SplitRows, count: int | None) -> SplitRows:
            return rows if count is None else replace(rows, stop=min(rows.stop, rows.start + count))

        return replace(self, validation=cut(self.validation, validation), holdout=cut(self.holdout, holdout))

    def with_bins(self, bins: tuple[int, ...] | None) -> Dataset:
        """The same samples, padded to other bins than the manifest's; None for those of the manifest.

        Data that are not text have the shapes they have, unless one of their axes has bins: these are replaced.
        """
        if bins is None:
            return self
        if self.preprocessor is None:
            sizing = self.sizing
            if sizing is None or sizing.with_bins(bins) == sizing:
                return self
            sizing = sizing.with_bins(bins)
            changed: dict[str, Any] = {"sizing": sizing}
            more: dict[str, Any] = {"interface": replace(self.interface, axes=sizing.uses)}
        elif bins == self.preprocessor.bins:
            return self
        else:
            changed = {"preprocessor": replace(self.preprocessor, bins=bins)}
            more = dict(changed)
            if self.retrieval is not None:
                more["retrieval"] = replace(self.retrieval, corpus=replace(self.retrieval.corpus, **changed))
        splits: dict[str, Any] = {split: self.split(split) for split in get_args(Split)}
        made = {split: replace(rows, source=replace(rows.source, **changed)) for split, rows in splits.items()}
        return replace(self, **made, **more)

    @property
    def sizing(self) -> Sizing | None:
        """How samples of different sizes become batches; None for texts."""
        source = self.validation.source
        return source.sizing if isinstance(source, ArrayRows | LoaderRows) else None

    def lengths(self, split: Split) -> IntArray | None:
        """Tokens of every sample in the split's order, cut to `max_length`; None when the data are not text."""
        chosen = self.split(split)
        return chosen.source.lengths(chosen.rows()) if isinstance(chosen.source, TextRows) else None

    def length_sample(self) -> IntArray | None:
        """Tokens of up to `LENGTH_SAMPLE` texts each of calibration and validation, never of the holdout; None when the
        data are not text. Counted once for each content and process."""
        if self.preprocessor is None:
            return None
        parts = []
        for rows in (self.calibration, self.validation):
            assert isinstance(rows.source, TextRows)  # a preprocessor belongs to text
            chosen = replace(rows, stop=min(rows.stop, rows.start + LENGTH_SAMPLE))
            key = (chosen.digest, self.preprocessor.tokenizer_sha256, self.preprocessor.max_length)
            if key not in _counted:
                _counted[key] = rows.source.lengths(chosen.rows())
            parts.append(_counted[key])
        return np.concatenate(parts)

    def texts(self, split: Split) -> Sequence[Text] | None:
        """The texts of a split's file, by row as in `Batch.indices`; None when the data are no text, or pairs."""
        source = self.split(split).source
        pairs = self.retrieval is not None and bool(self.retrieval.candidates)
        return source.texts if isinstance(source, TextRows) and not pairs else None

    def batches(self, split: Split, batch: int, *, start: int = 0, stop: int | None = None) -> Iterator[Batch]:
        """Batches over samples `start` to `stop` of the split's order, the last one perhaps smaller, and others where
        samples of different sizes cannot share one (`sizing`).

        Deterministic. One batch exists at a time.
        """
        chosen = self.split(split)
        rows = chosen.rows()[start:stop]
        return chosen.source.read(rows[i : i + batch] for i in range(0, len(rows), batch))

    @property
    def calls_a_sample(self) -> float:
        """How many calls a sample takes on average: its steps where a state is carried, its candidates where a
        cross-encoder puts them in order, else one."""
        source = self.validation.source
        if self.retrieval is not None and self.retrieval.candidates:
            return 1.0 + float(np.mean([len(listed) for listed in self.retrieval.candidates.values()]))
        if not self.interface.state or not isinstance(source, ArrayRows | LoaderRows):
            return 1.0
        rows = self.validation.rows()[:LENGTH_SAMPLE]
        return float(np.mean([source.shapes(int(row))[0][1][0] for row in rows]))

    @property
    def indexed(self) -> int:
        """Documents that are embedded before a sample is scored."""
        return 0 if self.retrieval is None or self.retrieval.candidates else self.retrieval.corpus.size

    def batch_count(self, split: Split, batch: int, *, stop: int | None = None) -> int:
        """How many batches `batches` gives; nothing is read for it."""
        rows = self.split(split).rows()[:stop]
        source = self.split(split).source
        groups: Iterator[IntArray] = (rows[i : i + batch] for i in range(0, len(rows), batch))
        if isinstance(source, ArrayRows | LoaderRows):
            groups = source.sizing.runs(groups, source.shapes)
        return sum(1 for _ in groups)

    def sample_feeds(self, split: Split, count: int, batch: int, seed: int, length: int | None = None) -> list[Feeds]:
        """The feeds of `sample_batches`; the first few of them where all would take more than `MOST_FEED_BYTES`."""
        feeds: list[Feeds] = []
        taken = 0
        for drawn in self.sample_batches(split, count, batch, seed, length):
            feeds.append(drawn.feeds)
            taken += sum(array.nbytes for array in drawn.feeds.values())
            if taken >= MOST_FEED_BYTES:
                break
        return feeds

    def sample_batches(
        self, split: Split, count: int, batch: int, seed: int, length: int | None = None
    ) -> Iterator[Batch]:
        """`count` batches of randomly drawn samples, for timing: their lengths are spread as the data's are. At most 16
        million samples are drawn.

        No sample is drawn twice before all were drawn once, except where samples of different sizes cannot share a
        batch: the first of each batch is drawn so, and the others among those that fit beside it. Deterministic.

        Args:
            length: cut and pad every text to exactly this many tokens instead of to its batch's bin.
        """
        count = min(count, max(1, _MOST_DRAWN // batch))
        chosen = self.split(split)
        rows, generator = chosen.rows(), np.random.default_rng(seed)
        rounds = -(-count * batch // len(rows))
        drawn = np.concatenate([generator.permutation(rows) for _ in range(rounds)])[: count * batch]
        source = chosen.source
        if source.sequential:
            drawn = np.sort(drawn)
        groups = drawn.reshape(count, batch)
        if batch > 1 and isinstance(source, ArrayRows | LoaderRows):
            groups = _alike(groups, rows, source, generator)
        return source.read(groups, length)

    def split(self, split: Split) -> SplitRows:
        return {"calibration": self.calibration, "validation": self.validation, "holdout": self.holdout}[split]


def check_inputs(dataset: Dataset, model: Model) -> None:
    """Compare the first sample of every split, and one of every size, with what the model takes, before any work.

    The batch dimension is left out: candidates choose it. So is the axis of steps, along which the model runs.
    """
    carried = {name for _, name in dataset.interface.state}
    expected = {spec.name: spec for spec in model.inputs if spec.name not in carried}
    texts = dataset.preprocessor

    def wrong(rule: str, key: str, hint: str | None = None) -> ConfigError:
        return ConfigError(rule, file=dataset.path, key=key, hint=hint)

    def other(spec: TensorSpec, found: str) -> ConfigError:
        return wrong(f"the model expects {spec.dtype} {axes_text(spec.shape)}, {found}.", f"inputs.{spec.name}")

    for split in get_args(Split):
        feeds = next(dataset.batches(split, 1, stop=1)).feeds
        for name in feeds.keys() - expected.keys():
            if name in carried:
                rule = f"{split} gives {name!r}, which is carried from step to step and never fed."
                raise wrong(rule, "state", "Leave it out of the data.")
            rule = f"the model has no input {name!r}, which {split} gives."
            raise wrong(rule, "inputs", nearest(name, expected))
        for name, spec in expected.items():
            if name not in feeds:
                raise wrong(
                    f"{split} gives nothing for the model's input {name!r}; it gives {', '.join(sorted(feeds))}.",
                    "inputs",
                    "Name its role (ids, mask or types) under inputs."
                    if texts
                    else f"Where it is the same for all samples: inputs: {{{name}: {{constant: 1}}}}; where an output "
                    f"becomes it in the next step: state: {{OUTPUT: {name}}}.",
                )
            if carried and feeds[name].ndim != len(spec.shape) + 1:
                raise _without_steps(dataset, split, spec, feeds[name], model)
            fixed = spec.shape[1] if len(spec.shape) > 1 else None
            if texts is not None and isinstance(fixed, int) and texts.bins != (fixed,):
                hint = f"Write bins: [{fixed}], or export the model with a dynamic length."
                raise wrong(f"input {name!r} of the model has the fixed length {fixed}.", "bins", hint)
            dtype, shape = feeds[name].dtype.name, feeds[name].shape[2 if carried else 1 :]
            if dtype != spec.dtype or not _fits(spec, shape):
                raise other(spec, f"{split} gives {dtype} {axes_text(('batch', *shape))}")
        source = dataset.split(split).source
        if not isinstance(source, ArrayRows | LoaderRows):
            continue
        for row, shapes in source.distinct():
            source.sizing.check(shapes, row, dataset.path)
            for name, shape in shapes:
                own = shape[1:] if carried else shape
                if name in expected and not _fits(expected[name], own):
                    steps = f" in each of {shape[0]} steps" if carried else ""
                    raise other(expected[name], f"sample {row} of {split} gives {axes_text(('batch', *own))}{steps}")


def _fits(spec: TensorSpec, shape: tuple[int, ...]) -> bool:
    """Whether one sample has the sizes that an input has behind its batch axis."""
    return len(shape) == len(spec.shape) - 1 and all(
        not isinstance(wanted, int) or wanted == size for wanted, size in zip(spec.shape[1:], shape, strict=True)
    )


def _without_steps(dataset: Dataset, split: Split, spec: TensorSpec, array: Array, model: Model) -> ConfigError:
    """Of a model that carries a state, where samples are no sequences of steps."""
    output, state = dataset.interface.state[0]
    begins = next((one.shape for one in model.inputs if one.name == state), ())
    anew = f"give the array {state!r} in every data file, zeros {axes_text(('samples', *begins[1:]))}"
    if all(isinstance(size, int) for size in begins):
        anew = " and ".join(f"--constant {name}=0" for _, name in dataset.interface.state) + " of workbench init"
    return ConfigError(
        f"{output!r} is carried from step to step: it becomes {state!r} in the next one. A sample is a "
        f"sequence of steps, so {spec.name!r} is to be {axes_text(('samples', 'steps', *spec.shape[1:]))}, and {split} "
        f"gives {axes_text(('samples', *array.shape[1:]))}.",
        file=dataset.path,
        key=f"inputs.{spec.name}",
        hint=f"Stack the steps of each sequence in their order; {spec.name}.sizes says how many a sequence has where "
        f"they differ. Where the model begins anew with every sample, nothing is carried: {anew}, and no state: in the "
        "manifest.",
    )


def _alike(
    groups: IntArray, rows: IntArray, source: ArrayRows | LoaderRows, generator: np.random.Generator
) -> IntArray:
    """The groups, each filled with samples that can share a batch with its first."""
    kind = {int(row): source.sizing.key(source.shapes(int(row))) for row in rows}
    by_kind: dict[Hashable, list[int]] = {}
    for row, key in kind.items():
        by_kind.setdefault(key, []).append(row)
    if len(by_kind) == 1:
        return groups
    made = [
        generator.choice(found, groups.shape[1], replace=len(found) < groups.shape[1])
        for found in (by_kind[kind[int(first)]] for first in groups[:, 0])
    ]
    return np.stack(made)


@functools.lru_cache(maxsize=16)
def _shuffled(size: int, content: str, seed: int) -> IntArray:
    """All row numbers ordered by a hash: the same on every machine and with every version of NumPy."""
    keys = [hashlib.sha256(f"{seed}:{content}:{row}".encode()).digest() for row in range(size)]
    order = np.array(sorted(range(size), key=keys.__getitem__), dtype=np.int64)
    order.flags.writeable = False
    return order
