"""What atc writes: the OM and what lies beside it (atc.md §4.4, §6), an OM as JSON (mode 1) or on the screen.

The form of the JSON is that of the graph engine's own model text [inferred].
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from onnx import ModelProto, NodeProto

from workbench.cann_emulator.atc.failure import Console, failure
from workbench.cann_emulator.om import Kernel, NotAnOm, OfflineModel, Tensor, largest_gear, load_om
from workbench.quantization.lowering.deploy import QUANT

_SPELLED: Mapping[str, str] = {"float32": "DT_FLOAT", "bfloat16": "DT_BF16"}
_LAYOUTS: Mapping[int, str] = {0: "NCHW", 1: "NHWC", 2: "ND", 30: "NCDHW"}


def om_path(output: str, options: Mapping[str, str], *, dynamic: bool) -> str:
    """`<output>.om`, whatever the output ends in; of a dynamic-shape model with `_<os>_<arch>` before the first `.om`
    of the whole path, folders included (ge v8.5.0 base/common/helper/model_helper.cc:514-542)."""
    path = f"{output}.om"
    if not dynamic:
        return path
    system = options.get("host_env_os") or platform.system().lower()
    cpu = options.get("host_env_cpu") or platform.machine()
    return path.replace(".om", f"_{system}_{cpu}.om", 1)


def write_file(path: str, content: bytes) -> None:
    """Keeps the mode of an existing file; a new one is the owner's alone (base/common/helper/file_saver.cc)."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    except OSError as error:
        raise failure("E10001", parameter="file parameter", value=path, reason=str(error.strerror)) from error
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)


def result_path() -> Path:
    """In the current directory, or $ASCEND_WORK_PATH/FE/<pid>."""
    work = os.environ.get("ASCEND_WORK_PATH")
    return (Path(work) / "FE" / str(os.getpid()) if work else Path()) / "fusion_result.json"


def write_result(options: Mapping[str, str], model: OfflineModel) -> None:
    """One object for the compiled graph; passes that are off or matched nothing are absent. Its two numbers are 0
    [inferred for a run that compiles one graph]."""
    if options.get("export_compile_stat") == "0":
        return

    def told(counts: Mapping[str, tuple[int, int]], **more: str) -> dict[str, dict[str, str]]:
        return {n: {"effect_times": str(e), "match_times": str(m), **more} for n, (m, e) in sorted(counts.items())}

    content = {
        "graph_fusion": told(model.graph_fusions),
        "ub_fusion": told(model.ub_fusions, repository_hit_times="0"),
    }
    path = result_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"session_and_graph_id_0_0": content}, indent=4) + "\n", encoding="utf-8")


# --- mode 1, and what is shown of an OM ---


def run_to_json(options: Mapping[str, str], console: Console) -> None:
    """Mode 1: an OM as JSON."""
    try:
        model = load_om(Path(options["om"]))
    except (OSError, NotAnOm) as error:
        raise failure("E10041", parameter=options["om"]) from error
    write_file(options["json"], _json_of(model).encode())
    console.log("info", "GE", f"{options['json']} is written")


def _json_of(model: OfflineModel) -> str:
    """The compiled graph, of the largest gear: one entry for each kernel, Data and NetOutput among them."""
    gear = largest_gear(model)
    producers = {tensor.name: f"{tensor.name}:0" for tensor in model.inputs}
    constants = {t.name: t for kernel in gear.kernels for t in kernel.inputs if t.name not in producers}
    for kernel in gear.kernels:
        for index, tensor in enumerate(kernel.outputs):
            producers[tensor.name] = f"{kernel.name}:{index}"
            constants.pop(tensor.name, None)
    proto = ModelProto()
    proto.ParseFromString(model.graph)
    nodes = {node.name: node for node in proto.graph.node}
    # the Cast behind an output, where there is one: kernels name it after the tensor
    casts = {(k.inputs[0].name, k.outputs[0].dtype): k.outputs[0] for k in reversed(gear.kernels) if not k.nodes}
    leaving = [casts.get((tensor.name, tensor.dtype), tensor) for tensor in gear.outputs]
    facts = (("atc_version", model.atc_version), ("soc_version", model.soc_version), ("emulator", model.emulator))
    ops = [
        *(_entry(t.name, "Data", (), [t], producers, [_attribute("index", i=i)]) for i, t in enumerate(model.inputs)),
        *(_entry(name, "Const", (), [tensor], producers, []) for name, tensor in constants.items()),
        *(_operator(kernel, producers, nodes) for kernel in gear.kernels),
        _entry("Node_Output", "NetOutput", leaving, leaving, producers, []),
    ]
    content = {
        "name": model.name,
        "version": 1,
        "graph": [{"name": model.name, "op": ops}],
        "attr": [_attribute(key, s=value) for key, value in facts],
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _attribute(key: str, **value: object) -> dict[str, Any]:
    return {"key": key, "value": value}


def _entry(
    name: str,
    kind: str,
    takes: Sequence[Tensor],
    gives: Sequence[Tensor],
    producers: Mapping[str, str],
    attributes: Any,
) -> dict[str, Any]:
    return {
        "name": name,
        "type": kind,
        "input": [producers.get(tensor.name, f"{tensor.name}:0") for tensor in takes],
        "input_desc": [_described(tensor) for tensor in takes],
        "output_desc": [_described(tensor) for tensor in gives],
        "attr": attributes,
    }


def _operator(kernel: Kernel, producers: Mapping[str, str], nodes: Mapping[str, NodeProto]) -> dict[str, Any]:
    lists = {"_datadump_original_op_names": kernel.nodes, "pass_name": kernel.passes}
    attributes = [_attribute(key, list={"s": list(names)}) for key, names in lists.items() if names]
    if kernel.implementation:
        attributes.append(_attribute("op_impl_mode", s=kernel.implementation))
    covered = [nodes[name] for name in kernel.nodes if name in nodes]
    written = {tensor.name for tensor in kernel.outputs}
    for node in covered:
        if node.op_type == QUANT and node.output[0] in written:
            given = {a.name: a.f for a in node.attribute}
            # under what names a fused kernel keeps them is [inferred]
            attributes += [_attribute(f"quant_{name}", f=given.get(name, 0.0)) for name in ("scale", "offset")]
    entry = _entry(kernel.name, kernel.op_type, kernel.inputs, kernel.outputs, producers, attributes)
    # which output of which node of the model it is, as msaccucmp.py looks it up
    origins = {name: (node.name, index) for node in covered for index, name in enumerate(node.output)}
    for tensor, described in zip(kernel.outputs, entry["output_desc"], strict=True):
        if tensor.name in origins:
            name, index = origins[tensor.name]
            place = _attribute("_datadump_origin_output_index", i=index)
            described["attr"] = [_attribute("_datadump_origin_name", s=name), place]
    return entry


def _described(tensor: Tensor) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "dtype": _SPELLED.get(tensor.dtype, f"DT_{tensor.dtype.upper()}"),
        "layout": _LAYOUTS.get(tensor.format, "ND"),
        "shape": {"dim": list(tensor.shape)},
    }


def show_info(model: OfflineModel, line: Callable[[str], None]) -> None:
    """Print what of the block the emulator knows: the memory and weights that the model is loaded with."""
    versions = f"atc_version[{model.atc_version}], soc_version[{model.soc_version}], framework_type[5]"
    line("============ Display Model Info start ============")
    line(f"Original Atc command line: {model.command_line}")
    line(f"system info: {versions}.")
    line(f"resource info: memory_size[{model.work_bytes} B], weight_size[{model.weight_bytes} B], stream_num[1].")
    line("============ Display Model Info end   ============")
