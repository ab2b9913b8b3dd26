"""The ONNX Runtime target: real INT8 on this machine's CPU, the embedded default.

Facts of onnxruntime 1.31.1 that it rests on:

- The compiled artifact is the optimizer's output, loaded with optimizations off: what was counted is what runs.
- Threads do not spin (`session.intra_op.allow_spinning` = 0). Latency is measured interleaved with the baseline in
  one process, where the spinning threads of an idle session take the core of the one being timed, and a server with
  as many busy threads as cores suffers the same way. The price is some tenths of a millisecond on every call with
  several threads, so that calls below 1 ms are best served with one.
- Where the processor adds pairs of 8-bit products in 16 bits, files are compiled with operands that are exact, and
  those that were compiled elsewhere are given them when they are opened (`quantization/exact_operands`).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import onnx
import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

from workbench.graph.apart import is_large, kept_aside
from workbench.graph.form import graph_form
from workbench.graph.read import graph_of, stored_graph
from workbench.graph.runtime_errors import RUNTIME_ERRORS
from workbench.graph.write import weights_beside, write_shared
from workbench.quantization.lowering.elementwise import with_hard_sigmoids, with_integers_between
from workbench.quantization.lowering.qdq import lower_dynamic, lower_static
from workbench.quantization.lowering.strides import with_strides_moved_up
from workbench.quantization.record import QuantizationRecord
from workbench.quantization.sessions import exact, first_line, named_outputs, session_on
from workbench.targets import open_target
from workbench.targets.base import OperatorIssue, Session, row_tolerance
from workbench.targets.common import compiled_file, graph_to_lower, host_toolchain, with_outputs
from workbench.targets.feeds import FileRows, FileSession, check_host_device
from workbench.targets.int8_issues import int8_issues, run_int8_layer, saturates
from workbench.targets.onnxruntime.compiler import COMPILED, count_kernels, optimize
from workbench.values.artifact import Artifact, Toolchain
from workbench.values.candidate import Candidate, Quantization
from workbench.values.errors import CandidateError, ConfigError, MeasureError, ToolchainError
from workbench.values.finding import Finding
from workbench.values.model import Model, TensorSpec
from workbench.values.system.cpu import this_cpu
from workbench.values.system.files import temporary_beside
from workbench.values.versions import install_command

LOWERED = "lowered.onnx"
_MEASURED = "measured on onnxruntime 1.31.1"
_BY_BATCH = OperatorIssue(
    "warning",
    "model",
    "one activation scale serves a whole call, so a text's scores depend on what shares its batch and its padding (on "
    "BERT-mini by up to 1.5 % of the largest logit; 2 of 400 labels changed)",
    "Serve it in batches of one, or use static INT8, whose scales are fixed.",
    _MEASURED,
    "dynamic INT8",
)


class OnnxRuntimeTarget:
    """ONNX Runtime's CPU provider; see `workbench.targets.base.Target`."""

    name = "onnxruntime"

    def toolchain(self) -> Toolchain:
        return host_toolchain(self.name, {"onnxruntime": onnxruntime.__version__})

    def check(self, model: Model, candidate: Candidate) -> tuple[OperatorIssue, ...]:
        issues = [*_operator_issues(model), *_quantization_issues(model, candidate)]
        if row_tolerance(candidate) is None:
            issues.append(_BY_BATCH)
        return tuple(sorted(issues, key=lambda issue: issue.severity))

    def lower(self, model: Model, candidate: Candidate, record: QuantizationRecord | None, to: Path) -> Path:
        proto = graph_to_lower(model, candidate, record)
        file = to / LOWERED
        unchanged = candidate.quantization.scheme == "none"
        with temporary_beside(file, durable=False) as draft, kept_aside(model.size_bytes):
            if unchanged and is_large(model.size_bytes):
                write_shared(stored_graph(model), draft)
            elif unchanged and not model.external_files:
                shutil.copyfile(model.path, draft)
            else:
                write_shared(_lowered(proto, candidate, record), draft)
        return file

    def compile(self, lowered: Path, candidate: Candidate, to: Path) -> Artifact:
        toolchain = self.toolchain()
        int8_ops, float_matmuls_left, kernels = count_kernels(
            optimize(lowered, candidate, to, saturates=this_cpu().saturates)
        )
        return Artifact(
            target=self.name,
            files=(compiled_file(to, COMPILED), *(compiled_file(to, name) for name in weights_beside(to / COMPILED))),
            toolchain=toolchain,
            int8_ops=int8_ops,
            float_matmuls_left=float_matmuls_left,
            kernels=kernels,
        )

    def open(self, artifact: Artifact, directory: Path, candidate: Candidate, *, device: int = 0) -> Session:
        check_host_device(device)
        options = _options(candidate.serving.intra_op_threads)
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        file = directory / artifact.files[0].file
        try:
            if artifact.int8_ops and this_cpu().saturates and exact(graph := _graph(file)) is not graph:
                session = session_on(graph, options)
            else:
                session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        except RUNTIME_ERRORS as error:
            raise MeasureError(f"{file}: ONNX Runtime cannot load it: {first_line(error)}") from error
        return onnxruntime_session(session)

    def numerics_form(self, artifact: Artifact, directory: Path, candidate: Candidate) -> str:
        """The optimized graph with its constants: settings that left it as it is changed no bit."""
        return graph_form(_graph(directory / artifact.files[0].file), values=True)

    def time_form(
        self, artifact: Artifact, directory: Path, candidate: Candidate, *, batch: int, length: int | None
    ) -> str:
        """The optimized graph, whose operators are the kernels; one file takes every shape."""
        return graph_form(_graph(directory / artifact.files[0].file), values=False)

    def devices(self) -> int:
        return 1

    def probe(self, lowered: Path, tensors: Sequence[str]) -> Session:
        model, added = with_outputs(lowered, tensors)
        try:
            session = session_on(model, _options(1))
        except RUNTIME_ERRORS as error:
            raise MeasureError(f"{lowered}: ONNX Runtime cannot load it: {first_line(error)}") from error
        own = len(session.get_outputs()) - added
        floats = [o.name for i, o in enumerate(session.get_outputs()) if i < own or o.type == "tensor(float)"]
        return onnxruntime_session(session, floats)


