"""The child process that converts one ONNX file to OpenVINO's format, compiles it once, and tells what it became.

    python -P convert.py LOWERED XML PRECISION

Writes XML and, beside it, the weights (.bin); prints one JSON object {"kernels": {type: count}, "layers":
[[type, precision], ...]}. A process of its own, because a crash in the compiler must fail one candidate, not the sweep.
Imports nothing of the workbench; `-P` keeps this folder, which holds an `openvino.py`, off the import path.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any

# Importing openvino sends a usage event over the network unless this package, which it can do without, is missing.
sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]  # how Python marks a module that must not load

import openvino  # noqa: E402  the line above must come first


def main(lowered: str, xml: str, precision: str) -> int:
    core = openvino.Core()
    try:
        model = core.read_model(lowered)
        for output in model.outputs:  # one name each, the ONNX file's: tensors that merged have several
            output.get_tensor().set_names({output.get_node().get_friendly_name().removesuffix("/sink_port_0")})
        openvino.save_model(model, xml, compress_to_fp16=False)
        del model, output  # with its weights, before they are loaded again in their kernels' order
        settings = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}
        kernels = Counter(kind for kind, _ in executed(core, xml, settings))
        # With Snippets a whole attention block is one operator that does not tell its products' types. Low precision
        # is decided before Snippets, so the same products show one by one without them.
        layers = executed(core, xml, {**settings, "SNIPPETS_MODE": "DISABLE"})
    # the last line of a program: whatever the compiler raised becomes its exit code and the last line of its log
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print(json.dumps({"kernels": dict(sorted(kernels.items())), "layers": layers}))
    return 0


def executed(core: openvino.Core, xml: str, settings: dict[str, Any]) -> list[tuple[str, str]]:
    """(layer type, precision it computes in) of every operator of the compiled graph, constants left out."""
    graph = core.compile_model(xml, "CPU", settings).get_runtime_model()
    found = []
    for node in graph.get_ordered_ops():
        info = node.get_rt_info()
        kind = info["layerType"].astype(str)
        if kind not in ("Const", "Input", "Output"):
            found.append((kind, info["runtimePrecision"].astype(str)))
    return found


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
