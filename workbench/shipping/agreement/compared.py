"""One pass over samples: what every way answers, and the figures of each pair."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.inputs.answers import Answers, sample_digests
from workbench.inputs.dataset import Batch, Dataset
from workbench.inputs.metrics import scorer_of
from workbench.inputs.metrics.distances import Decisions, Distances
from workbench.inputs.metrics.extents import Extents
from workbench.inputs.metrics.outcomes import Outcomes, concatenate, per_sample, select, summarize
from workbench.inputs.metrics.score import Outputs, cut_alike
from workbench.shipping.agreement.ways import Shape, Way, answered, answers_like, filled_shape, groups, taken
from workbench.values.agreement import Agreement, AgreementPath, OutputAgreement
from workbench.values.errors import MeasureError
from workbench.values.measurement import Split
from workbench.values.model import Model
from workbench.values.significance import compare

WINDOW = 64
"""Samples that stand in the queues of a service together, at least; and four full batches."""
MOST_BYTES = 1 << 28
"""Of what all ways answer to a window together; comparing takes a few times as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What an agreement is measured over and against.

    Attributes:
        samples: of the split, from its first on; None for all of them.
        of_a_shape: samples that every compiled shape answers, at most.
        scored: whether answers are scored as well.
        answers: a file of another platform's answers; None without.
        checkpoint: of the model in PyTorch; None for the one beside the ONNX file, where there is one.
        report: told what is done, in words, and which share of it is over.
    """

    split: Split = "holdout"
    samples: int | None = None
    of_a_shape: int = 32
    scored: bool = True
    answers: Path | None = None
    checkpoint: Path | None = None
    report: Callable[[str, float], None] = lambda step, share: None


class Pair:
    """What accumulates of one way against another."""

    def __init__(
        self, classes: tuple[str, ...], apart: frozenset[str] = frozenset(), extents: Extents | None = None
    ) -> None:
        """
        Args:
            classes: outputs whose last axis holds classes.
            apart: outputs that distance says nothing of.
            extents: where the outputs of padded samples end.
        """
        self._classes, self._apart, self._extents = classes, apart, extents
        self._distances: dict[str, Distances] = {}
        self._decisions = Decisions(classes)
        self.samples = 0

    def add(self, ours: Outputs, theirs: Outputs, batch: Batch) -> None:
        """Take in what both gave for a batch: the outputs that both have, of numbers and of one rank."""
        self.samples += len(batch)
        for name, mine in ours.items():
            other = theirs.get(name)
            if other is None or name in self._apart or mine.ndim != other.ndim:
                continue
            if mine.dtype.kind not in "fiub" or other.dtype.kind not in "fiub":
                continue
            if name not in self._distances:
                self._distances[name] = Distances(name, self._extents)
            self._distances[name].add(mine, other, batch)
            if name in self._classes and mine.ndim > 1 and mine.shape[-1] > 1:
                self._decisions.add(name, mine, other, batch)

    def found(self) -> dict[str, Any]:
        """Fields of `Agreement`."""
        outputs = tuple(each.found() for each in self._distances.values())
        return {"outputs": outputs, "samples": self.samples, "top1": self._decisions.found()}


class Comparison:
    """Ways that answer the same samples, compared pair by pair.

    Args:
        ways: by path, 'float32' and 'served' among them; 'served' is called as a service does, all others with
            whatever rows there are.
        data: padded to the lengths of the service.
        most: rows of its batches.
        shapes: that were compiled; () where one file takes any.
        recorded: answers of another platform, of some of the samples.
        pair: makes what accumulates of two ways.
        model: whose outputs are scored; None where answers are not.
    """

    def __init__(
        self,
        ways: Mapping[AgreementPath, Way],
        *,
        data: Dataset,
        most: int,
        shapes: tuple[Shape, ...] = (),
        asked: Asked,
        pair: Callable[[], Pair],
        recorded: Answers | None = None,
        model: Model | None = None,
    ) -> None:
        self._ways, self._data, self._most, self._asked, self._new_pair = ways, data, most, asked, pair
        self._recorded = recorded
        paths: tuple[AgreementPath, ...] = (*ways, *(() if recorded is None else ("old platform",)))
        self._scorers = {} if model is None else {path: scorer_of(data, model) for path in paths}
        self._outcomes: dict[AgreementPath, list[Outcomes]] = {path: [] for path in paths}
        self._unscored: dict[AgreementPath, str] = {}
        self._told: list[npt.NDArray[np.bool_]] = []
        self._pairs: dict[tuple[AgreementPath, AgreementPath, str], Pair] = {}
        self._left = dict.fromkeys(shapes, asked.of_a_shape)

    def run(self, size: int, told: Callable[[float], None]) -> None:
        """Take in the samples that are asked for.

        Args:
            size: so many are those.
            told: which share of the rows that are to be answered is answered.

        Raises:
            MeasureError: a way fails.
        """
        shapes = sum(self._left.values())
        rows, answered_rows = size * len(self._ways) + shapes, 0
        told(0.0)
        for window in self._data.batches(self._asked.split, self._together(), stop=self._asked.samples):
            found: dict[AgreementPath, Outputs] = {}
            for path, way in self._ways.items():
                together = iter([(np.arange(len(window), dtype=np.int64), window.feeds)])
                queued = groups(window, self._data, self._most)
                found[path] = answered(window, queued if path == "served" else together, way.run)
                answered_rows += len(window)
                told((answered_rows + shapes - sum(self._left.values())) / rows)
            for path, against in self._wanted():
                self._pair(path, against).add(found[path], found[against], window)
            for path, outputs in found.items():
                self._score(path, outputs, window, found["float32"])
            self._old_platform(window, found)
            self._shapes(window, found["float32"])

    def found(self) -> tuple[Agreement, ...]:
        """All pairs, the whole of each before its shapes."""
        shapes = [self._agreement(*key) for key in self._pairs if key[2]]
        made = [self._agreement(*key) for key in self._pairs if not key[2]]
        made.sort(key=lambda one: one.reference != "float32")  # stable
        called = f"as served, batch <= {self._most}"
        grouped = [
            replace(one, shape=called, accuracy={}, drop=None)
            for one in made
            if shapes and (one.path, one.reference) == ("served", "float32")
        ]
        whole = [
            _with_worst(one, [s for s in shapes if (s.path, s.reference) == (one.path, one.reference)]) for one in made
        ]
        return (*whole, *grouped, *shapes)

    def close(self) -> None:
        for scorer in self._scorers.values():
            scorer.close()

    def _score(self, path: AgreementPath, outputs: Outputs, batch: Batch, reference: Outputs) -> None:
        """Keep what came of the samples; of one that cannot be scored, such as NaN, why.

        Args:
            reference: what float32 on the host gives for the same samples.
        """
        if path in self._scorers and path not in self._unscored:
            try:
                self._outcomes[path].append(self._scorers[path].score(outputs, batch, reference))
            except MeasureError as error:
                self._unscored[path] = str(error)

    def _scored(self, path: AgreementPath, beside: AgreementPath) -> Any:
        """Outcomes of the samples that both answered."""
        found: Any = concatenate(self._outcomes[path])  # a union's members do not mix
        if beside == "old platform" and path != "old platform":
            return select(found, np.flatnonzero(np.concatenate(self._told)).astype(np.int64))
        return found

    def _together(self) -> int:
        """How many samples are taken at once: as many as a service's queues hold, within `MOST_BYTES` of answers."""
        (one,) = self._data.batches(self._asked.split, 1, stop=1)
        answers = self._ways["float32"].run(one.feeds)
        size_bytes = sum(array.nbytes for array in (*one.feeds.values(), *answers.values()))
        return max(1, min(max(WINDOW, 4 * self._most), MOST_BYTES // (size_bytes * len(self._ways) or 1)))

    def _wanted(self) -> Iterator[tuple[AgreementPath, AgreementPath]]:
        yield from ((path, "float32") for path in self._ways if path != "float32")
        if "pytorch" in self._ways:
            yield from ((path, "pytorch") for path in self._ways if path != "pytorch")
        if "float16 compiled" in self._ways:
            yield "served", "float16 compiled"

    def _pair(self, path: AgreementPath, against: AgreementPath, shape: str = "") -> Pair:
        return self._pairs.setdefault((path, against, shape), self._new_pair())

    def _old_platform(self, window: Batch, found: Mapping[AgreementPath, Outputs]) -> None:
        if self._recorded is None:
            return
        answers = self._recorded
        places = answers.of(sample_digests(self._data, self._asked.split, window), window.indices)
        rows = np.flatnonzero(places >= 0).astype(np.int64)
        self._told.append(places >= 0)
        if not len(rows):
            return
        batch = taken(window, rows)
        ours = {
            path: {n: a[rows] for n, a in outputs.items() if len(a) == len(window)} for path, outputs in found.items()
        }
        theirs = answers_like(answers.outputs, places[rows], ours["float32"], answers.path)
        self._pair("old platform", "float32").add(theirs, ours["float32"], batch)
        for path, outputs in ours.items():
            self._pair(path, "old platform").add(outputs, theirs, batch)
        self._score("old platform", theirs, batch, ours["float32"])

    def _shapes(self, window: Batch, reference: Outputs) -> None:
        """Every compiled shape over samples that fit it, against float32 for the same samples."""
        for shape in self._left:
            if self._left[shape] <= 0:
                continue
            for places, batch, counts in filled_shape(window, self._data, self._asked.split, shape):
                outputs = self._ways["served"].run(batch.feeds)
                counts = min(counts, self._left[shape])
                places = places[:counts]
                ours = {name: array[:counts] for name, array in outputs.items()}
                theirs = {name: array[places] for name, array in reference.items()}
                own = taken(batch, np.arange(counts, dtype=np.int64))
                self._pair("served", "float32", str(shape)).add(*cut_alike(ours, own, theirs, taken(window, places)))
                self._left[shape] -= counts
                if self._left[shape] <= 0:
                    break

    def _agreement(self, path: AgreementPath, against: AgreementPath, shape: str) -> Agreement:
        accuracy: Mapping[str, tuple[float, float]] = {}
        drop = None
        words = [self._ways[path].about] if path in self._ways and self._ways[path].about else []
        if path == "old platform" and self._recorded is not None:
            words.append(f"{self._recorded.source} ({self._recorded.path.name})")
        both = (path, against)
        if not shape:
            words += [
                f"{one} cannot be scored: {self._unscored[one].rstrip('.')}" for one in both if one in self._unscored
            ]
            if all(self._outcomes.get(one) and one not in self._unscored for one in both):
                ours, theirs = self._scored(path, against), self._scored(against, path)
                mine, other = summarize(ours), summarize(theirs)
                accuracy = {name: (mine[name], other[name]) for name in mine}
                drop = compare(per_sample(theirs), per_sample(ours))
        return Agreement(
            path=path,
            reference=against,
            shape=shape,
            accuracy=accuracy,
            drop=drop,
            emulated=any(self._ways[one].emulated for one in both if one in self._ways),
            about="; ".join(words),
            **self._pairs[path, against, shape].found(),
        )


def _with_worst(whole: Agreement, shapes: Sequence[Agreement]) -> Agreement:
    """The worst of each figure over the calls of a service and every compiled shape."""

    def worst(one: OutputAgreement) -> OutputAgreement:
        every = [one, *(o for shape in shapes for o in shape.outputs if o.output == one.output)]
        return replace(
            one,
            worst_cosine=min(o.worst_cosine for o in every),
            mean_cosine=min(o.mean_cosine for o in every),
            max_abs=max(o.max_abs for o in every),
            mae=max(o.mae for o in every),
            not_finite=max(o.not_finite for o in every),
        )

    return replace(whole, outputs=tuple(worst(one) for one in whole.outputs))
