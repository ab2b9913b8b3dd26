"""A corpus among the data: queries look for its documents, and the manifest gets a `retrieval:`."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.commands.init.meanings import LABEL_COLUMNS, match
from workbench.inputs.dataset.retrieval import FLOAT, LABEL, Pooling
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
        queries: keys and values of the manifest's `columns`, beside that of the text.
        files: key of `retrieval:` → file.
        words: its other keys, and why.
    """

    queries: Mapping[str, str]
    files: Mapping[str, Path]
    words: Mapping[str, tuple[str, str]]

    def lines(self, written: Callable[[Path], str]) -> list[str]:
        keys = {key: (written(path), "") for key, path in self.files.items()} | dict(self.words)
        order = sorted(keys, key=lambda key: key != "corpus")
        found = [f"  {key}: {keys[key][0]}" + (f"  # {keys[key][1]}" if keys[key][1] else "") for key in order]
        return ["# Decides what accuracy is: which documents each query finds.", "retrieval:", *found]


def searched(
    files: Mapping[str, Path],
    query: Collection[str],
    document: Collection[str],
    content: str | None,
    model: Model,
) -> Searched:
    """
    Args:
        files: key of `retrieval:` → file; a corpus among them.
        query, document: columns of a split's file, and of the corpus; of a file of lines none.
        content: the column of the documents' texts.
    """
    ids, kinds = match(query, _IDS), (match(query, LABEL_COLUMNS), match(document, LABEL_COLUMNS))
    words, queries = dict[str, tuple[str, str]](), dict[str, str]()
    labelled = "relevance" not in files and "candidates" not in files and None not in kinds
    if "relevance" not in files:
        why = "documents of the query's label are right" if labelled else "what the float model finds is right"
        words["relevance"] = (LABEL, why) if labelled else (FLOAT, f"{why}; a file of judgements named qrels would say")
    if labelled:
        queries["label"] = str(kinds[0])
    elif len(files) > 1 and ids is None:
        raise ConfigError(
            f"queries have no id among their columns ({', '.join(query)}), which {', '.join(files)} are by.",
            key="--data",
            hint="Call it 'id'.",
        )
    elif len(files) > 1 and ids != "id":
        queries["id"] = str(ids)
    own = {"id": match(document, _IDS), "text": content, "label": kinds[1] if labelled else None}
    columns = ", ".join(f"{key}: {name}" for key, name in own.items() if name not in (None, key))
    words |= {"columns": (f"{{{columns}}}", "")} if columns else {}
    words["k"] = ("10", "so many of the first documents are looked at")
    output, pooling, why = _embedding(model, pairs="candidates" in files)
    words |= {"output": (output, why)} | ({"pooling": (pooling, "")} if "candidates" not in files else {})
    return Searched(queries=queries, files=files, words=words)


def _embedding(model: Model, *, pairs: bool) -> tuple[str, Pooling, str]:
    """(output, pooling, why)."""
    ranks = {spec.name: len(spec.shape) for spec in model.outputs}
    whole, tokens = ([name for name, rank in ranks.items() if rank == axes] for axes in (_WHOLE, _PER_TOKEN))
    if pairs:
        return next(iter(ranks)), "none", "the score of a pair"
    named = [name for name in whole if "sentence" in name.lower() or "embed" in name.lower()]
    if named or (whole and not tokens):
        return (named or whole)[0], "none", "a vector for each text"
    if not tokens:
        raise ConfigError("no output is an embedding.", file=model.path, hint="Export the encoder with its vectors.")
    declared = _declared_pooling(model.path)
    return tokens[0], declared or "mean", "1_Pooling beside the model says so" if declared else "the usual pooling"


def _declared_pooling(model: Path) -> Pooling | None:
    """What sentence-transformers wrote beside a checkpoint; None where it says nothing that is known here."""
    places: Sequence[Path] = [folder / "1_Pooling" / "config.json" for folder in (model.parent, model.parent.parent)]
    for path in (place for place in places if place.is_file()):
        try:
            said = json.loads(read_text(path, limit_bytes=_MOST_CONFIG_BYTES))
        except (ConfigError, ValueError):
            continue
        for key, pooling in (("pooling_mode_cls_token", "cls"), ("pooling_mode_mean_tokens", "mean")):
            if isinstance(said, dict) and said.get(key) is True:
                return pooling  # type: ignore[return-value]  # one of the two
    return None
