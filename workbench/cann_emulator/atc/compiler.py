"""The compile itself: from a parsed model at planned shapes to the OM file.

ONNX ─► fold at each shape ─► operators ─► graph passes ─► dtypes and Casts ─► buffer passes ─► kernels ─► OM
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.cann_emulator.atc.aipp import PREFIX
from workbench.cann_emulator.atc.ascend_graph import AscendGraph
from workbench.cann_emulator.atc.boundary import Output, format_of, output_dtypes
from workbench.cann_emulator.atc.emission import constants_read, emit
from workbench.cann_emulator.atc.engine import Engine, Screen
from workbench.cann_emulator.atc.folding import Folded, Shape, fold
from workbench.cann_emulator.atc.fusion import Counts, run_passes
from workbench.cann_emulator.atc.fusion_graph import GRAPH_PASSES, LATE_GRAPH_PASSES
from workbench.cann_emulator.atc.fusion_ub import UB_PASSES
from workbench.cann_emulator.atc.gears import ShapePlan
from workbench.cann_emulator.atc.kernels import kernels_of, weight_bytes, work_bytes
from workbench.cann_emulator.atc.lowering import dtype_of, lower
from workbench.cann_emulator.atc.om_files import show_info
from workbench.cann_emulator.atc.onnx_parser import Parsed
from workbench.cann_emulator.atc.outputs import om_path, write_file, write_kernel_meta, write_result, write_weights
from workbench.cann_emulator.atc.precision import assign
from workbench.cann_emulator.om import Dtype, Gear, Kernel, OfflineModel, Tensor, largest_gear, write_om
from workbench.cann_emulator.revision import emulator

_KERNELS_PER_DOT = 50
_VERSION = os.environ.get("CANN_EMULATOR_VERSION", "8.5.0")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compiled:
    """One gear's result."""

    graph: AscendGraph
    kernels: tuple[Kernel, ...]
    graph_counts: Counts
    ub_counts: Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A compile in memory.

    Attributes:
        kept: what constant folding left, at the boundary's shapes.
        dynamic: shapes are known only at run time.
    """

    model: OfflineModel
    kept: Folded
    dynamic: bool


def compile_model(
    parsed: Parsed,
    plan: ShapePlan,
    engine: Engine,
    options: Mapping[str, str],
    fed: Mapping[str, Dtype],
    outputs: Sequence[Output],
    console: Screen,
) -> Compiled:
    """From the parsed model to the offline model; `write_compiled` makes the OM file of it.

    Args:
        options: flag → text of those given, and `_command_line`.
        fed: input → dtype at the boundary.

    Raises:
        AtcFailure: whatever stops the compile.
    """
    names = tuple(output.tensor for output in outputs)
    fold_floats = options.get("oo_constant_folding") != "false"
    at_gears = [fold(parsed, shapes, names, fold_floats=fold_floats) for _, shapes in plan.gears]
    data_dependent = any(folded.data_dependent for folded in at_gears)
    kept = at_gears[0]
    if plan.kind or data_dependent:
        kept = fold(parsed, plan.boundary, names, fold_floats=fold_floats, guess=False)
    positions = {node.name: index for index, node in enumerate(kept.nodes)}
    compiled = [_compile(parsed, folded, plan, engine, options, fed, outputs, positions) for folded in at_gears]
    dynamic = plan.kind == "range" or data_dependent
    path = om_path(options["output"], options, dynamic=dynamic)
    for _ in range(0, sum(len(one.kernels) for one in compiled), _KERNELS_PER_DOT):
        console.dot()
    model = _assemble(parsed, options, plan, engine, kept, compiled, fed, outputs, Path(path).stem)
    return Compiled(model=model, kept=kept, dynamic=dynamic)


def write_compiled(compiled: Compiled, options: Mapping[str, str], console: Screen) -> None:
    """The OM file, and what lies beside it.

    Raises:
        AtcFailure: whatever stops the writing of a file.
    """
    model, path = compiled.model, om_path(options["output"], options, dynamic=compiled.dynamic)
    write_kernel_meta(options, largest_gear(model).kernels)
    write_result(options, model.graph_fusions, model.ub_fusions)
    if options.get("external_weight") == "1":
        write_weights(path, compiled.kept.constants, constants_read(compiled.kept))
    for kind, counts in (("graph", model.graph_fusions), ("ub", model.ub_fusions)):
        for pass_name, (matched, effective) in counts.items():
            console.log("info", "FE", f"{kind} fusion pass {pass_name}: {matched} matched, {effective} took effect")
    kernels = sum(len(gear.kernels) for gear in model.gears)
    console.log("info", "TEFUSION", f"{kernels} kernels for {len(model.gears)} shapes")
    content = write_om(model)
    write_file(path, content)
    if options.get("save_original_model") == "true":
        write_file(f"{options['output']}_original.om", content)
    if options.get("display_model_info") == "1":
        show_info(model, len(content), console.line)


def _compile(
    parsed: Parsed,
    folded: Folded,
    plan: ShapePlan,
    engine: Engine,
    options: Mapping[str, str],
    fed: Mapping[str, Dtype],
    outputs: Sequence[Output],
    positions: Mapping[str, int],
) -> _Compiled:
    graph = lower(folded, [value.name for value in parsed.inputs])
    leaves = output_dtypes(outputs, {output.tensor: _own_dtype(folded, output.tensor) for output in outputs})
    graph.dtypes.update(fed)
    _join_aipp(graph)
    unmet = {"static": plan.kind == "range", "quant": options.get("quant_dumpable") == "1"}
    left_out = [name for name, is_so in unmet.items() if is_so]
    early = run_passes(GRAPH_PASSES, "GraphFusion", graph, engine.switches, left_out)
    assign(graph, engine.precision, leaves)
    late = run_passes(LATE_GRAPH_PASSES, "GraphFusion", graph, engine.switches, left_out)
    ub = run_passes(UB_PASSES, "UBFusion", graph, engine.switches, left_out)
    return _Compiled(graph=graph, kernels=kernels_of(graph, positions), graph_counts={**early, **late}, ub_counts=ub)


def _join_aipp(graph: AscendGraph) -> None:
    """What was written for an input's AIPP is one operator."""
    for value in graph.inputs:
        group = [op for op in graph.ops() if op.name.startswith(f"{PREFIX}{value}/")]
        if group:
            parameters = {name for op in group for name in op.inputs if graph.is_constant(name)}
            graph.join(group, "", type="Aipp", core="vector", whole=True, absorbed=parameters)


