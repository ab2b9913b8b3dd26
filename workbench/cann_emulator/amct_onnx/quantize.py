"""The calls of AMCT, and how they see calibration data (amct.md §1.2, §1.3, §1.7).

A modified model is the float model and one node of the domain `amct.customop` that says what is asked for. The file
names no version of that domain: who opens it without AMCT_SO is told by ONNX Runtime itself that there is `No opset
import for domain 'amct.customop'` (amct.md §12). A session that is made with AMCT_SO from the path of a modified model
runs the float model, and keeps what it was fed; at the batch_num-th forward the record is worked out. For that one
method of one class is replaced, `InferenceSession.__init__`, when this module is imported.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # protobuf ships no stubs
from onnx import ModelProto, helper

from workbench.cann_emulator.revision import emulator
from workbench.graph.layers import Layer, quantizable_layers
from workbench.graph.nodes import attributes_of, copied, replace_nodes
from workbench.graph.read import load_graph, read_model
from workbench.quantization.algorithms import quantized_layers
from workbench.quantization.amct.cfg import config_json, parse_config_json, read_cfg
from workbench.quantization.amct.config import expand, recipe_of_config, symmetric_only
from workbench.quantization.amct.protobuf_text import print_message
from workbench.quantization.amct.record_file import RECORDS, parse_record, record_text
from workbench.quantization.calibrate import follow_amct
from workbench.quantization.interpreter import Interpreter
from workbench.quantization.lowering.deploy import lower_deploy
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.observe import Feeds
from workbench.quantization.recipe import ModelRecipe
from workbench.quantization.record import record_from_json
from workbench.values.documents.canonical import canonical_json
from workbench.values.errors import WorkbenchError
from workbench.values.model import Model
from workbench.values.system.files import temporary_beside

PathLike = str | os.PathLike[str]

DOMAIN = "amct.customop"
AMCT_SO = onnxruntime.SessionOptions()
"""The session options to open modified and fake-quant models with (amct.md §1.1)."""

_FOUND = "amct_record"
"""Key in a modified model's metadata: the record as it was found, with the learned rounding that no record file has."""


def create_quant_config(
    config_file: PathLike,
    model_file: PathLike,
    skip_layers: Sequence[str] | None = None,
    batch_num: int = 1,
    activation_offset: bool = True,
    config_defination: PathLike | None = None,
    updated_model: PathLike | None = None,
) -> None:
    """Write what AMCT would do to every layer of a model, as a JSON file the user may edit (amct.md §2).

    Args:
        config_defination: (sic) a simplified configuration (.cfg); with it the three arguments before are ignored.
        updated_model: where the model goes with a name for every node; it must be used from then on.

    Raises:
        RuntimeError, ValueError: a file cannot be read, or asks for what AMCT refuses.
    """
    if batch_num < 1:
        raise ValueError(f"batch_num should be greater than zero, not {batch_num}")
    model, layers = _read_float(model_file, rename=updated_model is not None)
    try:
        config = expand(
            None if config_defination is None else read_cfg(Path(config_defination)),
            layers,
            batch_num=batch_num,
            activation_offset=activation_offset,
            skip_layers=tuple(skip_layers or ()),
        )
    except WorkbenchError as error:
        raise ValueError(str(error)) from error
    if updated_model is not None:
        proto = onnx.load(model_file)
        for node, named in zip(proto.graph.node, load_graph(model).graph.node, strict=True):
            node.name = named.name
        _write(updated_model, proto.SerializeToString())
    _write(config_file, config_json(config))
    _say(f"Create quant config file {os.path.realpath(config_file)} success.")


def quantize_preprocess(
    config_file: PathLike, record_file: PathLike, model_file: PathLike, modified_onnx_file: PathLike
) -> None:
    """Write the model whose one forward finds the balance factors (DMQ). The order of arguments is the vendor's.

    Raises:
        RuntimeError, ValueError: as `quantize_model`, and no layer of the configuration is balanced.
    """
    model, layers = _read_float(model_file)
    recipe, _, config = _recipe(config_file, layers)
    if not _balanced(recipe):
        raise RuntimeError("there is no layer with dmq_balancer_param in the config file, no need to preprocess.")
    _write_modified(modified_onnx_file, model, "DMQBalancer", record_file, "", config, batch_num=1)
    _say(f"The preprocessed model is stored in {os.path.realpath(modified_onnx_file)}.")


