"""atc.md §3.1 (bfloat16), §2.1 (aicore_num), §7.2 (names)."""

import pytest

from workbench.cann_emulator.atc.engine import check_aicore_num, check_engine_options, check_soc_version, has_bf16
from workbench.cann_emulator.atc.failure import AtcFailure

FAMILY_910B = ["Ascend910B1", "Ascend910B2", "Ascend910B2C", "Ascend910B3", "Ascend910B4", "Ascend910B4-1"]
OTHERS = [
    *("Ascend310P1", "Ascend310P3", "Ascend310P5", "Ascend310P7", "Ascend310B1", "Ascend310B4"),
    *("Ascend910A", "Ascend910B", "Ascend910ProA", "Ascend910ProB", "Ascend910PremiumA", "Ascend610"),
    *("Ascend910_9362", "Ascend910_9392", "Ascend035"),
]


@pytest.mark.parametrize("name", FAMILY_910B + OTHERS)
def test_a_known_chip_is_itself(name: str) -> None:
    assert check_soc_version(name) == name


def test_ascend910_is_read_as_ascend910a() -> None:
    assert check_soc_version("Ascend910") == "Ascend910A"


@pytest.mark.parametrize(
    "name",
    [
        *("910B3", "ascend910b3", "Ascend910B5", "Ascend310P", "x", "Ascend", "Ascend910C", "Ascend910B3 ", ""),
        *("Ascend310", "Ascend710", "Ascend310P3Vir01"),  # of older releases
    ],
)
def test_an_unknown_chip_is_refused_by_the_runtime(name: str) -> None:
    """runtime v8.5.0 api_c_soc.cc:84."""
    with pytest.raises(AtcFailure) as caught:
        check_soc_version(name)

    (record,) = caught.value.records
    assert record.code == "EE1001"
    assert name in record.arguments["extend_info"]


def test_the_first_generations_910b_is_another_chip_without_bfloat16() -> None:
    assert all(map(has_bf16, FAMILY_910B))
    assert not has_bf16("Ascend910B")
    assert not has_bf16("Ascend310P3")


@pytest.mark.parametrize(
    ("flag", "mode"),
    [
        ("precision_mode", "allow_mix_precision_bf16"),
        ("precision_mode", "allow_fp32_to_bf16"),
        ("precision_mode_v2", "mixed_bfloat16"),
    ],
)
def test_a_bfloat16_mode_needs_a_chip_that_has_it(flag: str, mode: str) -> None:
    assert check_engine_options({"soc_version": "Ascend910B3", flag: mode}) == "Ascend910B3"
    with pytest.raises(AtcFailure) as caught:
        check_engine_options({"soc_version": "Ascend310P3", flag: mode})

    (record,) = caught.value.records
    assert (record.code, record.arguments["parameter"]) == ("E20101", f"ge.exec.{flag}")


@pytest.mark.parametrize("value", ["", "20|40", "1|1", "20", "8"])
def test_cores_up_to_the_chips_number(value: str) -> None:
    check_aicore_num("Ascend910B3", value)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("0|40", "E10001"),
        ("-1", "E10001"),
        ("20|", "E10001"),
        ("a", "E10001"),
        ("²", "E10001"),
        ("9" * 5000, "E10001"),
        ("1|2|3", "E10001"),
        ("21|40", "E20103"),
        ("20|41", "E20103"),
        ("21", "E20103"),
    ],
)
def test_other_numbers_of_cores(value: str, code: str) -> None:
    with pytest.raises(AtcFailure) as caught:
        check_aicore_num("Ascend910B3", value)

    assert caught.value.records[0].code == code


def test_a_slice_of_a_device_and_the_l1_buffer_do_not_go_together() -> None:
    with pytest.raises(AtcFailure) as caught:
        check_engine_options({"soc_version": "Ascend910B3", "virtual_type": "1", "buffer_optimize": "l1_optimize"})

    assert caught.value.records[0].code == "E20101"
