"""The OpenVINO target: INT8 on an x86 or ARM CPU through OpenVINO's CPU plugin.

Facts that shaped it, all measured on OpenVINO 2026.4.1:

- Importing `openvino` sends a usage event over the network, and converting with `openvino.convert_model` another one.
  Here the package that sends them is out of reach while OpenVINO is imported, and files are read by `Core.read_model`.
- Threads are not pinned to cores (`ENABLE_CPU_PINNING` is False): pinned threads of two sessions share a core while
  another is idle.
- Inference precision is always stated: the plugin's own choice is bf16 where the CPU multiplies it fast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from workbench.graph.apart import kept_aside
from workbench.graph.write import write_shared
from workbench.quantization.record import QuantizationRecord
from workbench.targets.base import Array, Feeds, OperatorIssue, Session
from workbench.targets.common import compiled_file, graph_to_lower, host_toolchain, whole_files
from workbench.targets.feeds import FileRows, FileSession, check_host_device
from workbench.targets.openvino.check import model_issues, setting_issues
from workbench.targets.openvino.compiler import (
    WEIGHTS,
    XML,
    capabilities,
    convert,
    executed_form,
    library,
    load,
    reason,
)
from workbench.targets.openvino.lowering import openvino_form
from workbench.targets.openvino.settings import OpenVinoCompile
from workbench.values.artifact import Artifact, Toolchain
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import digest
from workbench.values.errors import LoweringError, MeasureError
from workbench.values.model import Model, TensorSpec
from workbench.values.system.cpu import this_cpu
from workbench.values.system.files import temporary_beside

LOWERED = "lowered.onnx"
_RESULT = "/sink_port_0"
"""What OpenVINO's ONNX frontend appends to the name of an output."""


class OpenVinoTarget:
    """OpenVINO's CPU plugin; see `workbench.targets.base.Target`."""

    name = "openvino"

    def toolchain(self) -> Toolchain:
        return host_toolchain(self.name, {"openvino": library().get_version()}, capabilities())

    def check(self, model: Model, candidate: Candidate) -> tuple[OperatorIssue, ...]:
        issues = [*setting_issues(candidate), *model_issues(model, candidate, this_cpu())]
        return tuple(sorted(issues, key=lambda issue: issue.severity))

    def lower(self, model: Model, candidate: Candidate, record: QuantizationRecord | None, to: Path) -> Path:
        proto = graph_to_lower(model, candidate, record)
        if candidate.quantization.scheme == "dynamic":
            raise LoweringError("OpenVINO has no dynamic INT8 here. Use 'static' or 'none'.")
        file = to / LOWERED
        with temporary_beside(file, durable=False) as draft, kept_aside(model.size_bytes):
            between = candidate.quantization.elementwise == "int8"
            form = proto
            if record is not None:
                form = openvino_form(proto, record, saturates=this_cpu().saturates, integers_between=between)
            write_shared(form, draft)
        return file

    def compile(self, lowered: Path, candidate: Candidate, to: Path) -> Artifact:
        toolchain = self.toolchain()
        int8_ops, float_matmuls_left, kernels = convert(lowered, candidate, to)
        return Artifact(
            target=self.name,
            files=(compiled_file(to, XML), compiled_file(to, WEIGHTS)),
            toolchain=toolchain,
            int8_ops=int8_ops,
            float_matmuls_left=float_matmuls_left,
            kernels=kernels,
        )

    def open(self, artifact: Artifact, directory: Path, candidate: Candidate, *, device: int = 0) -> Session:
        check_host_device(device)
        settings = OpenVinoCompile.of(candidate)
        for compiled in artifact.files:
            file = directory / compiled.file
            if not file.is_file() or file.stat().st_size != compiled.size_bytes:
                raise MeasureError(f"{file}: OpenVINO cannot load it: it is missing or not complete. Compile again.")
        streams = candidate.serving.streams or 1
        properties = {
            "PERFORMANCE_HINT": settings.performance_hint.upper(),
            "INFERENCE_PRECISION_HINT": settings.inference_precision,
            "INFERENCE_NUM_THREADS": candidate.serving.intra_op_threads,
            "NUM_STREAMS": streams,
        }
        xml = str(directory / artifact.files[0].file)
        compiled = load(xml, properties, xml)
        if artifact.int8_ops and this_cpu().saturates:
            _check_weights(xml, quantized_here=candidate.quantization.scheme != "none")
        outputs = {_name_of(port): i for i, port in enumerate(compiled.outputs)}
        return openvino_session(compiled, streams, outputs)

    def numerics_form(self, artifact: Artifact, directory: Path, candidate: Candidate) -> str:
        """The converted graph and the precision of what is not INT8; a hint sets what is set explicitly here."""
        settings = OpenVinoCompile.of(candidate)
        return digest([whole_files(artifact), settings.inference_precision])

    def time_form(
        self, artifact: Artifact, directory: Path, candidate: Candidate, *, batch: int, length: int | None
    ) -> str:
        """The graph that the plugin executes, as it was told when the artifact was made; one file takes every shape."""
        return digest([executed_form(directory) or whole_files(artifact), candidate.compile])

    def devices(self) -> int:
        return 1

    def probe(self, lowered: Path, tensors: Sequence[str]) -> Session:
        openvino = library()
        try:
            model = openvino.Core().read_model(str(lowered))
        except RuntimeError as error:
            raise MeasureError(f"{lowered}: OpenVINO cannot load it: {reason(str(error))}") from error
        known = {name: output for op in model.get_ordered_ops() for output in op.outputs() for name in output.names}
        outputs = {_name_of(port): i for i, port in enumerate(model.outputs)}
        wanted = [name for name in dict.fromkeys(tensors) if name in known and name not in outputs]
        wanted = [name for name in wanted if known[name].element_type == openvino.Type.f32]
        for name in wanted:
            outputs[name] = len(model.outputs)
            model.add_outputs(known[name])
        properties = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}
        return openvino_session(load(model, properties, str(lowered)), 1, outputs)


