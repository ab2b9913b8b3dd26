"""create_quant_config: what AMCT would do to every layer, as a JSON file the user may edit (amct.md §1.2, §2)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import onnx

from workbench.cann_emulator.amct_onnx.files import write, write_model
from workbench.cann_emulator.amct_onnx.layers import FloatModel, read_float_model
from workbench.cann_emulator.amct_onnx.log import say
from workbench.quantization.amct.cfg import read_cfg
from workbench.quantization.amct.config import expand
from workbench.quantization.amct.json_form import ExpandedConfig, config_json
from workbench.quantization.amct.json_reader import parse_config_json
from workbench.values.errors import ConfigError

PathLike = str | os.PathLike[str]


def create_quant_config(
    config_file: PathLike,
    model_file: PathLike,
    skip_layers: Sequence[str] | None = None,
    batch_num: int = 1,
    activation_offset: bool = True,
    config_defination: PathLike | None = None,
    updated_model: PathLike | None = None,
) -> None:
    """Write the quantization configuration of a model.

    Args:
        config_defination: (sic) a simplified configuration (.cfg); with it the three arguments before are ignored.
        updated_model: where the model goes with a name for every node; it must be used from then on.

    Raises:
        RuntimeError, ValueError, TypeError: a file cannot be read, or asks for what AMCT refuses.
    """
    _check_arguments(skip_layers, batch_num, activation_offset)
    model = read_float_model(model_file, rename=updated_model is not None)
    try:
        config = expand(
            None if config_defination is None else read_cfg(Path(config_defination)),
            model.layers,
            batch_num=batch_num,
            activation_offset=activation_offset,
            skip_layers=tuple(skip_layers or ()),
        )
    except ConfigError as error:
        raise ValueError(str(error)) from error
    if updated_model is not None:
        write_model(updated_model, _named(Path(model_file), model))
    write(config_file, config_json(config))
    say(f"Create quant config file {os.path.realpath(config_file)} success.")


def read_quant_config(config_file: PathLike, model: FloatModel) -> ExpandedConfig:
    """The configuration that a JSON file holds.

    Raises:
        RuntimeError: it cannot be read.
        ValueError: AMCT refuses it: no JSON, repeated keys, an unknown layer, a value out of its range.
    """
    path = Path(os.path.realpath(config_file))
    if not path.is_file():
        raise RuntimeError(f"file {path} does not exist!")
    try:
        return parse_config_json(path.read_text(encoding="utf-8"), file=path)
    except (ConfigError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from error


def _check_arguments(skip_layers: object, batch_num: object, activation_offset: object) -> None:
    if skip_layers is not None and (
        not isinstance(skip_layers, (list, tuple)) or not all(isinstance(name, str) for name in skip_layers)
    ):
        raise TypeError(f"skip_layers should be a list of strings, not {skip_layers!r}")
    if isinstance(batch_num, bool) or not isinstance(batch_num, int):
        raise TypeError(f"batch_num should be an int, not {batch_num!r}")
    if batch_num < 1:
        raise ValueError(f"batch_num should be greater than zero, not {batch_num}")
    if not isinstance(activation_offset, bool):
        raise TypeError(f"activation_offset should be a bool, not {activation_offset!r}")


def _named(path: Path, model: FloatModel) -> onnx.ModelProto:
    """The file as it is, but for the names of its nodes."""
    proto = onnx.load(path)
    for node, named in zip(proto.graph.node, model.original.graph.node, strict=True):
        node.name = named.name
    return proto
