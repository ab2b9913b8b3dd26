"""What a bundle says about itself; `opened` reads it back.

manifest.json is one `Manifest` with a `version`; SHA256SUMS protects it and repeats its sums in sha256sum's format.

    version 1    without service, outcomes and deploy/; read with the default service settings
    version 2    what `workbench serve` uses, and what `workbench promote` compares
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.targets.base import Array
from workbench.values.artifact import Artifact, CompiledFile
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import added_later, encode
from workbench.values.interface import AxisUse
from workbench.values.model import Origin, TensorSpec, counts_samples
from workbench.values.preprocess import TokenInput
from workbench.values.results import Evaluation
from workbench.values.service import ServiceSettings

VERSION, READ_VERSIONS = 2, (1, 2)

MANIFEST, README, MODEL, DEPLOY = "manifest.json", "README.md", "model", "deploy"
PIPELINE = "pipeline.json"
MOST_BYTES = 1 << 26
"""Of manifest.json."""

INTEGRITY = "sha256 sums find damage; they are no signature and prove nothing about who wrote the files"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """A replayed output x may differ from the kept one y by `absolute + relative * |y|`."""

    absolute: float
    relative: float

    def margin(self, kept: Array) -> npt.NDArray[np.float64]:
        """How far each replayed value may lie from the kept one; float64, of its shape."""
        allowed: npt.NDArray[np.float64] = self.absolute + self.relative * np.abs(kept.astype(np.float64))
        return allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSum:
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceModel:
    """The float ONNX model the artifact was made from; its file is not in the bundle.

    Attributes:
        origin: the user's file, by its name, and what was done to it, where the model was prepared from one.
    """

    file: str
    sha256: str
    size_bytes: int
    opset: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    origin: Origin | None = added_later(None)  # noqa: RUF009  # it gives a dataclass field

    @property
    def shared_outputs(self) -> frozenset[str]:
        """Without a row for each sample: a service answers nobody with them."""
        inputs = [spec.shape for spec in self.inputs]
        return frozenset(spec.name for spec in self.outputs if not counts_samples(spec.shape, inputs))


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSettings:
    """How a text becomes feeds: the arguments of `workbench.values.preprocess.open_preprocessor`.

    Attributes:
        tokenizer: file in the bundle.
    """

    tokenizer: str
    max_length: int
    bins: tuple[int, ...]
    inputs: tuple[TokenInput, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldoutOutcomes:
    """What became of every holdout sample, so that two bundles can be compared sample by sample without the data.

    Attributes:
        file: in the bundle, as `workbench.inputs.metrics.save_outcomes` writes it.
        samples_sha256: digest of the scored samples, their order and their labels; equal in two bundles means the very
            same samples, however each of them tokenizes and pads. Tensors are scored against the float model, which
            joins the digest there.
    """

    file: str
    samples_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """What ships, as whoever fills a bundle knows it and the manifest says it.

    Attributes:
        evaluations: of the candidate, one per split (validation, and holdout when it was confirmed).
        baseline: of the float model, the same.
        datasets: split → digest of the data it was calibrated and scored with.
        labels: name of each class or tag id; empty without names.
        service: what the service uses unless its command says otherwise.
        axes: those that arrays are padded along, to which sizes and with what.
    """

    name: str
    about: str
    task: str
    candidate: Candidate
    artifact: Artifact
    evaluations: tuple[Evaluation, ...]
    baseline: tuple[Evaluation, ...]
    datasets: Mapping[str, str]
    labels: tuple[str, ...]
    tolerance: Tolerance
    service: ServiceSettings = field(default_factory=ServiceSettings)
    axes: tuple[AxisUse, ...] = added_later(())  # it gives a dataclass field


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest(Shipped):
    """The contents of manifest.json. `files` has every file but manifest.json and SHA256SUMS.

    Attributes:
        outcomes: None where the candidate was not confirmed on holdout.
        golden: of a language model its prompts, and `golden_batches` how many they are.
        agreement: file in the bundle with its `values.agreement.Agreements`; None where nobody measured it.
    """

    created_at: str
    workbench: str
    integrity: str
    candidate_id: str
    model: SourceModel
    text: TextSettings | None
    record: str | None
    golden: str
    golden_texts: str | None
    golden_batches: int
    files: Mapping[str, FileSum]
    outcomes: HoldoutOutcomes | None = None
    agreement: str | None = added_later(None, stored="fidelity")  # it gives a dataclass field

    @property
    def unconfirmed(self) -> str:
        """Why its figures are those of the search at most; '' where held-out data confirmed them."""
        held = next((e for e in self.evaluations if e.split == "holdout"), None)
        if held is not None and held.status == "complete":
            return ""
        if not self.evaluations:
            return "Nothing of it was ever measured."
        how = "was never made" if held is None else f"{held.status} at {held.stage_reached}"
        return f"Its confirmation on held-out data {how}: the figures are the search's, which may flatter it."

    @property
    def deploy_files(self) -> tuple[str, ...]:
        """Files under deploy/, sorted; empty in version 1, and before the bundle is written."""
        return tuple(sorted(name for name in self.files if name.startswith(f"{DEPLOY}/")))

    @property
    def model_files(self) -> dict[str, CompiledFile]:
        """Name in the bundle → compiled file."""
        return {f"{MODEL}/{compiled.file}": compiled for compiled in self.artifact.files}

    def to_json(self) -> dict[str, Any]:
        return {"version": VERSION, **encode(self)}