def _check_weights(xml: str, *, quantized_here: bool) -> None:
    """Raises MeasureError where 8-bit products of the file would be added wrongly by this processor."""
    constants = (op for op in library().Core().read_model(xml).get_ordered_ops() if op.get_type_name() == "Constant")
    weights = (op.data.astype(np.int16) for op in constants if op.data.dtype == np.int8)
    if not quantized_here or any(np.abs(weight).max(initial=0) > 64 for weight in weights):
        raise MeasureError(
            f"{xml}: its INT8 products can overflow on this CPU ({this_cpu().kind}), where OpenVINO adds them in pairs "
            "in 16 bits. Quantize the float model on such a CPU, which gives weights of 7 bits, or use ONNX Runtime."
        )


def _name_of(port: Any) -> str:
    """Of an input or output as the ONNX file has it. A tensor keeps the names of all nodes that do nothing to it."""
    name: str = port.get_node().get_friendly_name().removesuffix(_RESULT)
    return name if name in port.names else str(port.any_name)


def openvino_session(compiled: Any, streams: int, outputs: Mapping[str, int]) -> FileSession:
    """See `workbench.targets.base.Session`. Equal feeds give bit-equal outputs.

    With several streams a batch is divided among them by rows and put together again: streams run side by side, each
    on its share of the threads. Models whose rows depend on each other must be served with one stream.

    Args:
        outputs: name → place among those of the compiled model.
    """
    inputs = [
        TensorSpec(name=_name_of(port), dtype=np.dtype(port.element_type.to_dtype()).name, shape=_sizes(port))
        for port in compiled.inputs
    ]
    given = [TensorSpec(name=name, dtype="", shape=_sizes(compiled.outputs[i])) for name, i in outputs.items()]
    rows = FileRows(inputs, given)
    requests: list[Any] = [compiled.create_infer_request() for _ in range(streams)]

    def call(feeds: Feeds) -> dict[str, Array]:
        try:
            parts = _outputs(requests if rows.fixed is None else requests[:1], feeds)
        except RuntimeError as error:
            raise MeasureError(f"OpenVINO failed: {reason(str(error))}") from error
        return rows.joined([{name: part[index] for name, index in outputs.items()} for part in parts])

    return FileSession(call, inputs, rows)


def _outputs(requests: Sequence[Any], feeds: Feeds) -> list[list[Array]]:
    """All outputs of each part of the rows, which are divided among the requests."""
    parts = min(len(requests), min((len(array) for array in feeds.values() if array.ndim), default=1))
    if parts < 2:
        results = [requests[0].infer(dict(feeds), share_inputs=True)]
    else:
        divided = zip(*(np.array_split(array, parts) for array in feeds.values()), strict=True)
        for request, arrays in zip(requests, divided, strict=False):
            request.start_async(dict(zip(feeds, arrays, strict=True)), share_inputs=True)
        for request in requests[:parts]:
            request.wait()
        results = [request.results for request in requests[:parts]]
    return [[np.array(value) for value in one.to_tuple()] for one in results]


def _sizes(port: Any) -> tuple[int | None, ...]:
    """() for any number of axes."""
    shape = port.partial_shape
    return () if shape.rank.is_dynamic else tuple(None if size.is_dynamic else size.get_length() for size in shape)
