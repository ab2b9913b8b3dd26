"""The protocol over gRPC: metadata, requests with raw contents, as Triton's own clients send them, and answers.

grpcio is the extra `[kserve]` and imported where a call is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from workbench.load.kserve.datatypes import BYTES, from_bytes, from_numbers, to_bytes
from workbench.load.kserve.messages import CONTENTS_OF, SERVICE, message
from workbench.load.kserve.served import ServedModel, ServedTensor
from workbench.load.requests import Request
from workbench.values.errors import ConfigError, MeasureError, ToolchainError
from workbench.values.preprocess import Array
from workbench.values.versions import install_command

if TYPE_CHECKING:
    import grpc

INFER = f"{SERVICE}/ModelInfer"
DEFAULT_PORT = 8001
"""Triton's."""
OPTIONS = (
    ("grpc.max_receive_message_length", 256 << 20),
    ("grpc.max_send_message_length", 256 << 20),
    ("grpc.use_local_subchannel_pool", 1),  # a connection for each channel, as separate clients have
)
_TIMEOUT_S = 30.0


def grpc_library() -> Any:
    """The module grpc.

    Raises:
        ToolchainError: it is not installed.
    """
    try:
        import grpc
    except ImportError as error:
        raise ToolchainError(f"gRPC takes grpcio. Run: {install_command('kserve')}") from error
    return grpc


def target_of(url: str) -> str:
    """host:port of a grpc:// URL."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return f"[{host}]:{parts.port or DEFAULT_PORT}" if ":" in host else f"{host}:{parts.port or DEFAULT_PORT}"


def grpc_model(url: str, name: str, version: str) -> ServedModel:
    """Ask a server for its model's metadata.

    Raises:
        ConfigError: nobody answers, not with this protocol, or there is no such model.
        ToolchainError: grpcio is not installed.
    """
    if not name:
        raise ConfigError("which model is asked?", key="--model", hint="Name it with --model NAME.")
    grpc = grpc_library()
    with grpc.insecure_channel(target_of(url), options=OPTIONS) as channel:
        try:
            server = _call(channel, "ServerMetadata", message("ServerMetadataRequest")())
            found = _call(channel, "ModelMetadata", message("ModelMetadataRequest")(name=name, version=version))
        except grpc.RpcError as error:
            words = f"{error.code().name}: {error.details()}"
            raise ConfigError(f"{url} does not tell of a model {name!r}: {words[:300]}.", key="url, --model") from error
    return ServedModel(
        url=url,
        name=name,
        version=version,
        platform=found.platform,
        inputs=_tensors(found.inputs),
        outputs=_tensors(found.outputs),
        server=f"{server.name} {server.version}".strip(),
        extensions=tuple(server.extensions),
    )


def infer_message(feeds: Mapping[str, Array], model: ServedModel) -> Request:
    """One request, serialized."""
    datatypes = {tensor.name: tensor.datatype for tensor in model.inputs}
    asked = message("ModelInferRequest")(model_name=model.name, model_version=model.version)
    for name, array in feeds.items():
        asked.inputs.add(name=name, datatype=datatypes[name], shape=list(array.shape))
        asked.raw_input_contents.append(to_bytes(array, datatypes[name]))
    return Request(body=asked.SerializeToString())


def grpc_ask(channel: grpc.Channel, request: Request) -> dict[str, Array]:
    """The outputs of one request, by the server's names.

    Raises:
        MeasureError: an error's code with the server's words, or no answer of this protocol.
    """
    library = grpc_library()
    call = channel.unary_unary(INFER)
    try:
        content = call(request.body, timeout=_TIMEOUT_S)
    except library.RpcError as error:
        raise MeasureError(f"ModelInfer: {error.code().name}: {str(error.details())[:300]}") from error
    return outputs_of(message("ModelInferResponse").FromString(content))


def outputs_of(answer: Any) -> dict[str, Array]:
    """The numbers of a ModelInferResponse; texts are left out.

    Raises:
        MeasureError: contents that do not fit their shape.
    """
    outputs = {}
    raw = list(answer.raw_output_contents)
    if raw and len(raw) != len(answer.outputs):
        raise MeasureError(f"the answer has {len(answer.outputs)} outputs and {len(raw)} raw contents.")
    for place, tensor in enumerate(answer.outputs):
        if tensor.datatype == BYTES:
            continue
        shape = tuple(tensor.shape)
        if raw:
            outputs[tensor.name] = from_bytes(raw[place], tensor.datatype, shape, tensor.name)
        else:
            numbers = list(getattr(tensor.contents, CONTENTS_OF.get(tensor.datatype, "bytes_contents")))
            outputs[tensor.name] = from_numbers(numbers, tensor.datatype, shape, tensor.name)
    return outputs


def _call(channel: Any, method: str, request: Any) -> Any:
    call = channel.unary_unary(
        f"{SERVICE}/{method}",
        request_serializer=type(request).SerializeToString,
        response_deserializer=message(f"{method}Response").FromString,
    )
    return call(request, timeout=_TIMEOUT_S)


def _tensors(entries: Any) -> tuple[ServedTensor, ...]:
    return tuple(ServedTensor(name=e.name, datatype=e.datatype, shape=tuple(e.shape)) for e in entries)
