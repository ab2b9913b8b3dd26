"""Metrics of well-kept libraries, by name: `metric: {name: wer, …}`.

Each is a function as a user would write it, in a file beside this one, and runs in a process of its own as theirs do
(`user_code`); so a library is loaded only where its metric is asked for, and its version enters the keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Option = Literal["text", "file", "integer", "number"] | tuple[str, ...]
"""Kind of an option's value; a tuple has the words that are allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedMetric:
    """One metric by name.

    Attributes:
        module: file beside this one, without `.py`; its function has the metric's name.
        package: that the module imports and that need not be installed; '' where there is none.
        bounds, unit: as `MetricUse` has them; an empty unit is that of shares.
    """

    about: str
    module: str
    package: str = ""
    higher: bool = True
    bounds: tuple[float | None, float | None] = (0.0, 1.0)
    unit: str = ""
    options: Mapping[str, Option]

    @property
    def file(self) -> Path:
        return Path(__file__).with_name(f"{self.module}.py")


_TEXT: Mapping[str, Option] = {
    "output": "text",
    "decode": ("ids", "ctc", "text"),
    "symbols": "file",
    "blank": "integer",
}


def _error_rate(of: str) -> NamedMetric:
    about = f"{of} error rate: edits over {of}s of the transcript"
    bounds = (0.0, None)
    return NamedMetric(about=about, module="transcripts", package="jiwer", higher=False, bounds=bounds, options=_TEXT)


def _of_labels(about: str, unit: str = "", **options: Option) -> NamedMetric:
    """Of scikit-learn: a share, of which more is better, or an error in a unit."""
    return NamedMetric(
        about=about,
        module="labels",
        higher=not unit,
        bounds=(0.0, None if unit else 1.0),
        unit=unit,
        options={"output": "text", **options},
    )


NAMED: Mapping[str, NamedMetric] = {
    "wer": _error_rate("word"),
    "cer": _error_rate("character"),
    "log_loss": _of_labels(
        "negative logarithm of the probability of the right class", "nats", **{"from": ("logits", "probabilities")}
    ),
    "f1_samples": _of_labels("F1 of each sample's set of labels, mean over samples", threshold="number"),
    "jaccard_samples": _of_labels(
        "intersection over union of each sample's set of labels, mean over samples", threshold="number"
    ),
    "label_ranking_ap": _of_labels("average precision of each sample's ranking of labels"),
    "mean_absolute_error": _of_labels("mean over samples of |output - target|", "units"),
    "mean_squared_error": _of_labels("mean over samples of (output - target)²", "units²"),
}

WHOLE_SET: Mapping[str, str] = {
    "f1_macro": "`task: classification` reports macro_f1 beside accuracy.",
    "mcc": "`task: classification` compares accuracy and reports macro_f1.",
    "roc_auc": "Use log_loss, or accuracy by `task: classification`.",
    "r2": "Use mean_squared_error, or `outputs:` with the meaning values and `against: labels`.",
    "map": "Use image_ap, each image's own average precision: `outputs:` with the meaning boxes and "
    "`primary: image_ap`.",
    "bleu": "Use cer or wer, or your own function that gives sentence scores.",
}
"""One number of a whole set, without the score per sample that paired tests and early stopping need → what instead."""
