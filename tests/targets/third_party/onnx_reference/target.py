"""Lowering to QuantizeLinear and DequantizeLinear, and a session that evaluates them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.shape_inference import infer_shapes
from onnx.version_converter import convert_version

from workbench.graph.read import load_graph, read_model
from workbench.quantization.lowering.qdq import lower_static
from workbench.quantization.record import QuantizationRecord
from workbench.targets.base import Array, Feeds, OperatorIssue, Session
from workbench.targets.common import compiled_file, graph_to_lower, with_outputs
from workbench.targets.feeds import FileRows, FileSession, check_host_device
from workbench.targets.int8_issues import int8_issues
from workbench.values.artifact import Artifact, Toolchain
from workbench.values.candidate import Candidate
from workbench.values.errors import CompileError, ConfigError, MeasureError
from workbench.values.model import Model

PRODUCTS, OPSET = ("MatMul", "Gemm", "Conv"), 21  # the evaluator has DequantizeLinear from 19 on


class ReferenceTarget:
    name = "onnxreference"

    def toolchain(self) -> Toolchain:
        versions = {"numpy": np.__version__, "onnx": onnx.__version__}
        return Toolchain(target=self.name, components=versions, device="NumPy", features=())

    def check(self, model: Model, candidate: Candidate) -> tuple[OperatorIssue, ...]:
        if candidate.quantization.scheme == "none":
            return ()
        return tuple(int8_issues(model)[1])

    def lower(self, model: Model, candidate: Candidate, record: QuantizationRecord | None, to: Path) -> Path:
        proto = graph_to_lower(model, candidate, record)
        proto = proto if record is None else lower_static(proto, record)
        (to / "lowered.onnx").write_bytes(convert_version(proto, OPSET).SerializeToString(deterministic=True))
        return to / "lowered.onnx"

    def compile(self, lowered: Path, candidate: Candidate, to: Path) -> Artifact:
        try:
            proto = load_graph(read_model(lowered))
        except ConfigError as error:
            (log := to / "compile.log").write_text(f"{error}\n", encoding="utf-8")
            raise CompileError(f"onnx cannot read it: {error}", log_path=log) from error
        shown = infer_shapes(proto) if candidate.compile.inferred_shapes else proto
        (to / "model.onnx").write_bytes(shown.SerializeToString(deterministic=True))
        integers = {node.output[0] for node in proto.graph.node if node.op_type == "DequantizeLinear"}
        products = [node for node in proto.graph.node if node.op_type in PRODUCTS]
        int8 = sum(integers.issuperset(node.input[:2]) for node in products)
        return Artifact(
            target=self.name,
            files=(compiled_file(to, "model.onnx"),),
            toolchain=self.toolchain(),
            int8_ops=int8,  # products of integers with their scales; NumPy multiplies them as floats
            float_matmuls_left=len(products) - int8,
            kernels=dict(sorted(Counter(node.op_type for node in proto.graph.node).items())),
        )

    def open(self, artifact: Artifact, directory: Path, candidate: Candidate, *, device: int = 0) -> Session:
        check_host_device(device)
        return session_of(directory / artifact.files[0].file)

    def devices(self) -> int:
        return 1

    def probe(self, lowered: Path, tensors: Sequence[str]) -> Session:
        return session_of(lowered, tensors)


def session_of(file: Path, tensors: Sequence[str] = ()) -> Session:
    (proto, _), model = with_outputs(file, tensors), read_model(file)
    evaluator = ReferenceEvaluator(proto)

    def call(feeds: Feeds) -> dict[str, Array]:
        try:
            values = evaluator.run(None, dict(feeds))
        except Exception as error:  # an operator's own, of NumPy or of onnx
            raise MeasureError(f"onnx.reference failed: {type(error).__name__}: {error}") from error
        found = zip(evaluator.output_names, values, strict=True)
        return {name: value for name, value in found if value.dtype == np.float32}

    return FileSession(call, model.inputs, FileRows(model.inputs, model.outputs))
