"""Looking inside a deploy model on the host: its exact integers, and the float tensors between them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workbench.quantization.integers.interpreter import Interpreter
from workbench.targets.base import Array, Feeds
from workbench.values.errors import MeasureError


class DeployProbe:
    """A session over the reference interpreter; see `workbench.targets.base.Session`.

    Tensors that hold integers inside the deploy form are left out, as a probe gives float tensors.
    """

    def __init__(self, interpreter: Interpreter, tensors: Sequence[str]) -> None:
        self._interpreter: Interpreter | None = interpreter
        self._tensors = tensors

    def run(self, feeds: Feeds) -> dict[str, Array]:
        if self._interpreter is None:
            raise MeasureError("The session is closed; open the artifact again.")
        values = self._interpreter.run(feeds, self._tensors)
        return {name: v for name, v in values.items() if name not in self._tensors or v.dtype == np.float32}

    def close(self) -> None:
        self._interpreter = None
