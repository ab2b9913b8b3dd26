"""What a model is about, text, image, signal or anything else: it decides what its space offers, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, get_args

import numpy as np
import onnx

from workbench.graph.read import constants, embedding_rows
from workbench.values.errors import ConfigError, nearest
from workbench.values.model import Model, TensorSpec

Kind = Literal["text", "image", "signal", "generic"]

_SIGNAL_NAME = re.compile(r"audio|wav|mel|speech|pcm|signal|fbank|spec(?:trogram)?$|noise|frames", re.IGNORECASE)
_TRANSFORMS = ("STFT", "DFT", "MelWeightMatrix")
_FEWEST_IDS = 3
"""Rows of a table of tokens: the table of segments has two."""


def kind_of(model: Model, proto: onnx.ModelProto, *, texts: bool) -> tuple[Kind, str]:
    """(kind, what tells it), by inputs, operators and weights.

    Args:
        texts: the data are texts.
    """
    if texts:
        return "text", "the data are texts"
    flat = _flat_convolutions(proto)
    named = [s.name for s in (*model.inputs, *model.outputs) if _SIGNAL_NAME.search(s.name)]
    ids = [name for name, rows in embedding_rows(proto).items() if rows >= _FEWEST_IDS]
    operators = {node.op_type for node in _nodes(proto.graph)}
    if transforms := [name for name in _TRANSFORMS if name in operators]:
        return "signal", f"it computes {transforms[0]}"
    if flat and (named or not ids):
        return "signal", f"{flat} convolutions along one axis" + (f", and a tensor named {named[0]!r}" if named else "")
    if ids:
        return "text", f"its input {ids[0]!r} holds ids of a table of {embedding_rows(proto)[ids[0]]} rows"
    pictures = [spec for spec in model.inputs if len(spec.shape) == 4 and _number(spec)]
    if pictures and "Conv" in operators:
        return "image", f"its input {pictures[0].name!r} has four axes and is convolved along two"
    if named:
        return "signal", f"a tensor named {named[0]!r}"
    return "generic", "neither ids of a table, nor an image, nor convolutions along one axis"


def chosen_kind(written: str | None, found: tuple[Kind, str]) -> tuple[Kind, str]:
    """The user's word where there is one.

    Raises:
        ConfigError: no such kind.
    """
    if written is None:
        return found
    for kind in get_args(Kind):
        if written == kind:
            return kind, "as --kind says"
    raise ConfigError(f"{written!r} is no kind of model.", key="--kind", hint=nearest(written, get_args(Kind)))


def _flat_convolutions(proto: onnx.ModelProto) -> int:
    known = constants(proto)
    return sum(
        node.op_type in ("Conv", "ConvTranspose") and len(node.input) > 1 and len(known[node.input[1]].dims) == 3
        for node in proto.graph.node
        if len(node.input) > 1 and node.input[1] in known
    )


def _number(spec: TensorSpec) -> bool:
    return np.dtype(spec.dtype).kind in "fu"


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(inner)