def quantize_model(
    config_file: PathLike, model_file: PathLike, modified_onnx_file: PathLike, record_file: PathLike
) -> None:
    """Write a record file that still lacks the factors of the activations, and the model to calibrate.

    Raises:
        RuntimeError: a file cannot be read, or a balanced layer has no factors yet.
        ValueError: AMCT refuses the configuration for this model.
    """
    model, layers = _read_float(model_file)
    recipe, batch_num, config = _recipe(config_file, layers)
    record = Path(os.path.realpath(record_file))
    before = record.read_text(encoding="utf-8", errors="replace") if record.is_file() else ""
    for name in _balanced(recipe):
        if "tensor_balance_factor" not in before or print_message(RECORDS().record.add(key=name)).strip() not in before:
            raise RuntimeError(
                f"cannot find tensor_balance_factor of layer {name} in {record}; run quantize_preprocess and one "
                "forward of its model first."
            )
    chosen = quantized_layers(layers, recipe)
    for layer in chosen:
        if symmetric_only(layer) and not recipe.layers[layer.name].activation.symmetric:
            raise ValueError(f"current layer {layer.name} only support act symmetric quant")
    records = RECORDS()
    for layer in chosen:
        if layer.second is None:
            records.record.add(key=layer.name).value.offset_w.append(0)
    _write_modified(modified_onnx_file, model, "IFMR", record, print_message(records), config, batch_num=batch_num)
    _say(f"The generated model is stored in {os.path.realpath(modified_onnx_file)}, {len(chosen)} layers to quantize.")


def save_model(modified_onnx_file: PathLike, record_file: PathLike, save_path: PathLike) -> None:
    """Write the deploy model, the fake-quant model and the quantization information under a path's prefix.

    Raises:
        RuntimeError: a file is missing, the model is not quantize_model's, or the record is not complete: too few
            forwards leave it without scale_d.
    """
    path, record_path = _existing(modified_onnx_file), _existing(record_file)
    modified = onnx.load(path)
    graph, kind, _ = _plain(modified)
    if not kind:
        raise RuntimeError(f"{path} is not the modified model that quantize_model writes.")
    try:
        text = record_path.read_text(encoding="utf-8")
        layers = quantizable_layers(normalized(graph))
        record = parse_record(text, layers=layers, model_sha256="0" * 64, file=record_path)
        for entry in modified.metadata_props:
            if entry.key == _FOUND and record_text(found := record_from_json(json.loads(entry.value))) == text:
                record = found
        deploy = lower_deploy(graph, record)
    except (WorkbenchError, UnicodeDecodeError) as error:
        raise RuntimeError(str(error)) from error
    del deploy.metadata_props[:]
    prefix = Path(os.path.realpath(save_path))
    # in standard operators; what amct_onnx 8.5 writes uses its own, which need its compiled library [inferred]
    fake_quant = Interpreter(deploy, force_fp16=record.force_fp16).plain()
    for kind, model in (("deploy", deploy), ("fake_quant", fake_quant)):
        model.producer_name, model.producer_version = "amct_onnx emulator", emulator()
        _write(prefix.with_name(f"{prefix.name}_{kind}_model.onnx"), model.SerializeToString())
    # the vendor's layout of this one is not known [inferred]
    fusions = {one.layer: [f"{one.layer}.quant", one.layer, f"{one.layer}.dequant"] for one in record.layers}
    _write(prefix.with_name(f"{prefix.name}_quant.json"), json.dumps(fusions, indent=4))
    _say(f"The model is saved as {prefix}_deploy_model.onnx and {prefix}_fake_quant_model.onnx.")


# --- models and configurations -------------------------------------------------------------------------------------


def _read_float(model_file: PathLike, *, rename: bool = False) -> tuple[Model, tuple[Layer, ...]]:
    """The model and its quantizable layers; RuntimeError where AMCT cannot read it (amct.md §5)."""
    path = _existing(model_file)
    try:
        if not rename:
            nodes = onnx.load(path, load_external_data=False).graph.node
            counts = Counter(node.name for node in nodes if node.op_type != "Constant")
            twice = [f"more than one node named {name}" for name, count in counts.items() if count > 1]
            if problems := ["nodes without a name"] if "" in counts else twice:
                remedy = "Please use updated_model of create_quant_config."
                raise RuntimeError(f"the model has {problems[0]}. {remedy}")
        model = read_model(path)
        return model, quantizable_layers(normalized(load_graph(model)))
    except WorkbenchError as error:
        raise RuntimeError(f"cannot read model {path}: {error}") from error


