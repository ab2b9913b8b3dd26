"""Quantization by the real AMCT: calibrate, and run its own simulation.

    model ─► normalized, named ─► amct_onnx in its interpreter ─► record.txt ─► QuantizationRecord
              batches as NPZ                                   ├─► MODEL_deploy_model.onnx      input of ATC
                                                               └─► MODEL_fake_quant_model.onnx  its own simulation

The record read back is lowered and interpreted by the workbench like any other, so that what AMCT decided can be
checked on a CPU; `simulation_difference` holds AMCT's simulation against our interpreter of its deploy model. AMCT's
record has only the scales of weights: where ada_quantize learned their rounding, its integers are taken from the deploy
model as the record's rounding bits.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import ModelProto, NodeProto, helper

from workbench.graph.apart import array_of
from workbench.graph.layers import Layer, quantizable_layers
from workbench.graph.nodes import opset_of
from workbench.graph.read import constants, load_graph
from workbench.graph.write import write_model
from workbench.quantization.amct.cfg import AmctConfig
from workbench.quantization.amct.config import parse_config
from workbench.quantization.amct.record_file import parse_record
from workbench.quantization.integers.interpreter import Interpreter
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.lowering.prepare import prepare
from workbench.quantization.record import LayerRecord, Provenance, QuantizationRecord
from workbench.quantization.rounding import encoded_bits
from workbench.quantization.weights import scales_over
from workbench.targets.ascend.amct.process import LOG, AmctInstallation, ask, write_feeds
from workbench.targets.base import Array, Feeds
from workbench.values.documents.canonical import digest
from workbench.values.errors import CalibrationError, ConfigError, ToolchainError
from workbench.values.model import Model
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
        record: AMCT's record for the model as the workbench normalizes it, with the rounding of AMCT's own integers
            where that is not to the nearest; provenance engine 'amct'.
        deploy_model, fake_quant_model: AMCT's own ONNX files, beside its record and its configuration.
        log: everything AMCT said.
    """

    record: QuantizationRecord
    deploy_model: Path
    fake_quant_model: Path
    log: Path


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
    try:
        parsed = parse_config(config, file="quantization.cfg")
    except ConfigError as error:
        raise CalibrationError(str(error)) from error
    with _workplace(to) as folder:
        proto = _written_model(model, folder / "model.onnx", installation)
        feeds = write_feeds(itertools.islice(batches, parsed.batch_num), folder, "feeds")
        if len(feeds["files"]) < parsed.batch_num:
            raise CalibrationError(
                f"the configuration asks for {parsed.batch_num} batches (batch_num), there are {len(feeds['files'])}. "
                "AMCT needs exactly as many forwards; lower batch_num or raise the calibration samples."
            )
        request = {"action": "calibrate", "feeds": feeds}
        if isinstance(parsed, AmctConfig):
            request["config_defination"] = "quant.cfg"
        (folder / str(request.get("config_defination", CONFIG))).write_text(config, encoding="utf-8")
        log = to / LOG
        answer = ask(installation.python, installation.variables, folder, request, timeout_s=timeout_s, log=log)
        return AmctResult(
            record=_read_back(model, proto, folder, to, installation, digest(config), answer),
            deploy_model=to / DEPLOY,
            fake_quant_model=to / FAKE_QUANT,
            log=log,
        )


