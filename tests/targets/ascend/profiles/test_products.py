"""Multiply-accumulates from the shapes of a table."""

import pytest

from workbench.targets.ascend.profiles.tables import Row
from workbench.targets.ascend.profiles.tasks import product_macs
from workbench.values.modelled_times.device_data import peak_tops


def macs(kind: str, shapes: str, result: str, formats: str = "ND;ND") -> int:
    places = {"input_shapes": 0, "output_shapes": 1, "input_formats": 2}
    return product_macs(kind, Row(places, [f'"{shapes}"', result, formats]))


@pytest.mark.parametrize(
    ("kind", "shapes", "result", "formats", "expected"),
    [
        ("MatMulV2", "16,64;64,32", "16,32", "ND;ND", 16 * 64 * 32),
        ("MatMulV2", "16,64;64,32;32", "16,32", "ND;ND;ND", 16 * 64 * 32),
        ("MatMulV3", "2,16,64;64,32", "2,16,32", "ND;ND", 2 * 16 * 64 * 32),
        ("BatchMatMul", "2,4,16,64;2,4,64,32", "2,4,16,32", "ND;ND", 8 * 16 * 64 * 32),
        ("BatchMatMul", "8,4,1,16,16;8,2,4,16,16", "8,2,1,16,16", "FRACTAL_NZ;FRACTAL_NZ", 8 * 16 * 64 * 32),
        ("MatMulV2", "16,64;2,4,16,16", "16,32", "ND;FRACTAL_NZ", 16 * 64 * 32),
        ("Conv2D", "1,3,224,224;64,3,7,7", "1,64,112,112", "NCHW;NCHW", 112 * 112 * 64 * 3 * 49),
        ("Conv2D", "1,1,224,224,16;49,4,16,16", "1,4,112,112,16", "NC1HWC0;FRACTAL_Z", 112 * 112 * 64 * 49 * 16),
        ("SoftmaxV2", "16,64", "16,64", "ND", -1),
        ("MatMulV2", "", "16,32", "", -1),
        ("MatMulV2", ";;", "", "", -1),
        ("MatMulV2", "a,b;c", "16", "ND;ND", -1),
        ("FlashAttentionMatMul", "1,2;2,3", "1,3", "ND;ND", -1),
        ("MatMulV2", ";".join(["999999999,999999999,999999999"] * 2), "999999999,999999999", "ND;ND", -1),
    ],
)
def test_multiply_accumulates(kind: str, shapes: str, result: str, formats: str, expected: int) -> None:
    assert macs(kind, shapes, result, formats) == expected


def test_the_peak_is_cores_by_clock_by_width() -> None:
    assert peak_tops("910B3", "float16") == pytest.approx(294.912)
    assert peak_tops("Ascend910B3", "int8") == pytest.approx(589.824)
    assert peak_tops("Ascend910B3", "float32") is None
    assert peak_tops("Ascend310P3", "float16") is None
    assert peak_tops("Ascend 910B4", "float16") == peak_tops("910B4", "float16")
