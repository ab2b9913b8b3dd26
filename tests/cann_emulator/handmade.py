"""Offline models without the compiler: every node a kernel of its own, or in the groups that a test names."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, shape_inference

from workbench.cann_emulator.om import Dtype, Gear, Kernel, OfflineModel, Tensor
from workbench.graph.read import constants
from workbench.testing.encoder import model_of

_NAMES: Mapping[int, Dtype] = {
    TensorProto.FLOAT: "float32",
    TensorProto.FLOAT16: "float16",
    TensorProto.INT8: "int8",
    TensorProto.INT32: "int32",
    TensorProto.INT64: "int64",
    TensorProto.UINT64: "uint64",
    TensorProto.BOOL: "bool",
}


def offline_model(
    proto: onnx.ModelProto,
    *,
    dtype: Dtype = "float16",
    groups: Sequence[Sequence[str]] = (),
    output_dtype: Dtype = "float32",
    truncate_deq_scale: bool = False,
    options: Mapping[str, str] | None = None,
) -> OfflineModel:
    """Every float tensor that crosses kernels is in `dtype`."""
    known = constants(proto)
    group_of = {name: tuple(group) for group in groups for name in group}
    nodes = {node.name: node for node in proto.graph.node if node.output[0] not in known}
    integers: set[str] = set()
    for node in nodes.values():
        if node.op_type == "AscendQuant" or (
            any(i in integers for i in node.input) and node.op_type != "AscendDequant"
        ):
            integers.update(node.output)
    types = _types(proto)
    wanted: dict[str, set[str]] = {}
    for node in nodes.values():
        for name in node.input:
            wanted.setdefault(name, set()).add(node.name)
    outputs = {value.name for value in proto.graph.output}

    def stored(name: str) -> Dtype:
        if name in known and known[name].data_type not in (TensorProto.FLOAT, TensorProto.FLOAT16):
            return _NAMES.get(known[name].data_type, "int64")
        if name in integers:
            return "int8"
        found = types.get(name, "float32")
        return dtype if found in ("float32", "float16") else found

    kernels, done = [], set()
    for name in nodes:
        if name in done:
            continue
        group = group_of.get(name, (name,))
        done.update(group)
        inside = [nodes[member] for member in group]
        produced = {output for node in inside for output in node.output}
        reads = dict.fromkeys(i for node in inside for i in node.input if i and i not in produced)
        writes = [o for o in produced if o in outputs or wanted.get(o, set()) - set(group)]
        kernels.append(
            Kernel(
                name=name,
                op_type=inside[-1].op_type,
                core="vector",
                nodes=tuple(group),
                dtype=dtype,
                inputs=tuple(Tensor(name=i, dtype=stored(i), shape=()) for i in reads),
                outputs=tuple(Tensor(name=o, dtype=stored(o), shape=()) for o in writes),
            )
        )
    makers = ((node.name, index, name) for node in proto.graph.node for index, name in enumerate(node.output))
    names = {name: f"{node}:{index}:{name}" for node, index, name in makers}
    return OfflineModel(
        emulator="test",
        soc_version="Ascend910B3",
        atc_version="8.5.0",
        precision_mode="force_fp16",
        command_line="",
        options=options or {},
        name="model",
        inputs=tuple(
            Tensor(name=v.name, dtype=types[v.name], shape=_dims(v)) for v in proto.graph.input if v.name not in known
        ),
        outputs=tuple(Tensor(name=v.name, dtype=output_dtype, shape=_dims(v)) for v in proto.graph.output),
        gear_kind="",
        gears=(Gear(dims=(), outputs=(), kernels=tuple(kernels)),),
        graph_fusions={},
        ub_fusions={},
        work_bytes=0,
        weight_bytes=0,
        truncate_deq_scale=truncate_deq_scale,
        output_names=tuple(names.get(v.name, f"{v.name}:0:{v.name}") for v in proto.graph.output),
        graph=proto.SerializeToString(),
    )


def _dims(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    return tuple(d.dim_value if d.HasField("dim_value") else -1 for d in value.type.tensor_type.shape.dim)


def _types(proto: onnx.ModelProto) -> dict[str, Dtype]:
    plain = onnx.ModelProto()
    plain.CopyFrom(proto)
    for node in plain.graph.node:
        if node.op_type.startswith("Ascend"):
            del node.input[1:], node.attribute[:]
            node.op_type = "Identity"
    for tensor in plain.graph.initializer:
        if tensor.data_type in (TensorProto.INT8, TensorProto.INT32):
            values = onnx.numpy_helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    inferred = shape_inference.infer_shapes(plain).graph
    return {
        v.name: _NAMES.get(v.type.tensor_type.elem_type, "float32")
        for v in (*inferred.value_info, *inferred.input, *inferred.output)
    }


def mlp(*sizes: int, batch: int = 4, seed: int = 0, spread: float = 1.0) -> onnx.ModelProto:
    """`x` float32 [batch, sizes[0]] → `y`: linear layers with Relu between; nodes matmul{i}, add{i}, relu{i}."""
    random = np.random.default_rng(seed)
    nodes, weights, x = [], {}, "x"
    for index, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        last = index == len(sizes) - 2
        weights[f"w{index}"] = (random.standard_normal((inputs, outputs)) * spread).astype(np.float32)
        weights[f"b{index}"] = random.standard_normal(outputs).astype(np.float32)
        nodes.append(helper.make_node("MatMul", [x, f"w{index}"], [f"p{index}"], name=f"matmul{index}"))
        target = "y" if last else f"s{index}"
        nodes.append(helper.make_node("Add", [f"p{index}", f"b{index}"], [target], name=f"add{index}"))
        if not last:
            nodes.append(helper.make_node("Relu", [f"s{index}"], [f"r{index}"], name=f"relu{index}"))
            x = f"r{index}"
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [batch, sizes[i]]) for n, i in (("x", 0), ("y", -1))]
    return model_of(nodes, weights, ends[:1], ends[1:], 16)
