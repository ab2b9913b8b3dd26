"""Search spaces for tests: a small one, one of bins by word, and the one that is shipped."""

from pathlib import Path

import numpy as np

from workbench.space.reader import read_space
from workbench.space.served_bins import with_lengths
from workbench.space.space import Parameter, SearchSpace

SHIPPED = Path(__file__).parent.parent / "search_spaces" / "onnxruntime.yaml"
SMALL = """
version: 1
target: onnxruntime
parameters:
  quantization.scheme: {choices: [none, dynamic]}
  quantization.weight_granularity: {choices: [tensor, channel], when: {quantization.scheme: [dynamic]}}
  compile.graph_optimization: {choices: [all, basic]}
  compile.fusions.GeluFusionL2: {choices: ["on", "off"]}
  serving.intra_op_threads: {choices: [1, 2]}
forbid:
  - {quantization.scheme: [dynamic], compile.graph_optimization: [basic], reason: stays in float}
presets:
  - {name: float}
  - {name: dynamic, quantization.scheme: dynamic, quantization.weight_granularity: channel}
"""
LENGTHS = np.array([10, 20, 30, 40, 60, 100, 200, 300])
BINS = """
version: 1
target: onnxruntime
parameters:
  serving.sequence_bins: {choices: ["optimal 1", "optimal 3", "256", "32 64 256"]}
  serving.batch: {choices: [1, 4], when: {serving.sequence_bins: ["optimal 3", "256"]}}
forbid:
  - {serving.sequence_bins: ["optimal 3"], serving.batch: [4], reason: not enough texts}
presets:
  - {name: bins, serving.sequence_bins: "optimal 3"}
"""


def shipped() -> SearchSpace:
    return with_lengths(read_space(SHIPPED), lambda: LENGTHS, 256)


def space_of(folder: Path, text: str) -> SearchSpace:
    path = folder / "space.yaml"
    path.write_text(text, encoding="utf-8")
    return read_space(path)


def space_of_choices(**choices: tuple[object, ...]) -> SearchSpace:
    parameters = tuple(Parameter(name=n, choices=c, when={}, about="") for n, c in choices.items())  # type: ignore[arg-type]  # texts and numbers
    return SearchSpace(path=Path("space.yaml"), targets=("onnxruntime",), parameters=parameters, forbid=(), presets=())
