"""What must hold of an ONNX file before any library looks into it.

    proto = parse_model(payload, file)        # ConfigError: not ONNX, or beyond a bound
    check_model(proto, file)                  # ConfigError names node or tensor, and the rule

ONNX's own checker needs more and finds less: it takes minutes for functions that double each other, and lets shapes
pass that nobody's memory holds. Everything here is linear in the file. What a graph computes is not looked at: that
is seen in a process with limits (`door`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # protobuf ships no stubs
from onnx import AttributeProto, defs

from workbench.graph.nodes import bodies, called
from workbench.graph.tensors import check_sparse, check_tensor, check_value
from workbench.values.errors import ConfigError

MOST_BYTES = (1 << 31) - 1
"""Protobuf reads no more; a larger model keeps its weights beside it, as external data."""
MOST_NODES = 200_000
MOST_GRAPHS = 2_000
"""Bodies of If, Loop and Scan. ONNX Runtime looks at a body once for every body around it."""
DEEPEST_GRAPH = 16
MOST_EXPANDED = 1_000_000
"""Nodes after every function is written out where it is called, as runtimes do."""
_MOST_OPSET = 1000
_SINGLE = defs.OpSchema.FormalParameterOption.Single

Function = tuple[str, str, str]
"""(domain, name, overload)"""


def parse_model(payload: bytes, file: Path) -> onnx.ModelProto:
    """The message a file holds, whatever it says."""
    hint = "It may be truncated or of another format; copy or export it again."
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(payload)
    except DecodeError as error:
        rule = f"this is not a complete ONNX file ({len(payload)} bytes do not parse, or are nested too deep)."
        raise ConfigError(rule, file=file, hint=hint) from error
    # protobuf takes any bytes whose fields happen to close; these are what a real model always has
    if not proto.graph.node or not proto.opset_import:
        raise ConfigError("this is not a complete ONNX file (it has no nodes or no opset).", file=file, hint=hint)
    return proto


def check_model(proto: onnx.ModelProto, file: Path) -> None:
    """Refuse what no sound exporter writes."""
    opsets: dict[str, int] = {}
    for entry in proto.opset_import:
        if not isinstance(entry.domain, str) or not 0 < entry.version <= _MOST_OPSET:
            raise ConfigError(f"opset {entry.version} of domain {entry.domain!r} does not exist.", file=file)
        opsets["" if entry.domain == "ai.onnx" else entry.domain] = entry.version
    keys = [(f.domain, f.name, f.overload) for f in proto.functions]
    if len(set(keys)) != len(keys):
        raise ConfigError("a function is defined twice.", file=file)
    walk = _Walk(file=file, opsets=opsets, functions=frozenset(keys))
    for name in (proto.producer_name, proto.producer_version, proto.domain, proto.graph.name):
        walk.text(name, "the model")
    for value in (*proto.graph.input, *proto.graph.output):
        check_value(value, file, fed=True)
    calls = {}
    for function, key in zip(proto.functions, keys, strict=True):
        calls[key] = walk.function(function)
    _refuse_explosion(walk.graph(proto.graph, frozenset(), 0).calls, calls, file)


# --- the walk --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Body:
    """What the nodes of one graph, or function, need from outside.

    Attributes:
        free: names that are read and not defined inside.
        nodes: how many, bodies within included.
        calls: functions of the model that are called, as often as they are.
    """

    free: frozenset[str]
    nodes: int
    calls: tuple[Function, ...]


@dataclass(slots=True)
class _Walk:
    """One pass over a model; counts what is bounded in all."""

    file: Path
    opsets: Mapping[str, int]
    functions: frozenset[Function]
    nodes: int = 0
    graphs: int = 0

    def graph(self, graph: onnx.GraphProto, outer: frozenset[str], depth: int) -> _Body:
        self.graphs += 1
        if depth > DEEPEST_GRAPH:
            raise self._error(f"graphs are nested deeper than {DEEPEST_GRAPH} (If, Loop or Scan within each other).")
        if self.graphs > MOST_GRAPHS:
            raise self._error(f"more than {MOST_GRAPHS} graphs (bodies of If, Loop and Scan).")
        given: set[str] = set()
        for tensor in graph.initializer:
            self.text(tensor.name, "an initializer")
            check_tensor(tensor, self.file)
            if tensor.name in given:
                raise self._error(f"initializer {tensor.name!r} is defined twice.")
            given.add(tensor.name)
        for sparse in graph.sparse_initializer:
            check_sparse(sparse, self.file)
            given.add(sparse.values.name)
        for value in graph.value_info:
            check_value(value, self.file)
        inputs = [value.name for value in graph.input]
        for name in (*inputs, *(value.name for value in graph.output)):
            self.text(name, "an input or output")
        if len(set(inputs)) != len(inputs):
            raise self._error(f"an input of graph {graph.name!r} is declared twice.")
        given.update(inputs)
        return self._body(graph.node, given, [value.name for value in graph.output], outer, depth, self.opsets)

    def function(self, function: onnx.FunctionProto) -> _Body:
        opsets = {**self.opsets, **{o.domain: o.version for o in function.opset_import}}
        where = f"function {function.name!r}"
        for name in (function.domain, function.name, *function.input, *function.output, *function.attribute):
            self.text(name, where)
        return self._body(function.node, set(function.input), function.output, frozenset(), 0, opsets)

    def _body(
        self,
        nodes: Sequence[onnx.NodeProto],
        given: set[str],
        outputs: Iterable[str],
        outer: frozenset[str],
        depth: int,
        opsets: Mapping[str, int],
    ) -> _Body:
        self.nodes += len(nodes)
        if self.nodes > MOST_NODES:
            raise self._error(f"more than {MOST_NODES} nodes.")
        made: dict[str, int] = {}
        for index, node in enumerate(nodes):
            self._check_node(node, opsets)
            for name in filter(None, node.output):
                if name in made or name in given:
                    raise self._error(f"{name!r} is computed twice, the second time by {called(node)}.")
                made[name] = index
        inside = outer | given | made.keys()
        reads: list[set[str]] = []
        calls: list[Function] = []
        total = len(nodes)
        for node in nodes:
            read = set(filter(None, node.input))
            for _, graph in bodies(node):
                body = self.graph(graph, inside, depth + 1)
                read |= body.free
                total += body.nodes
                calls += body.calls
            key = (node.domain, node.op_type, node.overload)
            if key in self.functions:
                calls.append(key)
            if missing := read - inside:
                raise self._error(f"{called(node)} reads {min(missing)!r}, which nothing computes.")
            reads.append(read)
        for name in outputs:
            if name not in inside:
                raise self._error(f"the output {name!r} is computed by nothing.")
        self._refuse_cycle(nodes, reads, made)
        free = frozenset().union(*reads, outputs) - given - made.keys()
        return _Body(free=free, nodes=total, calls=tuple(calls))

    def _check_node(self, node: onnx.NodeProto, opsets: Mapping[str, int]) -> None:
        for name in (node.name, node.op_type, node.domain, *node.input, *node.output):
            self.text(name, "a node")
        if not node.op_type:
            raise self._error(f"node {node.name!r} has no operator.")
        names = [each.name for each in node.attribute]
        if len(set(names)) != len(names):
            raise self._error(f"{called(node)} has an attribute twice.")
        for each in node.attribute:
            self._check_attribute(node, each)
        if (node.domain, node.op_type, node.overload) in self.functions:
            return
        domain = "" if node.domain == "ai.onnx" else node.domain
        broken = _rules(node.op_type, opsets.get(domain, opsets.get(node.domain, 0)), domain)
        if broken is not None and (wrong := broken(node)) is not None:
            raise self._error(f"{called(node)} {wrong}.")

    def _check_attribute(self, node: onnx.NodeProto, given: AttributeProto) -> None:
        self.text(given.name, "an attribute")
        if given.ref_attr_name:  # of a function: whoever calls it gives the value
            return
        if given.type not in AttributeProto.AttributeType.values() or given.type == AttributeProto.UNDEFINED:
            raise self._error(f"attribute {given.name!r} of {called(node)} is of no known type ({given.type}).")
        for tensor in (*([given.t] if given.type == AttributeProto.TENSOR else []), *given.tensors):
            check_tensor(tensor, self.file)
        sparse = [given.sparse_tensor] if given.type == AttributeProto.SPARSE_TENSOR else []
        for each in (*sparse, *given.sparse_tensors):
            check_sparse(each, self.file)

    def _refuse_cycle(self, nodes: Sequence[onnx.NodeProto], reads: list[set[str]], made: Mapping[str, int]) -> None:
        sources = {index: {made[name] for name in read if name in made} for index, read in enumerate(reads)}
        try:
            TopologicalSorter(sources).prepare()
        except CycleError as error:
            stuck = nodes[min(error.args[1])]
            rule = f"the graph leads back to itself: {called(stuck)} waits for its own output."
            raise self._error(rule) from None

    def text(self, value: object, where: str) -> None:
        """Protobuf hands out bytes where a name is not UTF-8."""
        if not isinstance(value, str):
            raise self._error(f"{where} has a name that is not UTF-8: {value!r}.")

    def _error(self, rule: str) -> ConfigError:
        return ConfigError(rule, file=self.file, hint="The file is damaged or was not written by an exporter.")


# --- operators -------------------------------------------------------------------------------------------------------


def _counted(allowed: range) -> str:
    low, high = allowed.start, allowed.stop - 1
    return f"{low}" if low == high else f"{low} or more" if high > 1000 else f"{low} to {high}"


@functools.lru_cache(maxsize=4096)
def _rules(operator: str, version: int, domain: str) -> Callable[[onnx.NodeProto], str | None] | None:
    """Which of ONNX's rules of an operator a node breaks; None for operators that ONNX does not define at that version:
    theirs to say."""
    try:
        schema = defs.get_schema(operator, version, domain)
    except defs.SchemaError:
        return None
    inputs, outputs = (
        range(schema.min_input, schema.max_input + 1),
        range(schema.min_output, schema.max_output + 1),
    )
    needed = [i for i, port in enumerate(schema.inputs) if port.option == _SINGLE]  # may not be left empty
    kinds = {name: str(each.type).rpartition(".")[2] for name, each in schema.attributes.items()}
    required = {name for name, each in schema.attributes.items() if each.required}

    def broken(node: onnx.NodeProto) -> str | None:
        if len(node.input) not in inputs or any(not node.input[i] for i in needed if i < len(node.input)):
            return f"has {sum(map(bool, node.input))} inputs, not {_counted(inputs)}"
        if len(node.output) not in outputs or not any(node.output):
            return f"has {sum(map(bool, node.output))} outputs, not {_counted(outputs)}"
        for each in node.attribute:
            kind = AttributeProto.AttributeType.Name(each.type)
            if not each.ref_attr_name and kind != (wanted := kinds.get(each.name, kind)):
                return f"has attribute {each.name!r} of type {kind}, not {wanted}"
        if missing := required - {each.name for each in node.attribute}:
            return f"lacks the attribute {min(missing)!r}"
        return None

    return broken


# --- functions -------------------------------------------------------------------------------------------------------


def _refuse_explosion(used: Sequence[Function], defined: Mapping[Function, _Body], file: Path) -> None:
    """No function may lead back to itself, nor grow beyond bounds when each is written out where it is called."""
    try:
        order = list(TopologicalSorter({key: set(body.calls) for key, body in defined.items()}).static_order())
    except CycleError as error:
        rule = f"function {error.args[1][0][1]!r} calls itself, directly or through others."
        raise ConfigError(rule, file=file) from None
    sizes: dict[Function, int] = {}
    for key in order:
        sizes[key] = defined[key].nodes + sum(sizes[each] for each in defined[key].calls)
        if sizes[key] > MOST_EXPANDED:
            rule = f"function {key[1]!r} becomes more than {MOST_EXPANDED} nodes when what it calls is written out."
            raise ConfigError(rule, file=file)
    if sum(sizes[key] for key in used) > MOST_EXPANDED:
        raise ConfigError(f"its functions written out are more than {MOST_EXPANDED} nodes.", file=file)
