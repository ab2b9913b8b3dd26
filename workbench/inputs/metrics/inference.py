"""What an output means, as far as a model's file and a few of its outputs tell.

Name, shape, type, last operator and what is only handed through come from the file; sums, ranges and lengths from
values, whose shapes count where the file declares others:

    for found in infer_outputs(model, load_graph(model), samples):
        found.use or found.candidates, found.reason

A guess is not made: where two meanings would both fit, the answer is 'cannot know' with both, and somebody is asked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx

from workbench.graph.structure import handed_through
from workbench.inputs.metrics.agreement.judge import Array, Floats, Outputs
from workbench.values.interface import Meaning, OutputUse
from workbench.values.model import Model, TensorSpec, axes_text

_BOXES = re.compile(r"box|bbox|loc(?:ation)?s?$|coord", re.IGNORECASE)
_SCORES = re.compile(r"score|conf|prob|cls|class", re.IGNORECASE)
_NAMED: Mapping[Meaning, re.Pattern[str]] = {
    "logits": re.compile(r"logit", re.IGNORECASE),
    "probabilities": re.compile(r"prob", re.IGNORECASE),
    "embedding": re.compile(r"embed|d_?vector|x_?vector|feature|speaker|pooler", re.IGNORECASE),
    "mask": re.compile(r"mask|seg(?:ment)?", re.IGNORECASE),
    "signal": re.compile(r"audio|wav|speech|pcm|signal", re.IGNORECASE),
}
"""The last word of a name is what it names: 'audio_embeds' are embeddings."""
_NEXT = re.compile(r"(?:_?(?:out|next|new)|n|N|')$")
_PROBABILITY = ("Sigmoid", "HardSigmoid", "Softmax")
_CHOOSING = ("ArgMax", "ArgMin", "TopK")
_SMALL = ("uint8", "int8", "uint16", "int16")
"""Levels of pictures and sounds, more often than ids."""
_TOLERANCE = 1e-2
_LEAST_PIXELS = 8
_DECIDED, _MOSTLY = 0.1, 0.9
"""Pixels of a mask lie so near to 0 or 1, and so many of them do."""
_IMAGENET = (1000, 1001)
PASSED = "depends on no arithmetic in floating point: no candidate can change it"


@dataclass(frozen=True, slots=True, kw_only=True)
class InferredOutput:
    """What one output is taken for.

    Attributes:
        use: None where it cannot be known.
        candidates: meanings that would fit then, the likeliest first; empty where it is known.
        reason: what says so, or what is missing.
    """

    name: str
    use: OutputUse | None
    candidates: tuple[Meaning, ...] = ()
    reason: str = ""


def infer_outputs(
    model: Model,
    proto: onnx.ModelProto,
    samples: Outputs | None = None,
    *,
    state: Sequence[tuple[str, str]] = (),
) -> tuple[InferredOutput, ...]:
    """All outputs of a model, in its order.

    Args:
        samples: the float model's outputs for a few samples, by name, [n, ...]; without them less can be known.
        state: (output, input) pairs that are declared to carry a state.
    """
    values = samples or {}
    carried = {output for output, _ in state}
    passed = handed_through(proto)
    pairs = _detector(model.outputs, values)
    found = []
    for spec in model.outputs:
        if spec.name in pairs:
            found.append(pairs[spec.name])
        elif spec.name in carried:
            found.append(_known(spec, "state", "the manifest carries it to the next step"))
        elif spec.name in passed:
            found.append(_known(spec, "ignored", PASSED))
        else:
            seen = values.get(spec.name)
            if seen is not None and seen.ndim != len(spec.shape):
                spec = replace(spec, shape=(None, *seen.shape[1:]) if seen.ndim else ())
            found.append(_one(spec, model, last_operator(proto, spec.name), seen))
    return tuple(found)


def _known(spec: TensorSpec, meaning: Meaning, reason: str, **options: str | float | int) -> InferredOutput:
    use = OutputUse(name=spec.name, meaning=meaning, options=tuple(sorted(options.items())), reason=reason)
    return InferredOutput(name=spec.name, use=use, reason=reason)


def _unknown(spec: TensorSpec, candidates: tuple[Meaning, ...], reason: str) -> InferredOutput:
    return InferredOutput(name=spec.name, use=None, candidates=candidates, reason=reason)


def _one(spec: TensorSpec, model: Model, operator: str, given: Array | None) -> InferredOutput:
    if (carried := _input_that_it_carries(spec, model)) is not None:
        return _known(spec, "state", f"named and shaped as the input {carried!r}")
    kind = np.dtype(spec.dtype).kind if given is None else given.dtype.kind
    if kind in "iub":
        return _whole_numbers(spec, operator)
    if kind in "OSU":
        return _known(spec, "ignored", "holds texts, not numbers")
    values = None if given is None else given.astype(np.float64)
    rank, named, last = len(spec.shape), _named(spec.name), spec.shape[-1] if spec.shape else None
    if rank >= 4 and all(not isinstance(size, int) or size >= _LEAST_PIXELS for size in spec.shape[-2:]):
        return _map(spec, operator, values)
    seen, shares = values is not None, values is None or _are_shares(values)
    swings = values is None or float(values.min(initial=0)) < 0 < float(values.max(initial=0))  # as waveforms do
    spread = values is not None and _are_distributions(values)
    logarithms = values is not None and _are_distributions(np.exp(np.minimum(values, 1.0)))
    by_name, by_end = "its name says so", f"ends in {operator}"
    known: tuple[tuple[bool, Meaning, str], ...] = (
        (named == "signal" and rank >= 2 and operator not in _PROBABILITY and swings, "signal", by_name),
        (operator in _PROBABILITY and shares, "probabilities", by_end),
        (operator == "LogSoftmax", "logits", by_end),
        (logarithms, "logits", "its exponentials sum to 1"),
        (named == "logits" and last != 1, "logits", by_name),
        (operator == "LpNormalization", "embedding", by_end),
        (values is not None and _are_unit_vectors(values), "embedding", "its vectors have the length 1"),
        (named == "embedding" and rank >= 2, "embedding", by_name),
        (operator == "Tanh" and 2 <= rank <= 3 and not isinstance(last, int), "signal", "ends in Tanh, of any length"),
        (spread, "probabilities", "its vectors are positive and sum to 1"),
        (seen and shares and named == "probabilities", "probabilities", f"{by_name}, and its values lie in 0..1"),
    )
    for fits, meaning, why in known:
        if fits:
            return _known(spec, meaning, why)
    if seen and rank == 2 and shares:
        return _unknown(spec, ("probabilities", "values"), "its values lie in 0..1, and no operator says why")
    if rank < 2 or last == 1:
        what = "a single number" if rank else "of no declared shape,"
        return _unknown(spec, ("values", "logits", "probabilities"), f"{what} behind {operator}")
    if rank == 2 and not isinstance(last, int):
        why = f"of any length {axes_text(spec.shape)} behind {operator}"
        return _unknown(spec, ("signal", "logits", "values"), why)
    if rank == 2 and last in _IMAGENET:
        return _known(spec, "logits", f"a vector of {last} numbers, as many as ImageNet has classes")
    if rank == 2:
        alike = values is not None and len(values) > 1 and len(set(np.argmax(values, axis=-1).tolist())) == 1
        positive = values is not None and float(values.min(initial=1)) > 0
        same = ", all above 0" * positive + ", whose largest is the same one for all samples" * alike
        likeliest: tuple[Meaning, ...] = ("values", "logits") if alike or positive else ("logits", "values")
        why = f"a vector {axes_text(spec.shape)} behind {operator}{same}: scores of classes, or numbers of their own"
        return _unknown(spec, (*likeliest, "embedding", "signal"), why)
    return _unknown(spec, ("logits", "embedding", "values", "signal"), f"{axes_text(spec.shape)} behind {operator}")


def _map(spec: TensorSpec, operator: str, values: Floats | None) -> InferredOutput:
    """Of pixels: a mask where it is called one, or holds shares of classes, or one share that is near 0 or 1."""
    named = _NAMED["mask"].search(spec.name) is not None
    decided = operator in _PROBABILITY and spec.shape[1] == 1 and (values is None or _are_decided(values))
    if not (named or operator == "Softmax" or decided):
        return _unknown(spec, ("values", "mask", "embedding"), f"a map {axes_text(spec.shape)} behind {operator}")
    options: dict[str, float] = {}
    if values is not None and not _are_distributions(np.moveaxis(values, 1, -1)) and _are_distributions(values):
        options["axis"] = values.ndim - 1
    if values is not None and spec.shape[1] == 1 and not _are_shares(values):
        options["threshold"] = 0.0  # the logit of a half
    why = "its name says so" if named else f"ends in {operator}"
    return _known(spec, "mask", f"{why}, one value per pixel {axes_text(spec.shape)}", **options)


def _named(name: str) -> Meaning | None:
    ends = [(match.end(), meaning) for meaning, word in _NAMED.items() for match in word.finditer(name)]
    return max(ends)[1] if ends else None


def _whole_numbers(spec: TensorSpec, operator: str) -> InferredOutput:
    sizes = spec.shape[-2:]
    image = len(spec.shape) >= 3 and all(isinstance(size, int) and size >= _LEAST_PIXELS for size in sizes)
    if image and operator == "ArgMax":
        return _known(spec, "mask", f"ends in ArgMax, a class per pixel {axes_text(spec.shape)}")
    if spec.dtype in _SMALL and operator not in _CHOOSING:
        return _unknown(spec, ("values", "signal", "mask", "ids"), f"{spec.dtype}, behind {operator}: levels or ids")
    return _known(spec, "ids", f"whole numbers ({spec.dtype}), behind {operator}")


def _input_that_it_carries(spec: TensorSpec, model: Model) -> str | None:
    """An input of the same shape whose name the output's has but for 'out', 'next' or 'n' at its end."""
    for given in model.inputs:
        alike = given.dtype == spec.dtype and len(given.shape) == len(spec.shape)
        named = _NEXT.sub("", spec.name) == _NEXT.sub("", given.name.removesuffix("_in").removesuffix("0"))
        sized = all(
            a == b or not isinstance(a, int) or not isinstance(b, int)
            for a, b in zip(given.shape, spec.shape, strict=False)
        )
        if alike and named and sized and spec.name != given.name:
            return given.name
    return None


