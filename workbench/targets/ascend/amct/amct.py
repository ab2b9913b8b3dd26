"""Quantization by the real AMCT: calibrate, and run its own simulation.

    model ─► normalized, named ─► amct_onnx in its interpreter ─► record.txt ─► QuantizationRecord
              batches as NPZ                                   ├─► MODEL_deploy_model.onnx      input of ATC
                                                               └─► MODEL_fake_quant_model.onnx  its own simulation

The record read back is lowered and interpreted by the workbench like any other, so that what AMCT decided can be
checked on a CPU; `simulation_difference` holds AMCT's simulation against our interpreter of its deploy model. AMCT's
record has only the scales of weights: what ada_quantize learned to round is not in it, and is not calibrated here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from workbench.graph.layers import quantizable_layers
from workbench.graph.nodes import opset_of
from workbench.graph.read import load_graph
from workbench.graph.write import write_model
from workbench.quantization.amct.config import parse_config
from workbench.quantization.amct.protobuf_text import Body
from workbench.quantization.amct.record_file import parse_record
from workbench.quantization.interpreter import Interpreter
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.record import Provenance, QuantizationRecord, write_record
from workbench.targets.ascend.amct.process import LOG, AmctInstallation, ask, find_amct, write_feeds
from workbench.targets.base import Array, Feeds
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import digest, encode
from workbench.values.errors import CalibrationError, ConfigError
from workbench.values.model import Model
from workbench.values.system.files import writing
from workbench.values.system.scratch import scratch_folder

TIMEOUT_S = 3600.0
RECORD, CONFIG = "record.txt", "config.json"
DEPLOY, FAKE_QUANT = "model_deploy_model.onnx", "model_fake_quant_model.onnx"

_NEWEST_OPSETS = {row[0]: row[2] for row in helper.VERSION_TABLE}
"""Release of onnx → newest opset that it knows; its checker refuses a newer one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AmctResult:
    """What AMCT wrote.

    Attributes:
        record: AMCT's record for the model as the workbench normalizes it; provenance engine 'amct'.
        deploy_model: AMCT's own ONNX file, beside its fake-quant model, record and configuration.
        simulated: what the fake-quant model gave for each of the compared batches.
        log: everything AMCT said.
    """

    record: QuantizationRecord
    deploy_model: Path
    simulated: tuple[dict[str, Array], ...]
    log: Path


def calibrate_with_amct(
    model: Model,
    config: str,
    batches: Iterable[Feeds],
    to: Path,
    *,
    installation: AmctInstallation,
    compared: Sequence[Feeds] = (),
    timeout_s: float = TIMEOUT_S,
) -> AmctResult:
    """Quantize a model with AMCT and put its files into the folder `to`, each by one rename.

    AMCT gets the model as `quantization.normalize` gives it: every node named, biases where AMCT moves them into the
    integer product (amct.md §6.4), so that names and layers are those of the workbench. Exactly `batch_num` of the
    batches are read.

    Args:
        config: text of a simplified configuration (.cfg), or of AMCT's quantization JSON.
        compared: batches for AMCT's own simulation.

    Raises:
        CalibrationError: fewer batches than batch_num, AMCT refuses model or configuration, crashes or takes too long
            (with its log; transient where it was killed), or its files do not fit the model.
        ToolchainError: the installation is broken, or `to` cannot be written.
    """
    try:
        parsed = parse_config(config, file="quantization.cfg")
    except ConfigError as error:
        raise CalibrationError(str(error)) from error
    batch_num = (parsed.message if isinstance(parsed, Body) else parsed).batch_num
    log = to / LOG
    with writing(to, "Free space or choose another folder."):
        to.mkdir(parents=True, exist_ok=True)
        with scratch_folder("amct", inside=to) as folder:  # results leave it by rename only
            proto = _written_model(model, folder / "model.onnx", installation)
            feeds = write_feeds(itertools.islice(batches, batch_num), folder, "feeds")
            if len(feeds["files"]) < batch_num:
                raise CalibrationError(
                    f"the configuration asks for {batch_num} batches (batch_num), there are {len(feeds['files'])}. "
                    "AMCT needs exactly as many forwards; lower batch_num or raise the calibration samples."
                )
            request: dict[str, Any] = {"feeds": feeds, "compared": write_feeds(compared, folder, "compared")}
            if isinstance(parsed, Body):
                request["config_defination"] = "quant.cfg"
            (folder / str(request.get("config_defination", CONFIG))).write_text(config, encoding="utf-8")
            answer = ask(installation, folder, request, timeout_s=timeout_s, log=log)
            record, text = _read_back(model, proto, folder, log)
            simulated = []
            for place in range(len(compared)):
                with np.load(folder / f"outputs/{place:06d}.npz", allow_pickle=False) as arrays:
                    simulated.append({name: arrays[f"arr_{i}"] for i, name in enumerate(answer["outputs"])})
            for file in (*_made_by(folder), folder / RECORD, folder / CONFIG):
                file.replace(to / file.name)
    versions = {n if n == "amct_onnx" else f"amct_onnx.{n}": version for n, version in installation.versions.items()}
    recipe = {
        "producer": f"amct_onnx {installation.versions['amct_onnx']}",
        **versions,
        "configuration_sha256": digest(config),
        "record_sha256": digest(text),
        "batch_num": answer.get("forwards"),
    }
    revision = record.provenance.code_revision
    provenance = Provenance(engine="amct", recipe=recipe, statistics=None, code_revision=revision)
    return AmctResult(
        record=replace(record, provenance=provenance),
        deploy_model=to / DEPLOY,
        simulated=tuple(simulated),
        log=log,
    )


