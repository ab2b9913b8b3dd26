"""The protocol over gRPC: metadata, requests with raw contents, as Triton's own clients send them, and answers;
and the load generator's connection, a channel of its own with at most one call in flight.

The protocol's messages are described here, as far as a client needs them, by the names and numbers of its definition
(`inference.GRPCInferenceService`), which Triton and KServe share; packages that carry generated code (tritonclient,
kserve, mlserver) all demand an older protobuf than other libraries of one environment do. Fields that are left out,
such as parameters, are skipped by every reader of protocol buffers.

grpcio is the extra `[kserve]` and imported where a call is made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore[import-untyped]  # no types

from workbench.load.client import Clients, Connected
from workbench.load.http1 import CLOSED, GARBAGE
from workbench.load.kserve.served import BYTES, ServedModel, ServedTensor, from_bytes, from_numbers, to_bytes
from workbench.load.requests import Request
from workbench.values.errors import ConfigError, MeasureError, ToolchainError
from workbench.values.preprocess import Array
from workbench.values.versions import install_command

if TYPE_CHECKING:
    import grpc

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
        import grpc.aio
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


PACKAGE = "inference"
SERVICE = f"/{PACKAGE}.GRPCInferenceService"
INFER = f"{SERVICE}/ModelInfer"

_Field = tuple[str, int, str]
"""Name, number, type; `*` before a type says repeated."""
_CONTENTS: tuple[_Field, ...] = (
    ("bool_contents", 1, "*bool"),
    ("int_contents", 2, "*int32"),
    ("int64_contents", 3, "*int64"),
    ("uint_contents", 4, "*uint32"),
    ("uint64_contents", 5, "*uint64"),
    ("fp32_contents", 6, "*float"),
    ("fp64_contents", 7, "*double"),
    ("bytes_contents", 8, "*bytes"),
)
_NAMED: tuple[_Field, ...] = (("name", 1, "string"), ("datatype", 2, "string"), ("shape", 3, "*int64"))
_TENSOR: tuple[_Field, ...] = (*_NAMED, ("contents", 5, "InferTensorContents"))
_ASKED: tuple[_Field, ...] = (("name", 1, "string"), ("version", 2, "string"))
MESSAGES: dict[str, tuple[_Field, ...]] = {
    "ServerMetadataRequest": (),
    "ServerMetadataResponse": (("name", 1, "string"), ("version", 2, "string"), ("extensions", 3, "*string")),
    "ModelMetadataRequest": _ASKED,
    "ModelMetadataResponse": (
        ("name", 1, "string"),
        ("versions", 2, "*string"),
        ("platform", 3, "string"),
        ("inputs", 4, "*ModelMetadataResponse.TensorMetadata"),
        ("outputs", 5, "*ModelMetadataResponse.TensorMetadata"),
    ),
    "ModelMetadataResponse.TensorMetadata": _NAMED,
    "InferTensorContents": _CONTENTS,
    "ModelInferRequest": (
        ("model_name", 1, "string"),
        ("model_version", 2, "string"),
        ("id", 3, "string"),
        ("inputs", 5, "*ModelInferRequest.InferInputTensor"),
        ("raw_input_contents", 7, "*bytes"),
    ),
    "ModelInferRequest.InferInputTensor": _TENSOR,
    "ModelInferResponse": (
        ("model_name", 1, "string"),
        ("model_version", 2, "string"),
        ("id", 3, "string"),
        ("outputs", 5, "*ModelInferResponse.InferOutputTensor"),
        ("raw_output_contents", 6, "*bytes"),
    ),
    "ModelInferResponse.InferOutputTensor": _TENSOR,
}
"""Message → its fields; a name with a dot is a message inside of another."""
CONTENTS_OF = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "INT64": "int64_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
"""Where a tensor's numbers are when they are not raw; FP16 is always raw."""


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="open_inference.proto", package=PACKAGE, syntax="proto3")
    made: dict[str, Any] = {}
    for name in sorted(MESSAGES, key=lambda name: name.count(".")):
        outer, _, inner = name.rpartition(".")
        made[name] = made[outer].nested_type.add(name=inner) if outer else file.message_type.add(name=inner)
        _add_fields(made[name], MESSAGES[name])
    return file


def _add_fields(message: Any, fields: Sequence[_Field]) -> None:
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, number, written in fields:
        kind = written.removeprefix("*")
        label = kinds.LABEL_REPEATED if written.startswith("*") else kinds.LABEL_OPTIONAL
        field = message.field.add(name=name, number=number, label=label)
        if kind in MESSAGES:
            field.type, field.type_name = kinds.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
        else:
            field.type = kinds.Type.Value(f"TYPE_{kind.upper()}")


_POOL = descriptor_pool.DescriptorPool()  # of its own: another package's messages have the same names
_POOL.Add(_file())


def message(name: str) -> Any:
    """The class of a message."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{PACKAGE}.{name}"))


_STATUS_OF: Mapping[str, int] = {
    "OK": 200,
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": 499,
    "UNKNOWN": 500,
    "INTERNAL": 500,
    "DATA_LOSS": 500,
    "UNIMPLEMENTED": 501,
    "DEADLINE_EXCEEDED": 504,
}
"""Code → HTTP status, as google.rpc.Code maps them. UNAVAILABLE is missing: the connection is lost then."""


class GrpcConnection(Connected):
    """One client. A code other than OK is an answer with a status; a lost connection is none."""

    __slots__ = ("_call", "_channel", "_infer", "_task")

    def __init__(self, clients: Clients, intended_s: float) -> None:
        super().__init__(clients, intended_s)
        library, target = grpc_library(), target_of(clients.plan.url)
        self._channel: Any = library.aio.insecure_channel(target, options=OPTIONS)
        self._infer = self._channel.unary_unary(INFER)
        self._task: asyncio.Task[None] | None = None
        self._call: Any = None

    async def open(self) -> None:
        try:
            await self._channel.channel_ready()
        except asyncio.CancelledError:  # nobody answers in time
            await self._channel.close()
            raise
        self.clients.connected(self)

    def send(self, request: bytes, intended_s: float) -> None:
        super().send(request, intended_s)
        self._call = self._infer(request)
        self._task = asyncio.get_running_loop().create_task(self._answered(self._call))

    async def _answered(self, call: Any) -> None:
        try:
            code = "OK" if await call is not None else "UNKNOWN"
        except grpc_library().RpcError as error:
            code = error.code().name
        except asyncio.CancelledError:  # given up, or the end
            return
        if not self.busy:
            return
        if code == "UNAVAILABLE":
            self._finish(CLOSED)
            self.close()
            return
        self._finish(_STATUS_OF.get(code, GARBAGE))
        self.clients.idle(self)

    def close(self) -> None:
        if self._channel is None:
            return
        channel, self._channel = self._channel, None
        if self._call is not None:
            self._call.cancel()
        self.clients.ending(asyncio.get_running_loop().create_task(channel.close()))
        self.clients.lost(self)


async def open_grpc(clients: Clients, intended_s: float) -> None:
    """One connection more; raises TimeoutError where nobody answers within the plan's timeout."""
    await GrpcConnection(clients, intended_s).open()
