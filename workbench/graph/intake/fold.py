"""Inputs that are the same for all samples become initializers; what depends on constants alone is computed, and an
`If` whose condition is known becomes the branch it takes.

Known are initializers, `Constant` and the inputs that were built in, and what the inferred shapes say of `Shape`. Only
what follows from the inputs built in, or decides an `If`, is computed: everything else stays as its exporter wrote it.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from workbench.graph.intake.random_operators import RANDOM
from workbench.graph.nodes import (
    DEFAULT_DOMAINS,
    Names,
    all_graphs,
    bodies,
    constant_tensor,
    copied,
    drop_unused,
    rename_tensors,
    replace_nodes,
)
from workbench.graph.read import constants, infer_shapes
from workbench.values.errors import ConfigError, nearest
from workbench.values.interface import InputUse, Interface
from workbench.values.model import Model, TensorSpec, axes_text

Array = npt.NDArray[Any]


def constants_of(written: Iterable[str], source: Model) -> tuple[InputUse, ...]:
    """`NAME=VALUE` of a command line, VALUE a number or nested lists of them."""
    names = [spec.name for spec in source.inputs]
    uses: dict[str, InputUse] = {}
    for text in written:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"{text!r} is not NAME=VALUE.", key="--constant", hint="Write --constant sr=16000.")
        if name not in names:
            raise ConfigError(f"the model has no input {name!r}.", key="--constant", hint=nearest(name, names))
        if name in uses:
            raise ConfigError(f"{name!r} is given twice.", key="--constant")
        uses[name] = InputUse(name=name, constant=numbers_of(name, value))
    return tuple(uses.values())


def numbers_of(name: str, text: str) -> Any:
    """The value of `--constant NAME=TEXT`: a finite number or nested lists of them."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    flat: list[Any] = [value]
    while any(isinstance(item, list) for item in flat):
        flat = list(itertools.chain.from_iterable(item if isinstance(item, list) else [item] for item in flat))
    if not flat or not all(isinstance(item, bool | int | float) and math.isfinite(item) for item in flat):
        hint = f"Write --constant {name}=16000, or --constant '{name}=[0.667, 1.0, 0.8]'."
        raise ConfigError(f"{text!r} is no number and no list of numbers.", key=f"--constant {name}", hint=hint)
    return value


def constant_values(specs: tuple[TensorSpec, ...], interface: Interface) -> dict[str, Array]:
    """Declared constants by input, in the input's type and shape."""
    by_name = {spec.name: spec for spec in specs}
    found = {}
    for use in interface.inputs:
        if use.constant is not None and use.name in by_name:
            found[use.name] = _fitting(use.constant, by_name[use.name])
    return found


def _fitting(written: Any, spec: TensorSpec) -> Array:
    key = f"inputs.{spec.name}.constant"
    shape = axes_text(spec.shape)
    try:
        given = np.asarray(written)
    except ValueError as error:
        raise ConfigError(f"its rows differ in length, the input has the shape {shape}.", key=key) from error
    if given.dtype.kind not in "biuf":
        raise ConfigError(f"{written!r} is no number, nor nested lists of numbers.", key=key)
    with np.errstate(over="ignore", invalid="ignore"):
        values = given.astype(spec.dtype)
    exact = values.dtype.kind == "f" or np.array_equal(values, given)
    if not exact or (values.dtype.kind == "f" and np.isfinite(given).all() and not np.isfinite(values).all()):
        raise ConfigError(f"{written!r} cannot be held by {spec.dtype}, the input's type.", key=key)
    if values.ndim == 1 and values.size == 1 and not spec.shape:
        values = values.reshape(())
    if values.ndim == 0 and all(d == 1 or not isinstance(d, int) for d in spec.shape):
        values = values.reshape((1,) * len(spec.shape))
    fits = len(spec.shape) == values.ndim and all(
        not isinstance(d, int) or d == n for d, n in zip(spec.shape, values.shape, strict=True)
    )
    if not fits:
        raise ConfigError(
            f"its shape is {list(values.shape)}, the model's input has {shape}.",
            key=key,
            hint="Write the numbers nested as the input's shape is.",
        )
    return values


