"""Reading ONNX: a file's identity, its graph with every node named, and what can be asked of any graph.

Only the top-level graph is looked at; nodes inside `If` and `Loop` bodies stay as they are.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections import Counter
from pathlib import Path
from typing import IO

import onnx
from onnx import TensorProto, helper, shape_inference

from workbench.graph import apart
from workbench.graph.apart import external_file, is_large, parse_apart, refer_to_file, refers_apart, take_in
from workbench.graph.bounds import MOST_BYTES, check_model, parse_model
from workbench.graph.nodes import DEFAULT_DOMAINS, all_graphs, attributes_of, constant_tensor, opset_of
from workbench.graph.tensors import external_place, raw_bytes
from workbench.values.documents.input_files import open_file, read_bytes
from workbench.values.errors import ConfigError
from workbench.values.model import Model, TensorSpec

_LARGE_TENSOR = 4096  # elements; shape inference needs the values of small constants only
_KEEPS_VALUES = {"Cast", "Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}


def read_model(path: Path) -> Model:
    """Identify an ONNX file: digest, size, inputs and outputs.

    The digest of a self-contained file is the sha256 of its bytes; external data files join it in name order.

    Raises:
        ConfigError: the file is missing, does not parse, is truncated, has no inputs or outputs, or its external
            data is missing, too short or outside its folder (the message names that file).
    """
    proto, hasher, size_bytes = _opened(path)
    check_model(proto, path)
    external = _external_files(path, proto)
    if not opset_of(proto):
        raise ConfigError("the model does not import the default ONNX operator set.", file=path)
    inputs = tuple(_spec(path, value) for value in feedable(proto.graph))
    outputs = tuple(_spec(path, value) for value in proto.graph.output)
    if not inputs:
        raise ConfigError("the model has no inputs.", file=path, hint="Export it with at least one input.")
    if not outputs:
        raise ConfigError("the model has no outputs.", file=path, hint="The file is damaged; export it again.")
    for kind, specs in (("input", inputs), ("output", outputs)):
        if twice := [name for name, count in Counter(spec.name for spec in specs).items() if count > 1]:
            raise ConfigError(
                f"the {kind} {twice[0]!r} is declared more than once, so that its name does not tell which is meant.",
                file=path,
                hint=f"Export the model with each {kind} once, or under names of their own.",
            )
    return Model(
        path=path,
        sha256=_model_digest(hasher, external),
        size_bytes=size_bytes + sum(file.stat().st_size for file in external),
        opset=opset_of(proto),
        inputs=inputs,
        outputs=outputs,
        external_files=external,
    )


def load_graph(model: Model) -> onnx.ModelProto:
    """The model in memory: external data loaded, every node named, shapes inferred as far as they can be.

    Of a large model (`apart.FROM_BYTES`) the large weights stay in their files: `apart.array_of` gives their values.

    Unnamed nodes are called `{op_type}_{index}`, with the position in the node list as index; a name that is taken
    gets a numeric suffix. This is AMCT's rule (amct.md §1.2, §4.10), so that records keyed by node name fit both.

    Raises:
        ConfigError: the file has changed since `read_model`, or cannot be read any more.
    """
    proto = stored_graph(model)
    _name_nodes(proto.graph)
    infer_shapes(proto)
    return proto


def stored_graph(model: Model) -> onnx.ModelProto:
    """The model as `load_graph` gives it, without names and shapes that its file does not have."""
    large = is_large(model.size_bytes)
    proto, hasher, _ = _opened(model.path, large=large)
    if _model_digest(hasher, model.external_files) != model.sha256:
        raise ConfigError(
            f"the file has changed since it was read (it was {model.sha256[:12]}).",
            file=model.path,
            hint="Start again, so that every result belongs to one model.",
        )
    if model.external_files:
        _take_in(proto, model.path, large)
    return proto


def graph_of(path: Path) -> onnx.ModelProto:
    """The graph of a file that a tool of ours has just written, as `stored_graph` gives one; nothing is checked.

    Raises:
        ConfigError: it is not ONNX, or data that it refers to are missing.
    """
    proto, _, size_bytes = _opened(path)
    _take_in(proto, path, is_large(size_bytes + sum(raw_bytes(tensor) for tensor in _external_tensors(proto))))
    return proto


def constants(proto: onnx.ModelProto) -> dict[str, TensorProto]:
    """Every constant of the graph by tensor name: initializers, `Constant` outputs, and `Identity` of either."""
    found = {tensor.name: tensor for tensor in proto.graph.initializer}
    for node in proto.graph.node:
        if (tensor := constant_tensor(node)) is not None:
            found[node.output[0]] = tensor
        elif node.op_type == "Identity" and node.input[0] in found:
            found[node.output[0]] = found[node.input[0]]
    return found


def embedding_rows(proto: onnx.ModelProto) -> dict[str, int]:
    """Integer graph input → rows of the smallest embedding table it indexes.

    A token id must be below this number; inputs that index no constant table are absent.
    """
    known = constants(proto)
    reaches: dict[str, str] = {}
    for value in feedable(proto.graph):
        if value.type.tensor_type.elem_type in (TensorProto.INT64, TensorProto.INT32):
            reaches[value.name] = value.name
    rows: dict[str, int] = {}
    for node in proto.graph.node:
        if node.op_type in _KEEPS_VALUES and node.input[0] in reaches:
            reaches[node.output[0]] = reaches[node.input[0]]
        if node.op_type == "Gather" and node.input[1] in reaches and node.input[0] in known:
            table = known[node.input[0]]
            source = reaches[node.input[1]]
            if len(table.dims) == 2 and attributes_of(node).get("axis", 0) == 0:
                rows[source] = min(rows.get(source, table.dims[0]), table.dims[0])
    return rows


def operator_counts(proto: onnx.ModelProto) -> dict[str, int]:
    """Operator → nodes in the top-level graph, by name; operators of other domains as `domain.Operator`."""
    counts = Counter(
        node.op_type if node.domain in DEFAULT_DOMAINS else f"{node.domain}.{node.op_type}" for node in proto.graph.node
    )
    return dict(sorted(counts.items()))


def feedable(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """Graph inputs a caller must give: an initializer listed among the inputs is only a default."""
    initializers = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in initializers]


# --- files ---------------------------------------------------------------------------------------------------------


def _opened(path: Path, *, large: bool = False) -> tuple[onnx.ModelProto, hashlib._Hash, int]:
    """(the model, the digest of its bytes so far, how many they are); of a large file without its weights."""
    with open_file(path, limit_bytes=MOST_BYTES) as stream:
        size_bytes = os.fstat(stream.fileno()).st_size
        if (large or is_large(size_bytes)) and (found := parse_apart(path, stream)) is not None:
            return found, digest_of(stream), size_bytes
    payload = read_bytes(path, limit_bytes=MOST_BYTES)
    return parse_model(payload, path), hashlib.sha256(payload), len(payload)


def _take_in(proto: onnx.ModelProto, path: Path, large: bool) -> None:
    """Load external data; of a large model the small tensors, and the large ones as references to their place."""
    try:
        for tensor in proto.graph.initializer if large else ():
            if tensor.data_location == TensorProto.EXTERNAL and raw_bytes(tensor) >= apart.LARGE_BYTES:
                refer_to_file(tensor, path)
        for tensor in _external_tensors(proto):
            if not refers_apart(tensor):
                take_in(tensor, path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"its external data cannot be read: {error}.", file=path) from error


def _external_files(path: Path, proto: onnx.ModelProto) -> tuple[Path, ...]:
    folder = path.parent.resolve()
    needed: dict[Path, tuple[int, str]] = {}
    own = str(path.resolve())
    for tensor in _external_tensors(proto):
        if external_place(tensor, path).location == own:
            continue  # in the file itself: read apart
        file, place = external_file(tensor, path)
        end = place.offset + (place.length or raw_bytes(tensor))
        needed[file] = max(needed.get(file, (0, "")), (end, tensor.name))
    for file, (end, name) in sorted(needed.items()):
        if not file.is_file():
            raise ConfigError(
                f"external data file {file.name} of tensor {name!r} is missing.",
                file=path,
                hint=f"Copy it to {file}.",
            )
        if file.stat().st_size < end:
            raise ConfigError(
                f"external data file {file.name} has {file.stat().st_size} bytes, tensor {name!r} needs {end}.",
                file=path,
                hint="It is truncated; copy it again.",
            )
    return tuple(sorted(needed, key=lambda file: file.relative_to(folder).as_posix()))


def _external_tensors(proto: onnx.ModelProto) -> list[TensorProto]:
    """Wherever they stand: bodies of If and Loop and the model's functions may hold them too."""
    graphs = [graph for part in (proto.graph, *proto.functions) for graph in all_graphs(part)]
    tensors = [tensor for graph in graphs for tensor in getattr(graph, "initializer", ())]
    given = [attribute for graph in graphs for node in graph.node for attribute in node.attribute]
    tensors += [tensor for attribute in given for tensor in (attribute.t, *attribute.tensors)]
    return [tensor for tensor in tensors if tensor.data_location == TensorProto.EXTERNAL]


