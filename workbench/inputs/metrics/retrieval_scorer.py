"""Scores of a retrieval: every query is a sample, and what it finds is held against what it should.

An encoder's candidate is asked two questions. With an index of its own, as where all documents are embedded anew, which
is the accuracy; and with the index that the float model made, as where only the service of queries changes: metrics of
that begin with `float_index.`. A cross-encoder has no index: it scores each query's candidates.

    scorer.search(own, exact, queries, keep)    # who embeds, or scores pairs: the candidate, and the float model
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from workbench.inputs.dataset.batch import Batch, IntArray
from workbench.inputs.dataset.retrieval import FLOAT, LABEL, Retrieval
from workbench.inputs.dataset.text import TextRows
from workbench.inputs.metrics.outcomes import MeasuredOutcomes, measured
from workbench.inputs.metrics.ranking import Floats, Vectors, first_documents, flips, grades, quality, rank_agreement
from workbench.inputs.metrics.score import Outputs, Scorer
from workbench.values.errors import ConfigError, MeasureError, nearest
from workbench.values.measurement import FLOAT_INDEX
from workbench.values.model import Model
from workbench.values.preprocess import Feeds, Pair

_WHOLE, _PER_TOKEN = 2, 3
"""Axes of an embedding of a sample, and of one of each token."""
_TWO_CLASSES = 2
_INDEX = "documents.f32"
"""In the store: float32 [documents, size], without a header."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A model that searches.

    Attributes:
        corpus: the documents, padded as the model is fed.
        batch: samples of a call.
    """

    run: Callable[[Feeds], Outputs]
    corpus: TextRows
    batch: int


class RetrievalScorer(Scorer):
    """A `Scorer` by `retrieval:`. It can score once `search` has told it what runs the models."""

    def __init__(self, use: Retrieval, file: Path) -> None:
        self._use, self._file, self._sizes = use, file, Counter(use.kinds)
        self._sides: tuple[Side, Side] | None = None
        self._indexes: tuple[Vectors, Vectors] | None = None
        self._queries: TextRows | None = None

    @property
    def needs_reference(self) -> bool:
        return True

    @property
    def primary(self) -> str:
        return f"{self._use.primary}_at_{self._use.k}"

    @property
    def identity(self) -> Mapping[str, object]:
        return {"retrieval": self._use.identity}

    def check(self, model: Model) -> None:
        known = [spec.name for spec in model.outputs]
        if self._use.output not in known:
            rule = f"the model has no output {self._use.output!r}."
            raise self._error("output", rule, nearest(self._use.output, known))
        shape = next(spec.shape for spec in model.outputs if spec.name == self._use.output)
        if shape and not self._use.candidates:
            self._check_axes(shape)

    def search(self, own: Side, exact: Side, queries: TextRows, keep: Callable[[Callable[[Path], None]], Path]) -> None:
        """Take what is searched with, and embed the documents.

        Args:
            own: the model that is scored, which may be the very object `exact` is.
            exact: the float model in float32.
            queries: of the split.
            keep: makes a folder once for all candidates: the float model's index is kept there.
        """
        self._sides, self._queries = (own, exact), queries
        if self._use.candidates:
            return

        def write(folder: Path) -> None:
            with (folder / _INDEX).open("w+b") as file:
                self._embedded(exact, file)

        theirs: Vectors = np.memmap(keep(write) / _INDEX, np.float32, "r").reshape(len(exact.corpus.texts), -1)
        ours = theirs
        if own is not exact:
            with tempfile.TemporaryFile() as file:  # gone when the scorer is, however that ends
                ours = self._embedded(own, file)
        self._indexes = ours, theirs

    def same_documents(self) -> bool:
        """Whether the candidate's index is the float model's, bit for bit."""
        return self._indexes is not None and all(np.array_equal(a, b) for a, b in zip(*self._indexes, strict=True))

    def score(self, outputs: Outputs, batch: Batch, reference: Outputs | None) -> MeasuredOutcomes:
        return self.score_all([(outputs, batch, reference)])

    def score_all(self, runs: Iterable[tuple[Outputs, Batch, Outputs | None]]) -> MeasuredOutcomes:
        """All queries of these batches against each block of documents once."""
        if self._sides is None or self._queries is None:
            raise ValueError("`search` comes before anything is scored")
        batches: list[Batch] = []
        vectors: tuple[list[Vectors], list[Vectors]] = ([], [])
        for outputs, batch, reference in runs:
            batches.append(batch)
            if not self._use.candidates:
                assert reference is not None  # which is asked for
                for found, each in zip(vectors, (outputs, reference), strict=True):
                    found.append(self._vectors(each, batch, "the embedding of the query {}"))
        rows = np.concatenate([batch.indices for batch in batches])
        said = [str(one) for batch in batches for one in batch.truths or [""] * len(batch)]
        if self._use.candidates:
            return self._reranked(rows, said)
        return self._found(np.concatenate(vectors[0]), np.concatenate(vectors[1]), rows, said)

    def _found(self, ours: Vectors, theirs: Vectors, rows: IntArray, said: list[str]) -> MeasuredOutcomes:
        assert self._indexes is not None
        assert self._queries is not None
        own, exact = self._indexes
        k, itself = self._use.k, self._queries.sha256 == self._use.corpus.sha256
        left_out = rows if itself else np.full(len(rows), -1, dtype=np.int64)
        wanted = first_documents(theirs, exact, k, left_out)
        same = own is exact and np.array_equal(ours, theirs)
        columns: dict[str, tuple[Floats, Floats]] = {}
        expected = _products(theirs, exact, wanted)
        for prefix, index in (("", own), (FLOAT_INDEX, exact)):
            order = wanted if same else first_documents(ours, index, k, left_out)
            agreed = rank_agreement(_products(ours, index, wanted), expected)
            columns |= {prefix + n: v for n, v in self._columns(order, wanted, said, left_out, agreed).items()}
        return self._outcomes(columns)

    def _columns(
        self, order: IntArray, wanted: IntArray, said: list[str], itself: IntArray, agreed: tuple[Floats, Floats]
    ) -> dict[str, tuple[Floats, Floats]]:
        """Metric → numerators and denominators of the queries, the primary one first."""
        k, ones = self._use.k, np.ones(len(order))
        if self._use.relevance == LABEL:
            kinds = np.array(self._use.kinds)
            counts = np.array([self._sizes[one] for one in said]) - (itself >= 0)
            gains = (kinds[order] == np.array(said)[:, None]).astype(np.float64)
            ideal = (np.arange(k) < counts[:, None]).astype(np.float64)
        elif self._use.relevance == FLOAT:  # the earlier the float model finds it, the higher its grade
            falling = np.arange(k, 0.0, -1.0).tolist()
            gains, ideal = grades(order, [tuple(zip(own.tolist(), falling, strict=True)) for own in wanted])
        else:
            gains, ideal = grades(order, [self._use.qrels[one] for one in said])
        names = sorted(found := quality(gains, ideal), key=lambda name: name != self._use.primary)
        columns = {f"{name}_at_{k}": (found[name], ones) for name in names}
        return {**columns, f"flips_at_{k}": (flips(order, wanted), ones), "rank_agreement": agreed}

    def _outcomes(self, columns: Mapping[str, tuple[Floats, Floats]]) -> MeasuredOutcomes:
        specs = []
        for name in columns:
            last = name.removeprefix(FLOAT_INDEX)
            bounds = (-1.0, 1.0) if last == "rank_agreement" else (0.0, 1.0)
            specs.append((name, "", not last.startswith("flips"), bounds, "ratio"))
        tops, lows = (np.stack(each, axis=1) for each in zip(*columns.values(), strict=True))
        return measured(specs, (tops * (lows > 0), lows))

    def _embedded(self, side: Side, file: IO[bytes]) -> Vectors:
        """The embedding of every document [documents, size]; of like lengths together, so that little is padded."""
        corpus, index = side.corpus, np.zeros((0, 0), dtype=np.float32)
        order = np.argsort([len(str(text)) for text in corpus.texts], kind="stable").astype(np.int64)
        for batch in corpus.read(order[i : i + side.batch] for i in range(0, len(order), side.batch)):
            vectors = self._vectors(side.run(batch.feeds), batch, "the embedding of document {}", corpus.labels)
            if not len(index):
                shape = len(order), vectors.shape[1]
                os.posix_fallocate(file.fileno(), 0, 4 * shape[0] * shape[1])  # a full disk is an error here, no signal
                index = np.memmap(file, np.float32, "r+", shape=shape)
            index[batch.indices] = vectors
        return index

    def _vectors(self, outputs: Outputs, batch: Batch, words: str, names: tuple[Any, ...] | None = None) -> Vectors:
        """[n, size] as `pooling` and `similarity` say."""
        use, array = self._use, self._output(outputs, batch)
        self._check_axes(array.shape)
        if use.pooling == "cls":
            array = array[:, 0]
        elif use.pooling == "mean":
            valid = np.ones(array.shape[:2], dtype=np.bool_) if batch.valid is None else batch.valid
            array = np.where(valid[:, :, None], array, 0.0).sum(axis=1) / np.maximum(valid.sum(axis=1), 1)[:, None]
        self._finite(array, batch, words, names)
        if use.similarity == "cosine":
            norms = np.linalg.norm(array, axis=1, keepdims=True)
            array = array / np.where(norms == 0, 1.0, norms)
        return array.astype(np.float32)

    def _check_axes(self, shape: tuple[object, ...]) -> None:
        axes = _WHOLE if self._use.pooling == "none" else _PER_TOKEN
        if len(shape) != axes:
            other = "mean, or cls" if axes == _WHOLE else "none"
            rule = f"{self._use.pooling} reads an output of {axes} axes, and {self._use.output!r} is {list(shape)}."
            raise self._error("pooling", rule, f"Write pooling: {other}, or name another output.")

    def _output(self, outputs: Outputs, batch: Batch) -> npt.NDArray[np.float64]:
        if self._use.output not in outputs:
            raise MeasureError(f"there is no output {self._use.output!r}; it gives {', '.join(outputs)}.")
        array = outputs[self._use.output]
        if array.shape[:1] != (len(batch),):
            raise MeasureError(f"output {self._use.output!r} is {list(array.shape)} for {len(batch)} texts.")
        return array.astype(np.float64)

    def _finite(self, array: Floats, batch: Batch, words: str, names: tuple[Any, ...] | None) -> None:
        wrong = ~np.isfinite(array).all(axis=1)
        if wrong.any():
            row = int(batch.indices[int(wrong.argmax())])
            whose = words.format(f"in row {row}" if names is None else repr(names[row]))
            raise MeasureError(f"{whose} holds NaN or infinity (output {self._use.output!r}).")

    # --- a cross-encoder: each query's candidates, in the order of their scores ---

    def _reranked(self, rows: IntArray, said: list[str]) -> MeasuredOutcomes:
        assert self._sides is not None
        k, listed = self._use.k, [np.array([row for row, _ in self._use.candidates[one]]) for one in said]
        own, exact = self._sides
        theirs = list(self._pair_scores(exact, rows, listed))
        ours = theirs if own is exact else list(self._pair_scores(own, rows, listed))
        orders: tuple[list[IntArray], list[IntArray]] = ([], [])
        agreed = []
        for found, *scores in zip(listed, ours, theirs, strict=True):
            first = [np.lexsort((found, -one))[:k] for one in scores]
            agreed.append(rank_agreement(*(one[first[1]][None] for one in scores)))
            for order, places in zip(orders, first, strict=True):
                # a list that is shorter than k ends with documents that nobody has
                order.append(np.pad(found[places], (0, k - len(places)), constant_values=-1))
        told = np.concatenate([each for each, _ in agreed]), np.concatenate([each for _, each in agreed])
        nobody = np.full(len(rows), -1, dtype=np.int64)
        return self._outcomes(self._columns(np.array(orders[0]), np.array(orders[1]), said, nobody, told))

    def _pair_scores(self, side: Side, rows: IntArray, listed: list[IntArray]) -> Iterator[Vectors]:
        """Of each query the scores of its candidates."""
        assert self._queries is not None
        for row, found in zip(rows, listed, strict=True):
            query = self._queries.texts[int(row)]
            assert isinstance(query, Pair)
            pairs = tuple(Pair(query.first, str(side.corpus.texts[document])) for document in found)
            source, count = replace(side.corpus, texts=pairs, labels=None), np.arange(len(found), dtype=np.int64)
            parts = []
            for batch in source.read(count[i : i + side.batch] for i in range(0, len(count), side.batch)):
                array = self._output(side.run(batch.feeds), batch).reshape(len(batch), -1)
                if array.shape[1] > _TWO_CLASSES:
                    rule = f"{self._use.output!r} has {array.shape[1]} numbers for a pair."
                    raise self._error("output", rule, "A cross-encoder gives one score, or two classes, no and yes.")
                named = f"the score of query {int(row)} with document {{}}"
                self._finite(array, batch, named, tuple((side.corpus.labels or ())[document] for document in found))
                parts.append(array[:, -1] - (array[:, 0] if array.shape[1] == _TWO_CLASSES else 0.0))
            yield np.concatenate(parts).astype(np.float32)

    def _error(self, key: str, rule: str, hint: str | None = None) -> ConfigError:
        return ConfigError(rule, file=self._file, key=f"retrieval.{key}", hint=hint)


def _products(queries: Vectors, documents: Vectors, rows: IntArray) -> Vectors:
    """[n, k] scalar products of each query with the documents in its rows, rounded as `first_documents` rounds them."""
    found = [documents[own].astype(np.float64) @ one.astype(np.float64) for one, own in zip(queries, rows, strict=True)]
    return np.array(found).astype(np.float32)
