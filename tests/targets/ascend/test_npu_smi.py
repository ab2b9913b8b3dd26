"""Public captures of drivers 23 to 25 (pyacl.md §6.1-6.2), written here after them; a card that is watched."""

import re
import time
from pathlib import Path

import pytest

from tests.targets.ascend.played_atc import play
from workbench.targets.ascend import npu_smi
from workbench.targets.ascend.npu_smi import overview, parse_info, run_npu_smi, watched
from workbench.values.device_use import DeviceReading
from workbench.values.errors import ToolchainError

CAPTURES = Path(__file__).parent / "npu_smi"


def capture(name: str) -> str:
    return (CAPTURES / f"{name}.txt").read_text(encoding="utf-8")


def test_two_rows_make_a_card_and_what_is_not_told_is_unknown_and_not_zero() -> None:
    (card,) = parse_info(capture("info_25_5_1"))
    assert (card.npu_id, card.chip, card.logic_id, card.name, card.health) == (0, 0, None, "910B3", "OK")
    assert card.processes == ()
    assert card.reading == DeviceReading(
        memory_bytes=4487 << 20,
        power_w=94.3,
        utilization_percent=0,
        temperature_c=53,
        memory_total_bytes=65536 << 20,
    )
    first, second = parse_info(capture("info_23_0_6"))  # ids that do not begin at 0, slashes without blanks
    assert (first.npu_id, first.reading.memory_bytes, first.reading.utilization_percent) == (2, 58626 << 20, 97)
    assert first.processes == ("process (907864)", "python (48988)")
    assert (second.npu_id, second.health) == (5, "Warning")
    assert second.reading == DeviceReading(memory_total_bytes=65536 << 20)
    two = parse_info(capture("info_24_1_0_two_dies"))
    assert [(c.npu_id, c.chip, c.reading.power_w, len(c.processes)) for c in two] == [(0, 0, 160.2, 0), (0, 1, None, 1)]


def test_the_cards_of_a_machine_have_their_logic_ids(tmp_path: Path) -> None:
    info, mapping = CAPTURES / "info_23_0_6.txt", CAPTURES / "mapping.txt"
    environment = play(tmp_path, "npu-smi", f'if [ "$2" = -m ]; then cat {mapping}; else cat {info}; fi')

    cards, driver = overview(environment)

    assert ([(card.npu_id, card.logic_id) for card in cards], driver) == ([(2, 0), (5, 1)], "23.0.6")


def test_a_failure_is_told_in_its_own_words_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for script, words, timeout_s in (
        ("echo 'dcmi initialized failed, used. ret is -8020'; exit 1", "-8020. Another container holds a card", 20),
        ("echo 'dcmi module initialize failed. ret is -8005'; exit 1", "-8005. The driver is not loaded", 20),
        ("exit 1", "no output", 20),
        ("sleep 60", "did not answer within 0.5 s", 0.5),
    ):
        with pytest.raises(ToolchainError, match=re.escape(words)):
            run_npu_smi(["info"], environment=play(tmp_path, "npu-smi", script), timeout_s=timeout_s)

    environment = play(tmp_path, "npu-smi", "")
    (tmp_path / "bin" / "npu-smi").write_bytes(b"\x7fELF of another machine")
    with pytest.raises(ToolchainError, match="cannot be started"):
        run_npu_smi(["info"], environment=environment)
    monkeypatch.setattr(npu_smi, "USUAL_PLACES", ())  # a machine with a driver has one there
    with pytest.raises(ToolchainError, match="not on PATH"):
        run_npu_smi(["info"], environment={"PATH": "/nowhere"})


def test_the_card_is_looked_at_for_as_long_as_the_block_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = capture("info_23_0_6")
    for index, watts in enumerate(("100.0", "300.0", "200.0")):
        (tmp_path / f"{index}.txt").write_text(table.replace("101.5", watts))
    script = (
        f'[ "$*" = info ] && echo x >> {tmp_path}/tables\n'
        f'case "$*" in info) n=$(wc -l < {tmp_path}/tables); cat {tmp_path}/$(( (n - 1) % 3 )).txt;; '
        f'"info -m") cat {CAPTURES}/mapping.txt;; esac'
    )
    monkeypatch.setattr(npu_smi, "USUAL_PLACES", ())
    for environment, least in ((play(tmp_path, "npu-smi", script), 6), ({"PATH": "/nowhere"}, 1)):
        deadline = time.monotonic() + 120
        with watched(0, interval_s=0.01, environment=environment) as readings:
            while len(readings) < least:
                assert time.monotonic() < deadline
                time.sleep(0.02)
        if least == 1:
            assert set(readings) == {DeviceReading()}, "without npu-smi the block still runs"
        else:
            assert [reading.power_w for reading in readings[:4]] == [100, 300, 200, 100]
            assert {reading.memory_bytes for reading in readings} == {58626 << 20}
