"""atc.md §3.1 (bfloat16), §2.1 (aicore_num), §7.2 (names)."""

from collections.abc import Callable

import pytest

from workbench.cann_emulator.atc.engine import check_aicore_num, check_engine_options, check_soc_version
from workbench.cann_emulator.atc.failure import AtcFailure, Record

FAMILY_910B = ["Ascend910B1", "Ascend910B2", "Ascend910B2C", "Ascend910B3", "Ascend910B4", "Ascend910B4-1"]


def refused(call: Callable[[], object]) -> Record:
    with pytest.raises(AtcFailure) as caught:
        call()
    (record,) = caught.value.records
    return record


def test_a_known_chip_is_itself_and_an_unknown_one_is_refused_by_the_runtime() -> None:
    """runtime v8.5.0 api_c_soc.cc:84; the last three are of older releases."""
    for name in (*FAMILY_910B, "Ascend310P3", "Ascend910A", "Ascend910B", "Ascend910_9362", "Ascend035"):
        assert check_soc_version(name) == name
    assert check_soc_version("Ascend910") == "Ascend910A"
    wrong = ("910B3", "ascend910b3", "Ascend910B5", "Ascend310P", "Ascend", "Ascend910B3 ", "")
    for name in (*wrong, "Ascend310", "Ascend710", "Ascend310P3Vir01"):
        record = refused(lambda name=name: check_soc_version(name))
        assert record.code == "EE1001"
        assert name in record.arguments["extend_info"]


def test_a_bfloat16_mode_needs_a_chip_that_has_it() -> None:
    for flag, mode in (("precision_mode", "allow_fp32_to_bf16"), ("precision_mode_v2", "mixed_bfloat16")):
        assert check_engine_options({"soc_version": "Ascend910B3", flag: mode}) == "Ascend910B3"
        record = refused(lambda flag=flag, mode=mode: check_engine_options({"soc_version": "Ascend310P3", flag: mode}))
        assert (record.code, record.arguments["parameter"]) == ("E20101", f"ge.exec.{flag}")


def test_cores_are_one_or_two_numbers_up_to_the_chips() -> None:
    for value in ("", "20|40", "1|1", "20", "8"):
        check_aicore_num("Ascend910B3", value)
    for code, values in (
        ("E10001", ("0|40", "-1", "20|", "a", "²", "9" * 5000, "1|2|3")),
        ("E20103", ("21|40", "20|41", "21")),
    ):
        for value in values:
            assert refused(lambda value=value: check_aicore_num("Ascend910B3", value)).code == code, value