def onnxruntime_session(session: onnxruntime.InferenceSession, outputs: Sequence[str] | None = None) -> FileSession:
    """See `workbench.targets.base.Session`. Equal feeds give bit-equal outputs.

    Args:
        outputs: those that are asked for; all when None.
    """
    inputs = [
        TensorSpec(name=one.name, dtype=_NUMPY_TYPES.get(one.type, ""), shape=tuple(one.shape))
        for one in session.get_inputs()
    ]
    names = list(outputs) if outputs is not None else [output.name for output in session.get_outputs()]
    rows = FileRows(inputs, session.get_outputs())
    return FileSession(named_outputs(session, names, "ONNX Runtime failed"), inputs, rows)


def _options(threads: int) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 4  # what it would print as an error, it raises as well
    return options


def _graph(file: Path) -> onnx.ModelProto:
    try:
        return graph_of(file)
    except ConfigError as error:
        raise MeasureError(f"{file}: cannot be read: {error}") from error


def _lowered(proto: onnx.ModelProto, candidate: Candidate, record: QuantizationRecord | None) -> onnx.ModelProto:
    proto = with_strides_moved_up(with_hard_sigmoids(proto)) if record is None else with_hard_sigmoids(proto)
    if record is not None:
        lowered = lower_static(proto, record)
        if candidate.quantization.elementwise == "int8":
            lowered = with_integers_between(lowered)
        return with_strides_moved_up(lowered)
    if candidate.quantization.scheme == "dynamic":
        assert candidate.quantization.weight_granularity is not None
        return lower_dynamic(proto, candidate.quantization.weight_granularity)
    return proto


# --- what is known to go wrong -------------------------------------------------------------------------------------


def _operator_issues(model: Model) -> list[OperatorIssue]:
    """What the runtime does not know: the opset, a domain, an operator."""
    proto = onnx.load(model.path, load_external_data=False)
    newest, known = _operators()
    source, issues = "operator schemas of the installed onnxruntime", []
    if model.opset > newest:
        problem = f"this ONNX Runtime knows opsets up to {newest}"
        remedy = f"Export the model with opset {newest} or lower; 17 suits every target."
        issues.append(OperatorIssue("error", f"opset {model.opset}", problem, remedy, source))
    own = {(function.domain, function.name) for function in proto.functions}
    problem = "ONNX Runtime does not know this operator"
    remedy = "Export the model without it, in the default domain only."
    for node in proto.graph.node:
        domain = "" if node.domain == "ai.onnx" else node.domain
        if (domain, node.op_type) not in known and (node.domain, node.op_type) not in own:
            operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
            issues.append(OperatorIssue("error", node.name or node.output[0], problem, remedy, source, operator))
    return issues


def _quantization_issues(model: Model, candidate: Candidate) -> list[OperatorIssue]:
    if candidate.quantization.scheme == "none":
        return []
    proto, issues = int8_issues(model)
    if proto is None:
        return issues
    problem = "its products stay float: a fused Attention has no Q/DQ form"
    remedy = "Quantize the unfused export; the runtime fuses what pays when it compiles."
    issues += [
        OperatorIssue("warning", node.name, problem, remedy, _MEASURED, "com.microsoft.Attention")
        for node in proto.graph.node
        if node.op_type == "Attention" and node.domain == "com.microsoft"
    ]
    if this_cpu().saturates:
        instead = "second operands are uint8, whose kernels are exact and slower than those of VNNI"
        issues.append(saturates(this_cpu(), instead=instead, source=_MEASURED))
    return issues


@cache
def _operators() -> tuple[int, frozenset[tuple[str, str]]]:
    """(newest opset, all (domain, operator)) of the installed runtime."""
    schemas = get_all_operator_schema()
    newest = max(schema.since_version for schema in schemas if schema.domain == "")
    return newest, frozenset((schema.domain, schema.name) for schema in schemas)


_WHOLE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_NUMPY_TYPES = {
    **{"tensor(float)": "float32", "tensor(double)": "float64", "tensor(float16)": "float16", "tensor(bool)": "bool"},
    **{f"tensor({name})": name for name in _WHOLE},
}


# --- whether it really computes in INT8 here: one layer is taken all the way ------------------------------------------


INT8 = Candidate(target="onnxruntime", quantization=Quantization(scheme="dynamic", weight_granularity="tensor"))

_GROUP = "target onnxruntime"
_INSTALL = f"Install the version the workbench pins: {install_command()}"


def onnxruntime_findings(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Required, and not only as a target: ONNX Runtime also runs the float model that everything is compared with."""
    target = open_target("onnxruntime")
    try:
        version = target.toolchain().components["onnxruntime"]
        kernels, seconds = run_int8_layer(INT8)
    except (ToolchainError, CandidateError) as error:
        yield Finding(group=_GROUP, name="usable", status="fail", value=f"no: {error}", remedy=_INSTALL)
        return
    yield Finding(
        group=_GROUP,
        name="usable",
        status="ok" if kernels else "fail",
        value=f"yes: {version}; a test layer was quantized, compiled and run in {seconds:.1f} s"
        if kernels
        else f"no: {version} left a quantized test layer in float",
        remedy="" if kernels else _INSTALL,
    )
