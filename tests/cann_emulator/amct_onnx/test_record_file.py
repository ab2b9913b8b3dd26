"""Factors inserted into the record file's text (amct.md §1.7), and models with data outside."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.quantization.amct_files import matmul
from tests.quantization.golden import mlp
from workbench.cann_emulator.amct_onnx.files import write_external
from workbench.cann_emulator.amct_onnx.record_file import (
    balance_factors,
    balance_records,
    weight_records,
    with_activation,
)
from workbench.quantization.amct.record_file import parse_record
from workbench.quantization.record import ActivationScale, WeightScale


def activation(scale: float, offset: int) -> ActivationScale:
    return ActivationScale(tensor="x", scale=scale, zero_point=offset, low=-1.0, high=1.0)


@given(
    name=st.text(min_size=1, max_size=12).filter(lambda text: text.isprintable()),
    scale=st.floats(2.0**-40, 2.0**40, width=32),
    offset=st.integers(-128, 127),
)
@settings(max_examples=100, deadline=None)
def test_ten_digits_keep_every_float32_under_any_layer_name(name: str, scale: float, offset: int) -> None:
    text = weight_records(
        ["before", name], {key: WeightScale(scales=(0.5,), axis=None) for key in ("before", name)}, {}
    )

    text = with_activation(text, name, activation(scale, offset), force_fp16=False)
    if name != "before":
        text = with_activation(text, "before", activation(1.0, 0), force_fp16=False)

    layers = tuple(matmul(key) for key in dict.fromkeys(("before", name)))
    record = parse_record(text, layers=layers, model_sha256="0" * 64)
    found = next(layer.activation for layer in record.layers if layer.layer == name)
    assert (np.float32(found.scale), found.zero_point) == (np.float32(scale), offset)


def test_another_layout_is_not_found() -> None:
    """The library looks for two exact lines; it does not parse."""
    with pytest.raises(RuntimeError, match="cannot find layer fc1"):
        with_activation('record { key: "fc1" value { scale_w: 1 } }', "fc1", activation(1.0, 0), force_fp16=False)


def test_forced_half_precision_is_marked() -> None:
    text = weight_records(["fc1"], {"fc1": WeightScale(scales=(0.5,), axis=None)}, {})

    assert 'fakequant_precision_mode: "FORCE_FP16_QUANT"' in with_activation(
        text, "fc1", activation(0.25, 0), force_fp16=True
    )


def test_balance_factors_are_read_as_they_were_written() -> None:
    factors = {"a": (1.5, 0.25), "b": (float(np.float32(0.1)),)}

    assert balance_factors(balance_records(factors), file=Path("record.txt")) == factors


def test_a_model_too_large_for_one_file_has_a_file_for_each_tensor(tmp_path: Path) -> None:
    """amct.md §1.3: `<tensor>_deploy.external` next to the model."""
    proto = mlp()
    expected = proto.SerializeToString(deterministic=True)

    write_external(proto, tmp_path / "net_deploy_model.onnx", "deploy")
    onnx.save(proto, tmp_path / "net_deploy_model.onnx")

    assert (tmp_path / "fc1.weight_deploy.external").stat().st_size == 6 * 8 * 4
    loaded = onnx.load(tmp_path / "net_deploy_model.onnx")
    for tensor in loaded.graph.initializer:
        del tensor.external_data[:]
        tensor.ClearField("data_location")
    assert loaded.SerializeToString(deterministic=True) == expected
