"""Modes 1 and 6: a file that is there, as JSON or on the screen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from workbench.cann_emulator.atc.engine import Screen
from workbench.cann_emulator.atc.failure import failure
from workbench.cann_emulator.atc.json_form import json_of_om, json_of_onnx
from workbench.cann_emulator.atc.onnx_parser import parse_onnx
from workbench.cann_emulator.atc.outputs import write_file
from workbench.cann_emulator.om import NotAnOm, OfflineModel, largest_gear, load_om

_FRAMEWORK_ONNX = 5
_KERNEL_BYTES = 4096
_TASK_BYTES = 256
_EVENTS_PER_STREAM = 0


def run_to_json(options: Mapping[str, str], console: Screen) -> None:
    """Mode 1: an OM, or with --framework=5 an ONNX file, as JSON.

    Raises:
        AtcFailure: E10041 (no OM), those of the parse, E10001 (the JSON file cannot be written).
    """
    if options.get("framework") == "5":
        text = json_of_onnx(parse_onnx(Path(options["om"])).proto)
    else:
        text = json_of_om(_load(options["om"]))
    write_file(options["json"], text.encode())
    console.log("info", "GE", f"{options['json']} is written")


def run_info(options: Mapping[str, str], console: Screen) -> None:
    """Mode 6: what an OM holds.

    Raises:
        AtcFailure: E10041 (no OM).
    """
    show_info(_load(options["om"]), Path(options["om"]).stat().st_size, console.line)


def _load(path: str) -> OfflineModel:
    try:
        return load_om(Path(path))
    except (OSError, NotAnOm) as error:
        raise failure("E10041", parameter=path) from error


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
