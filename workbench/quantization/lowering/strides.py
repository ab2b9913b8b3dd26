"""Strides moved up: what a convolution of one pixel skips is not computed before it either.

    Conv ─► Add ─► Relu ─► Conv 1×1, stride 2        ⇒   Conv, stride 2 ─► Add ─► Relu ─► Conv 1×1
             x ──┘                                        x ─► MaxPool 1×1, stride 2 ──┘

Blocks of a residual net end so where the first convolution of the next one strides: three quarters of the last
convolution's positions, and of the addition, are read by nobody. Values do not change.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from onnx import ModelProto, NodeProto, helper

from workbench.graph.nodes import DEFAULT_DOMAINS, Names, attributes_of, copied, names_read, replace_nodes
from workbench.graph.read import constants, feedable

_BY_VALUE = frozenset({
    *("Add", "Mul", "Sub", "Div", "Min", "Max"),
    *("Relu", "LeakyRelu", "Clip", "Sigmoid", "HardSigmoid", "QuantizeLinear", "DequantizeLinear"),
})  # fmt: skip
_WINDOWED = frozenset({"Conv", "MaxPool", "AveragePool"})

_Strides = tuple[int, ...]


def with_strides_moved_up(model: ModelProto, *, everywhere: bool = False) -> ModelProto:
    """The model with the strides of 1×1 convolutions at the windows before them, where nobody else reads between.

    Pure and deterministic; the very same model where there is nothing to move.

    Args:
        everywhere: also where no window is found: then a MaxPool of one pixel strides before the convolution. OpenVINO
            puts one there by itself, between the nodes of a Q/DQ pair, and computes the convolution in float for it
            (2026.4.1).
    """
    moved = _Graph(copied(model))
    return moved.rewritten() if moved.move(everywhere=everywhere) else model


class _Graph:
    def __init__(self, model: ModelProto) -> None:
        self.model, self.nodes = model, list(model.graph.node)
        self.names, self.known = Names(model.graph), constants(model)
        self.outputs = {value.name for value in model.graph.output}
        self.made = {name: node for node in self.nodes for name in node.output}
        self.readers: dict[str, list[NodeProto]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(names_read(node)):
                self.readers.setdefault(name, []).append(node)
        self.ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in feedable(model.graph)}
        self.wanted: dict[str, _Strides] = {}
        self.reached: set[str] = set()  # tensors of which fewer positions are computed
        self.pools: dict[tuple[str, _Strides], NodeProto] = {}

    def move(self, *, everywhere: bool) -> bool:
        """Whether anything changed."""
        for node in reversed(self.nodes):
            for name in node.output:
                strides = {self._asked(reader, name) for reader in self.readers.get(name, [])}
                only = strides.pop() if len(strides) == 1 and name not in self.outputs else None
                if only is not None:
                    self.wanted[name] = only
        reached = self.reached
        for node in self.nodes:  # forwards: what is computed before is known
            for name in node.output:
                strides_of = self.wanted.get(name)
                if strides_of is None or self._rank(name) != len(strides_of) + 2:
                    continue
                inputs = set(self._moving(node))
                same = {one for one in inputs & reached if self.wanted[one] == strides_of}
                if self._strides_more(node) or (node.op_type in _BY_VALUE and same):
                    reached.add(name)
        changed = False
        for node in list(self.nodes):
            if node.output[0] in reached:
                self._skip(node, self.wanted[node.output[0]], reached)
                changed = True
            asked = _strides_of_pixels(node)
            if asked is not None and max(asked) > 1 and (node.input[0] in reached or everywhere):
                if node.input[0] not in reached:
                    node.input[0] = self._pooled(node.input[0], asked)
                _set_strides(node, (1,) * len(asked))
                changed = True
        return changed

    def rewritten(self) -> ModelProto:
        ordered: list[NodeProto] = []
        left = {pool.output[0]: pool for pool in self.pools.values()}
        for node in self.nodes:
            ordered += [left.pop(name) for name in dict.fromkeys(node.input) if name in left]
            ordered.append(node)
        replace_nodes(self.model.graph, ordered)
        shapes = [value for value in self.model.graph.value_info if value.name not in self.reached]
        del self.model.graph.value_info[:]
        self.model.graph.value_info.extend(shapes)
        return self.model

    def _asked(self, reader: NodeProto, name: str) -> _Strides | None:
        """Of which positions of a tensor a reader needs the values."""
        if reader.domain not in DEFAULT_DOMAINS:
            return None
        strides = _strides_of_pixels(reader)
        if strides is not None:
            strides = _times(strides, self.wanted.get(reader.output[0], (1,) * len(strides)))
            return strides if max(strides) > 1 and name not in list(reader.input)[1:] else None
        return self.wanted.get(reader.output[0]) if reader.op_type in _BY_VALUE and self._spreads(reader) else None

    def _spreads(self, node: NodeProto) -> bool:
        """Its constants are one number, or one for each channel: the same at all positions."""
        rank = self._rank(node.output[0])
        constants = [list(self.known[name].dims) for name in node.input if name in self.known]
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            return attributes_of(node).get("axis", 1) == 1 or all(math.prod(dims) == 1 for dims in constants)
        return rank is not None and all(math.prod(dims[-(rank - 2) :]) == 1 for dims in constants)

    def _moving(self, node: NodeProto) -> Iterator[str]:
        return (name for name in node.input if name and name not in self.known)

    def _rank(self, name: str) -> int | None:
        if name not in self.ranks:
            node = self.made.get(name)
            found: int | None = None
            if node is not None and node.op_type in ("Conv", "ConvTranspose"):
                strides = attributes_of(node).get("kernel_shape")
                found = None if strides is None else len(strides) + 2
            elif node is not None and (node.op_type in _BY_VALUE or node.op_type in _WINDOWED):
                ranks = [self._rank(one) for one in self._moving(node)]
                found = None if not ranks or None in ranks else max(rank for rank in ranks if rank is not None)
            self.ranks[name] = -1 if found is None else found
        return None if self.ranks[name] < 0 else self.ranks[name]

    def _strides_more(self, node: NodeProto) -> bool:
        """Whether a window can take larger strides without reading elsewhere."""
        values = attributes_of(node)
        fixed = values.get("auto_pad", b"NOTSET") in (b"NOTSET", b"VALID") and not values.get("ceil_mode", 0)
        return node.op_type in _WINDOWED and node.domain in DEFAULT_DOMAINS and len(node.output) == 1 and fixed

    def _skip(self, node: NodeProto, strides: _Strides, reached: set[str]) -> None:
        if node.op_type in _WINDOWED:
            _set_strides(node, _times(attributes_of(node).get("strides", (1,) * len(strides)), strides))
            return
        for place, name in enumerate(node.input):
            done = name in reached and self.wanted[name] == strides
            if name and name not in self.known and not done and self._rank(name) == len(strides) + 2:
                node.input[place] = self._pooled(name, strides)

    def _pooled(self, name: str, strides: _Strides) -> str:
        key = (name, strides)
        if key not in self.pools:
            result = self.names.fresh(f"{name}_skipped")
            self.pools[key] = helper.make_node(
                "MaxPool", [name], [result], name=result, kernel_shape=[1] * len(strides), strides=list(strides)
            )
        return str(self.pools[key].output[0])


def _strides_of_pixels(node: NodeProto) -> _Strides | None:
    """The strides of a convolution of one pixel; None for every other node."""
    if node.op_type != "Conv" or node.domain not in DEFAULT_DOMAINS:
        return None
    values = attributes_of(node)
    kernel = values.get("kernel_shape", ())
    pixel = bool(kernel) and set(kernel) == {1}
    unpadded = not any(values.get("pads", ())) and values.get("auto_pad", b"NOTSET") == b"NOTSET"
    return tuple(values.get("strides", (1,) * len(kernel))) if pixel and unpadded else None


def _times(some: Sequence[int], others: Sequence[int]) -> _Strides:
    return tuple(one * other for one, other in zip(some, others, strict=True))


def _set_strides(node: NodeProto, strides: _Strides) -> None:
    kept = [one for one in node.attribute if one.name != "strides"]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute("strides", list(strides))])
