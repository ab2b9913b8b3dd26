"""The protocol's messages over gRPC, as far as a client needs them, made when this module is imported.

Names and numbers are those of the open inference protocol's definition (`inference.GRPCInferenceService`), which Triton
and KServe share. They are described here instead of generated, since packages that carry generated code
(tritonclient, kserve, mlserver) all demand an older protobuf than other libraries of one environment do. Fields that
are left out, such as parameters, are skipped by every reader of protocol buffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore[import-untyped]  # no types

PACKAGE = "inference"
SERVICE = f"/{PACKAGE}.GRPCInferenceService"

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
