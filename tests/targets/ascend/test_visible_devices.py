"""ASCEND_RT_VISIBLE_DEVICES: pyacl.md §6.6."""

import pytest

from workbench.targets.ascend.npu_smi import Visible, logic_id, visible_devices


def read(text: str, present: list[int] | None = None) -> Visible:
    return visible_devices({"ASCEND_RT_VISIBLE_DEVICES": text}, present)


def test_without_it_every_device_is_seen() -> None:
    assert visible_devices({}) == Visible(devices=None)
    assert read("") == Visible(devices=None)


def test_devices_are_counted_from_0_in_its_order() -> None:
    assert read("2, 5").devices == (2, 5)
    assert logic_id(1, {"ASCEND_RT_VISIBLE_DEVICES": "2,5"}) == 5
    assert logic_id(1, {}) == 1


@pytest.mark.parametrize(
    ("text", "devices", "words"),
    [
        ("0,x,2", (0,), "'x' is no device id"),
        ("0,0", (0,), "0 does not ascend after 0"),
        ("3,1", (3,), "1 does not ascend after 3"),
        ("-1", (), "'-1' is no device id"),
    ],
)
def test_reading_stops_at_the_first_wrong_entry(text: str, devices: tuple[int, ...], words: str) -> None:
    found = read(text)

    assert found.devices == devices
    assert words in found.problem
    assert "the rest of the list is not read" in found.problem


def test_a_device_that_the_machine_lacks_is_told() -> None:
    assert "no device 7, only 0, 1" in read("0,7", [0, 1]).problem
