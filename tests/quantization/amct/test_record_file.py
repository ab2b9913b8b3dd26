"""The record file: AMCT's text to the byte, its reader's rules, and that both directions agree."""

import re

import numpy as np
import pytest

from tests.data import AMCT, AMCT_CASES
from tests.quantization.amct_files import conv, conv_transpose, matmul, pool, product
from workbench.graph.layers import Layer
from workbench.quantization.amct.record_file import parse_record, record_text
from workbench.quantization.record import QuantizationRecord
from workbench.values.errors import ConfigError

SHA = "0" * 64
LAYERS = (
    conv("conv1", (2, 3, 3, 3)),
    product("scores"),
    pool("pool"),
    matmul("fc1", (3, 4)),
    conv_transpose("up", (4, 1, 3, 3), groups=2),
    matmul("gemm", (4, 3), op_type="Gemm", transposed=True),
)
TEXT = """record {
  key: "conv1"
  value {
    scale_d: 0.03551018
    offset_d: 3
    scale_w: 0.0019344696
    scale_w: 0.0010342678
    offset_w: 0
    offset_w: 0
    act_type: "INT8"
    wts_type: "INT8"
  }
}
record {
  key: "pool"
  value {
    scale_d: 0.004723105
    offset_d: 22
    scale_w: 1.0
    offset_w: 0
    act_type: "INT8"
  }
}
record {
  key: "fc1"
  value {
    scale_d: 0.007708579
    offset_d: -17
    scale_w: 0.007432306
    offset_w: 0
    tensor_balance_factor: 3.0752144
    tensor_balance_factor: 2.8546426
    tensor_balance_factor: 3.8863168
    act_type: "INT8"
    wts_type: "INT8"
  }
}
"""
GOOD = {"scale_d": "0.5", "offset_d": "1", "scale_w": "0.25", "offset_w": "0"}


def parse(text: str, layers: tuple[Layer, ...] = LAYERS) -> QuantizationRecord:
    return parse_record(text, layers=layers, model_sha256=SHA, file="record.txt")


def entry(key: str = "fc1", **fields: str | None) -> str:
    given_fields = {name: value for name, value in {**GOOD, **fields}.items() if value is not None}
    body = "".join(f" {name}: {value}\n" for name, value in given_fields.items())
    return f'record {{\nkey: "{key}"\nvalue {{\n{body}}}\n}}\n'


def test_a_record_is_read_with_the_models_tensors_and_axes() -> None:
    record = parse(TEXT)

    first, second, third = record.layers
    assert (record.provenance.engine, record.model_sha256, record.fold_balance) == ("amct-file", SHA, False)
    assert record.float_layers == ("scores", "up", "gemm")
    assert (first.op_type, first.activation.tensor, first.activation.zero_point) == ("Conv", "conv1.in", 3)
    assert (first.weight.axis, len(first.weight.scales)) == (0, 2)
    assert (second.weight, second.second) == (None, None)
    assert (third.weight.axis, third.activation.tensor) == (None, "fc1.mul.output0")
    assert np.array_equal(third.balance, np.array([3.0752144, 2.8546426, 3.8863168], np.float32))


def layers_like(text: str) -> tuple[Layer, ...]:
    """Layers with the shapes a real record tells; its names are torch's module names, not the ONNX nodes'."""
    found = []
    for block in text.split("record {")[1:]:
        name = re.findall('key: "(.*)"', block)[0]
        scales, factors = block.count("scale_w"), block.count("tensor_balance_factor")
        if "wts_type" not in block:
            found.append(pool(name))
        elif scales > 1:
            found.append(conv(name, (scales, 3, 3, 3)))
        else:
            found.append(matmul(name, (factors or 8, 6)))
    return tuple(found)


@pytest.mark.parametrize("case", AMCT_CASES)
def test_real_records_are_written_back_to_the_byte(case: str) -> None:
    text = (AMCT / case / "record.txt").read_text()
    layers = layers_like(text)

    record = parse(text, layers)

    assert record_text(record) == text
    assert [each.layer for each in record.layers] == [layer.name for layer in layers]


def test_the_last_of_two_records_counts_and_an_empty_one_changes_nothing() -> None:
    empty = 'record { key: "fc1" value { skip_fusion: false } }'

    record = parse(entry(scale_d="0.5") + entry(scale_d="0.75") + empty)

    assert [layer.activation.scale for layer in record.layers] == [0.75]


