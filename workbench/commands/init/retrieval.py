"""A corpus among the data: queries look for its documents, and the manifest gets a `retrieval:`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from workbench.commands.init.meanings import LABEL_COLUMNS, match
from workbench.inputs.dataset.retrieval import FLOAT, LABEL
from workbench.values.documents.input_files import read_text
from workbench.values.errors import ConfigError
from workbench.values.model import Model

WORDS: Mapping[str, tuple[str, ...]] = {
    "corpus": ("corpus", "document", "docs", "passage"),
    "relevance": ("qrel", "relevan", "judge"),
    "candidates": ("candidate",),
}
"""Key of `retrieval:` → beginnings of the words in the name of its file."""
_IDS = ("id", "_id", "query_id", "query-id", "qid", "doc_id", "docid")
_MOST_CONFIG_BYTES = 1 << 20
_PER_TOKEN, _WHOLE = 3, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """What is written of a retrieval.

    Attributes:
        queries, documents: key of `columns` → column, where it is not the usual one.
        files: key of `retrieval:` → file.
        words: its other keys → value, and why.
    """

    queries: Mapping[str, str]
    documents: Mapping[str, str]
    files: Mapping[str, Path]
    words: Mapping[str, tuple[str, str]]


def searched(
    files: Mapping[str, Path], query: Collection[str], document: Collection[str], content: str, model: Model
) -> Searched:
    """
    Args:
        files: key of `retrieval:` → file; a corpus among them.
        query, document: columns of a split's file, and of the corpus.
        content: the column of the documents' texts.
    """
    ids, kinds = match(query, _IDS), (match(query, LABEL_COLUMNS), match(document, LABEL_COLUMNS))
    labelled, asked = len(files) == 1 and None not in kinds, [key for key in files if key != "corpus"]
    if asked and ids is None:
        rule = f"queries have no id among their columns ({', '.join(query)}), which {' and '.join(asked)} name them by."
        raise ConfigError(rule, key="--data", hint="Call it 'id'.")
    words = {}
    if "relevance" not in files:
        right = (LABEL, "documents of the query's label are right")
        words["relevance"] = (
            right if labelled else (FLOAT, "right is what the float model finds; a file qrels.tsv says")
        )
    words |= {"k": ("10", "so many of the first documents count"), **_embedding(model, pairs="candidates" in files)}
    of_queries = {LABEL: kinds[0]} if labelled else {"id": ids} if asked else {}
    of_documents = {"id": match(document, _IDS), "text": content, LABEL: kinds[1] if labelled else None}
    usual = [{key: name for key, name in of.items() if name not in (None, key)} for of in (of_queries, of_documents)]
    return Searched(queries=usual[0], documents=usual[1], files=files, words=words)


def _embedding(model: Model, *, pairs: bool) -> dict[str, tuple[str, str]]:
    """Keys → value, and why."""
    ranks = {spec.name: len(spec.shape) for spec in model.outputs}
    whole, tokens = ([name for name, rank in ranks.items() if rank == axes] for axes in (_WHOLE, _PER_TOKEN))
    if pairs:
        return {"output": (next(iter(ranks)), "the score of a pair")}
    named = [name for name in whole if "sentence" in name.lower() or "embed" in name.lower()]
    if named or (whole and not tokens):
        return {"output": ((named or whole)[0], "a vector for each text")}
    if not tokens:
        raise ConfigError("no output is an embedding.", file=model.path, hint="Export the encoder with its vectors.")
    pooling, why = "mean", "the usual one"
    for path in (folder / "1_Pooling" / "config.json" for folder in (model.path.parent, model.path.parent.parent)):
        if path.is_file():  # what sentence-transformers wrote of the checkpoint
            with contextlib.suppress(ConfigError, ValueError):
                said = json.loads(read_text(path, limit_bytes=_MOST_CONFIG_BYTES))
                if isinstance(said, dict) and said.get("pooling_mode_cls_token") is True:
                    pooling, why = "cls", "1_Pooling beside the model says so"
    return {"output": (tokens[0], "a vector for each token"), "pooling": (pooling, why)}
