"""The block that shows what an OM holds: mode 6, and --display_model_info=1 after a build (atc.md §5.6)."""

from __future__ import annotations

from collections.abc import Callable

from workbench.cann_emulator.om import OfflineModel, largest_gear

_FRAMEWORK_ONNX = 5
_KERNEL_BYTES = 4096
_TASK_BYTES = 256
_EVENTS_PER_STREAM = 0


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