# --- detectors ------------------------------------------------------------------------------------------------------


def _detector(specs: Sequence[TensorSpec], values: Mapping[str, Array]) -> dict[str, InferredOutput]:
    """Boxes [n, anchors, 4] and scores [n, anchors, ...] where names say so; empty where they do not."""
    named = [spec for spec in specs if len(spec.shape) == 3 and spec.shape[-1] == 4 and _BOXES.search(spec.name)]
    beside = [
        spec
        for spec in specs
        if spec not in named
        and len(spec.shape) in (2, 3)
        and _SCORES.search(spec.name)
        and np.dtype(spec.dtype).kind == "f"
        and (not isinstance(spec.shape[1], int) or spec.shape[1] in [boxes.shape[1] for boxes in named])
    ]
    if (len(named), len(beside)) != (1, 1):
        return {}
    (boxes,), (scores,) = named, beside
    seen = values.get(boxes.name)
    form = _box_format(seen) if seen is not None else None
    belongs = f"one row for each of the boxes in {boxes.name!r}"
    if form is None:
        missing = "no values were looked at" if seen is None else "its values are neither corners nor centre and size"
        reason = f"named and shaped as boxes, but {missing}, so the format is not known"
        return {
            boxes.name: _unknown(boxes, ("boxes", "values"), reason),
            scores.name: _unknown(scores, ("scores", "probabilities"), belongs),
        }
    reason = f"named and shaped as boxes, and its values read as {form}; score and iou are to be checked"
    return {
        boxes.name: _known(boxes, "boxes", reason, scores=scores.name, format=form, score=0.5, iou=0.5),
        scores.name: _known(scores, "scores", belongs),
    }


