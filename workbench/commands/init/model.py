"""Looking at the model: what it is about, what can be INT8, which lengths and batches it takes, what targets say."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx

from workbench.graph.door import open_foreign
from workbench.graph.layers import Layer, quantizable_layers
from workbench.graph.read import constants, load_graph
from workbench.quantization.lowering.normalize import normalized
from workbench.targets import REFERENCE, described
from workbench.targets.description import SpaceStart
from workbench.targets.int8_issues import quantized_already
from workbench.values.errors import CompileError, ConfigError
from workbench.values.model import Model

_FEWEST_POSITIONS = 16  # the segment table, which looks like one of positions, has two rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """What was found out about the model.

    Attributes:
        model: as everything works on it.
        source: the user's file.
        longest: tokens it takes; None where it does not tell.
        fixed_length: of a model that takes no other length.
        largest_sample: numbers of one sample of the largest input, as far as its axes are fixed.
        targets: the names of those that are to execute it.
        starts: what each of them says of a first space for it.
    """

    model: Model
    source: Model
    layers: tuple[Layer, ...]
    longest: int | None
    fixed_length: int | None
    largest_sample: int
    targets: tuple[str, ...]
    starts: tuple[SpaceStart, ...]

    @property
    def target(self) -> str:
        """The one that the float baseline runs on."""
        return self.targets[0]

    @property
    def start(self) -> SpaceStart:
        return self.starts[0]

    @property
    def weights(self) -> list[Layer]:
        """Layers that multiply by a constant."""
        return [layer for layer in self.layers if layer.weight is not None]

    @property
    def products(self) -> int:
        """Of those, matrix products; the others are convolutions."""
        return sum(layer.op_type in ("MatMul", "Gemm") for layer in self.weights)

    @property
    def of_images(self) -> bool:
        """It convolves along two axes, and nothing along one, as signals are."""
        axes = {len(layer.weight_shape) - 2 for layer in self.weights if layer.op_type.startswith("Conv")}
        return 2 in axes and 1 not in axes

    @property
    def attention(self) -> int:
        """Products of two activations."""
        return sum(layer.second is not None for layer in self.layers)

    def each_target(self) -> Iterator[tuple[str, SpaceStart]]:
        return zip(self.targets, self.starts, strict=True)

    def on(self, targets: Sequence[str]) -> Outline:
        """The same model on some of its targets."""
        known = dict(self.each_target())
        return replace(self, targets=tuple(targets), starts=tuple(known[target] for target in targets))


def examine_model(model: Path | Model, *targets: str, source: Model | None = None) -> Outline:
    """Find out layers and limits, and ask the targets what changes the model; they may compile it.

    Args:
        source: the user's file, where the model was prepared from it.
    """
    model = open_foreign(model) if isinstance(model, Path) else model
    targets = targets or (REFERENCE,)
    proto = load_graph(model)
    if already := quantized_already(proto):
        raise ConfigError(
            f"{already[0].problem}: {already[0].operator} {already[0].node!r} quantizes or computes in integers.",
            file=model.path if source is None else source.path,
            hint="Start from the float model that it was made from.",
        )
    shapes = [spec.shape for spec in model.inputs]
    length = shapes[0][1] if len(shapes[0]) == 2 else None
    return Outline(
        model=model,
        source=source or model,
        layers=quantizable_layers(normalized(proto)),
        longest=longest_text(proto),
        fixed_length=length if isinstance(length, int) else None,
        largest_sample=max(math.prod(d for d in shape[1:] if isinstance(d, int)) for shape in shapes),
        targets=targets,
        starts=tuple(_space_start(target, model, source or model) for target in targets),
    )


def _space_start(target: str, model: Model, source: Model) -> SpaceStart:
    try:
        return described(target).space_start(model.path)
    except CompileError as error:
        hint = "Export it without what is named there, or in float32; `workbench inspect` says what other targets take."
        raise ConfigError(str(error), file=source.path, hint=hint) from error


def longest_text(proto: onnx.ModelProto) -> int | None:
    """Tokens that the table of position embeddings holds, None without such a table.

    It is known by being as wide as the token embedding without being indexed by an input of the model. Rounded down
    to a multiple of 16, because RoBERTa and its kin keep two rows of 514 for themselves.
    """
    known = constants(proto)
    repeats = {node.output[0]: node.input[0] for node in proto.graph.node if node.op_type in ("Cast", "Identity")}
    inputs = {value.name for value in proto.graph.input}
    widths, tables = set(), []
    for node in proto.graph.node:
        if node.op_type != "Gather" or node.input[0] not in known:
            continue
        table, index = known[node.input[0]], node.input[1]
        if len(table.dims) != 2 or table.data_type not in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16):
            continue
        while index in repeats:
            index = repeats[index]
        if index in inputs:
            widths.add(table.dims[1])
        elif table.dims[0] >= _FEWEST_POSITIONS:
            tables.append(table)
    return min((int(t.dims[0]) // 16 * 16 for t in tables if t.dims[1] in widths), default=None)
