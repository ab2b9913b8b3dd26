"""The child process that converts one ONNX file to OpenVINO's format, compiles it once, and tells what it became.

    python -P convert.py LOWERED XML PRECISION TOLD

Writes XML and, beside it, the weights (.bin); and into TOLD one JSON object {"kernels": {type: count}, "layers":
[[type, precision], ...], "executed": what it became, the values of its constants left out}. A process of its own,
because a crash in the compiler must fail one candidate, not the sweep. Imports nothing of the workbench; `-P` keeps
this folder, which holds an `openvino.py`, off the import path.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

# Importing openvino sends a usage event over the network unless this package, which it can do without, is missing.
sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]  # how Python marks a module that must not load

import openvino  # noqa: E402  the line above must come first

_TOLD = ("layerType", "runtimePrecision", "primitiveType", "outputPrecisions", "outputLayouts")
"""What OpenVINO tells of an executed operator that its constants' values do not change."""


def main(lowered: str, xml: str, precision: str, told: str) -> int:
    core = openvino.Core()
    try:
        model = core.read_model(lowered)
        for output in model.outputs:  # one name each, the ONNX file's: tensors that merged have several
            output.get_tensor().set_names({output.get_node().get_friendly_name().removesuffix("/sink_port_0")})
        openvino.save_model(model, xml, compress_to_fp16=False)
        stored = constants(model)
        del model, output  # with its weights, before they are loaded again in their kernels' order
        settings = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}
        graph = executed_graph(core, xml, settings)
        kernels = Counter(kind for kind, _ in executed(graph))
        form = {"operators": structure(graph), "constants": stored}
        del graph
        # With Snippets a whole attention block is one operator that does not tell its products' types. Low precision
        # is decided before Snippets, so the same products show one by one without them.
        layers = executed(executed_graph(core, xml, {**settings, "SNIPPETS_MODE": "DISABLE"}))
    # the last line of a program: whatever the compiler raised becomes its exit code and the last line of its log
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    found = {"kernels": dict(sorted(kernels.items())), "layers": layers, "executed": form}
    Path(told).write_text(json.dumps(found), encoding="utf-8")
    return 0


def executed_graph(core: openvino.Core, xml: str, settings: dict[str, Any]) -> openvino.Model:
    return core.compile_model(xml, "CPU", settings).get_runtime_model()


def executed(graph: openvino.Model) -> list[tuple[str, str]]:
    """(layer type, precision it computes in) of every operator of the compiled graph, constants left out."""
    found = []
    for node in graph.get_ordered_ops():
        info = node.get_rt_info()
        kind = info["layerType"].astype(str)
        if kind not in ("Const", "Input", "Output"):
            found.append((kind, info["runtimePrecision"].astype(str)))
    return found


def structure(graph: openvino.Model) -> list[list[Any]]:
    """Every operator of the compiled graph without its name: what executes it, from where it reads, what it gives,
    and how many layers were fused into it."""
    places: dict[str, int] = {}
    found: list[list[Any]] = []
    for place, node in enumerate(graph.get_ordered_ops()):
        info = node.get_rt_info()
        places[node.get_friendly_name()] = place
        read = [port.get_source_output() for port in node.inputs()]
        found.append(
            [
                [info[name].astype(str) if name in info else "" for name in _TOLD],
                [[places[source.get_node().get_friendly_name()], source.get_index()] for source in read],
                [str(port.get_partial_shape()) for port in node.outputs()],
                info["originalLayersNames"].astype(str).count(",") if "originalLayersNames" in info else 0,
            ]
        )
    return found


def constants(model: openvino.Model) -> dict[str, int]:
    """Type and shape → how many constants have them: granularities show here, which compiled operators do not tell."""
    ports = (node.output(0) for node in model.get_ordered_ops() if node.get_type_name() == "Constant")
    shapes = Counter(f"{port.get_element_type().get_type_name()} {port.get_partial_shape()}" for port in ports)
    return dict(sorted(shapes.items()))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
