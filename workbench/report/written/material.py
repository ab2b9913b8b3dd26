"""Everything a written report says, gathered: what a sweep, a bundle, a verdict and the other documents hold.

No figure is computed from it here; what is None was not measured, or nobody handed it over, and the report says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from workbench.load.result import LoadResult
from workbench.prediction.capacity import CapacityPlan
from workbench.report.summary import Summary
from workbench.shipping.acceptance.verdict import Verdict
from workbench.study.compared import Comparison
from workbench.values.agreement import Agreements
from workbench.values.artifact import CompiledFile
from workbench.values.model import Model
from workbench.values.results import Evaluation
from workbench.values.service import ServiceSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedLayers:
    """Of a record. Attributes: by: who derived the scales; kinds: operator type → layers in INT8."""

    by: str
    kinds: Mapping[str, int]
    float_layers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """Attributes:
    source: experiment file or bundle, as commands take it.
    is_bundle: whether it is a bundle.
    created_at: of the report, ISO 8601.
    chosen, confirmed: what ships, in the search and on held-out data.
    baseline, baseline_confirmed: the float model as it runs today, the same.
    none_fits: no candidate meets every constraint; `chosen` is then the one that came closest.
    named: `chosen` was named by the user, recommended or not.
    data: split → (digest, samples scored; None where none were).
    files: compiled files; () where they are not known.
    bundled_at: ISO 8601; '' where there is no bundle.
    command: the command line that asked for the report; '' where there was none.
    """

    name: str
    about: str
    task: str
    source: str
    is_bundle: bool
    created_at: str
    workbench: str
    chosen: Evaluation
    confirmed: Evaluation | None
    baseline: Evaluation | None
    baseline_confirmed: Evaluation | None
    model: Model
    data: Mapping[str, tuple[str, int | None]]
    none_fits: bool = False
    named: bool = False
    files: tuple[CompiledFile, ...] = ()
    settings: ServiceSettings | None = None
    layers: QuantizedLayers | None = None
    summary: Summary | None = None
    verdict: Verdict | None = None
    agreement: Agreements | None = None
    comparison: Comparison | None = None
    loads: tuple[LoadResult, ...] = ()
    loads_emulated: bool = False
    capacity: CapacityPlan | None = None
    bundled_at: str = ""
    command: str = ""

    @property
    def emulated(self) -> bool:
        return self.chosen.toolchain.emulated

    @property
    def best(self) -> Evaluation:
        """What ships, by the strongest evidence on it."""
        return self.confirmed if self.confirmed is not None and self.confirmed.status == "complete" else self.chosen

    @property
    def best_baseline(self) -> Evaluation | None:
        """The baseline on the split of `best`."""
        if self.best is self.confirmed and self.baseline_confirmed is not None:
            return self.baseline_confirmed
        return self.baseline

    @property
    def is_baseline(self) -> bool:
        """What ships is the float model as it runs today."""
        return self.baseline is not None and self.chosen.candidate.id == self.baseline.candidate.id
