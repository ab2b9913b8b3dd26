"""A manifest's `retrieval:`: documents that the samples of a dataset, its queries, look for, and which are right.

retrieval:
  corpus: corpus.jsonl               # CSV, TSV or JSONL with the columns of `columns:`, or TXT, a document a line
  relevance: qrels.tsv               # or label: of the query's own label; or float: what the float model finds
  k: 10
  output: sentence_embedding
  pooling: none                      # or mean, cls: of an output with a vector for each token
  candidates: candidates.tsv         # of a cross-encoder: the documents of each query that it puts in order
"""

from __future__ import annotations

import collections
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from workbench.inputs.dataset.text import TextRows, records
from workbench.values.documents.canonical import digest, file_digest
from workbench.values.documents.yaml_reader import Section
from workbench.values.errors import ConfigError, nearest
from workbench.values.interface import Meaning, OutputUse
from workbench.values.preprocess import Pair, Preprocessor

Primary = Literal["recall", "ndcg", "mrr"]
Pooling = Literal["none", "mean", "cls"]
Similarity = Literal["cosine", "dot"]
LABEL, FLOAT = "label", "float"
QUERY, DOCUMENT, GRADE = "query-id", "corpus-id", "score"
"""Columns of a file of judgements, as BEIR calls them (Thakur et al., NeurIPS 2021)."""
_TREC_FIELDS = 4
"""Of a line of a .txt file of judgements: query, a field that nobody reads, document, grade; a run has two more."""
_MOST_K = 1000
_USUAL_K = 10
_SUFFIXES = (".csv", ".tsv", ".jsonl", ".txt")
_CHOICES = {"primary": get_args(Primary), "pooling": get_args(Pooling), "similarity": get_args(Similarity)}
"""Key → what it may be, the usual one first."""

Judgements = tuple[tuple[int, float], ...]
"""(row of a document, its grade)"""
Judged = Mapping[str, Judgements]
"""By the query's id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieval:
    """What `retrieval:` says, read and checked.

    Attributes:
        k: so many of the first documents are looked at.
        primary: the metric that is called accuracy.
        output: the embedding; of a cross-encoder the score of a pair.
        relevance: 'qrels', 'label' or 'float'.
        corpus: the documents; `labels` are their ids.
        kinds: of 'label', the label of each document; else empty.
        qrels: of 'qrels', documents with a grade above 0, the highest first; else empty.
        candidates: of a cross-encoder; empty of an encoder.
        files: digests of the files of judgements and candidates.
    """

    k: int
    primary: Primary
    output: str
    pooling: Pooling
    similarity: Similarity
    relevance: Literal["qrels", "label", "float"]
    corpus: TextRows
    kinds: tuple[str, ...] = field(repr=False)
    qrels: Judged = field(repr=False)
    candidates: Judged = field(repr=False)
    files: tuple[str, ...]

    @property
    def index_identity(self) -> dict[str, object]:
        """What decides the embeddings of the documents, besides the model and how it is fed."""
        names = ("output", "pooling", "similarity")
        return {**{name: getattr(self, name) for name in names}, "documents": digest(self.corpus.texts)}

    @property
    def identity(self) -> dict[str, object]:
        """What decides the numbers, besides queries and how texts become tokens."""
        names = ("k", "primary", "relevance", "files")
        told = digest([self.corpus.labels, self.kinds])
        return {**{name: getattr(self, name) for name in names}, **self.index_identity, "told": told}

    def uses(self, outputs: Sequence[str]) -> tuple[OutputUse, ...]:
        """What the model's outputs mean where they are compared as they are: all but the one are ignored."""
        meaning: Meaning = "values" if self.candidates else "embedding"
        rest = (OutputUse(name=name, meaning="ignored") for name in outputs if name != self.output)
        return (OutputUse(name=self.output, meaning=meaning), *rest)

    def rows_of(self, queries: TextRows, *, scored: bool) -> TextRows:
        """Queries as they are fed: of a cross-encoder each beside one of its candidates, by turns.

        Raises:
            ConfigError: a query has no id of its own, no document that is right or no candidates; names its line.
        """
        own = int(queries.sha256 == self.corpus.sha256)
        if scored and self.k > len(self.corpus.texts) - own:
            rule = f"k of {self.k} is more than the {len(self.corpus.texts) - own} documents that a query may find."
            raise ConfigError(rule, file=self.corpus.path, key="retrieval.k")
        count, seen = collections.Counter(self.kinds), set[str]()
        for row, said in enumerate(map(str, queries.labels or ())):
            rule = ""
            if self.relevance == LABEL and count[said] - own < 1:
                rule = f"no document of {self.corpus.path.name} has this query's label, {said!r}."
            elif self.relevance != LABEL and said in seen:
                rule = f"query id {said!r} stands twice."
            elif scored and self.relevance == "qrels" and not self.qrels.get(said):
                rule = f"query {said!r} has no relevant document among the judgements."
            elif self.candidates and said not in self.candidates:
                rule = f"query {said!r} has no candidates."
            if rule:
                line, _ = next(itertools.islice(records(queries.path), row, None))
                raise ConfigError(rule, file=queries.path, line=line, hint="Add what is missing, or leave it out.")
            seen.add(said)
        if not self.candidates:
            return queries
        pairs = []
        for row, (text, said) in enumerate(zip(queries.texts, queries.labels or (), strict=True)):
            listed = self.candidates[str(said)]
            pairs.append(Pair(str(text), str(self.corpus.texts[listed[row % len(listed)][0]])))
        return replace(queries, texts=tuple(pairs), sha256=digest([queries.sha256, self.corpus.sha256, *self.files]))