def build_in(proto: ModelProto, values: dict[str, Array]) -> ModelProto:
    """A copy in which these inputs are initializers."""
    model = copied(proto)
    kept = [value for value in model.graph.input if value.name not in values]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in values.items())
    return model


def hoisted(proto: ModelProto) -> ModelProto:
    """A copy in which the top graph's `Constant` tensors are initializers of the same names."""
    model = copied(proto)
    kept = []
    for node in model.graph.node:
        tensor = constant_tensor(node)
        if tensor is None:
            kept.append(node)
            continue
        stored = model.graph.initializer.add()
        stored.CopyFrom(tensor)
        stored.name = node.output[0]
    replace_nodes(model.graph, kept)
    return model


_MOST_ROUNDS = 64
_MOST_ELEMENTS = 1 << 22
"""Of a value that is computed beforehand: more would make the file larger than what it saves."""


def folded(proto: ModelProto, built_in: Iterable[str], *, by_shape: bool = True) -> tuple[ModelProto, tuple[str, ...]]:
    """(a copy with everything folded that `built_in` or the shapes decide, names of the `If` nodes inlined).

    The very same object where there is nothing to do.
    """
    seeds = set(built_in)
    inlined: list[str] = []
    model = proto
    for _ in range(_MOST_ROUNDS):
        draft = copied(model)
        for graph in all_graphs(draft.graph):  # exporters write what they traced, which need not hold elsewhere
            del graph.value_info[:]
        if by_shape:
            infer_shapes(draft)
        values, following = _computed(draft, seeds)
        chosen = [node for node in draft.graph.node if _is_if(node) and node.input[0] in values]
        made = {name for node in draft.graph.node for name in node.output}
        if not chosen and not following & values.keys() & made:
            break
        _store(draft.graph, values if chosen else {name: values[name] for name in following & values.keys()})
        seeds |= following & values.keys()
        for node in chosen:
            inlined.append(node.name or node.output[0])
            _inline(draft.graph, node, bool(values[node.input[0]].reshape(-1)[0]))
        drop_unused(draft.graph)
        del draft.graph.value_info[:]
        model = draft
    return model, tuple(inlined)


def _is_if(node: NodeProto) -> bool:
    return node.op_type == "If" and node.domain in DEFAULT_DOMAINS


# --- what is known -------------------------------------------------------------------------------------------------


def _computed(model: ModelProto, seeds: set[str]) -> tuple[dict[str, Array], set[str]]:
    """Values known before anything is fed, of what follows from `seeds` or decides an `If`; names of the former."""
    graph = model.graph
    shapes, deciding, following = _shapes(graph), _deciding(graph), set(seeds)
    sizes: dict[str, list[int | None]] = {}
    stored = {n: t for n, t in constants(model).items() if math.prod(t.dims) <= _MOST_ELEMENTS and t.data_location == 0}
    known = {name: numpy_helper.to_array(t) for name, t in stored.items() if name in seeds | deciding}
    for node in graph.node:
        reads, made = set(filter(None, node.input)), list(filter(None, node.output))
        if node.domain not in DEFAULT_DOMAINS or node.op_type in RANDOM or not node.output[0] or any(bodies(node)):
            continue
        if node.op_type == "Shape" and not node.attribute and node.input[0] in shapes:
            sizes[made[0]] = shapes[node.input[0]]
        if deciding.intersection(made) and (value := _by_shape(node, sizes, stored)) is not None:
            known[made[0]] = value
        elif reads and reads <= stored.keys() | known.keys() and (following & reads or deciding.intersection(made)):
            held = {name: numpy_helper.to_array(stored[name]) if name in stored else known[name] for name in reads}
            known |= _run(model, node, held)
            following.update(made if following & reads else ())
    return known, following


def _deciding(graph: GraphProto) -> set[str]:
    """Tensors that the condition of an `If` of the top graph is computed from."""
    found = {node.input[0] for node in graph.node if _is_if(node)}
    for node in reversed(graph.node):
        if found.intersection(node.output):
            found |= set(filter(None, node.input))
    return found


