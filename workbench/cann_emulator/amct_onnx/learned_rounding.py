"""ADA (AdaRound): the rounding of weights, learned from the calibration data (amct.md §4.6).

When amct_onnx learns it, and what its modified model holds meanwhile, is not documented. Here it happens at the last
calibration forward, and the modified model then has the values that the learned integers stand for, so that save_model
finds them by plain rounding [inferred]. The method is `quantization.rounding`'s, not AMCT's stochastic search.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from workbench.cann_emulator.amct_onnx.files import write_model
from workbench.graph.layers import quantizable_layers
from workbench.graph.read import constants, load_graph, read_model
from workbench.quantization.amct.json_reader import parse_config_json
from workbench.quantization.amct.recipe import recipe_of_config
from workbench.quantization.amct.record_file import parse_record
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.lowering.prepare import prepare
from workbench.quantization.observe import Feeds
from workbench.quantization.recipe import ModelRecipe
from workbench.quantization.rounding import integers_of, learn_rounding
from workbench.quantization.weights import scales_over

_KEY = "amct_ada_quantize"


def remember(modified: onnx.ModelProto, recipe: ModelRecipe, *, model: Path, config: str, record_file: Path) -> None:
    """Note in the modified model where its float weights are, if any of its layers learns its rounding."""
    if any(layer.weight is not None and layer.weight.algorithm == "adaround" for layer in recipe.layers.values()):
        note = {"model": str(model), "config": config, "record_file": str(record_file)}
        modified.metadata_props.add(key=_KEY, value=json.dumps(note))


def learn(modified: onnx.ModelProto, feeds: Sequence[Feeds], path: Path | None) -> None:
    """Learn the rounding of those layers and rewrite the modified model at `path`; nothing without them.

    Raises:
        WorkbenchError: the float model is gone, or a layer's rounding cannot be learned.
        ValueError: there is no file to rewrite.
    """
    note = next((json.loads(each.value) for each in modified.metadata_props if each.key == _KEY), None)
    if note is None:
        return
    if path is None:
        raise ValueError("ada_quantize needs a session of the modified model's file, not of its bytes")
    model = read_model(Path(note["model"]))
    original = load_graph(model)
    layers = quantizable_layers(normalized(original))
    recipe = recipe_of_config(parse_config_json(note["config"]), layers)
    record_file = Path(note["record_file"])
    text = record_file.read_text(encoding="utf-8")
    record = parse_record(text, layers=layers, model_sha256=model.sha256, file=record_file)
    learned = learn_rounding(model, feeds, record, recipe, threads=1)
    prepared = prepare(original, record)
    known = constants(prepared)
    prepared_layers = {layer.name: layer for layer in quantizable_layers(prepared)}
    weights = {node.name: node.input[1] for node in modified.graph.node if len(node.input) > 1}
    stored = {tensor.name: tensor for tensor in modified.graph.initializer}
    for layer in learned.layers:
        if layer.weight is None or layer.weight.rounding is None:
            continue
        place = prepared_layers[layer.layer]
        assert place.weight is not None
        integers = integers_of(numpy_helper.to_array(known[place.weight]), layer.weight)
        steps = scales_over(replace(layer.weight, rounding=None), integers.shape, place)
        values = (integers.astype(np.float32) * steps).astype(np.float32)
        tensor = stored[weights[layer.layer]]
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    write_model(path, modified)