def read_retrieval(top: Section, preprocessor: Preprocessor | None) -> tuple[Retrieval | None, str | None]:
    """The key, and the column of queries that it needs: their ids or their labels; None where it is absent.

    Raises:
        ConfigError: names file, line and key of what is wrong.
    """
    if not top.has("retrieval"):
        return None, None
    for key in ("metric", "outputs"):
        if top.has(key):
            top.refuse(key, "means nothing beside retrieval, which says what is scored.", "Leave one of them out.")
    if top.raw("task", None) != "tensors":
        top.refuse("task", "is tensors where documents are retrieved.", "Write task: tensors.")
    with top.section("columns") as names:
        query = {"id": names.text("id", "id"), LABEL: names.text("label", "label")}
    with top.section("retrieval") as section:
        with section.section("columns") as columns:
            own = {"text": columns.text("text", "text"), LABEL: columns.text("label", "label")}
            own |= {"id": columns.text("id")} if columns.has("id") else {}
        relevance, ranks = section.text("relevance"), section.has("candidates")
        if ranks and relevance == LABEL:
            section.refuse("relevance", "is of queries by their ids where candidates are, and label needs none.")
        for key in ("pooling", "similarity") if ranks else ():
            if section.has(key):
                section.refuse(key, "means nothing beside candidates: a cross-encoder scores pairs.", "Leave it out.")
        k, output = section.integer("k", _USUAL_K, minimum=1, maximum=_MOST_K), section.text("output")
        words: Any = {key: section.text(key, choices[0], choices) for key, choices in _CHOICES.items()}
        path = section.file_path("corpus")
        judged = None if relevance in (LABEL, FLOAT) else section.file_path("relevance")
        listed = section.file_path("candidates") if ranks else None
        top.settle()
        if preprocessor is None:
            rule = "documents and queries are texts, and these data are none."
            raise top.error("retrieval", rule, "Give queries as CSV or JSONL.")
        corpus, kinds = _documents(path, preprocessor, own, labelled=relevance == LABEL)
        places = {str(name): row for row, name in enumerate(corpus.labels or ())}
        qrels = {} if judged is None else _judged(judged, places, path)
        candidates = {} if listed is None else _judged(listed, places, path, graded=False)
        most, what = len(places), f"documents of {path.name}"
        if candidates:
            most, what = max(map(len, candidates.values())), "candidates that a query has at most"
        if k > most:
            raise section.error("k", f"{k} is more than the {most} {what}.")
    use = Retrieval(
        k=k,
        output=output,
        relevance=relevance if judged is None else "qrels",  # type: ignore[arg-type]  # one of the two others
        corpus=corpus,
        kinds=kinds,
        qrels={of: tuple(sorted((d for d in every if d[1] > 0), key=lambda d: -d[1])) for of, every in qrels.items()},
        candidates=candidates,
        files=tuple(file_digest(one) for one in (judged, listed) if one is not None),
        **words,
    )
    needed = LABEL if relevance == LABEL else "id" if use.files else None
    return use, None if needed is None else query[needed]