def test_a_transposed_convolution_has_one_scale_per_output_channel_of_all_groups() -> None:
    record = parse(entry("up", scale_w="[0.1, 0.2]", offset_w="[0, 0]", tensor_balance_factor="[1, 2, 3, 4]"))

    assert record.layers[0].weight.axis == 1
    assert record.layers[0].balance == (1.0, 2.0, 3.0, 4.0)


def test_products_of_two_activations_survive_as_two_tensor_records() -> None:
    sides = [
        f'record {{ key: "scores:{i}" value {{ scale_d: 0.{i + 1} offset_d: 0 is_tensor_quantize: true }} }}'
        for i in (0, 1)
    ]

    record = parse("\n".join(sides))

    (layer,) = record.layers
    assert (layer.activation.tensor, layer.second.tensor) == ("scores.a", "scores.b")
    assert parse(record_text(record)).layers == record.layers
    with pytest.raises(ConfigError, match="Add the record 'scores:0'"):
        parse(sides[1])


def test_forced_float16_is_kept_and_may_not_be_mixed() -> None:
    forced = entry(fakequant_precision_mode='"FORCE_FP16_QUANT"')

    record = parse(forced)

    assert record.force_fp16
    assert record_text(record).count('fakequant_precision_mode: "FORCE_FP16_QUANT"') == 1
    with pytest.raises(ConfigError, match="not for every layer"):
        parse(forced + entry("gemm"))


def test_what_amcts_reader_refuses_is_refused_with_its_words_and_line() -> None:
    for text, line, reason in (
        ("", None, "record_file is empty, no layers to be quantized"),
        ('record { key: "fc1" value { } }', None, "no layer of the record has quantization factors"),
        ("record { value { scale_d: 1 } }", 1, 'Cannot find "key" in record file'),
        ('record { key: "fc1" }', 1, "cannot find 'value' in fc1 in record_file"),
        ("recrd { }", 1, "Did you mean 'record'"),
        (entry(scale_x="1"), 8, "no field 'scale_x'"),
        (entry("fc2"), 2, r"find fc2 failure in the model.*Did you mean 'fc1'"),
        (entry("fc1:0"), 2, "Tensor records"),
        (entry("scores"), 2, "'scores:0' and 'scores:1'"),
        (entry(scale_d=None), 3, "cannot find scale_d of layer fc1 in record_file, please check data calibration"),
        (entry(offset_w=None), 3, "cannot find offset_w of layer fc1"),
        (entry(scale_d="0"), 4, "scale_d's value shoule be in positivate range of float32 in layer fc1"),
        (entry(scale_d="1e39"), 4, "positivate range"),
        (entry(scale_d="nan"), 4, "positivate range"),
        (entry(scale_w="1e-50"), 6, "scale_w's value shoule be in positivate range"),
        (entry(offset_d="128"), 5, r"offset_d's value should be in \[-128, 127\]"),
        (entry(offset_d="1.5"), 5, "whole number"),
        (entry(offset_w="1"), 7, "offset_w's value should be 0"),
        (entry(shift_bit="0"), 8, "shift_bit is not support, please delete shift_bit"),
        (entry(scale_w="[1, 2]", offset_w="[0, 0]"), 6, r"length\(2\) should be equal to the 1 .*quantize fc1"),
        (entry("conv1", scale_w="[1, 2]"), 7, "should be equal in layer conv1"),
        (entry("conv1", scale_w="[1, 2, 3]", offset_w="[0, 0, 0]"), 6, r"length\(3\) should be equal to the 2"),
        (entry("pool", tensor_balance_factor="1"), 8, "tensor_balance_factor is not support"),
        (entry(tensor_balance_factor="[1, 1]"), 8, "length: 2 should be equal to .* fc1: 3"),
        (entry(tensor_balance_factor="[1, 1, 1e-8]"), 8, "FLT_EPSILON"),
        ('record { key: "fc1" value { tensor_balance_factor: [1, 1, 1] } }', 1, "cannot find scale_d"),
        (entry(act_type='"INT16"'), 8, "AMCT would use INT16; this engine lowers INT8 only"),
        (entry(act_type='"INT3"'), 8, "Do not support act_type INT3"),
        (entry(cluster="3"), 8, "NUQ"),
        (entry(scale_h="0.1"), 8, "LSTM"),
        (entry(op_data_type='"FLOAT16"'), 8, "float32 models only"),
        (entry(fakequant_precision_mode='"FP16"'), 8, "Do not support fakequant_precision_mode FP16"),
        (entry("conv1", skip_fusion="true"), 8, "unfused"),
    ):
        with pytest.raises(ConfigError, match=reason) as caught:
            parse(text)

        assert (caught.value.file, caught.value.line) == ("record.txt", line), text
