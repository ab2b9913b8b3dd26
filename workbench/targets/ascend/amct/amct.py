"""Quantization by the real AMCT: calibrate, and run its own simulation.

    model ─► normalized, named ─► amct_onnx in its interpreter ─► record.txt ─► QuantizationRecord
              batches as NPZ                                   ├─► MODEL_deploy_model.onnx      input of ATC
                                                               └─► MODEL_fake_quant_model.onnx  its own simulation

The record read back is lowered and interpreted by the workbench like any other, so that what AMCT decided can be
checked on a CPU; `compare_with_fake_quant` holds AMCT's simulation against our interpreter of its deploy model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from workbench.graph.layers import Layer
from workbench.quantization.amct.record_file import parse_record
from workbench.quantization.integers.interpreter import Interpreter
from workbench.quantization.record import Provenance, QuantizationRecord
from workbench.targets.ascend.amct.files import (
    CONFIG,
    DEPLOY,
    FAKE_QUANT,
    RECORD,
    made_models,
    parsed_config,
    publish,
    workplace,
    write_config,
    write_first,
    write_model,
)
from workbench.targets.ascend.amct.process import LOG, AmctInstallation, ask, write_feeds
from workbench.targets.ascend.amct.weights import with_amcts_integers
from workbench.targets.base import Array, Feeds
from workbench.values.documents.canonical import digest
from workbench.values.errors import CalibrationError, ConfigError
from workbench.values.model import Model
from workbench.values.system.scratch import scratch_folder

TIMEOUT_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AmctResult:
    """What AMCT wrote.

    Attributes:
        record: AMCT's record for the model as the workbench normalizes it, with the rounding of AMCT's own integers
            where that is not to the nearest; provenance engine 'amct'.
        record_text, config_json: AMCT's files as they are.
        deploy_model, fake_quant_model: AMCT's own ONNX files.
        log: everything AMCT said.
        casts: inputs that AMCT's model takes in another type than the float model, such as 'ids: int32 to float32'.
    """

    record: QuantizationRecord
    record_text: str
    config_json: str
    deploy_model: Path
    fake_quant_model: Path
    log: Path
    casts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """AMCT's fake-quant model in AMCT's interpreter against our interpreter on AMCT's deploy model, over all outputs.

    Attributes:
        identical: bit for bit, which holds while every float operator between rounds alike (amct.md §0 fact 7).
        largest_difference: as a share of the largest |output|.
    """

    batches: int
    identical: bool
    largest_difference: float
    cosine: float


def calibrate_with_amct(
    model: Model,
    config: str,
    batches: Iterable[Feeds],
    to: Path,
    *,
    installation: AmctInstallation,
    timeout_s: float = TIMEOUT_S,
) -> AmctResult:
    """Quantize a model with AMCT and put its files into the folder `to`, each by one rename.

    AMCT gets the model as `quantization.normalize` gives it: every node named, biases where AMCT moves them into the
    integer product (amct.md §6.4), so that names and layers are those of the workbench. Exactly `batch_num` of the
    batches are read.

    Args:
        config: text of a simplified configuration (.cfg), or of AMCT's quantization JSON.

    Raises:
        CalibrationError: fewer batches than batch_num, AMCT refuses model or configuration, crashes or takes too long
            (with its log; transient where it was killed).
        ToolchainError: the installation is broken, or `to` cannot be written.
    """
    config_of = parsed_config(config)
    with workplace(to) as folder:
        proto, layers = write_model(model, folder / "model.onnx", installation)
        feeds = write_first(batches, config_of.batch_num, folder)
        request = {"action": "calibrate", "feeds": feeds, **write_config(config, config_of, folder)}
        answer = ask_in(installation, folder, request, timeout_s, to)
        return read_result(model, proto, layers, folder, to, installation, config, answer)


def run_in_amct(
    model_file: Path, batches: Iterable[Feeds], *, installation: AmctInstallation, timeout_s: float = TIMEOUT_S
) -> list[dict[str, Array]]:
    """The outputs of a fake-quant (or float) model in AMCT's interpreter, one dict per batch.

    Raises:
        CalibrationError: the model fails there; the log is gone with the run, its last words are in the message.
        ToolchainError: the installation is broken.
    """
    try:
        with scratch_folder("amct") as folder:
            # external data of a large model lies next to it
            for file in [model_file, *model_file.parent.glob("*.external")]:
                name = "model.onnx" if file == model_file else file.name
                (folder / name).symlink_to(file.absolute())
            request = {"action": "run", "feeds": write_feeds(batches, folder, "feeds")}
            log = folder / f"kept-{LOG}"
            answer = ask(installation.python, installation.variables, folder, request, timeout_s=timeout_s, log=log)
            results = []
            for file in sorted((folder / "outputs").iterdir()):
                with np.load(file, allow_pickle=False) as arrays:
                    results.append({name: arrays[f"arr_{index}"] for index, name in enumerate(answer["outputs"])})
            return results
    except CalibrationError as error:
        error.log_path = None
        raise


def compare_with_fake_quant(
    result: AmctResult,
    batches: Iterable[Feeds],
    *,
    installation: AmctInstallation,
    timeout_s: float = TIMEOUT_S,
) -> Agreement:
    """How far our arithmetic is from AMCT's simulation, on AMCT's own files. The batches are kept in memory.

    Raises:
        CandidateError: either of the models fails.
        ToolchainError: the installation is broken.
    """
    feeds = list(batches)
    theirs = run_in_amct(result.fake_quant_model, feeds, installation=installation, timeout_s=timeout_s)
    interpreter = Interpreter(onnx.load(result.deploy_model), force_fp16=result.record.force_fp16)
    ours = [interpreter.run(each) for each in feeds]
    a, b = _flat(ours), _flat(theirs)
    largest = float(np.abs(b).max(initial=0.0)) or 1.0
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    identical = bool(np.array_equal(a, b))
    return Agreement(
        batches=len(feeds),
        identical=identical,
        largest_difference=float(np.abs(a - b).max(initial=0.0)) / largest,
        cosine=1.0 if identical else float(a @ b) / norms if norms else 0.0,
    )


def _flat(runs: Iterable[Mapping[str, Array]]) -> npt.NDArray[np.float64]:
    values = [np.asarray(run[name], np.float64).ravel() for run in runs for name in sorted(run)]
    return np.concatenate(values) if values else np.zeros(0)


def ask_in(
    installation: AmctInstallation, folder: Path, request: Mapping[str, Any], timeout_s: float, to: Path
) -> dict[str, Any]:
    """`ask`, with the log beside the results."""
    return ask(installation.python, installation.variables, folder, request, timeout_s=timeout_s, log=to / LOG)


def read_result(
    model: Model,
    proto: onnx.ModelProto,
    layers: tuple[Layer, ...],
    folder: Path,
    to: Path,
    installation: AmctInstallation,
    config: str,
    answer: Mapping[str, Any],
) -> AmctResult:
    """What the child left in `folder`, read back and moved into `to`.

    Raises:
        CalibrationError: AMCT's files are incomplete, or do not fit the model.
    """
    files = made_models(folder, to / LOG)
    try:
        text = (folder / RECORD).read_text(encoding="utf-8")
        config_json = (folder / CONFIG).read_text(encoding="utf-8")
        record = parse_record(text, layers=layers, model_sha256=model.sha256, file=RECORD)
    except (OSError, UnicodeDecodeError, ConfigError) as error:
        raise CalibrationError(f"AMCT's record cannot be read back: {error}", log_path=to / LOG) from error
    deploy = onnx.load(folder / "result" / DEPLOY)
    try:
        record = with_amcts_integers(record, proto, deploy, learned="ada_quantize" in config_json)
    except CalibrationError as error:
        error.log_path = to / LOG
        raise
    provenance = Provenance(
        engine="amct",
        recipe={
            "producer": f"amct_onnx {installation.amct_onnx}",
            **installation.components(),
            "configuration_sha256": digest(config),
            "record_sha256": digest(text),
            "batch_num": answer.get("forwards"),
        },
        statistics=None,
        code_revision=record.provenance.code_revision,
    )
    publish(to, [*files, folder / RECORD, folder / CONFIG])
    return AmctResult(
        record=replace(record, provenance=provenance),
        record_text=text,
        config_json=config_json,
        deploy_model=to / DEPLOY,
        fake_quant_model=to / FAKE_QUANT,
        log=to / LOG,
        casts=tuple(answer.get("casts", ())),
    )
