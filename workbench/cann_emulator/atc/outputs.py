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

from workbench.cann_emulator.atc.console import Console
from workbench.cann_emulator.atc.failure import failure
from workbench.cann_emulator.om import Kernel, NotAnOm, OfflineModel, Tensor, largest_gear, load_om
from workbench.quantization.lowering.ascend_quant import QUANT

_MODE = 0o600
_NEVER = "0"


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
    """Truncates an existing file, keeping its mode; a new one is the owner's alone (base/common/helper/file_saver.cc).

    Raises:
        AtcFailure: E10001, the file cannot be opened: found here, after all the work.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE)
    except OSError as error:
        raise failure("E10001", parameter="file parameter", value=path, reason=str(error.strerror)) from error
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)


def result_path() -> Path:
    """In the current directory, or $ASCEND_WORK_PATH/FE/<pid>."""
    work = os.environ.get("ASCEND_WORK_PATH")
    return (Path(work) / "FE" / str(os.getpid()) if work else Path()) / "fusion_result.json"


def write_result(
    options: Mapping[str, str], graph: Mapping[str, tuple[int, int]], ub: Mapping[str, tuple[int, int]]
) -> None:
    """One object for the compiled graph; passes that are off or matched nothing are absent. Its two numbers are 0
    [inferred for a run that compiles one graph]."""
    if options.get("export_compile_stat") == _NEVER:
        return
    content = {
        "session_and_graph_id_0_0": {
            "graph_fusion": {name: _times(counts) for name, counts in sorted(graph.items())},
            "ub_fusion": {name: {**_times(counts), "repository_hit_times": "0"} for name, counts in sorted(ub.items())},
        }
    }
    path = result_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=4) + "\n", encoding="utf-8")


def _times(counts: tuple[int, int]) -> dict[str, str]:
    return {"effect_times": str(counts[1]), "match_times": str(counts[0])}


# --- mode 1, and what is shown of an OM ---

_SPELLED: Mapping[str, str] = {"float32": "DT_FLOAT", "bfloat16": "DT_BF16"}
_LAYOUTS: Mapping[int, str] = {0: "NCHW", 1: "NHWC", 2: "ND", 30: "NCDHW"}


def json_of_om(model: OfflineModel) -> str:
    """The compiled graph, of the largest gear: one entry for each kernel, Data and NetOutput among them."""
    gear = largest_gear(model)
    producers = {tensor.name: f"{tensor.name}:0" for tensor in model.inputs}
    constants = {t.name: t for kernel in gear.kernels for t in kernel.inputs if t.name not in producers}
    for kernel in gear.kernels:
        for index, tensor in enumerate(kernel.outputs):
            producers[tensor.name] = f"{kernel.name}:{index}"
            constants.pop(tensor.name, None)
    nodes = _nodes(model)
    leaving = [_last_version(tensor, gear.kernels) for tensor in gear.outputs]
    ops = [
        *(_entry(t.name, "Data", gives=[t], index=index) for index, t in enumerate(model.inputs)),
        *(_entry(name, "Const", gives=[tensor]) for name, tensor in constants.items()),
        *(_operator(kernel, producers, nodes) for kernel in gear.kernels),
        _entry("Node_Output", "NetOutput", takes=leaving, gives=leaving, producers=producers),
    ]
    facts = (("atc_version", model.atc_version), ("soc_version", model.soc_version), ("emulator", model.emulator))
    content = {
        "name": model.name,
        "version": 1,
        "graph": [{"name": model.name, "op": ops}],
        "attr": [{"key": key, "value": {"s": value}} for key, value in facts],
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _entry(
    name: str,
    kind: str,
    *,
    takes: Sequence[Tensor] = (),
    gives: Sequence[Tensor],
    producers: Mapping[str, str] | None = None,
    index: int | None = None,
) -> dict[str, Any]:
    known = producers or {}
    return {
        "name": name,
        "type": kind,
        "input": [known.get(tensor.name, f"{tensor.name}:0") for tensor in takes],
        "input_desc": [_described(tensor) for tensor in takes],
        "output_desc": [_described(tensor) for tensor in gives],
        "attr": [] if index is None else [{"key": "index", "value": {"i": index}}],
    }


def _nodes(model: OfflineModel) -> dict[str, NodeProto]:
    """Of the model's graph, by name."""
    proto = ModelProto()
    proto.ParseFromString(model.graph)
    return {node.name: node for node in proto.graph.node}


