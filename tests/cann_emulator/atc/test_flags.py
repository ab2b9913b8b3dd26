"""atc.md §1 (table of values) and §2 (the flags of 8.5.0)."""

import pytest

from tests.reference_pages import atc_flags, atc_values
from workbench.cann_emulator.atc.failure import AtcFailure
from workbench.cann_emulator.atc.flags import Malformed, known_flags, parse

KNOWN = known_flags((8, 5, 0))

NOT_IN_8_5_0 = """
optimization_switch jit_compile static_model_ops_lower_limit multi_stream_parallel_mode raw_ge_options
raw_ge_options_ignore_unsupported h2d_overlapped_with_compute hccl_sub_comm_config enable_attr_compression
deterministic_level
"""


def test_the_flags_of_8_5_0_are_those_of_the_reference_page() -> None:
    listed, named = atc_flags()

    assert listed - {"help"} <= set(KNOWN) <= named


def test_every_flag_of_8_5_0_takes_a_value() -> None:
    for name, flag in KNOWN.items():
        value = flag.values[-1] if flag.values else "anything at all"
        assert flag.about
        assert parse([f"--{name}={value}"], KNOWN) == {name: value}
        with pytest.raises(Malformed, match="missing its argument"):
            parse([f"--{name}"], KNOWN)


def test_a_newer_flag_is_unknown_and_a_maintenance_release_knows_one_more() -> None:
    for name in NOT_IN_8_5_0.split():
        with pytest.raises(Malformed, match=f"unknown command line flag '{name}'"):
            parse([f"--{name}=1"], KNOWN)
    assert set(known_flags((8, 5, 1))) - set(KNOWN) == {"deterministic_level"}
    assert parse(["--deterministic_level=2"], known_flags((8, 5, 1))) == {"deterministic_level": "2"}


def test_values_of_the_table_are_accepted_and_any_other_is_rejected_with_its_code() -> None:
    """The allowed values are told alphabetically, in brackets."""
    assert {name for name, flag in KNOWN.items() if flag.values} == set(atc_values())
    for name, (values, code) in atc_values().items():
        for value in values:
            assert parse([f"--{name}", value], KNOWN) == {name: value}
        for wrong in ("", "2.0", "7", "nonsense", " 1"):
            with pytest.raises(AtcFailure) as caught:
                parse([f"--{name}={wrong}"], KNOWN)
            (record,) = caught.value.records
            assert record.code == code, name
            if code == "E10001":
                assert record.arguments["parameter"] == f"--{name}"
                assert " ".join(f"[{value}]" for value in sorted(values)) in record.arguments["reason"]
