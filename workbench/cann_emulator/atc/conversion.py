"""A conversion from its checked flags on, step by step in the vendor's order: the first step that fails decides.

    flags        checks.FLAG_CHECKS                                      main_impl.cc:633-860,1618-1660
    engines      the chip, switches, lists of types, debug file         main_impl.cc:1457, gelib.cc:106,324
    requests     static shapes, layouts of outputs, --out_nodes          main_impl.cc:1475, omg.cc InitDomiOmgContext
    model        the file, the pre-check, ranks, output tensors          onnx_parser.cc, onnx_data_parser.cc:130
    inputs       --input_fp16_nodes, open axes and names, ranges         omg.cc CheckInputFp16Nodes to the end
    outputs      --output_type, then the nodes of --out_nodes            omg.cc SetOutputNodeInfo
    attributes   the file of --keep_dtype                                main_impl.cc SetAttrOptions
    AMCT         --compression_optimize_conf, which is not emulated      main_impl.cc:1283-1317
    compile      oo_*, gears, the graph, writing                         main_impl.cc GenerateOfflineModel

All of ge v8.5.0. The compile itself:

ONNX ─► fold at each shape ─► operators ─► graph passes ─► dtypes and Casts ─► buffer passes ─► kernels ─► OM
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from pathlib import Path

import numpy as np
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper

from workbench.cann_emulator.atc import boundary
from workbench.cann_emulator.atc.ascend_graph import AscendGraph
from workbench.cann_emulator.atc.checks import check_optimization_flags
from workbench.cann_emulator.atc.engine import Engine, read_keep_dtype, start_engine
from workbench.cann_emulator.atc.failure import AtcFailure, Console, Record, failure, inner_error
from workbench.cann_emulator.atc.folding import Array, Folded, element_type
from workbench.cann_emulator.atc.fusion import run_passes
from workbench.cann_emulator.atc.fusion_passes import GRAPH_PASSES, LATE_GRAPH_PASSES, UB_PASSES
from workbench.cann_emulator.atc.lowering import dtype_of, lower
from workbench.cann_emulator.atc.onnx_parser import Parsed, check_operators, parse_onnx
from workbench.cann_emulator.atc.outputs import om_path, show_info, write_file, write_result
from workbench.cann_emulator.atc.precision import OF_TYPE, assign
from workbench.cann_emulator.atc.shapes import (
    Gears,
    Shape,
    check_ranks,
    gear_flag,
    input_shapes,
    parse_shapes,
    plan_shapes,
)
from workbench.cann_emulator.om import Dtype, Gear, Kernel, OfflineModel, Tensor, write_om
from workbench.cann_emulator.revision import CANN, emulator
from workbench.graph.nodes import names_read
from workbench.values.modelled_times.kernels import size_bytes

_KERNELS_PER_DOT = 50
_NOT_EMULATED = {
    "external_weight": "writes no weights beside an OM",
    "insert_op_conf": "puts no preprocessing of images (AIPP) into a model",
    "compression_optimize_conf": "runs no calibration inside a conversion; quantize with amct_onnx and convert its "
    "deploy model",
}
"""Flags that pass every check before, and what this one does not do."""


def run_compile(options: Mapping[str, str], console: Console) -> None:
    """From the ONNX file to the OM file.

    Args:
        options: flag → text of those given, and `_command_line`.
    """
    engine = start_engine(options, console)
    try:
        asked = parse_shapes(options)
    except AtcFailure as error:
        text = f"The input shape {options['input_shape']} cannot be read."
        raise AtcFailure(*error.records, inner_error(text)) from error
    boundary.check_layouts("is_output_adjust_hw_layout", options.get("is_output_adjust_hw_layout", ""))
    out_nodes = boundary.parse_out_nodes(options.get("out_nodes", ""))
    parsed = parse_onnx(Path(options["model"]))
    check_operators(parsed)
    check_ranks(parsed, asked)
    boundary.asked_outputs(parsed, out_nodes)
    fed = boundary.input_dtypes(parsed, options)
    shapes = input_shapes(parsed, asked, options)
    outputs = boundary.output_tensors(parsed, out_nodes, options.get("output_type", ""))
    kept = read_keep_dtype(options.get("keep_dtype", ""))  # only here (ge v8.5.0 api/atc/main_impl.cc, SetAttrOptions)
    if engine.precision.mode != "must_keep_origin_dtype":  # which keeps every type anyway
        engine = engine._replace(precision=replace(engine.precision, kept=kept))
    named = {name for name in kept if not name.startswith(OF_TYPE)}
    for name in sorted(named - {node.name for node in parsed.proto.graph.node}):
        console.log("warning", "GE", f"keep_dtype: the graph has no node {name}")
    for flag, why in _NOT_EMULATED.items():
        if options.get(flag, "0") != "0":
            raise failure("E10055", reason=f"this atc is emulated and {why} (--{flag})")
    try:
        check_optimization_flags(options)
        plan = plan_shapes(parsed, shapes, tuple(asked), options)
        _compile_and_write(parsed, shapes, plan, engine, options, fed, outputs, console)
    except AtcFailure as error:
        raise AtcFailure(*error.records, Record(code="E10042")) from error


def _compile_and_write(
    parsed: Parsed,
    at_boundary: Mapping[str, Shape],
    plan: Gears,
    engine: Engine,
    options: Mapping[str, str],
    fed: Mapping[str, Dtype],
    outputs: Sequence[boundary.Output],
    console: Console,
) -> None:
    """From the parsed model to the OM file, and what lies beside it.

    Args:
        fed: input → dtype at the boundary.
    """
    names = tuple(output.tensor for output in outputs)
    initializers = {tensor.name: numpy_helper.to_array(tensor) for tensor in parsed.proto.graph.initializer}

    def folded_at(shapes: Mapping[str, Shape], *, guess: bool = True) -> Folded:
        floats = options.get("oo_constant_folding") != "false"
        return Folded(parsed, initializers, shapes, names, fold_floats=floats, guess=guess)

    at_gears = [folded_at(shapes) for _, shapes in plan]
    data_dependent = any(folded.data_dependent for folded in at_gears)
    kept = folded_at(at_boundary, guess=False) if plan[0][0] or data_dependent else at_gears[0]
    leaves = _output_dtypes(outputs, kept)
    positions = {node.name: index for index, node in enumerate(kept.nodes)}
    gears: list[Gear] = []
    fusions: dict[str, dict[str, tuple[int, int]]] = {"GraphFusion": {}, "UBFusion": {}}
    fuse = partial(run_passes, switches=engine.switches, options=options, fusions=fusions)
    work = weights = 0
    for (dims, _), folded in zip(plan, at_gears, strict=True):
        graph = lower(folded, [value.name for value in parsed.inputs])
        graph.dtypes.update(fed)
        fuse(GRAPH_PASSES, "GraphFusion", graph)
        assign(graph, engine.precision, _output_dtypes(outputs, folded))
        fuse(LATE_GRAPH_PASSES, "GraphFusion", graph)
        fuse(UB_PASSES, "UBFusion", graph)
        kernels = kernels_of(graph, positions)
        gives = tuple(Tensor(name=n, dtype=leaves[n], shape=graph.shapes[n]) for n in names)
        gears.append(Gear(dims=dims, outputs=gives, kernels=kernels))
        work = max(work, work_bytes(graph, kernels, reuse=options.get("disable_reuse_memory") != "1"))
        weights = max(weights, weight_bytes(graph, kernels))
    kernel_count = sum(len(gear.kernels) for gear in gears)
    print("." * -(-kernel_count // _KERNELS_PER_DOT), end="", flush=True)  # signs of life while operators compile
    path = om_path(options["output"], options, dynamic=data_dependent)
    name = Path(path).stem
    model = OfflineModel(
        emulator=emulator(),
        soc_version=engine.soc_version,
        atc_version=CANN,
        precision_mode=options.get("precision_mode_v2") or options.get("precision_mode") or "force_fp16",
        command_line=options.get("_command_line", ""),
        options={key: value for key, value in options.items() if not key.startswith("_")},
        name=name,
        inputs=tuple(
            Tensor(name=n, dtype=fed[n], shape=shape, format=boundary.format_of(options, len(shape)))
            for n, shape in at_boundary.items()
        ),
        outputs=tuple(
            Tensor(name=n, dtype=leaves[n], shape=_common([g.outputs[i].shape for g in gears], kept.shapes.get(n)))
            for i, n in enumerate(names)
        ),
        gear_kind=gear_flag(options) if plan[0][0] else "",
        gears=tuple(gears),
        graph_fusions=fusions["GraphFusion"],
        ub_fusions=fusions["UBFusion"],
        work_bytes=work,
        weight_bytes=weights,
        truncate_deq_scale=True,
        output_names=tuple(output.name for output in outputs),
        graph=emit(parsed, kept, at_boundary, gears, name, clip=options.get("is_weight_clip") != "0"),
    )
    write_result(options, model)
    console.log("info", "TEFUSION", f"{kernel_count} kernels for {len(gears)} shapes")
    write_file(path, write_om(model))
    if options.get("display_model_info") == "1":
        show_info(model, console.line)


def _output_dtypes(outputs: Sequence[boundary.Output], folded: Folded) -> dict[str, Dtype]:
    """What --output_type says, or the file's own [inferred for every precision mode]."""
    constants = {o.tensor: element_type(folded.constants[o.tensor]) for o in outputs if o.tensor in folded.constants}
    own = {**folded.types, **constants}
    return {o.tensor: boundary.OUTPUT_DTYPES.get(o.type, dtype_of(own[o.tensor])) for o in outputs}