def _operator(kernel: Kernel, producers: Mapping[str, str], nodes: Mapping[str, NodeProto]) -> dict[str, Any]:
    attributes: list[dict[str, Any]] = []
    if kernel.nodes:
        attributes.append({"key": "_datadump_original_op_names", "value": {"list": {"s": list(kernel.nodes)}}})
    if kernel.passes:
        attributes.append({"key": "pass_name", "value": {"list": {"s": list(kernel.passes)}}})
    if kernel.implementation:
        attributes.append({"key": "op_impl_mode", "value": {"s": kernel.implementation}})
    covered = [nodes[name] for name in kernel.nodes if name in nodes]
    for node in covered:
        if node.op_type == QUANT and node.output[0] in {tensor.name for tensor in kernel.outputs}:
            given = {a.name: a.f for a in node.attribute if a.name in ("scale", "offset")}
            # under what names a fused kernel keeps them is [inferred]
            attributes += [
                {"key": f"quant_{name}", "value": {"f": given.get(name, 0.0)}} for name in ("scale", "offset")
            ]
    origins = {name: (node.name, index) for node in covered for index, name in enumerate(node.output)}
    entry = _entry(kernel.name, kernel.op_type, takes=kernel.inputs, gives=kernel.outputs, producers=producers)
    described = [{**_described(tensor), **_origin(origins.get(tensor.name))} for tensor in kernel.outputs]
    return {**entry, "output_desc": described, "attr": attributes}


def _origin(origin: tuple[str, int] | None) -> dict[str, Any]:
    """Which output of which node of the model it is, as msaccucmp.py looks it up."""
    if origin is None:
        return {}
    name, index = origin
    return {
        "attr": [
            {"key": "_datadump_origin_name", "value": {"s": name}},
            {"key": "_datadump_origin_output_index", "value": {"i": index}},
        ]
    }


def _last_version(tensor: Tensor, kernels: tuple[Kernel, ...]) -> Tensor:
    """The Cast behind an output, where there is one: kernels name it after the tensor."""
    for kernel in kernels:
        if not kernel.nodes and kernel.inputs[0].name == tensor.name and kernel.outputs[0].dtype == tensor.dtype:
            return kernel.outputs[0]
    return tensor


def _described(tensor: Tensor) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "dtype": _SPELLED.get(tensor.dtype, f"DT_{tensor.dtype.upper()}"),
        "layout": _LAYOUTS.get(tensor.format, "ND"),
        "shape": {"dim": list(tensor.shape)},
    }


_FRAMEWORK_ONNX = 5
_KERNEL_BYTES = 4096
_TASK_BYTES = 256
_EVENTS_PER_STREAM = 0


def run_to_json(options: Mapping[str, str], console: Console) -> None:
    """Mode 1: an OM as JSON.

    Raises:
        AtcFailure: E10041 (no OM), E10001 (the JSON file cannot be written).
    """
    try:
        model = load_om(Path(options["om"]))
    except (OSError, NotAnOm) as error:
        raise failure("E10041", parameter=options["om"]) from error
    write_file(options["json"], json_of_om(model).encode())
    console.log("info", "GE", f"{options['json']} is written")


def show_info(model: OfflineModel, file_bytes: int, line: Callable[[str], None]) -> None:
    """Print the block. Sizes of the model's definition, kernels and tasks are estimates of the emulator; memory and
    weights are those the model is loaded with."""
    kernels = [kernel for kernel in largest_gear(model).kernels if kernel.core != "none"]
    aicpu = sum(kernel.core == "aicpu" for kernel in kernels)
    tbe = len({(k.op_type, k.dtype, tuple(t.shape for t in k.inputs)) for k in kernels}) * _KERNEL_BYTES
    definition = max(0, file_bytes - len(model.graph))
    line("============ Display Model Info start ============")
    line(f"Original Atc command line: {model.command_line}")
    line(
        f"system info: atc_version[{model.atc_version}], soc_version[{model.soc_version}], "
        f"framework_type[{_FRAMEWORK_ONNX}]."
    )
    line(
        f"resource info: memory_size[{model.work_bytes} B], weight_size[{model.weight_bytes} B], stream_num[1], "
        f"event_num[{_EVENTS_PER_STREAM}]."
    )
    line(
        f"om info: modeldef_size[{definition} B], weight_data_size[{model.weight_bytes} B], "
        f"tbe_kernels_size[{tbe} B], cust_aicpu_kernel_store_size[{aicpu * _KERNEL_BYTES} B], "
        f"task_info_size[{len(kernels) * _TASK_BYTES} B], so_store_size[0 B]."
    )
    line("============ Display Model Info end   ============")
