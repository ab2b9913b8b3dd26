"""A compiled model as one side of a comparison: what its operators gave on the device, tensor by tensor; and which of
them goes wrong first, why, and which lines would mend it.

    om:SOURCE ── run with everything dumped ──► Recording ──► DeviceSide ──► compare, find the first bad operator

The float model is fed what the device was fed, batch and length filled up as there, so that every row can be compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import numpy as np

from workbench.evaluation.overflow import LARGEST_HALF, constant_magnitudes, hidden_beyond_half, magnitude
from workbench.graph.flow import Flow
from workbench.graph.read import load_graph, read_model
from workbench.quantization.observe import Feeds
from workbench.study.compared import (
    FLOAT,
    HALF,
    INT8,
    BadScale,
    Cause,
    Comparison,
    FirstBad,
    Limits,
    TensorComparison,
)
from workbench.study.comparison import Differences, Side, reference_values
from workbench.targets import descriptions
from workbench.targets.base import Array
from workbench.targets.inside import DeviceCall, DeviceOperator, DeviceTensor, LooksInside, Recording
from workbench.values.errors import ConfigError, MeasureError
from workbench.values.model import Model
from workbench.values.system.files import temporary_beside


def prefixes() -> dict[str, str]:
    """What compiled files are called → the target that can be looked into."""
    return {target.compiled_as: target.name for target in descriptions() if target.compiled_as and target.inside}


def looker(target: str) -> LooksInside:
    """Whoever looks into the compiled files of a target that `prefixes` names."""
    found = next(one for one in descriptions() if one.name == target)
    assert found.inside is not None  # `prefixes` says so
    return found.inside()


class DeviceSide:
    """A recording, call by call, in the names of the float model's tensors.

    Attributes:
        makers: tensor → the operator whose result is compared under its name.
    """

    def __init__(self, recording: Recording, model: Model) -> None:
        self.recording, self._model = recording, model
        self.makers: dict[str, DeviceOperator] = {}
        self._next = 0
        for call in recording.calls:
            for name, (operator, _) in compared(call).items():
                self.makers.setdefault(name, operator)
        self._aliases = _aliases(model, self.makers)
        self.makers |= {name: self.makers[source] for name, source in self._aliases.items()}

    def feeds(self) -> Iterator[Feeds]:
        """What each call was fed, in the float model's types.

        Raises:
            ConfigError: the dump holds no inputs of the model.
        """
        for call in self.recording.calls:
            missing = [spec.name for spec in self._model.inputs if spec.name not in call.fed]
            if missing:
                raise ConfigError(
                    f"input {missing[0]!r} is not in the dump, so that nobody knows what was fed.",
                    file=self.recording.folder,
                    hint="Dump with dump_mode all and without a list of layers: operators Data are inputs.",
                )
            feeds: dict[str, Array] = {}
            for spec in self._model.inputs:
                values: Array = call.fed[spec.name].load()
                if values.dtype.kind == "f" and np.dtype(spec.dtype).kind != "f":
                    raise MeasureError(f"a float input was dumped where the float model takes {spec.dtype}.")
                feeds[spec.name] = values.astype(spec.dtype)
            yield feeds

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """Results of the next call, float32 by tensor; those of `feeds` in their order."""
        call = self.recording.calls[self._next]
        self._next = (self._next + 1) % len(self.recording.calls)
        found = {}
        for name, (_, tensor) in compared(call).items():
            values = tensor.floats()
            if values is not None:
                found[name] = values
        return found | {name: found[source] for name, source in self._aliases.items() if source in found}

    def limits(self) -> Limits:
        """The usual ones for the coarsest type that an operator computes in."""
        operators = [operator for call in self.recording.calls for operator in call.operators]
        if any(operator.whole for operator in operators):
            return INT8
        kinds = {tensor.dtype for operator in operators for tensor in (*operator.inputs, *operator.outputs)}
        return HALF if kinds & {"float16", "bfloat16"} else FLOAT


def compared(call: DeviceCall) -> dict[str, tuple[DeviceOperator, DeviceTensor]]:
    """Tensor of the float model → the operator and its result that stands for it, in the order of execution.

    Floats come before whole numbers that stand for the same tensor, and what was computed before what only changed its
    type.
    """
    found: dict[str, tuple[DeviceOperator, DeviceTensor]] = {}
    for operator in call.operators:
        for tensor in operator.outputs:
            if not tensor.tensor or not (tensor.is_float or tensor.scale):
                continue
            known = found.get(tensor.tensor)
            if known is None or (tensor.is_float and not known[1].is_float):
                found[tensor.tensor] = (operator, tensor)
    return found


_VIEWS = frozenset({"Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})


def _aliases(model: Model, known: Mapping[str, DeviceOperator]) -> dict[str, str]:
    """Outputs of the model that only a view gives, which no device computes → the tensor whose numbers they are."""
    proto = load_graph(model)
    makers = {name: node for node in proto.graph.node for name in node.output}
    found = {}
    for spec in model.outputs:
        name = spec.name
        while name not in known and name in makers and makers[name].op_type in _VIEWS:
            name = makers[name].input[0]
        if name in known and name != spec.name:
            found[spec.name] = name
    return found


# --- the first bad operator -------------------------------------------------------------------------------------------

INT8_ERROR = INT8.error or 0.15
_HALF = "float16"


def first_bad(found: Comparison, a: Side, device: DeviceSide, looker: LooksInside, to: Path) -> FirstBad | None:
    """The first operator, in the float model's order, whose result is beyond the limits; all it reads is within them.

    Writes what it read and wrote, and what the float model has there, into `to`.
    """
    row = found.first_beyond_limits
    if row is None:
        return None
    operator = device.makers[row.tensor]
    flow = Flow(load_graph(read_model(a.path)))
    rows = {each.tensor: each for each in found.rows}
    calls = enumerate(device.recording.calls)
    call_index, call = next((i, one) for i, one in calls if any(each.name == operator.name for each in one.operators))
    operator = next(each for each in call.operators if each.name == operator.name)
    out_of_range = _beyond_half(call, rows, flow, _hiding(a, device, call_index, flow))
    cause: Cause = "integers" if operator.whole or operator.layers else "rounding"
    if row.not_finite or any(each.name == operator.name for each in out_of_range):
        cause = "range"
    kept = out_of_range if cause == "range" and out_of_range else [operator] if cause != "integers" else []
    # what balancing rescaled is no float tensor of the model any more, so that nothing can be said of its scale
    rescaled = {name for name, each in rows.items() if each.rescaled}
    integers = [t.tensor for t in (*operator.inputs, *operator.outputs) if t.scale and t.tensor not in {"", *rescaled}]
    reference = reference_values(a, device, call_index, list(dict.fromkeys([row.tensor, *integers])))
    bad_scales = _bad_scales(operator, call, reference, found.limits.error or INT8_ERROR)
    # where no scale of an activation is to blame, the layers that it computes may be, or those that read its result
    layers = tuple(dict.fromkeys(s.layer for s in bad_scales)) or _computed(operator) or _readers(operator, call)
    return FirstBad(
        operator=operator.name,
        op_type=operator.op_type,
        nodes=operator.float_nodes,
        types=operator.types,
        tensor=row.tensor,
        cause=cause,
        magnitude=row.magnitude,
        not_finite=row.not_finite,
        relative_error=row.relative_error,
        mends=looker.remedies(kept, layers if cause == "integers" else ()),
        kept=tuple(each.name for each in kept),
        layers=layers,
        scales=bad_scales,
        files=write_values(operator, to, {f"float.{name}": values for name, values in reference.items()}),
    )


def write_values(operator: DeviceOperator, to: Path, more: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """NPY files of what an operator read and wrote, as stored, and of further arrays; returns their paths."""
    to.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {}
    for kind, tensors in (("input", operator.inputs), ("output", operator.outputs)):
        for index, tensor in enumerate(tensors):
            label = f".{tensor.tensor}" if tensor.tensor else ""
            arrays[f"{kind}{index}.{tensor.dtype}{label}"] = tensor.load()
    written = []
    for name, values in {**arrays, **(more or {})}.items():
        # names of tensors hold anything; a file's, letters and digits, and not too many
        file = to / f"{re.sub(r'[^A-Za-z0-9._-]+', '_', name).strip('_')[:120] or 'tensor'}.npy"
        with temporary_beside(file, durable=False) as draft, draft.open("wb") as stream:
            np.save(stream, values, allow_pickle=False)
        written.append(str(file))
    return tuple(written)


def _hiding(a: Side, device: DeviceSide, call_index: int, flow: Flow) -> set[str]:
    """Operators inside of which the float model has what no half holds."""
    proto, call = load_graph(read_model(a.path)), device.recording.calls[call_index]
    exact = reference_values(a, device, call_index, [name for name in flow.computed() if name not in flow.masks])
    largest = constant_magnitudes(proto) | {name: magnitude(values) for name, values in exact.items()}
    return {each.name for each in call.operators if hidden_beyond_half(each, proto, largest, flow.masks)}


def _beyond_half(
    call: DeviceCall, rows: Mapping[str, TensorComparison], flow: Flow, hiding: AbstractSet[str]
) -> list[DeviceOperator]:
    """Operators that read, write or hide as halves what no half holds, masks before a softmax left out."""

    def largest(tensor: DeviceTensor) -> float:
        if not tensor.tensor or tensor.tensor in flow.masks or tensor.dtype != _HALF:
            return 0.0
        names = [tensor.tensor] if tensor.tensor in rows else flow.sources(tensor.tensor)
        return max((rows[name].magnitude for name in names if name in rows), default=0.0)

    return [
        operator
        for operator in call.operators
        if operator.name in hiding
        or any(largest(tensor) > LARGEST_HALF for tensor in (*operator.inputs, *operator.outputs))
    ]


def _bad_scales(
    operator: DeviceOperator, call: DeviceCall, reference: Mapping[str, Any], limit: float
) -> tuple[BadScale, ...]:
    """Scales of what an operator reads or gives as whole numbers by which the float model's own values are lost."""
    found = []
    for tensor in (*operator.inputs, *operator.outputs):
        if not tensor.scale or tensor.tensor not in reference:
            continue
        exact = np.asarray(reference[tensor.tensor], np.float32)
        low, high = (np.float32(np.iinfo(tensor.dtype).min), np.float32(np.iinfo(tensor.dtype).max))
        with np.errstate(over="ignore", invalid="ignore"):
            stored = np.clip(np.rint(exact * np.float32(tensor.scale)) + np.float32(tensor.offset), low, high)
        kept = (stored - np.float32(tensor.offset)) / np.float32(tensor.scale)
        lost = Differences()
        lost.add(exact, kept)
        error = lost.relative_error()
        if error < limit:
            continue
        read = tensor in operator.inputs
        ends = (float((low - tensor.offset) / tensor.scale), float((high - tensor.offset) / tensor.scale))
        found += [
            BadScale(
                layer=layer,
                tensor=tensor.tensor,
                low=ends[0],
                high=ends[1],
                magnitude=float(np.abs(exact[np.isfinite(exact)]).max(initial=0.0)),
                relative_error=error,
            )
            for layer in (_computed(operator) if read else _readers(operator, call))
        ]
    return tuple(found)


def _computed(operator: DeviceOperator) -> tuple[str, ...]:
    """Layers that it computes, not those whose input it quantizes."""
    return tuple(layer for layer in operator.layers if layer in operator.float_nodes)


def _readers(operator: DeviceOperator, call: DeviceCall) -> tuple[str, ...]:
    """Layers that compute with what it quantized."""
    own = [layer for layer in operator.layers if layer not in operator.float_nodes]
    if own:
        return tuple(own)
    readers = [each for each in call.operators if any(t.maker == operator.name for t in each.inputs)]
    return tuple(dict.fromkeys(layer for reader in readers for layer in _computed(reader)))