def _recipe(config_file: PathLike, layers: Sequence[Layer]) -> tuple[ModelRecipe, int, str]:
    """What to do, over how many forwards, and the configuration as JSON text."""
    path = _existing(config_file)
    try:
        config = parse_config_json(path.read_text(encoding="utf-8"), file=path)
        return recipe_of_config(config, layers), config.batch_num, config_json(config)
    except (WorkbenchError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from error


def _balanced(recipe: ModelRecipe) -> list[str]:
    return [name for name, layer in recipe.layers.items() if layer.balance is not None]


def _write_modified(
    to: PathLike, model: Model, op_type: str, record_file: PathLike, record: str, config: str, *, batch_num: int
) -> None:
    """The model to calibrate, and the record file as it is before."""
    _write(record_file, record)
    proto = load_graph(model)
    asked: dict[str, Any] = {"model": str(model.path), "config": config, "batch_num": batch_num}
    asked["record_file_path"] = os.path.realpath(record_file)
    inputs = [proto.graph.input[0].name]
    proto.graph.node.append(helper.make_node(op_type, inputs, [], name=op_type, domain=DOMAIN, **asked))
    proto.producer_name, proto.producer_version = "amct_onnx emulator", emulator()
    _write(to, proto.SerializeToString())


def _plain(model: ModelProto) -> tuple[ModelProto, str, dict[str, Any]]:
    """The float model of a modified one, and type and attributes of its node of AMCT's domain, "" for any other."""
    plain = copied(model)
    replace_nodes(plain.graph, [node for node in model.graph.node if node.domain != DOMAIN])
    for node in model.graph.node:
        if node.domain == DOMAIN:
            told = {k: v.decode() if isinstance(v, bytes) else v for k, v in attributes_of(node).items()}
            return plain, node.op_type, told
    return plain, "", {}


# --- forwards ------------------------------------------------------------------------------------------------------

_make_session = onnxruntime.InferenceSession.__init__


def _init(
    self: onnxruntime.InferenceSession,
    path_or_bytes: str | bytes | os.PathLike[str],
    sess_options: onnxruntime.SessionOptions | None = None,
    *args: Any,
    **kwargs: Any,
) -> None:
    """A session of a modified model counts what it is fed; a second one counts from 0 again (amct.md §12)."""
    kind = ""
    if sess_options is AMCT_SO and not isinstance(path_or_bytes, bytes):
        try:
            plain, kind, asked = _plain(onnx.load(path_or_bytes))
        except (OSError, DecodeError, onnx.checker.ValidationError):
            kind = ""  # whatever it is, is ONNX Runtime's business
    if not kind:
        _make_session(self, path_or_bytes, sess_options, *args, **kwargs)
        return
    _make_session(self, plain.SerializeToString(), sess_options, *args, **kwargs)
    run, fed, lock, modified = (
        self.run,
        list[Feeds](),
        threading.Lock(),
        Path(os.path.realpath(os.fsdecode(path_or_bytes))),
    )

    def watched(output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None) -> Any:
        """RuntimeError where the factors cannot be found: NaN, a file that is gone."""
        results = run(output_names, input_feed, run_options)
        with lock:
            if kind == "DMQBalancer":
                fed.clear()  # each forward writes over what the one before wrote
            if len(fed) < asked["batch_num"]:
                fed.append({name: np.array(values) for name, values in input_feed.items()})
                if len(fed) == asked["batch_num"]:
                    try:
                        _calibrate(modified, asked, fed)
                    except (WorkbenchError, ValueError, OSError) as error:
                        raise RuntimeError(f"calibration failed: {error}") from error
        return results

    self.run = watched


onnxruntime.InferenceSession.__init__ = _init


def _calibrate(modified: Path, asked: Mapping[str, Any], fed: list[Feeds]) -> None:
    model = read_model(Path(asked["model"]))
    layers = quantizable_layers(normalized(load_graph(model)))
    recipe = recipe_of_config(parse_config_json(asked["config"]), layers)
    record = follow_amct(model, recipe, lambda: fed)
    _write(asked["record_file_path"], record_text(record))
    proto = onnx.load(modified)
    proto.metadata_props.add(key=_FOUND, value=canonical_json(record.to_json()))
    _write(modified, proto.SerializeToString())
    _say(f"Do layer calibration success: {len(record.layers)} layers over {len(fed)} batches.")


# --- files and log -------------------------------------------------------------------------------------------------


def _existing(file: PathLike) -> Path:
    path = Path(os.path.realpath(file))
    if not path.is_file():
        raise RuntimeError(f"file {path} does not exist!")
    return path


def _write(path: PathLike, content: str | bytes) -> None:
    """A file by one rename; an older one is overwritten without asking (amct.md §1.2, §12)."""
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    with temporary_beside(target, durable=False) as draft:
        draft.write_bytes(content if isinstance(content, bytes) else content.encode())


def _say(message: str) -> None:
    """One line to the screen and to ./amct_log/amct_onnx.log, unless a level above INFO is set (amct.md §1.6)."""
    text = f"{time.strftime('%Y-%m-%d %H:%M:%S')} - INFO - [AMCT]:{message}"
    quiet = ("WARNING", "ERROR")
    if os.environ.get("AMCT_LOG_LEVEL", "").upper() not in quiet:
        print(text, flush=True)
    if os.environ.get("AMCT_LOG_FILE_LEVEL", "").upper() not in quiet:
        file = Path("amct_log/amct_onnx.log")
        file.parent.mkdir(exist_ok=True)
        with file.open("a", encoding="utf-8") as stream:
            stream.write(text + "\n")
