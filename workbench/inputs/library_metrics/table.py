"""Which metrics there are by name, what they need, and which cannot be had and why."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from workbench.values.errors import ConfigError
from workbench.values.versions import install_command

Option = Literal["text", "file", "integer", "number"] | tuple[str, ...]
"""Kind of an option's value; a tuple has the words that are allowed."""
Bounds = tuple[float | None, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedMetric:
    """One metric by name.

    Attributes:
        module: file beside this one, without `.py`.
        packages: (module that is imported, package of pip's).
        bounds, unit: as `MetricUse` has them; an empty unit is that of shares.
        best: of an answer beside itself, at least, where it is not the end of `bounds`.
        refused: why it cannot be had, the rest of a sentence that begins with its name; `instead` says what can.
    """

    about: str
    module: str = ""
    function: str = ""
    packages: tuple[tuple[str, str], ...] = ()
    higher: bool = True
    bounds: Bounds = (0.0, 1.0)
    unit: str = ""
    best: float | None = None
    options: Mapping[str, Option] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    refused: str = ""
    instead: str = ""

    @property
    def file(self) -> Path:
        return Path(__file__).with_name(f"{self.module}.py")


_TEXT: Mapping[str, Option] = {
    "output": "text",
    "decode": ("ids", "ctc", "text"),
    "symbols": "file",
    "blank": "integer",
}
_JIWER = (("jiwer", "jiwer"),)
_SKLEARN = (("sklearn", "scikit-learn"),)
_OUTPUT: Mapping[str, Option] = {"output": "text"}
_SIGNAL: Mapping[str, Option] = {"output": "text", "rate": "integer"}
_WHOLE_SET = "is one number of a whole set: it has no score per sample, which paired tests and early stopping need."


def _of_set(about: str, instead: str) -> NamedMetric:
    return NamedMetric(about=about, refused=_WHOLE_SET, instead=instead)


def _error_rate(function: str, about: str) -> NamedMetric:
    return NamedMetric(
        about=about,
        module="transcripts",
        function=function,
        packages=_JIWER,
        higher=False,
        bounds=(0.0, None),
        options=_TEXT,
    )


def _of_labels(function: str, about: str, *, unit: str = "", options: Mapping[str, Option] = _OUTPUT) -> NamedMetric:
    """Of scikit-learn: a share, of which more is better, or an error in a unit."""
    return NamedMetric(
        about=about,
        module="labels",
        function=function,
        packages=_SKLEARN,
        higher=not unit,
        bounds=(0.0, None if unit else 1.0),
        unit=unit,
        options=options,
    )


NAMED: Mapping[str, NamedMetric] = {
    "wer": _error_rate("wer", "word error rate: edits over words of the transcript"),
    "cer": _error_rate("cer", "character error rate: edits over characters of the transcript"),
    "stoi": NamedMetric(
        about="short-time objective intelligibility of speech beside the clean signal",
        module="speech",
        function="stoi",
        packages=(("pystoi", "pystoi"),),
        bounds=(-1.0, 1.0),
        unit="STOI",
        best=1.0,
        options=_SIGNAL,
        required=("rate",),
    ),
    "pesq": NamedMetric(
        about="perceptual quality of speech beside the clean signal (P.862), narrow band at 8000, wide band at 16000",
        module="speech",
        function="pesq",
        packages=(("pesq", "pesq"),),
        bounds=(-0.5, 4.7),
        unit="MOS",
        best=4.5,
        options=_SIGNAL,
        required=("rate",),
    ),
    "coco_ap": NamedMetric(
        about="average precision of each image's detections over IoU 0.5 to 0.95, mean over images",
        module="detections",
        function="coco_ap",
        packages=(("pycocotools", "pycocotools"),),
        options={"boxes": "text", "scores": "text", "classes": "text", "score": "number"},
        required=("boxes", "scores"),
    ),
    "log_loss": _of_labels(
        "log_loss",
        "negative logarithm of the probability of the right class",
        unit="nats",
        options={**_OUTPUT, "from": ("logits", "probabilities")},
    ),
    "f1_samples": _of_labels(
        "f1_samples",
        "F1 of each sample's set of labels (several labels a sample), mean over samples",
        options={**_OUTPUT, "threshold": "number"},
    ),
    "jaccard_samples": _of_labels(
        "jaccard_samples",
        "intersection over union of each sample's set of labels, mean over samples",
        options={**_OUTPUT, "threshold": "number"},
    ),
    "label_ranking_ap": _of_labels(
        "label_ranking_ap",
        "average precision of each sample's ranking of labels",
        options=_OUTPUT,
    ),
    "mean_absolute_error": _of_labels(
        "mean_absolute_error",
        "mean over samples of |output - target|",
        unit="units",
    ),
    "mean_squared_error": _of_labels(
        "mean_squared_error",
        "mean over samples of (output - target)²",
        unit="units²",
    ),
    "f1_macro": _of_set(
        "unweighted mean of the classes' F1", "`task: classification` reports macro_f1 beside accuracy."
    ),
    "mcc": _of_set("Matthews' correlation", "`task: classification` compares accuracy and reports macro_f1."),
    "roc_auc": _of_set("area under the ROC curve", "Use log_loss, or accuracy by `task: classification`."),
    "r2": _of_set(
        "share of the variance explained",
        "Use `outputs:` with the meaning values, `against: labels` and `primary: r2`; or mean_squared_error.",
    ),
    "map": _of_set(
        "mean average precision of detections",
        "Use image_ap, each image's own average precision: `outputs:` with the meaning boxes and `primary: image_ap`.",
    ),
    "bleu": _of_set("corpus BLEU", "Use cer or wer, or your own function that gives sentence scores."),
}


def refuse_missing(error: Callable[[str, str, str], ConfigError], known: NamedMetric) -> None:
    """Raises what `error` makes of (key, rule, hint), where a package is not installed."""
    missing = [package for module, package in known.packages if importlib.util.find_spec(module) is None]
    if missing:
        raise error(
            "name",
            f"needs {' and '.join(missing)}, not installed here.",
            f"pip install {' '.join(missing)}, or all of them: {install_command('metrics')}",
        )
