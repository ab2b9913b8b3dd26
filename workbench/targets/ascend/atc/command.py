"""From a candidate and one shape to the argument vector of ATC. Flags that would repeat ATC's default are left out."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from workbench.targets.ascend.flags import BANK
from workbench.targets.ascend.interface import Interface
from workbench.targets.ascend.settings import PRECISION_MODES, AscendCompile
from workbench.values.candidate import Candidate
from workbench.values.errors import CompileError

ONNX = "5"
"""Value of --framework."""
_FLAGS = (
    *("op_select_implmode", "oo_level", "oo_constant_folding", "buffer_optimize", "tiling_schedule_optimize"),
    *("enable_single_stream", "enable_small_channel"),
)
"""Of one name with their settings, whose defaults are ATC's own."""
_WORDS = {("tiling_schedule_optimize", True): "1", ("enable_small_channel", True): "1"}
MOST_GEARS = 100
"""The documented limit on Atlas A2; v8.5.0 defines E10036 for it and does not raise it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What one compiled file is made for.

    Attributes:
        name: of the file, without .om.
        batch, sequence_bin: None where the file takes several, or where the model has no such axis.
        input_shape, dynamic_dims: values of these flags; dynamic_dims is empty for a static file.
    """

    name: str
    batch: int | None
    sequence_bin: int | None
    input_shape: str
    dynamic_dims: str = ""


def shapes_of(settings: AscendCompile, interface: Interface) -> tuple[Shape, ...]:
    """The files to compile: one for each batch and bin, or one with a gear for each of them.

    Raises:
        CompileError: more gears than a file may have.
    """
    bins: tuple[int | None, ...] = settings.sequence_bins or (None,)
    if settings.shapes == "gears":
        return (_gears(settings, interface, bins),)
    return tuple(
        Shape(
            name=f"b{batch}" if length is None else f"b{batch}_s{length}",
            batch=batch,
            sequence_bin=length,
            input_shape=interface.input_shape(batch, length),
        )
        for batch, length in itertools.product(settings.batches, bins)
    )


def compile_flags(
    candidate: Candidate,
    shape: Shape,
    interface: Interface,
    *,
    soc_version: str,
    model: Path,
    output: Path,
    files: Mapping[str, Path],
) -> dict[str, str]:
    """Flag → value for one compile.

    Args:
        output: path of the file without .om.
        files: flag → file, of `write_config_files`.
    """
    settings = AscendCompile.of(candidate)
    ranks = {len(port.shape) for port in interface.inputs}
    flags = {
        "framework": ONNX,
        "model": str(model),
        "output": str(output),
        "soc_version": soc_version,
        # ND for texts, and always with gears, as their manual page asks; NCHW and NCDHW for images and volumes
        "input_format": "ND" if shape.dynamic_dims or not ranks & {4, 5} else "NCDHW" if 5 in ranks else "NCHW",
        "input_shape": shape.input_shape,
        "log": "error",
        # prints what --mode=6 would tell about the file, without a second start
        "display_model_info": "1",
    }
    if shape.dynamic_dims:
        flags["dynamic_dims"] = shape.dynamic_dims
    mode = candidate.precision.mode  # one of the two flags, never both (E10056); what the older one has goes there
    flags["precision_mode" if mode in PRECISION_MODES else "precision_mode_v2"] = mode
    if settings.optypelist_for_implmode:
        flags["optypelist_for_implmode"] = ",".join(settings.optypelist_for_implmode)
    usual = AscendCompile()
    for name in _FLAGS:
        if (value := getattr(settings, name)) != getattr(usual, name):
            flags[name] = _WORDS.get((name, value), str(value).lower() if isinstance(value, bool) else value)
    flags |= {flag: value for flag, value in settings.options if flag != BANK}
    flags |= {flag: str(file) for flag, file in files.items()}
    return flags


def _gears(settings: AscendCompile, interface: Interface, bins: tuple[int | None, ...]) -> Shape:
    """Only what varies is -1: with one batch size, or one bin, that size is written out."""
    batch = settings.batches[0] if len(settings.batches) == 1 else -1
    length = bins[0] if len(bins) == 1 else -1
    sizes: Mapping[int | str, int | None] = {"batch": batch, "sequence": length}
    free = [axis for port in interface.inputs for axis in port.shape if sizes.get(axis) == -1]
    pairs = itertools.product(settings.batches, bins)
    gears = [",".join(str(b if axis == "batch" else s) for axis in free) for b, s in pairs]
    if len(gears) > MOST_GEARS:
        raise CompileError(
            f"compile.shapes: {len(gears)} gears are more than the documented {MOST_GEARS} (ATC: E10036). Name fewer."
        )
    return Shape(
        name="gears",
        batch=None if batch == -1 else batch,
        sequence_bin=None if length == -1 else length,
        input_shape=interface.input_shape(batch, length),
        dynamic_dims=";".join(gears),
    )