def _model_digest(hasher: hashlib._Hash, external: tuple[Path, ...]) -> str:
    for file in external:
        hasher.update(file.name.encode())
        with file.open("rb") as stream:
            hasher.update(digest_of(stream).digest())
    return hasher.hexdigest()


_KNOWN_FROM_BYTES = 16 << 20
"""Smaller files are read every time."""
_SETTLED_NS = 2_000_000_000
_known: dict[tuple[int, ...], hashlib._Hash] = {}


def digest_of(stream: IO[bytes]) -> hashlib._Hash:
    """A sha256 that has seen the whole file, and may be fed more: of a large one computed once in a process.

    Every reader of a model compares its digest, and two gigabytes take some seconds. What a file is, is told by its
    inode, size and times: the kernel itself sets the time of change on every write. A file that was written a moment
    ago is read again, since a second write within one tick of the clock would not be seen.
    """

    def state() -> tuple[int, ...]:
        found = os.fstat(stream.fileno())
        return found.st_size, found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns

    began, before = time.time_ns(), state()
    if (known := _known.get(before)) is not None:
        return known.copy()
    stream.seek(0)
    hasher = hashlib.file_digest(stream, "sha256")  # type: ignore[arg-type]  # typeshed asks for more than it uses
    size, *_, modified, changed = before
    if size >= _KNOWN_FROM_BYTES and max(modified, changed) + _SETTLED_NS < began and state() == before:
        _known[before] = hasher.copy()
    return hasher