def _box_format(values: Array) -> str | None:
    """Corners in ascending order, or centre and size."""
    rows = values.reshape(-1, 4).astype(np.float64)
    if (rows[:, 2:] >= rows[:, :2]).all(axis=1).mean() > 0.99:
        return "xyxy"
    return "cxcywh" if (rows[:, 2:] >= 0).all() else None


# --- values ---------------------------------------------------------------------------------------------------------


def _are_distributions(values: Floats) -> bool:
    several = values.ndim > 1 and values.shape[-1] > 1
    return several and bool((values >= 0).all() and (np.abs(values.sum(axis=-1) - 1) < _TOLERANCE).all())


def _are_shares(values: Floats) -> bool:
    return bool((values >= 0).all() and (values <= 1).all() and values.size > 0)


def _are_decided(values: Floats) -> bool:
    return bool((np.minimum(np.abs(values), np.abs(1 - values)) < _DECIDED).mean() >= _MOSTLY)


def _are_unit_vectors(values: Floats) -> bool:
    several = values.ndim > 1 and values.shape[-1] > 7
    return several and bool((np.abs(np.linalg.norm(values, axis=-1) - 1) < _TOLERANCE).all())


_MOVES = frozenset(
    ("Identity", "Cast", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Gather", "Expand", "Pad")
)
"""Operators that only move or copy values."""
_WITHIN = frozenset(("ReduceMean", "ReduceMax", "ReduceMin", "MaxPool", "AveragePool", "GlobalAveragePool", "Split"))
"""Operators whose results lie within the range of what they are given: shares stay shares."""
_DEEPEST = 200
"""Steps back: a graph has no circles, but a file may be made by anybody."""


def last_operator(proto: onnx.ModelProto, output: str) -> str:
    """Its type; that inside the first branch where it is an `If`, 'nothing' where an input is handed through.

    A mean or a largest value of a Sigmoid's or a Softmax's results is told as these are: it lies in 0..1 as well.
    """
    made = _producers(proto.graph)
    name, kept = output, ""
    for _ in range(_DEEPEST):
        if name not in made:
            return kept or "nothing"
        position, node = made[name]
        if node.op_type == "If":
            branch = next((a.g for a in node.attribute if a.name == "then_branch"), None)
            if branch is None or position >= len(branch.output):
                return kept or node.op_type
            made, name = made | _producers(branch), branch.output[position].name
        elif node.op_type in _MOVES and node.input:
            name = node.input[0]
        elif node.op_type in _WITHIN and node.input:
            kept, name = kept or node.op_type, node.input[0]
        else:
            return kept if kept and node.op_type not in _PROBABILITY else node.op_type
    return kept or "many operators"


def _producers(graph: onnx.GraphProto) -> dict[str, tuple[int, onnx.NodeProto]]:
    return {name: (place, node) for node in graph.node for place, name in enumerate(node.output)}
