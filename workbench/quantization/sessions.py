"""The float model in ONNX Runtime, whole or changed, with more of its tensors as outputs; weights stay in files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy.typing as npt
import onnx
import onnxruntime
from google.protobuf.message import EncodeError  # type: ignore[import-untyped]  # protobuf ships no stubs
from onnx import TensorProto, helper

from workbench.graph.read import stored_graph
from workbench.graph.runtime_errors import RUNTIME_ERRORS
from workbench.graph.write import MOST_BYTES, WEIGHTS_FOLDER, is_apart, runnable
from workbench.quantization.exact_operands import exact
from workbench.values.errors import CalibrationError, MeasureError
from workbench.values.model import Model
from workbench.values.system.cpu import this_cpu


def open_session(
    model: Model, extra_outputs: Iterable[str], proto: onnx.ModelProto | None = None, *, threads: int = 1
) -> onnxruntime.InferenceSession:
    """The float model in ONNX Runtime, with more of its float32 tensors as outputs.

    Args:
        proto: a graph with the model's inputs and outputs to run in its place, weights included.
        threads: of one run; they do not spin while they wait.

    Raises:
        CalibrationError: the runtime refuses the model.
        ConfigError: its file is not what it was.
    """
    options = _options()
    if threads > 1:
        options.intra_op_num_threads = threads
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    more = onnx.ModelProto()
    known = {spec.name for spec in model.outputs}
    names = [name for name in extra_outputs if name not in known]
    more.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names)
    try:
        # Serialized protobuf messages merge when they are joined; the caller's graph is not changed.
        return session_on(stored_graph(model) if proto is None else proto, options, more=more.SerializeToString())
    except RUNTIME_ERRORS as error:
        raise CalibrationError(f"ONNX Runtime refuses {model.path.name}: {error}") from error


def session_on(
    proto: onnx.ModelProto,
    options: onnxruntime.SessionOptions | None = None,
    *,
    more: bytes = b"",
    without: Sequence[str] = (),
) -> onnxruntime.InferenceSession:
    """A session on a graph, which may refer to weights apart; the runtime maps those from their files.

    Its 8-bit products are exact: where this processor's would not be, other operands are used (`exact_operands`).

    Args:
        more: a serialized model that is merged with the graph.
        without: names of optimizers that stay off.

    Raises:
        CalibrationError: larger than a protobuf may be, with all its weights in memory.
        Exception: one of `RUNTIME_ERRORS` where the runtime refuses it.
    """
    options = _options() if options is None else options
    given: dict[str, Any] = {"providers": ["CPUExecutionProvider"], "disabled_optimizers": list(without) or None}
    proto = exact(proto) if this_cpu().saturates else proto
    if not is_apart(proto):
        try:
            payload = proto.SerializeToString()  # asking for its size first would serialize it once more
        except EncodeError as error:
            raise CalibrationError(
                f"the model has more than the {MOST_BYTES} bytes of constants in its nodes that can be run. "
                "Export it with its weights as initializers."
            ) from error
        return onnxruntime.InferenceSession(payload + more, options, **given)
    with runnable(proto) as (payload, folder):
        options.add_session_config_entry(WEIGHTS_FOLDER, str(folder))
        return onnxruntime.InferenceSession(payload + more, options, **given)


def named_outputs(
    session: onnxruntime.InferenceSession, names: Sequence[str], failed: str
) -> Callable[[Mapping[str, npt.NDArray[Any]]], dict[str, npt.NDArray[Any]]]:
    """What a session gives of these outputs for its feeds, by name. Raises MeasureError, which begins with `failed`,
    where the runtime refuses the feeds or fails."""

    def call(feeds: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        try:
            values = session.run(names, dict(feeds))
        except RUNTIME_ERRORS as error:
            raise MeasureError(f"{failed}: {first_line(error)}") from error
        return dict(zip(names, values, strict=True))

    return call


def first_line(error: Exception) -> str:
    """What a runtime says first."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _options() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return options
