"""Looking inside a deploy model on the host: its exact integers, and the float tensors between them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import ModelProto

from workbench.quantization.integers.interpreter import Interpreter
from workbench.targets.base import Array, Feeds
from workbench.targets.full_rows import FileRows
from workbench.values.errors import MeasureError


class DeployProbe:
    """A session over the reference interpreter; see `workbench.targets.base.Session`.

    A tensor that holds integers inside the deploy form is what AscendDequant makes of them; without one it is left out,
    as a probe gives float tensors.
    """

    def __init__(self, proto: ModelProto, tensors: Sequence[str], rows: FileRows) -> None:
        self._interpreter: Interpreter | None = Interpreter(proto)
        self._rows = rows
        dequantized = {node.input[0]: node.output[0] for node in proto.graph.node if node.op_type == "AscendDequant"}
        self._outputs = [value.name for value in proto.graph.output]
        self._places = {name: dequantized.get(name, name) for name in tensors}

    def run(self, feeds: Feeds) -> dict[str, Array]:
        return self._rows.run(self._call, feeds)

    def _call(self, feeds: Feeds) -> dict[str, Array]:
        if self._interpreter is None:
            raise MeasureError("The session is closed; open the artifact again.")
        values = self._interpreter.run(feeds, sorted(set(self._places.values())))
        asked = {name: values[place] for name, place in self._places.items()}
        outputs = {name: values[name] for name in self._outputs}
        return outputs | {name: v for name, v in asked.items() if v.dtype == np.float32}

    def close(self) -> None:
        self._interpreter = None