def _spec(path: Path, value: onnx.ValueInfoProto) -> TensorSpec:
    kind = value.type.tensor_type
    if not value.type.HasField("tensor_type") or kind.elem_type == TensorProto.UNDEFINED:
        raise ConfigError(
            f"{value.name!r} is not a tensor of a known type.",
            file=path,
            hint="Sequences, maps and optional values are not supported as model inputs or outputs.",
        )
    return TensorSpec(
        name=value.name,
        dtype=helper.tensor_dtype_to_np_dtype(kind.elem_type).name,
        shape=tuple(_dimension(d) for d in kind.shape.dim),
    )


def _dimension(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    if dim.HasField("dim_value"):
        return int(dim.dim_value) if dim.dim_value > 0 else None  # some exporters write -1 or 0 for what is free
    return str(dim.dim_param) or None


# --- graph ---------------------------------------------------------------------------------------------------------


def _name_nodes(graph: onnx.GraphProto) -> None:
    taken = {node.name for node in graph.node}
    seen: set[str] = set()
    following: dict[str, int] = {}
    for index, node in enumerate(graph.node):
        name = wanted = node.name or f"{node.op_type}_{index}"
        # a made-up or repeated name must not push aside one that a later node carries by right
        while name in seen or (name != node.name and name in taken):
            following[wanted] = following.get(wanted, 0) + 1
            name = f"{wanted}_{following[wanted]}"
        node.name = name
        seen.add(name)


def infer_shapes(proto: onnx.ModelProto) -> None:
    """Add inferred `value_info`. Works on a skeleton without weight values: quick, and no 2 GB limit."""
    graph = proto.graph
    skeleton = onnx.ModelProto(ir_version=proto.ir_version)
    skeleton.opset_import.extend(proto.opset_import)
    skeleton.functions.extend(proto.functions)
    skeleton.graph.name = graph.name or "graph"
    skeleton.graph.node.extend(graph.node)
    skeleton.graph.input.extend(graph.input)
    skeleton.graph.output.extend(graph.output)
    skeleton.graph.value_info.extend(graph.value_info)
    for tensor in graph.initializer:
        if math.prod(tensor.dims) <= _LARGE_TENSOR:
            skeleton.graph.initializer.append(tensor)
        else:
            skeleton.graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    try:
        inferred = shape_inference.infer_shapes(skeleton, data_prop=True)
    except shape_inference.InferenceError:
        return  # shapes are a convenience here: the runtime gives its own verdict on a contradictory graph
    del graph.value_info[:]
    graph.value_info.extend(inferred.graph.value_info)
    for declared, found in zip(graph.output, inferred.graph.output, strict=True):
        if not declared.type.tensor_type.HasField("shape"):
            declared.CopyFrom(found)
