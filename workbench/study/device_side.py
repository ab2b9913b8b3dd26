"""A compiled model as one side of a comparison: what its operators gave on the device, tensor by tensor.

    om:SOURCE ── run with everything dumped ──► Recording ──► DeviceSide ──► compare, find the first bad operator

The float model is fed what the device was fed, batch and length filled up as there, so that every row can be compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from workbench.graph.read import load_graph
from workbench.quantization.observe import Feeds
from workbench.study.limits import FLOAT, HALF, INT8, Limits
from workbench.targets import descriptions
from workbench.targets.base import Array
from workbench.targets.inside import DeviceCall, DeviceOperator, DeviceTensor, LooksInside, Recording
from workbench.values.errors import ConfigError, MeasureError
from workbench.values.model import Model


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
            yield {spec.name: _as_fed(call.fed[spec.name], spec.dtype) for spec in self._model.inputs}

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


def _as_fed(tensor: DeviceTensor, dtype: str) -> Array:
    values: Array = tensor.load()
    if values.dtype.kind == "f" and np.dtype(dtype).kind != "f":
        raise MeasureError(f"a float input was dumped where the float model takes {dtype}.")
    return values.astype(dtype)
