"""`workbench calibrate`: what AMCT's own command does, with our engine: data and a configuration in, models out.

    record.txt                     scales and offsets, AMCT's record file
    config.json                    what the configuration means for each layer, AMCT's quantization JSON
    NAME_deploy_model.onnx         input of ATC
    NAME_qdq_model.onnx            the same integers for ONNX Runtime
    record.json                    the record with its provenance, for the workbench itself

All of them are written in a hidden folder beside their place and renamed, one after the other, when the last one is
complete: each is whole at any moment. A kill between two renames leaves files of two runs; run the command again.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt
import onnx

from workbench.graph.apart import is_large, kept_aside
from workbench.graph.layers import Layer, quantizable_layers
from workbench.graph.read import load_graph
from workbench.graph.write import WEIGHTS, write_model
from workbench.inputs.metrics.score import common_part
from workbench.quantization.amct.cfg import ExpandedConfig, config_json
from workbench.quantization.amct.config import expand, parse_config, recipe_of_config
from workbench.quantization.amct.protobuf_text import MOST_BYTES
from workbench.quantization.amct.record_file import parse_record, record_text
from workbench.quantization.calibrate import follow_amct
from workbench.quantization.interpreter import Interpreter
from workbench.quantization.lowering.deploy import lower_deploy
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.lowering.qdq import lower_static
from workbench.quantization.observe import Feeds, parts
from workbench.quantization.record import QuantizationRecord, write_record
from workbench.quantization.sessions import open_session
from workbench.study.comparison import Differences
from workbench.study.model_data import open_data, opened_for
from workbench.values.documents.input_files import read_text
from workbench.values.errors import CalibrationError, ConfigError
from workbench.values.model import Model
from workbench.values.system.files import writing
from workbench.values.system.scratch import scratch_folder

_log = logging.getLogger(__name__)

MANIFEST_BATCH = 16
"""Samples in a batch of a manifest's calibration split. AMCT's manual asks for 16 or 32 samples in all and says that
more bring no accuracy (amct.md §4.9): two such batches, where no configuration says how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How the written models compare on the first calibration batch, over all outputs.

    Attributes:
        cosine: of the deploy model's outputs, run on integers, with the float model's.
        qdq_cosine: of the deploy model's outputs with the QDQ model's in ONNX Runtime. Both quantize alike; values
            next to a rounding border fall on either side of it, since the float operators between are summed in
            another order, and deep models carry that on.
        other_sizes: outputs that are longer or shorter than the float model's, since their length depends on the data;
            of these the common part is compared.
    """

    cosine: float
    qdq_cosine: float
    other_sizes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """What a run of the command wrote.

    Attributes:
        layers: every layer AMCT could quantize; those without a place in `record` stay float.
        batches, ignored: forward passes that calibrated, and batches of an NPZ file beyond them.
        agreement: None without data to run.
    """

    files: tuple[Path, ...]
    record: QuantizationRecord
    layers: tuple[Layer, ...]
    batches: int
    ignored: int
    agreement: Agreement | None


def calibrate(
    model: Path | str,
    to: Path | str,
    *,
    data: Path | str | None = None,
    cfg: Path | str | None = None,
    record: Path | str | None = None,
    constants: Sequence[str] = (),
    on_message: Callable[[str], None] = _log.info,
) -> Calibrated:
    """Quantize a model as AMCT does and write its files into the folder `to` (made where it is missing).

    Args:
        data: an NPZ file with one array per batch, or a dataset manifest; needed unless there is a `record`.
        cfg: a simplified configuration or a quantization JSON; None takes AMCT's defaults for all batches of an NPZ
            file, or for two batches of a manifest.
        record: a record file to lower as it is, without calibrating.
        constants: inputs that are the same for all samples, as NAME=VALUE.
        on_message: told in a sentence what is calibrated.

    Raises:
        ConfigError: a file is missing, damaged or does not fit the model; fewer batches than the configuration asks.
        CandidateError: the model cannot be run, calibrated or lowered.
        ToolchainError: the folder cannot be written.
    """
    path, data = Path(model), None if data is None else Path(data)
    cfg, record = None if cfg is None else Path(cfg), None if record is None else Path(record)
    opened = opened_for(path, data, constants)
    for step in () if opened.origin is None else opened.origin.steps:
        on_message(f"prepared: {step.words}")
    proto = load_graph(opened)
    layers = quantizable_layers(normalized(proto))
    if not layers:
        raise ConfigError("no layer of this model can be INT8.", file=path, hint="See `workbench inspect`.")
    batches = None if data is None else open_data(data, opened, batch=MANIFEST_BATCH)
    asked = None if cfg is None else parse_config(read_text(cfg, limit_bytes=MOST_BYTES), file=str(cfg))
    config = asked if isinstance(asked, ExpandedConfig) else None if asked is None else expand(asked, layers)
    used = ignored = 0
    if record is not None:
        text = read_text(record, limit_bytes=MOST_BYTES)
        quantized = parse_record(text, file=record, layers=layers, model_sha256=opened.sha256)
        config = config or expand(None, layers)
    elif batches is None:
        raise ConfigError("calibration needs data.", key="--data", hint="Give an NPZ file or a dataset manifest.")
    else:
        config = config or expand(None, layers, batch_num=min(batches.count, batches.usual))
        used = config.batch_num
        if batches.count < used:
            raise ConfigError(
                f"batch_num is {used}, {batches.about} has {batches.count} batches.",
                file=cfg,
                key="batch_num",
                hint="Lower batch_num or add batches; AMCT needs exactly batch_num forward passes.",
            )
        ignored = batches.count - used if batches.usual == batches.count else 0
        recipe = recipe_of_config(config, layers)
        on_message(f"calibrating {len(recipe.layers)} of {len(layers)} layers on {used} batches")
        try:
            quantized = follow_amct(opened, recipe, batches.first(used))
        except ValueError as error:
            raise CalibrationError(f"the configuration does not fit {path.name}: {error}") from error
    with kept_aside(opened.size_bytes):
        deploy, qdq = lower_deploy(proto, quantized), lower_static(proto, quantized)
        agreement = None if batches is None else _agreement(opened, deploy, qdq, next(iter(batches.first(1)())))
        texts = {"record.txt": record_text(quantized), "config.json": config_json(config)}
        models = {f"{path.stem}_deploy_model.onnx": deploy, f"{path.stem}_qdq_model.onnx": qdq}
        files = _write(Path(to), texts, models, quantized)
    return Calibrated(files=files, record=quantized, layers=layers, batches=used, ignored=ignored, agreement=agreement)


def _agreement(model: Model, deploy: onnx.ModelProto, qdq: onnx.ModelProto, feeds: Feeds) -> Agreement:
    names = [spec.name for spec in model.outputs]
    if is_large(model.size_bytes):  # exact integers take their time
        feeds = next(parts(model, feeds, most_rows=2), feeds)

    def values(graph: onnx.ModelProto | None) -> dict[str, npt.NDArray[Any]]:
        """One model at a time is open."""
        return dict(zip(names, open_session(model, (), graph).run(names, dict(feeds)), strict=True))

    integers, float_values, qdq_values = Interpreter(deploy).run(feeds), values(None), values(qdq)
    beside_float, beside_qdq = Differences(), Differences()
    for name in names:  # of those whose length depends on the data the part that both have
        beside_float.add(*common_part(float_values[name], integers[name]))
        beside_qdq.add(*common_part(qdq_values[name], integers[name]))
    return Agreement(
        cosine=beside_float.cosine(),
        qdq_cosine=beside_qdq.cosine(),
        other_sizes=tuple(name for name in names if integers[name].shape != float_values[name].shape),
    )


def _write(
    to: Path, texts: Mapping[str, str], models: Mapping[str, onnx.ModelProto], record: QuantizationRecord
) -> tuple[Path, ...]:
    with writing(to, "Free space or choose another folder."):
        to.mkdir(parents=True, exist_ok=True)
        with scratch_folder("calibrate", inside=to) as scratch:
            for name, text in texts.items():
                (scratch / name).write_bytes(text.encode())
            for name, model in models.items():
                beside = write_model(model, scratch / name)
                if beside:
                    (to / WEIGHTS).mkdir(exist_ok=True)
                for file in beside:
                    file.replace(to / WEIGHTS / file.name)
            shutil.rmtree(scratch / WEIGHTS, ignore_errors=True)
            write_record(record, scratch / "record.json")
            written = []
            for file in sorted(scratch.iterdir()):
                file.replace(to / file.name)
                written.append(to / file.name)
            return tuple(written)
