"""Agreement: how far the answers of what ships lie from those of other ways to compute the same model.

`shipping/agreement` measures it; the evaluation, the bundle, the verdict and the report hold it in this form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from workbench.values.documents.canonical import added_later, encode
from workbench.values.documents.json_reader import read_document
from workbench.values.measurement import AccuracyComparison, Estimate

_MOST_BYTES = 1 << 26

AgreementPath = Literal["pytorch", "float32", "float32 compiled", "float16 compiled", "served", "old platform"]
"""Who answered: the checkpoint in PyTorch; the float ONNX file in ONNX Runtime; the float model compiled by the target
in float32, and as it runs there today, in float16; the candidate's compiled files as they are served; a file of another
platform's answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputAgreement:
    """One output over all samples, the one reference against the other's; each sample is a row flattened.

    Attributes:
        worst_cosine, mean_cosine: over samples, each without the positions that the model's mask hides.
        not_finite: elements that are NaN or infinite in one of the two. They are in no absolute error, and the cosine
            of a sample that holds one is 0.
    """

    output: str
    samples: int
    elements: int
    worst_cosine: float
    mean_cosine: float
    max_abs: float
    mae: float
    not_finite: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """One path against its reference, over the same inputs.

    Attributes:
        shape: how the files were called, such as 'batch 8, length 64'; '' for all of them together, the worst of each
            figure and the accuracy as served.
        top1: share of samples (tokens where each has a label) with the same best class; None without classes.
        accuracy: metric → (of this path, of the reference), in natural units; such as token F1 and entity F1.
        drop: of the primary metric, paired, against the reference; None without labels.
        emulated: an emulator computed one of the two.
        about: versions, files and what was left out, in words.
    """

    path: AgreementPath
    reference: AgreementPath
    outputs: tuple[OutputAgreement, ...]
    samples: int
    shape: str = ""
    top1: Estimate | None = None
    accuracy: Mapping[str, tuple[float, float]]
    drop: AccuracyComparison | None = None
    emulated: bool = False
    about: str = ""

    @property
    def worst_cosine(self) -> float:
        return min((each.worst_cosine for each in self.outputs), default=1.0)

    @property
    def mean_cosine(self) -> float:
        return min((each.mean_cosine for each in self.outputs), default=1.0)

    @property
    def max_abs(self) -> float:
        return max((each.max_abs for each in self.outputs), default=0.0)

    @property
    def mae(self) -> float:
        return max((each.mae for each in self.outputs), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreements:
    """All paths of one candidate.

    Attributes:
        candidate_id: of what ships.
        data: split and manifest, in words.
        paths: in the order of `AgreementPath`, the whole of a path before its shapes.
        missing: path → why it could not be taken.
        command: the command line that asked for it; '' where there was none.
    """

    candidate_id: str
    data: str
    paths: tuple[Agreement, ...]
    missing: Mapping[str, str]
    command: str = added_later("")

    def find(self, path: AgreementPath, reference: AgreementPath = "float32") -> Agreement | None:
        """All shapes together, or None where this pair was not compared."""
        return next((a for a in self.paths if (a.path, a.reference, a.shape) == (path, reference, "")), None)

    def to_json(self) -> dict[str, Any]:
        return {"version": 1, **encode(self)}


def read_agreement(file: Path) -> Agreements:
    """What `workbench agreement --to` wrote."""
    return read_document(Agreements, file, "agreement", limit_bytes=_MOST_BYTES, key="--agreement")