def _common(shapes: list[Shape], open_shape: Shape | None) -> Shape:
    """An output's shape at the boundary: -1 where gears differ, or only the data tell."""
    if len(shapes) == 1 and open_shape is not None and len(open_shape) == len(shapes[0]):
        return tuple(-1 if size < 0 else at for size, at in zip(open_shape, shapes[0], strict=True))
    if len({len(shape) for shape in shapes}) > 1:
        return shapes[-1]
    return tuple(sizes[0] if len(set(sizes)) == 1 else -1 for sizes in zip(*shapes, strict=True))


# --- what an offline model carries: kernels, and the graph that folding left, under their names -----------------------


_ALIGNMENT = 512


def weight_bytes(graph: AscendGraph, kernels: tuple[Kernel, ...]) -> int:
    """Of all constants that kernels read, each dtype of one counted once."""
    constants = {(t.name, t.dtype): size_bytes(t) for k in kernels for t in k.inputs if graph.is_constant(t.name)}
    return sum(_aligned(size) for size in constants.values())


def work_bytes(graph: AscendGraph, kernels: tuple[Kernel, ...], *, reuse: bool) -> int:
    """Of activations: the most that lives at a time, or all of them where memory is not used again."""
    last_use = {t.name: index for index, kernel in enumerate(kernels) for t in (*kernel.inputs, *kernel.outputs)}
    last_use.update(dict.fromkeys(graph.outputs, len(kernels)))
    live = peak = total = 0
    ends: Counter[int] = Counter()
    for index, kernel in enumerate(kernels):
        for tensor in kernel.outputs if kernel.core != "none" else ():
            size = _aligned(size_bytes(tensor))
            ends[last_use[tensor.name]] += size
            live += size
            total += size
        peak = max(peak, live)
        live -= ends[index]
    return peak if reuse else total


