"""Files of what micro-benchmarks measured: read whole or refused with their place."""

import json
from pathlib import Path

import pytest

from workbench.values.errors import ConfigError
from workbench.values.modelled_times.measured import read_measured

GOOD = {"version": 1, "device": "a card", "emulated": False, "measured": {"int8_gain": {"value": 1.4, "unit": "x"}}}


def test_values_are_read_by_name(tmp_path: Path) -> None:
    file = tmp_path / "clock.json"
    file.write_text(json.dumps(GOOD))

    found = read_measured(file)

    assert (found.device, found.values) == ("a card", {"int8_gain": 1.4})
    assert found.words() == "int8_gain 1.4, measured on a card"


def test_a_file_that_is_damaged_or_says_nothing_of_a_device_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "clock.json"
    for change, message in (
        ({"version": 2}, "no file of measured unknowns"),
        ({"measured": []}, "no file of measured unknowns"),
        ({"emulated": True}, "measured on an emulated device"),
        ({"measured": {"a": {"value": 0}}}, "measured.a.value: 0 is not a positive number"),
        ({"measured": {"a": {"value": True}}}, "True is not a positive number"),
        ({"measured": {"a": 3}}, "None is not a positive number"),
        ("", r"clock\.json"),
        ("[", r"clock\.json"),
        ('{"version": 1, "measured": {"a": {"value": NaN}}}', r"clock\.json"),
    ):
        file.write_text(change if isinstance(change, str) else json.dumps(GOOD | change))
        with pytest.raises(ConfigError, match=message):
            read_measured(file)
