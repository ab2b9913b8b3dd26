"""AMCT as a calibrator: whether it is asked about a candidate, and its record in the store's form.

quantization.calibrator   amct       AMCT, or the candidate fails with the reason
                          workbench  the native engine
                          (not said) AMCT where it is installed and knows the recipe, else the native engine
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from workbench.graph.layers import quantizable_layers
from workbench.graph.read import load_graph
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.observe import Feeds
from workbench.quantization.record import write_record
from workbench.targets.ascend.amct.amct import calibrate_with_amct, compare_with_fake_quant
from workbench.targets.ascend.amct.process import AmctInstallation
from workbench.targets.ascend.amct.settings import quantization_to_amct_cfg
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import canonical_json, encode
from workbench.values.errors import CalibrationError
from workbench.values.model import Model

AGREEMENT = "agreement.json"
_COMPARED_BATCHES = 2
_LARGEST_DIFFERENCE = 0.05
"""As a share of the largest output. Equal arithmetic differs by roundings of the float operators between the INT8 ones
(below 1e-5 where we compared); more than this is another model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AmctCalibrator:
    """See `workbench.targets.calibrator.Calibrator`.

    Attributes:
        installation: None where AMCT is not installed.
    """

    installation: AmctInstallation | None

    def configuration(
        self, candidate: Candidate, model: Model, kept: Callable[[], Sequence[str]], batches: int
    ) -> str | None:
        q = candidate.quantization
        if q.calibrator == "workbench":
            return None
        if self.installation is None:
            if q.calibrator == "amct":
                raise CalibrationError(
                    "quantization.calibrator is 'amct', and no interpreter with amct_onnx is known. Set "
                    "WORKBENCH_AMCT_PYTHON to the one it is installed in, or leave the setting out."
                )
            return None
        layers = quantizable_layers(normalized(load_graph(model)))
        try:
            return quantization_to_amct_cfg(q, layers, kept(), batch_num=batches)
        except CalibrationError:
            if q.calibrator == "amct":
                raise
            return None

    def identity(self) -> Mapping[str, object]:
        assert self.installation is not None  # who gave a configuration had it
        found: Mapping[str, object] = encode(replace(self.installation, variables={}))
        return found

    def write_record(self, model: Model, configuration: str, batches: Callable[[], Iterator[Feeds]], to: Path) -> None:
        """Beside `record.json` AMCT's own files but its models, and how far its simulation is from our arithmetic on
        its deploy model."""
        assert self.installation is not None  # who gave a configuration had it
        result = calibrate_with_amct(model, configuration, batches(), to / "amct", installation=self.installation)
        compared = islice(batches(), _COMPARED_BATCHES)
        seen = compare_with_fake_quant(result, compared, installation=self.installation)
        if seen.largest_difference > _LARGEST_DIFFERENCE:
            raise CalibrationError(
                f"AMCT's simulation and the integers of its deploy model differ by {seen.largest_difference:.1%} of "
                f"the largest output over {seen.batches} batches, so the record cannot be trusted. Compare the two "
                "models with `workbench compare`.",
                log_path=result.log,
            )
        (to / AGREEMENT).write_text(canonical_json(seen), encoding="utf-8")
        for file in (result.deploy_model, result.fake_quant_model):  # the record says all that lowering needs
            file.unlink()
        write_record(result.record, to / "record.json")