def kernels_of(graph: AscendGraph, positions: Mapping[str, int]) -> tuple[Kernel, ...]:
    """The kernels in execution order.

    Args:
        positions: ONNX node → place in the model's graph; nodes it lacks were folded there and are left out.
    """

    def tensor(name: str, dtype: Dtype) -> Tensor:
        return Tensor(name=name, dtype=dtype, shape=graph.shapes[name])

    return tuple(
        Kernel(
            name=op.name,
            op_type=op.type,
            core=op.core,
            nodes=tuple(sorted((name for name in op.nodes if name in positions), key=positions.__getitem__)),
            dtype=op.dtype,
            inputs=tuple(tensor(name, graph.stored_dtype(op, name)) for name in dict.fromkeys(op.inputs)),
            outputs=tuple(tensor(name, graph.dtypes[name]) for name in op.outputs),
            macs=sum(prod(product) for product in op.cube),
            cube=op.cube,
            passes=op.passes,
            implementation=op.implementation,
        )
        for op in graph.ops()
    )


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


# --- the graph ---

_NOTHING = "aclEmpty"
_NEWEST_IR = 10
"""What follows adds types that operators up to opset 22 do not have; ONNX Runtime refuses versions it does not know."""
_WHOLE = (TensorProto.INT64, TensorProto.INT32)
_LARGEST_HALF = np.float32(65504.0)