def _documents(
    path: Path, preprocessor: Preprocessor, own: Mapping[str, str], *, labelled: bool
) -> tuple[TextRows, tuple[str, ...]]:
    """The documents, and the label of each.

    Args:
        own: key of `columns` → column; without an id the line is one.
    """
    if path.suffix not in _SUFFIXES:
        rule = f"{path.name} is of no known kind."
        raise ConfigError(rule, key="retrieval.corpus", hint=f"Use {', '.join(_SUFFIXES)}.")
    lines: dict[str, int] = {}
    texts, kinds = [], []
    for line, record in records(path, own["text"], own[LABEL] if labelled else None, own.get("id")):
        text, name = record[own["text"]], str(record.get(own.get("id", "id"), line))
        if not isinstance(text, str):
            raise ConfigError(f"{own['text']!r} must be a text, got {text!r}.", file=path, line=line)
        if name in lines:
            rule = f"document id {name!r} stands twice; it stood in line {lines[name]}."
            raise ConfigError(rule, file=path, line=line)
        lines[name] = line
        texts.append(text)
        kinds.append(str(record[own[LABEL]]) if labelled else "")
    if not texts:
        raise ConfigError("has no documents.", file=path, key="retrieval.corpus")
    told: Any = {"path": path, "sha256": file_digest(path), "preprocessor": preprocessor}
    return TextRows(**told, texts=tuple(texts), labels=tuple(lines), truths=True), tuple(kinds) if labelled else ()


def _judged(path: Path, documents: Mapping[str, int], corpus: Path, *, graded: bool = True) -> Judged:
    """Judgements, or candidates, whose grade nobody needs."""
    found: dict[str, dict[int, float]] = {}
    trec = path.suffix == ".txt"
    columns = (QUERY, DOCUMENT, GRADE if graded else None)
    for line, record in records(path, *(() if trec else columns)):
        fields = record["text"].split() if trec else [record[QUERY], "", record[DOCUMENT], record.get(GRADE)]
        if len(fields) < _TREC_FIELDS:
            rule = f"{len(fields)} fields, where TREC's lines have {_TREC_FIELDS}: query, 0, document, grade."
            raise ConfigError(rule, file=path, line=line)
        query, document = str(fields[0]), str(fields[2])
        if document not in documents:
            rule = f"no document of {corpus.name} has the id {document!r}."
            hint = nearest(document, documents) if len(documents) <= _MOST_K else None
            raise ConfigError(rule, file=path, line=line, hint=hint)
        try:
            grade = float(fields[3]) if graded else 0.0
        except (TypeError, ValueError):
            grade = math.nan
        if not math.isfinite(grade):
            raise ConfigError(f"{GRADE!r} must be a number, got {fields[3]!r}.", file=path, line=line)
        if documents[document] in found.setdefault(query, {}):
            raise ConfigError(f"document {document!r} stands twice for query {query!r}.", file=path, line=line)
        found[query][documents[document]] = grade
    if not found:
        raise ConfigError("has no rows.", file=path)
    return {query: tuple(own.items()) for query, own in found.items()}
