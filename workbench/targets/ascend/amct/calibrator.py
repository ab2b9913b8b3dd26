"""AMCT as a calibrator: whether it is asked about a candidate, and its record in the store's form.

quantization.calibrator   amct       AMCT, or the candidate fails with the reason
                          workbench  the native engine, which follows AMCT's procedure to the last digit
                          (not said) of a configuration (`quantization.scheme: cfg`) AMCT where it is installed

What a search point says without a configuration the native engine calibrates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from workbench.quantization.observe import Feeds
from workbench.quantization.record import write_record
from workbench.targets.ascend.amct.amct import calibrate_with_amct, simulation_difference
from workbench.targets.ascend.amct.process import AmctInstallation
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import encode
from workbench.values.errors import CalibrationError
from workbench.values.model import Model

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

    def configuration(self, candidate: Candidate) -> str | None:
        q = candidate.quantization
        if q.calibrator == "workbench":
            return None
        why = ""
        if q.cfg is None:
            why = "AMCT calibrates what its own configuration says (quantization.scheme: cfg)"
        elif self.installation is None:
            why = "no interpreter with amct_onnx is known (WORKBENCH_AMCT_PYTHON names the one it is installed in)"
        elif "ada_quantize" in q.cfg:
            why = "AMCT's record does not tell the rounding that ada_quantize learns; arq_quantize rounds to nearest"
        if why and q.calibrator == "amct":
            raise CalibrationError(
                f"quantization.calibrator is 'amct', and {why}. Leave it out, and the workbench does."
            )
        return None if why else q.cfg

    def identity(self) -> Mapping[str, object]:
        assert self.installation is not None  # who gave a configuration had it
        found: Mapping[str, object] = encode(replace(self.installation, variables={}))
        return found

    def write_record(self, model: Model, configuration: str, batches: Callable[[], Iterator[Feeds]], to: Path) -> None:
        """Beside `record.json` AMCT's own files but its models, once its simulation and our arithmetic on its deploy
        model agree."""
        assert self.installation is not None  # who gave a configuration had it
        result = calibrate_with_amct(model, configuration, batches(), to / "amct", installation=self.installation)
        compared = islice(batches(), _COMPARED_BATCHES)
        difference = simulation_difference(result, compared, installation=self.installation)
        if not difference <= _LARGEST_DIFFERENCE:
            raise CalibrationError(
                f"AMCT's simulation and the integers of its deploy model differ by {difference:.1%} of the largest "
                f"output over {_COMPARED_BATCHES} batches, so the record cannot be trusted. Compare the two with "
                "`workbench compare`.",
                log_path=result.log,
            )
        for file in (result.deploy_model, result.fake_quant_model):  # the record says all that lowering needs
            file.unlink()
        write_record(result.record, to / "record.json")