def _own_dtype(folded: Folded, name: str) -> Dtype:
    return dtype_of(folded.constants.element_type(name) if name in folded.constants else folded.types[name])


def _assemble(
    parsed: Parsed,
    options: Mapping[str, str],
    plan: ShapePlan,
    engine: Engine,
    kept: Folded,
    compiled: list[_Compiled],
    fed: Mapping[str, Dtype],
    outputs: Sequence[Output],
    name: str,
) -> OfflineModel:
    leaves = output_dtypes(outputs, {output.tensor: _own_dtype(kept, output.tensor) for output in outputs})
    names = [output.tensor for output in outputs]
    gears = tuple(
        Gear(
            dims=dims,
            outputs=tuple(Tensor(name=n, dtype=leaves[n], shape=_shape(one.graph, n)) for n in names),
            kernels=one.kernels,
        )
        for (dims, _), one in zip(plan.gears, compiled, strict=True)
    )
    reuse = options.get("disable_reuse_memory") != "1"
    return OfflineModel(
        emulator=emulator(),
        soc_version=engine.soc_version,
        atc_version=_VERSION,
        precision_mode=options.get("precision_mode_v2") or options.get("precision_mode") or "force_fp16",
        command_line=options.get("_command_line", ""),
        options={key: value for key, value in options.items() if not key.startswith("_")},
        name=name,
        inputs=tuple(
            Tensor(name=n, dtype=fed[n], shape=shape, format=_format(options, fed[n], shape))
            for n, shape in plan.boundary.items()
        ),
        outputs=tuple(
            Tensor(
                name=n, dtype=leaves[n], shape=_common([gear.outputs[i].shape for gear in gears], kept.shapes.get(n))
            )
            for i, n in enumerate(names)
        ),
        gear_kind=plan.kind,
        gears=gears,
        graph_fusions=_summed(one.graph_counts for one in compiled),
        ub_fusions=_summed(one.ub_counts for one in compiled),
        work_bytes=max(work_bytes(one.graph, one.kernels, reuse=reuse) for one in compiled),
        weight_bytes=max(weight_bytes(one.graph, one.kernels) for one in compiled),
        truncate_deq_scale=True,
        output_names=tuple(output.name for output in outputs),
        graph=emit(parsed, kept, plan.boundary, gears, name, clip=options.get("is_weight_clip") != "0"),
    )


def _shape(graph: AscendGraph, name: str) -> Shape:
    return graph.shapes[name] if name in graph.shapes else graph.constants.shape(name)


def _format(options: Mapping[str, str], dtype: Dtype, shape: Shape) -> int:
    image = bool(options.get("insert_op_conf")) and dtype == "uint8"
    return format_of(options, len(shape), image=image)


def _common(shapes: list[Shape], open_shape: Shape | None) -> Shape:
    """An output's shape at the boundary: -1 where gears differ, or where one gear stands for a range."""
    if len(shapes) == 1 and open_shape is not None and len(open_shape) == len(shapes[0]):
        return tuple(-1 if size < 0 else at for size, at in zip(open_shape, shapes[0], strict=True))
    if len({len(shape) for shape in shapes}) > 1:
        return shapes[-1]
    return tuple(sizes[0] if len(set(sizes)) == 1 else -1 for sizes in zip(*shapes, strict=True))


def _summed(counts: Iterable[Counts]) -> dict[str, tuple[int, int]]:
    total: dict[str, tuple[int, int]] = {}
    for one in counts:
        for name, (matched, effective) in one.items():
            before = total.get(name, (0, 0))
            total[name] = (before[0] + matched, before[1] + effective)
    return total