def emit(
    parsed: Parsed, folded: Folded, boundary: Mapping[str, Shape], gears: Sequence[Gear], name: str, *, clip: bool
) -> bytes:
    """The model's bytes: every node named, constants it reads, inputs with an open axis as a symbol.

    Args:
        gears: their kernels say which constants are halves.
        clip: what exceeds a half becomes its largest number, not infinity (--is_weight_clip).
    """
    graph = GraphProto(name=name)
    graph.node.extend(folded.nodes)
    opsets = _made_valid(graph, folded, parsed.opsets)
    for value in parsed.inputs:
        dims = [d if d >= 0 else f"{value.name}_{axis}" for axis, d in enumerate(boundary[value.name])]
        graph.input.append(helper.make_tensor_value_info(value.name, value.type.tensor_type.elem_type, dims))
    for output in folded.outputs:
        number, shape = _described(folded, output)
        dims = [d if d >= 0 else f"{output}_{axis}" for axis, d in enumerate(shape)]
        graph.output.append(helper.make_tensor_value_info(output, number, dims))
    halves = _halves(folded, gears)
    read = dict.fromkeys([*(name for node in folded.nodes for name in names_read(node)), *folded.outputs])
    for constant in read:
        if constant in folded.constants:
            graph.initializer.append(_initializer(folded.constants[constant], constant, constant in halves, clip))
    imports = [helper.make_opsetid("" if domain == "ai.onnx" else domain, v) for domain, v in opsets.items()]
    ir_version = min(max(parsed.proto.ir_version, 4), _NEWEST_IR)
    model = ModelProto(ir_version=ir_version, producer_name="atc", opset_import=imports, graph=graph)
    return bytes(model.SerializeToString())


def _made_valid(graph: GraphProto, folded: Folded, opsets: Mapping[str, int]) -> dict[str, int]:
    """What ATC takes and ONNX Runtime does not, as the runtime takes it; returns the opsets that this asks for.

    At opset 11 and 12 the roi and scales of Resize may not be left out; Min and Max take whole numbers from 12 on.
    """
    version = opsets.get("ai.onnx", 0)
    if version not in (11, 12):
        return dict(opsets)
    for node in graph.node:
        if node.op_type == "Resize" and "" in node.input[1:]:
            node.input[:] = [name or _NOTHING for name in node.input]
            if not graph.initializer:
                graph.initializer.append(TensorProto(name=_NOTHING, dims=[0], data_type=TensorProto.FLOAT))
    whole = any(
        node.op_type in ("Min", "Max") and _described(folded, node.output[0])[0] in _WHOLE for node in folded.nodes
    )
    if version == 11 and whole:
        for node in graph.node:
            if node.op_type == "Dropout":
                del node.attribute[:]  # its ratio became an input at 12
        return {**opsets, "ai.onnx": 12}
    return dict(opsets)


def _halves(folded: Folded, gears: Sequence[Gear]) -> set[str]:
    """Float constants that every node which reads them reads as a half."""
    reads = [(kernel, tensor) for gear in gears for kernel in gear.kernels for tensor in kernel.inputs]
    by_half = {(node, t.name) for kernel, t in reads if t.dtype == "float16" for node in kernel.nodes}
    otherwise = {t.name for _, t in reads if t.dtype != "float16"}
    otherwise |= {name for node in folded.nodes for name in names_read(node) if (node.name, name) not in by_half}
    floats = {name for name, values in folded.constants.items() if element_type(values) == TensorProto.FLOAT}
    return {t.name for _, t in reads} & floats - otherwise


def _initializer(array: Array, name: str, half: bool, clip: bool) -> TensorProto:
    if half:
        if clip and max(array.max(initial=0), -array.min(initial=0)) > _LARGEST_HALF:
            array = np.clip(array, -_LARGEST_HALF, _LARGEST_HALF)
        with np.errstate(over="ignore"):
            array = array.astype(np.float16)
    return numpy_helper.from_array(array, name)


def _described(folded: Folded, name: str) -> tuple[int, Shape]:
    if name in folded.constants:
        return element_type(folded.constants[name]), folded.constants[name].shape
    return folded.types[name], folded.shapes[name]