def simulation_difference(result: AmctResult, compared: Sequence[Feeds]) -> float:
    """How far our interpreter on AMCT's deploy model is from AMCT's simulation, at most, as a share of the largest
    |output|; 0 while every float operator between rounds alike (amct.md §0 fact 7).

    Args:
        compared: as `calibrate_with_amct` was given them.

    Raises:
        CandidateError: the deploy model fails.
    """
    interpreter = Interpreter(onnx.load(result.deploy_model), force_fp16=result.record.force_fp16)
    pairs = [
        (np.asarray(ours[name], np.float64), np.asarray(value, np.float64))
        for ours, each in zip((interpreter.run(each) for each in compared), result.simulated, strict=True)
        for name, value in each.items()
    ]
    largest = max((float(np.abs(b).max(initial=0.0)) for _, b in pairs), default=0.0)
    return max((float(np.abs(a - b).max(initial=0.0)) for a, b in pairs), default=0.0) / (largest or 1.0)


def _written_model(model: Model, file: Path, installation: AmctInstallation) -> onnx.ModelProto:
    """Write the model for AMCT; what it was given.

    The IR version is the lowest for its opset: old onnx wheels refuse newer ones.

    Raises:
        CalibrationError: AMCT's onnx does not know the model's opset.
    """
    proto = normalized(load_graph(model), scalars=False)
    opset, newest = opset_of(proto), _NEWEST_OPSETS.get(installation.versions["onnx"])
    if newest is not None and opset > newest:
        raise CalibrationError(
            f"the model has opset {opset}; AMCT's onnx {installation.versions['onnx']} knows {newest} at most. "
            "Export it with an opset from 11 to 17, or let the workbench calibrate."
        )
    proto.ir_version = helper.find_min_ir_version_for(list(proto.opset_import), True)
    write_model(proto, file)
    return proto


def _made_by(folder: Path) -> list[Path]:
    """What AMCT left; a model without its data must not be seen."""
    result = folder / "result"
    return sorted(result.iterdir(), key=lambda file: file.suffix == ".onnx") if result.is_dir() else []


def _read_back(model: Model, proto: onnx.ModelProto, folder: Path, log: Path) -> tuple[QuantizationRecord, str]:
    """The record that the child left in `folder`, and its text.

    Raises:
        CalibrationError: AMCT's files are incomplete, or do not fit the model.
    """
    names = {file.name for file in _made_by(folder)}
    for name in (DEPLOY, FAKE_QUANT):
        if name not in names:
            wrote = ", ".join(sorted(names)) or "nothing"
            raise CalibrationError(f"AMCT did not write {name}; it wrote {wrote}.", log_path=log)
    try:
        text = (folder / RECORD).read_text(encoding="utf-8")
        return parse_record(text, layers=quantizable_layers(proto), model_sha256=model.sha256, file=RECORD), text
    except (OSError, UnicodeDecodeError, ConfigError) as error:
        raise CalibrationError(f"AMCT's record cannot be read back: {error}", log_path=log) from error


# --- as a calibrator: whether AMCT is asked about a candidate, and its record in the store's form --------------------


_COMPARED_BATCHES = 2
_LARGEST_DIFFERENCE = 0.05
"""As a share of the largest output. Equal arithmetic differs by roundings of the float operators between the INT8 ones
(below 1e-5 where we compared); more than this is another model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AmctCalibrator:
    """See `workbench.targets.base.Calibrator`. What a search point says without a configuration the native engine
    calibrates; `quantization.calibrator` says who follows a configuration:

        amct        AMCT, or the candidate fails with the reason
        workbench   the native engine, which follows AMCT's procedure to the last digit
        (not said)  AMCT where it is installed

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
        compared = list(itertools.islice(batches(), _COMPARED_BATCHES))
        result = calibrate_with_amct(
            model, configuration, batches(), to / "amct", installation=self.installation, compared=compared
        )
        difference = simulation_difference(result, compared)
        if not difference <= _LARGEST_DIFFERENCE:
            raise CalibrationError(
                f"AMCT's simulation and the integers of its deploy model differ by {difference:.1%} of the largest "
                f"output over {_COMPARED_BATCHES} batches, so the record cannot be trusted. Compare the two with "
                "`workbench compare`.",
                log_path=result.log,
            )
        for name in (DEPLOY, FAKE_QUANT):  # the record says all that lowering needs
            (to / "amct" / name).unlink()
        write_record(result.record, to / "record.json")


def calibrator(environment: Mapping[str, str]) -> AmctCalibrator:
    return AmctCalibrator(installation=find_amct(environment))