def _run(model: ModelProto, node: NodeProto, held: Mapping[str, Array]) -> dict[str, Array]:
    """What a node gives, computed by ONNX Runtime."""
    made = [name for name in node.output if name]
    small = ModelProto(ir_version=model.ir_version)
    small.opset_import.extend(model.opset_import)
    small.graph.name = "folded"
    small.graph.node.append(node)
    small.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in held.items())
    small.graph.output.extend(ValueInfoProto(name=name) for name in made)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(small.SerializeToString(), options, providers=["CPUExecutionProvider"])
    values = session.run(made, {})
    return {name: np.asarray(value) for name, value in zip(made, values, strict=True) if value.size <= _MOST_ELEMENTS}


def _by_shape(
    node: NodeProto, sizes: Mapping[str, list[int | None]], stored: Mapping[str, TensorProto]
) -> Array | None:
    """The value of `Shape`, or of `Gather` and `Size` on it, where the inferred shape tells."""
    shape = sizes.get(node.output[0] if node.op_type == "Shape" else node.input[0] if node.input else "")
    if shape is None:
        return None
    if node.op_type == "Size":
        return np.asarray(len(shape), np.int64)
    picked: Array = np.arange(len(shape))
    if node.op_type == "Gather" and node.input[1] in stored:
        picked = np.asarray(numpy_helper.to_array(stored[node.input[1]]))
    elif node.op_type != "Shape":
        return None
    if not all(-len(shape) <= i < len(shape) and shape[i] is not None for i in picked.reshape(-1).tolist()):
        return None
    return np.asarray([shape[i] for i in picked.reshape(-1).tolist()], np.int64).reshape(picked.shape)


def _shapes(graph: GraphProto) -> dict[str, list[int | None]]:
    kinds = {value.name: value.type.tensor_type for value in (*graph.input, *graph.value_info)}
    found = {
        name: [dim.dim_value if dim.dim_value > 0 else None for dim in kind.shape.dim]
        for name, kind in kinds.items()
        if kind.HasField("shape")
    }
    return {**found, **{tensor.name: list(tensor.dims) for tensor in graph.initializer}}


# --- changing the graph --------------------------------------------------------------------------------------------


def _store(graph: GraphProto, values: Mapping[str, Array]) -> None:
    """Put values in place of the nodes that computed them."""
    kept = [node for node in graph.node if not values.keys() >= {*filter(None, node.output)} > set()]
    computed = {name for node in graph.node for name in node.output} & values.keys()
    stored = sorted(computed - {name for node in kept for name in node.output})
    graph.initializer.extend(numpy_helper.from_array(np.asarray(values[name], order="C"), name) for name in stored)
    replace_nodes(graph, kept)


def _inline(graph: GraphProto, node: NodeProto, taken: bool) -> None:
    """Put the nodes of one branch in place of an `If`, under names that nothing else uses."""
    place = next(i for i, other in enumerate(graph.node) if other.output == node.output and _is_if(other))
    branch = GraphProto()
    branch.CopyFrom(dict(bodies(graph.node[place]))["then_branch" if taken else "else_branch"])
    outputs = list(graph.node[place].output)
    nodes = list(graph.node)
    replace_nodes(graph, (*nodes[:place], *nodes[place + 1 :]))
    names = Names(graph)
    for name in outputs:
        names.fresh(name)
    defined = {tensor.name for tensor in branch.initializer}
    for one in all_graphs(branch):
        defined.update(name for inner in one.node for name in inner.output if name)
        defined.update(tensor.name for tensor in one.initializer)
        defined.update(value.name for value in one.input)
    new = {name: names.fresh(name) for name in sorted(defined)}
    rename_tensors(branch.node, new)
    for tensor in branch.initializer:
        tensor.name = new[tensor.name]
        graph.initializer.append(tensor)
    for inner in branch.node:
        inner.name = names.fresh(inner.name) if inner.name else ""
    for value, name in zip(branch.output, outputs, strict=True):
        if name:
            source = new.get(value.name, value.name)
            branch.node.append(helper.make_node("Identity", [source], [name], name=names.fresh(f"{name}_taken")))
    nodes = list(graph.node)
    replace_nodes(graph, (*nodes[:place], *branch.node, *nodes[place:]))
