"""Files on the way to a prepared model: how they are read, run and written; the weights of large ones stay apart."""

from __future__ import annotations

from pathlib import Path

from onnx import ModelProto

from workbench.graph.apart import is_large, parse_apart, refers_apart, take_in
from workbench.graph.bounds import MOST_BYTES, parse_model
from workbench.graph.intake.graphs import all_graphs
from workbench.graph.intake.trials import Run, runner, runner_apart
from workbench.graph.read import graph_of
from workbench.graph.write import is_apart, link_or_copy, write_linked
from workbench.values.documents.input_files import read_bytes
from workbench.values.model import Model


def light_graph(source: Model) -> ModelProto:
    """The graph to look at, of a large file without its weights."""
    if is_large(source.size_bytes):
        with source.path.open("rb") as stream:
            found = parse_apart(source.path, stream)
        if found is not None:
            return found
    return parse_model(read_bytes(source.path, limit_bytes=MOST_BYTES), source.path)


def graph_to_prepare(source: Model) -> ModelProto:
    """The graph to work on, of a large file with its weights apart."""
    if is_large(source.size_bytes):
        return graph_of(source.path)
    return parse_model(read_bytes(source.path, limit_bytes=MOST_BYTES), source.path)


def runner_of(proto: ModelProto, path: Path) -> Run:
    """A graph that is run without being written; external data that are not apart lie beside `path`."""
    if is_apart(proto):
        return runner_apart(proto)
    take_all_in(proto, path)
    return runner(bytes(proto.SerializeToString()))


def take_all_in(proto: ModelProto, path: Path) -> None:
    """Hold all external data that are not apart in the graph itself."""
    for graph in all_graphs(proto.graph):
        for tensor in graph.initializer:
            if not refers_apart(tensor):
                take_in(tensor, path)


def write_prepared(proto: ModelProto, target: Path, source: Model) -> None:
    """Write the prepared graph; external data of the source are linked beside it, or copied where links do not work."""
    root = source.path.parent.resolve()
    if is_apart(proto):
        write_linked(proto, target, root, source.external_files)
        return
    payload = proto.SerializeToString(deterministic=True)
    for file in source.external_files:
        link_or_copy(file, target.parent / file.relative_to(root))
    target.write_bytes(payload)