def run_in_amct(
    model_file: Path, batches: Iterable[Feeds], *, installation: AmctInstallation
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
            answer = ask(installation.python, installation.variables, folder, request, timeout_s=TIMEOUT_S, log=log)
            results = []
            for file in sorted((folder / "outputs").iterdir()):
                with np.load(file, allow_pickle=False) as arrays:
                    results.append({name: arrays[f"arr_{index}"] for index, name in enumerate(answer["outputs"])})
            return results
    except CalibrationError as error:
        error.log_path = None
        raise


def simulation_difference(result: AmctResult, batches: Iterable[Feeds], *, installation: AmctInstallation) -> float:
    """How far our interpreter on AMCT's deploy model is from AMCT's simulation, at most, as a share of the largest
    |output|; 0 while every float operator between rounds alike (amct.md §0 fact 7). The batches are kept in memory.

    Raises:
        CandidateError: either of the models fails.
        ToolchainError: the installation is broken.
    """
    feeds = list(batches)
    theirs = run_in_amct(result.fake_quant_model, feeds, installation=installation)
    interpreter = Interpreter(onnx.load(result.deploy_model), force_fp16=result.record.force_fp16)
    pairs = [
        (np.asarray(ours[name], np.float64), np.asarray(value, np.float64))
        for ours, each in zip((interpreter.run(each) for each in feeds), theirs, strict=True)
        for name, value in each.items()
    ]
    largest = max((float(np.abs(b).max(initial=0.0)) for _, b in pairs), default=0.0)
    return max((float(np.abs(a - b).max(initial=0.0)) for a, b in pairs), default=0.0) / (largest or 1.0)


@contextmanager
def _workplace(to: Path) -> Iterator[Path]:
    """A folder for the child inside `to`, gone in the end: results leave it by rename only."""
    try:
        to.mkdir(parents=True, exist_ok=True)
        with scratch_folder("amct", inside=to) as folder:
            yield folder
    except OSError as error:
        raise ToolchainError(
            f"{to} cannot be written: {error.strerror or error}. Free space or choose another folder."
        ) from error


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


def _read_back(
    model: Model,
    proto: onnx.ModelProto,
    folder: Path,
    to: Path,
    installation: AmctInstallation,
    configuration_sha256: str,
    answer: Mapping[str, Any],
) -> QuantizationRecord:
    """The record that the child left in `folder`; its files are moved into `to`, each by one rename.

    Raises:
        CalibrationError: AMCT's files are incomplete, or do not fit the model.
    """
    written = (folder / "result").iterdir() if (folder / "result").is_dir() else ()
    files = sorted(written, key=lambda file: file.suffix == ".onnx")  # a model without its data must not be seen
    names = {file.name for file in files}
    for name in (DEPLOY, FAKE_QUANT):
        if name not in names:
            wrote = ", ".join(sorted(names)) or "nothing"
            raise CalibrationError(f"AMCT did not write {name}; it wrote {wrote}.", log_path=to / LOG)
    try:
        text = (folder / RECORD).read_text(encoding="utf-8")
        learned = "ada_quantize" in (folder / CONFIG).read_text(encoding="utf-8")
        record = parse_record(text, layers=quantizable_layers(proto), model_sha256=model.sha256, file=RECORD)
    except (OSError, UnicodeDecodeError, ConfigError) as error:
        raise CalibrationError(f"AMCT's record cannot be read back: {error}", log_path=to / LOG) from error
    try:
        record = with_amcts_integers(record, proto, onnx.load(folder / "result" / DEPLOY), learned=learned)
    except CalibrationError as error:
        error.log_path = to / LOG
        raise
    provenance = Provenance(
        engine="amct",
        recipe={
            "producer": f"amct_onnx {installation.versions['amct_onnx']}",
            **installation.components(),
            "configuration_sha256": configuration_sha256,
            "record_sha256": digest(text),
            "batch_num": answer.get("forwards"),
        },
        statistics=None,
        code_revision=record.provenance.code_revision,
    )
    for file in (*files, folder / RECORD, folder / CONFIG):
        file.replace(to / file.name)
    return replace(record, provenance=provenance)


# --- which integers AMCT chose for the weights: its record has their scales only --------------------------------------


def with_amcts_integers(
    record: QuantizationRecord, proto: ModelProto, deploy: ModelProto, *, learned: bool
) -> QuantizationRecord:
    """The record with rounding bits for layers whose weights AMCT did not round to the nearest integer.

    Args:
        proto: the normalized float model that AMCT was given.
        deploy: AMCT's deploy model of it.
        learned: AMCT learned its rounding. Otherwise a layer that AMCT gave another name is taken to be rounded to
            nearest, as ARQ does.

    Raises:
        CalibrationError: AMCT's integers are none of the two beside w / scale: the files do not belong together.
    """
    prepared = prepare(proto, record)
    stored = constants(prepared)
    theirs, nodes = constants(deploy), {node.name: node for node in deploy.graph.node}
    layers = {layer.name: layer for layer in quantizable_layers(prepared)}
    found: list[LayerRecord] = []
    for recorded in record.layers:
        layer, node = layers[recorded.layer], nodes.get(recorded.layer)
        if recorded.weight is None or layer.weight is None:
            found.append(recorded)
            continue
        if node is None or len(node.input) < 2 or node.input[1] not in theirs:
            if learned:
                raise CalibrationError(
                    f"AMCT's deploy model has no layer {recorded.layer!r} with a constant weight, so that its learned "
                    "rounding cannot be read. Use arq_quantize."
                )
            found.append(recorded)
            continue
        integers = _as_stored(array_of(theirs[node.input[1]]), node, layer)
        values = array_of(stored[layer.weight])
        bits = _rounding(values, integers, recorded, layer)
        if bits is None:
            found.append(recorded)
        else:
            found.append(replace(recorded, weight=replace(recorded.weight, rounding=encoded_bits(bits))))
    return replace(record, layers=tuple(found))


def _as_stored(integers: npt.NDArray[Any], node: NodeProto, layer: Layer) -> npt.NDArray[Any]:
    """AMCT writes a Gemm's weight for transB = 0 (amct.md §6.4), whatever the float model has."""
    transposed = any(a.name == "transB" and helper.get_attribute_value(a) for a in node.attribute)
    return integers.T if layer.transposed and not transposed else integers


def _rounding(
    values: npt.NDArray[np.float32], integers: npt.NDArray[Any], recorded: LayerRecord, layer: Layer
) -> npt.NDArray[np.bool_] | None:
    """q - floor(w / scale) of every weight; None where q is the nearest integer everywhere."""
    assert recorded.weight is not None
    if integers.dtype != np.int8 or integers.shape != values.shape:
        raise CalibrationError(
            f"{recorded.layer}: AMCT's weight is {integers.dtype} {integers.shape}, the model's has shape "
            f"{values.shape}."
        )
    quotients = values / scales_over(recorded.weight, values.shape, layer)
    if np.array_equal(np.clip(np.rint(quotients), -128, 127), integers):
        return None
    lower = np.floor(quotients)
    difference = integers - np.clip(lower, -128, 127)
    if not np.isin(difference, (0, 1)).all():
        worst = float(np.abs(integers - quotients).max())
        raise CalibrationError(
            f"{recorded.layer}: an integer of AMCT's weight is {worst:.1f} steps from the model's value; its deploy "
            "model and its record do not belong together."
        )
    if layer.op_type == "ConvTranspose" and layer.groups > 1 and recorded.weight.axis is not None:
        raise CalibrationError(
            f"{recorded.layer}: learned rounding of a grouped ConvTranspose cannot be kept in the record. Use "
            "arq_quantize for it."
        )
    bits: npt.NDArray[np.bool_] = difference.astype(np.bool_)
    return bits
