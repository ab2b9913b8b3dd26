"""The files that go into AMCT and come out of it: written, read, and published whole."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx
from onnx import helper

from workbench.graph.layers import Layer, quantizable_layers
from workbench.graph.read import load_graph
from workbench.graph.write import write_model as write_onnx
from workbench.quantization.amct.cfg import AmctConfig
from workbench.quantization.amct.config import parse_config
from workbench.quantization.amct.json_form import ExpandedConfig
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.lowering.surgery import default_opset
from workbench.targets.ascend.amct.process import AmctInstallation, write_feeds
from workbench.targets.base import Feeds
from workbench.values.errors import CalibrationError, ConfigError, ToolchainError
from workbench.values.model import Model
from workbench.values.system.scratch import scratch_folder

RECORD, CONFIG = "record.txt", "config.json"
DEPLOY, FAKE_QUANT = "model_deploy_model.onnx", "model_fake_quant_model.onnx"

_NEWEST_OPSET = {8: 13, 9: 14, 10: 15, 11: 16, 12: 17, 13: 18, 14: 19, 15: 20, 16: 21, 17: 22, 18: 23}
"""onnx 1.x → newest opset it knows (onnx/docs/Versioning.md); its checker refuses a newer one."""


@contextmanager
def workplace(to: Path) -> Iterator[Path]:
    """A folder for the child inside `to`, gone in the end: results leave it by rename only."""
    try:
        to.mkdir(parents=True, exist_ok=True)
        with scratch_folder("amct", inside=to) as folder:
            yield folder
    except OSError as error:
        raise ToolchainError(
            f"{to} cannot be written: {error.strerror or error}. Free space or choose another folder."
        ) from error


# --- what goes in --------------------------------------------------------------------------------------------------


def parsed_config(config: str) -> AmctConfig | ExpandedConfig:
    """Raises CalibrationError where the text is no configuration."""
    try:
        return parse_config(config, file="quantization.cfg")
    except ConfigError as error:
        raise CalibrationError(str(error)) from error


def write_config(text: str, config: AmctConfig | ExpandedConfig, folder: Path) -> dict[str, str]:
    """Write a configuration as the child finds it; what the request says of it."""
    if isinstance(config, AmctConfig):
        (folder / "quant.cfg").write_text(text, encoding="utf-8")
        return {"config_defination": "quant.cfg"}
    (folder / CONFIG).write_text(text, encoding="utf-8")
    return {}


def write_model(model: Model, file: Path, installation: AmctInstallation) -> tuple[onnx.ModelProto, tuple[Layer, ...]]:
    """Write the model for AMCT; what it was given, and its layers.

    The IR version is the lowest for its opset: old onnx wheels refuse newer ones.

    Raises:
        CalibrationError: AMCT's onnx does not know the model's opset.
    """
    proto = normalized(load_graph(model))
    opset, newest = default_opset(proto), _newest_opset(installation.onnx)
    if newest is not None and opset > newest:
        raise CalibrationError(
            f"the model has opset {opset}; AMCT's onnx {installation.onnx} knows {newest} at most. Export it with an "
            "opset from 11 to 17, or let the workbench calibrate."
        )
    layers = quantizable_layers(proto)
    proto.ir_version = helper.find_min_ir_version_for(list(proto.opset_import), True)
    write_onnx(proto, file)
    return proto, layers


def write_first(batches: Iterable[Feeds], count: int, folder: Path) -> dict[str, Any]:
    """Store the first `count` batches; what the request says of them.

    Raises:
        CalibrationError: there are fewer.
    """
    feeds = write_feeds(itertools.islice(batches, count), folder, "feeds")
    if len(feeds["files"]) < count:
        raise CalibrationError(
            f"the configuration asks for {count} batches (batch_num), there are {len(feeds['files'])}. AMCT needs "
            "exactly as many forwards; lower batch_num or raise the calibration samples."
        )
    return feeds


def _newest_opset(version: str) -> int | None:
    parts = version.split(".")
    if len(parts) < 2 or parts[0] != "1" or not parts[1].isdigit():
        return None
    return _NEWEST_OPSET.get(int(parts[1]))


# --- what comes out ------------------------------------------------------------------------------------------------


def made_models(folder: Path, log: Path) -> list[Path]:
    """The model files, external data first: a model without its data must not be seen."""
    written = (folder / "result").iterdir() if (folder / "result").is_dir() else ()
    found = sorted(written, key=lambda file: file.suffix == ".onnx")
    names = {file.name for file in found}
    for name in (DEPLOY, FAKE_QUANT):
        if name not in names:
            wrote = ", ".join(sorted(names)) or "nothing"
            raise CalibrationError(f"AMCT did not write {name}; it wrote {wrote}.", log_path=log)
    return found


def publish(to: Path, files: Iterable[Path]) -> None:
    """Move finished files into `to`, each by one rename."""
    for file in files:
        file.replace(to / file.name)
