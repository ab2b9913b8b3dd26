"""Texts for a language model: calibration samples, and windows of tokens that are predicted.

    version: 1
    task: language
    files: {calibration: prompts.jsonl, validation: text.txt, holdout: other.txt}
    window: 512
    stride: 512
    measure: perplexity

Tokens are the model's own; its target reads them. A split's windows come in an order drawn by the seed, so that the
first of them stand for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, get_args

import numpy as np

from workbench.inputs.dataset.batch import Batch, IntArray
from workbench.inputs.dataset.splits import Dataset, SplitRows, divided, read_division
from workbench.targets.language import Ids, LanguageTarget
from workbench.values.documents.canonical import digest
from workbench.values.documents.input_files import read_text
from workbench.values.documents.yaml_reader import Section, read_yaml
from workbench.values.errors import ConfigError
from workbench.values.measurement import Split
from workbench.values.model import Model
from workbench.values.paired_scores import TokenWindow

LANGUAGE: Literal["language"] = "language"
Measure = Literal["perplexity", "kl"]
INPUT = "input_ids"
MOST_BYTES = 1 << 28
"""Of a text."""
_MOST_TOKENS = 1 << 20
"""Of a window: no model here has a longer context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRows:
    """Samples or windows of tokens, in the order of their file. A `Source`; rows of several lengths share no batch.

    Attributes:
        firsts: of every row the first token that is predicted, counted from 0.
    """

    sequential: ClassVar = False
    path: Path
    sha256: str
    ids: tuple[Ids, ...] = field(repr=False)
    firsts: tuple[int, ...] = field(repr=False)

    @property
    def size(self) -> int:
        return len(self.ids)

    def read(self, groups: Iterable[IntArray], length: int | None = None) -> Iterator[Batch]:
        for rows in groups:
            for row in rows:
                ids = self.ids[int(row)][:length]
                yield Batch(
                    feeds={INPUT: ids[None, :]},
                    targets=None,
                    indices=np.array([row]),
                    valid=np.ones((1, len(ids)), dtype=np.bool_),
                )


def windows(dataset: Dataset, split: Split) -> tuple[TokenWindow, ...]:
    """The windows of a split, in its order."""
    rows = dataset.split(split)
    assert isinstance(rows.source, TokenRows)  # of a manifest for a language model
    ids, firsts = rows.source.ids, rows.source.firsts
    return tuple(TokenWindow(ids=ids[row], first=firsts[row]) for row in map(int, rows.rows()))


def samples(dataset: Dataset, count: int) -> tuple[Ids, ...]:
    """The first `count` calibration samples of the split's order."""
    rows = dataset.split("calibration")
    assert isinstance(rows.source, TokenRows)  # of a manifest for a language model
    return tuple(rows.source.ids[int(row)] for row in rows.rows()[:count])


def read_language_manifest(path: Path, model: Model, target: LanguageTarget) -> Dataset:
    """Read a manifest and all its texts.

    Without a holdout of its own, the validation is divided: `split.holdout_fraction` of its windows become the holdout.

    Raises:
        ConfigError: names file, line and key of what is wrong.
    """
    with read_yaml(path) as top:
        top.text("task", choices=(LANGUAGE,))
        with top.section("files") as files:
            named = {split: files.file_path(split) for split in get_args(Split) if split != "holdout"}
            if files.has("holdout"):
                named["holdout"] = files.file_path("holdout")
        window = top.integer("window", 512, minimum=2, maximum=_MOST_TOKENS)
        stride = top.integer("stride", window, minimum=1, maximum=_MOST_TOKENS)
        measure = top.text("measure", "perplexity", choices=get_args(Measure))
        division = read_division(top, named)
    calibration = _rows(named["calibration"], target.samples(model, named["calibration"]), model)
    validation = _windows(named["validation"], model, target, window, stride, top)
    other = _windows(named["holdout"], model, target, window, stride, top) if "holdout" in named else None
    seen, holdout = divided(top, validation, other, *division)
    return Dataset(
        path=top.file,
        task=LANGUAGE,
        labels=(),
        preprocessor=None,
        calibration=SplitRows(source=calibration, seed=division[0], start=0, stop=calibration.size),
        validation=seen,
        holdout=holdout,
        measure=measure,
    )


def _windows(path: Path, model: Model, target: LanguageTarget, window: int, stride: int, top: Section) -> TokenRows:
    text = read_text(path, limit_bytes=MOST_BYTES)
    try:
        found = target.windows(model, text, window=window, stride=stride)
    except ConfigError as error:
        key = error.key if error.key in ("window", "stride") else None
        raise ConfigError(error.rule, file=top.file if key else path, key=key, hint=error.hint) from error
    return _rows(path, [each.ids for each in found], model, [each.first for each in found])


def _rows(path: Path, ids: Sequence[Ids], model: Model, firsts: Sequence[int] | None = None) -> TokenRows:
    places = tuple(firsts) if firsts is not None else (1,) * len(ids)
    content = digest([[each.tolist() for each in ids], places])
    return TokenRows(path=path, sha256=content, ids=tuple(ids), firsts=places)
