"""quantize_preprocess, quantize_model and save_model (amct.md §1.2, §1.3).

float model ─► [quantize_preprocess ─► one forward ─► balance factors] ─► quantize_model ─► batch_num forwards
                                                                             └─► save_model ─► deploy, fake-quant
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import onnx

from workbench.cann_emulator.amct_onnx import record_file as records
from workbench.cann_emulator.amct_onnx.configuration import PathLike, read_quant_config
from workbench.cann_emulator.amct_onnx.fake_quant import fake_quant_model
from workbench.cann_emulator.amct_onnx.files import make_folder, write, write_model
from workbench.cann_emulator.amct_onnx.layers import FloatModel, read_float_model
from workbench.cann_emulator.amct_onnx.learned_rounding import remember
from workbench.cann_emulator.amct_onnx.log import say
from workbench.cann_emulator.amct_onnx.modified import (
    add_balancers,
    add_calibration,
    add_dumps,
    balanced_layers,
    keys_of,
    multiplying,
    operators_of,
    with_original_add_order,
    without_operators,
)
from workbench.cann_emulator.revision import emulator
from workbench.graph.layers import quantizable_layers
from workbench.quantization.algorithms import quantized_layers
from workbench.quantization.amct.json_form import config_json
from workbench.quantization.amct.recipe import recipe_of_config
from workbench.quantization.amct.record_file import parse_record
from workbench.quantization.exact import dividing, with_quantized_weights
from workbench.quantization.lowering.ascend_quant import DEQUANT, QUANT
from workbench.quantization.lowering.deploy import lower_deploy
from workbench.quantization.lowering.prepare import balanced
from workbench.quantization.recipe import ModelRecipe
from workbench.quantization.weights import weight_scale, weights_of
from workbench.values.errors import ConfigError, LoweringError


def quantize_preprocess(
    config_file: PathLike, record_file: PathLike, model_file: PathLike, modified_onnx_file: PathLike
) -> None:
    """Write the model whose one forward finds the balance factors (DMQ). The order of arguments is the vendor's.

    Raises:
        RuntimeError, ValueError: as `quantize_model`, and no layer of the configuration is balanced.
    """
    model = read_float_model(model_file)
    recipe, _, _ = _recipe(config_file, model)
    if not any(layer.balance is not None for layer in recipe.layers.values()):
        raise RuntimeError("there is no layer with dmq_balancer_param in the config file, no need to preprocess.")
    layers = quantized_layers(model.layers, recipe)
    modified = with_original_add_order(model.fused, model.original)
    record_path = Path(os.path.realpath(record_file))
    add_balancers(modified, layers, recipe, record_file=str(record_path))
    write(record_path, "")
    write_model(modified_onnx_file, _signed(modified))
    say(f"The preprocessed model is stored in {os.path.realpath(modified_onnx_file)}.")


def quantize_model(
    config_file: PathLike, model_file: PathLike, modified_onnx_file: PathLike, record_file: PathLike
) -> None:
    """Quantize the weights, write their factors to a new record file, and write the model to calibrate.

    Balance factors are read from the record file that quantize_preprocess and its forward left.

    Raises:
        RuntimeError: a file cannot be read, or a balanced layer has no factors yet.
        ValueError: AMCT, or this emulator, refuses the configuration for this model.
    """
    write_modified_model(config_file, model_file, modified_onnx_file, record_file, dump_dir=None)


def write_modified_model(
    config_file: PathLike,
    model_file: PathLike,
    modified_onnx_file: PathLike,
    record_file: PathLike,
    *,
    dump_dir: Path | None,
) -> None:
    """`quantize_model`; with `dump_dir` the forwards also leave the float inputs of the layers there."""
    model = read_float_model(model_file)
    recipe, batch_num, config = _recipe(config_file, model)
    record_path = Path(os.path.realpath(record_file))
    factors = _balance_factors(record_path, recipe)
    graph = balanced(with_original_add_order(model.fused, model.original), factors, fold=False)
    layers = quantized_layers(quantizable_layers(graph), recipe)
    weights = weights_of(graph, layers)
    scales = {
        layer.name: weight_scale(weights[layer.name], settings, layer)
        for layer in layers
        if layer.name in weights and (settings := recipe.layers[layer.name].weight) is not None
    }
    modified = with_quantized_weights(dividing(graph, factors), layers, weights, scales)
    add_calibration(modified, layers, recipe, record_file=str(record_path), batch_num=batch_num)
    if dump_dir is not None:
        chosen = quantized_layers(model.layers, recipe)
        tensors = [tensor for layer in chosen for tensor in (layer.activation, layer.second) if tensor is not None]
        add_dumps(modified, tensors, dump_dir=str(dump_dir), batch_num=batch_num)
    remember(modified, recipe, model=model.model.path, config=config, record_file=record_path)
    keys = [key for layer in layers for key in keys_of(layer)]
    pooling = [layer.name for layer in layers if layer.op_type == "AveragePool"]
    write(record_path, records.weight_records(keys, scales, factors, pooling=pooling))
    write_model(modified_onnx_file, _signed(modified))
    say(f"The generated model is stored in {os.path.realpath(modified_onnx_file)}, {len(layers)} layers to quantize.")


def save_model(modified_onnx_file: PathLike, record_file: PathLike, save_path: PathLike) -> None:
    """Write the deploy model, the fake-quant model and the quantization information under a path's prefix.

    Layers that the record does not name stay float, with the weights that quantize_model gave them (amct.md §3.2).

    Raises:
        RuntimeError: a file is missing, the model is not quantize_model's, or the record is not complete: too few
            forwards leave it without scale_d.
    """
    path, record_path = Path(os.path.realpath(modified_onnx_file)), Path(os.path.realpath(record_file))
    for file in (path, record_path):
        if not file.is_file():
            raise RuntimeError(f"file {file} does not exist!")
    modified = onnx.load(path)
    if not operators_of(modified):
        raise RuntimeError(f"{path} is not the modified model that quantize_model writes.")
    graph = without_operators(modified)
    layers = quantizable_layers(graph)
    try:
        text = record_path.read_text(encoding="utf-8")
        record = parse_record(text, layers=layers, model_sha256="0" * 64, file=record_path)
        divided = balanced_layers(graph)
        named = {layer.layer for layer in record.layers if layer.balance is not None}
        done = tuple(
            replace(layer, balance=None) if layer.layer in divided else layer
            for layer in record.layers  # a modified model that divides by the factors has them in its weights
        )
        deploy = lower_deploy(multiplying(graph, divided), replace(record, layers=done))
        if lost := sorted(divided & {layer.layer for layer in record.layers} - named):
            raise RuntimeError(f"cannot find tensor_balance_factor of layer {lost[0]} in record_file {record_path}")
    except (ConfigError, LoweringError, UnicodeDecodeError) as error:
        raise RuntimeError(str(error)) from error
    del deploy.metadata_props[:]
    save_deploy(deploy, save_path, force_fp16=record.force_fp16)


def save_deploy(deploy: onnx.ModelProto, save_path: PathLike, *, force_fp16: bool) -> None:
    """The three files of amct.md §1.3."""
    prefix = Path(os.path.realpath(save_path))
    make_folder(prefix.parent)
    name = prefix.name
    fake = fake_quant_model(deploy, force_fp16=force_fp16)
    write_model(prefix.with_name(f"{name}_deploy_model.onnx"), _signed(deploy), external="deploy")
    write_model(prefix.with_name(f"{name}_fake_quant_model.onnx"), _signed(fake), external="fakequant")
    write(prefix.with_name(f"{name}_quant.json"), json.dumps(_fusions(deploy), indent=4))
    say(f"The model is saved as {prefix}_deploy_model.onnx and {prefix}_fake_quant_model.onnx.")


def _recipe(config_file: PathLike, model: FloatModel) -> tuple[ModelRecipe, int, str]:
    """What to do, over how many forwards, and the configuration as JSON text."""
    config = read_quant_config(config_file, model)
    try:
        recipe = recipe_of_config(config, model.layers)
    except ConfigError as error:
        raise ValueError(str(error)) from error
    return recipe, config.batch_num, config_json(config)


def _balance_factors(record_path: Path, recipe: ModelRecipe) -> Mapping[str, tuple[float, ...]]:
    wanted = [name for name, layer in recipe.layers.items() if layer.balance is not None]
    if not wanted:
        return {}
    try:
        text = record_path.read_text(encoding="utf-8") if record_path.is_file() else ""
        found = records.balance_factors(text, file=record_path)
    except (ConfigError, UnicodeDecodeError) as error:
        raise RuntimeError(str(error)) from error
    for name in wanted:
        if name not in found:
            raise RuntimeError(
                f"cannot find tensor_balance_factor of layer {name} in {record_path}; run quantize_preprocess and one "
                "forward of its model first."
            )
    return {name: found[name] for name in wanted}


def _fusions(deploy: onnx.ModelProto) -> dict[str, list[str]]:
    """Quantized layer → nodes that stand for it in the deploy model. The vendor's layout is not known [inferred]."""
    made_by = {name: node for node in deploy.graph.node for name in node.output}
    found: dict[str, list[str]] = {}
    for node in deploy.graph.node:
        if node.op_type != DEQUANT:
            continue
        names, pending = [node.name], [node.input[0]]
        while pending:
            before = made_by.get(pending.pop())
            if before is not None and before.op_type != "Constant":
                names.insert(0, before.name)
                if before.op_type != QUANT:
                    pending.extend(before.input)
        found[node.name.removesuffix(".dequant")] = names
    return found


def _signed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the emulator named as its producer."""
    model.producer_name = "amct_onnx emulator"
    model.producer_version = emulator()
    return model
