"""What the tests of AMCT's files share: layers by hand, and protobuf's own parser as a peer."""

from dataclasses import replace

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from workbench.graph.layers import Layer


def conv(name: str, shape: tuple[int, ...] = (4, 3, 3, 3), groups: int = 1) -> Layer:
    return Layer(
        name=name,
        op_type="Conv",
        activation=f"{name}.in",
        output=f"{name}.out",
        weight=f"{name}.weight",
        weight_shape=shape,
        output_axis=0,
        groups=groups,
    )


def conv_transpose(name: str, shape: tuple[int, ...] = (4, 2, 3, 3), groups: int = 1) -> Layer:
    return replace(conv(name, shape, groups), op_type="ConvTranspose", output_axis=1)


def matmul(
    name: str, shape: tuple[int, ...] = (8, 6), *, op_type: str = "MatMul", weight: str = "", transposed: bool = False
) -> Layer:
    return Layer(
        name=name,
        op_type=op_type,
        activation=f"{name}.in",
        output=f"{name}.out",
        weight=weight or f"{name}.weight",
        weight_shape=shape,
        output_axis=0 if transposed else 1,
        transposed=transposed,
    )


def product(name: str) -> Layer:
    return Layer(name=name, op_type="MatMul", activation=f"{name}.a", output=f"{name}.out", second=f"{name}.b")


def pool(name: str) -> Layer:
    return Layer(name=name, op_type="AveragePool", activation=f"{name}.in", output=f"{name}.out")


# --- the schemas of amct.md §2.2 and §3.1, for protobuf's own parser ------------------------------------------------

_KINDS = {"float": 2, "int32": 5, "bool": 8, "string": 9, "uint32": 13}
_CALIBRATION = {
    "arq_quantize": "ArqQuantize weights",
    "ada_quantize": "AdaQuantize weights",
    "nuq_quantize": "NuqQuantize weights",
    "ifmr_quantize": "IfmrQuantize activations",
    "hfmg_quantize": "HfmgQuantize activations",
    "dmq_balancer": "DmqBalancer",
}
_SCHEMA: dict[str, dict[str, str]] = {
    "ArqQuantize": {"channel_wise": "bool", "quant_bits": "uint32"},
    "AdaQuantize": {
        "num_iteration": "uint32",
        "reg_param": "float",
        "beta_range_start": "float",
        "beta_range_end": "float",
        "warm_start": "float",
        "channel_wise": "bool",
    },
    "NuqQuantize": {"num_steps": "uint32", "num_of_iteration": "uint32"},
    "IfmrQuantize": {
        "search_range_start": "float",
        "search_range_end": "float",
        "search_step": "float",
        "max_percentile": "float",
        "min_percentile": "float",
        "asymmetric": "bool",
        "dst_type": "enum INT8 INT16",
    },
    "HfmgQuantize": {"num_of_bins": "uint32", "asymmetric": "bool", "dst_type": "enum INT8 INT16"},
    "DmqBalancer": {"migration_strength": "float"},
    "CalibrationConfig": _CALIBRATION,
    "NuqConfig": {"mapping_file": "string", "nuq_quantize": "NuqQuantize"},
    "OverrideLayerType": {"layer_type": "string", "calibration_config": "CalibrationConfig"},
    "OverrideLayer": {"layer_name": "string", "calibration_config": "CalibrationConfig"},
    "TensorQuantize": {
        "layer_name": "string",
        "input_index": "uint32",
        "ifmr_quantize": "IfmrQuantize activations",
        "hfmg_quantize": "HfmgQuantize activations",
    },
    "AMCTConfig": {
        "batch_num": "uint32",
        "activation_offset": "bool",
        "skip_layers": "repeated string",
        "skip_layer_types": "repeated string",
        "nuq_config": "NuqConfig",
        "joint_quant": "bool",
        "fakequant_precision_mode": "enum FORCE_FP16_QUANT",
        "common_config": "CalibrationConfig",
        "override_layer_types": "repeated OverrideLayerType",
        "override_layer_configs": "repeated OverrideLayer",
        "do_fusion": "bool",
        "skip_fusion_layers": "repeated string",
        "tensor_quantize": "repeated TensorQuantize",
    },
    "SingleLayerRecord": {
        "scale_d": "float",
        "offset_d": "int32",
        "scale_w": "repeated float",
        "offset_w": "repeated int32",
        "shift_bit": "repeated uint32",
        "skip_fusion": "bool",
        "is_tensor_quantize": "bool",
        "tensor_balance_factor": "repeated float",
        "op_data_type": "string",
        "act_type": "string",
        "wts_type": "string",
        "fakequant_precision_mode": "string",
    },
    "MapFiledEntry": {"key": "string", "value": "SingleLayerRecord"},
    "ScaleOffsetRecord": {"record": "repeated MapFiledEntry"},
}


def _peers() -> dict[str, type]:
    """Message classes of the schema; a second word in a type names the oneof the field belongs to."""
    file = descriptor_pb2.FileDescriptorProto(name="amct_for_tests.proto", package="amct_for_tests", syntax="proto2")
    for name, fields in _SCHEMA.items():
        message = file.message_type.add(name=name)
        for number, (field_name, kind) in enumerate(fields.items(), start=1):
            words = kind.split()
            field = message.field.add(name=field_name, number=number, label=1)
            if words[0] == "repeated":
                field.label, words = 3, words[1:]
            if words[0] == "enum":
                enum = message.enum_type.add(name=f"{field_name}_values")
                for position, value in enumerate(words[1:], start=1):
                    enum.value.add(name=value, number=position)
                field.type, field.type_name = 14, f".amct_for_tests.{name}.{enum.name}"
            elif words[0] in _KINDS:
                field.type = _KINDS[words[0]]
            else:
                field.type, field.type_name = 11, f".amct_for_tests.{words[0]}"
                if len(words) > 1:
                    names = [each.name for each in message.oneof_decl]
                    if words[1] not in names:
                        message.oneof_decl.add(name=words[1])
                        names.append(words[1])
                    field.oneof_index = names.index(words[1])
    pool_of_types = descriptor_pool.DescriptorPool()
    pool_of_types.Add(file)
    return {
        name: message_factory.GetMessageClass(pool_of_types.FindMessageTypeByName(f"amct_for_tests.{name}"))
        for name in _SCHEMA
    }


PEERS = _peers()
"""Message name → class of the real protobuf library."""
