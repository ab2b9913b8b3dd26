"""Public captures of drivers 23 to 25 (pyacl.md §6.1-6.2), written here after them; a card that is watched."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.targets.ascend.played_atc import play
from workbench.targets.ascend import npu_smi
from workbench.targets.ascend.npu_smi import (
    Card,
    Process,
    overview,
    parse_info,
    run_npu_smi,
    watched,
)
from workbench.values.device_use import DeviceReading
from workbench.values.errors import ToolchainError

CAPTURES = Path(__file__).parent / "npu_smi"


def capture(name: str) -> str:
    return (CAPTURES / f"{name}.txt").read_text(encoding="utf-8")


def fake(folder: Path, script: str) -> dict[str, str]:
    """An environment whose npu-smi is this shell script."""
    return play(folder, "npu-smi", script)


def test_two_rows_make_a_card() -> None:
    seen = parse_info(capture("info_25_5_1"))

    assert seen.driver == "25.5.1"
    assert seen.cards == (
        Card(
            npu_id=0,
            chip=0,
            logic_id=None,
            name="910B3",
            health="OK",
            power_w=94.3,
            temperature_c=53,
            aicore_percent=0,
            hbm_used_mb=4487,
            hbm_total_mb=65536,
        ),
    )
    assert seen.processes == ()


def test_npu_ids_need_not_begin_at_0_and_slashes_need_no_blanks() -> None:
    first, second = parse_info(capture("info_23_0_6")).cards

    assert (first.npu_id, second.npu_id) == (2, 5)
    assert (first.hbm_used_mb, first.hbm_total_mb, first.aicore_percent) == (58626, 65536, 97)


def test_a_dash_and_na_are_unknown_and_not_zero() -> None:
    card = parse_info(capture("info_23_0_6")).cards[1]

    assert (card.power_w, card.temperature_c, card.aicore_percent, card.hbm_used_mb) == (None,) * 4
    assert (card.health, card.hbm_total_mb) == ("Warning", 65536)


def test_processes_are_no_cards_even_without_a_name() -> None:
    assert parse_info(capture("info_23_0_6")).processes == (
        Process(npu_id=2, chip=0, pid=907864, name=""),
        Process(npu_id=2, chip=0, pid=48988, name="python"),
    )


def test_two_dies_of_one_card_are_two_chips() -> None:
    seen = parse_info(capture("info_24_1_0_two_dies"))

    assert [(card.npu_id, card.chip, card.power_w) for card in seen.cards] == [(0, 0, 160.2), (0, 1, None)]
    assert [(process.chip, process.pid) for process in seen.processes] == [(1, 1444272)]


def test_the_cards_of_a_machine_have_their_logic_ids(tmp_path: Path) -> None:
    info, mapping = CAPTURES / "info_23_0_6.txt", CAPTURES / "mapping.txt"
    environment = fake(tmp_path, f'if [ "$2" = -m ]; then cat {mapping}; else cat {info}; fi')

    assert [(card.npu_id, card.logic_id) for card in overview(environment).cards] == [(2, 0), (5, 1)]


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("dcmi model initialized failed, because the device is used. ret is -8020", "Another container holds a card"),
        ("dcmi module initialize failed. ret is -8005", "The driver is not loaded"),
        ("", "no output"),
    ],
)
def test_a_failure_is_told_in_its_own_words_with_a_remedy(tmp_path: Path, words: str, hint: str) -> None:
    environment = fake(tmp_path, f"echo '{words}'; exit 1")

    with pytest.raises(ToolchainError, match=hint) as caught:
        run_npu_smi(["info"], environment=environment)
    assert words in str(caught.value)


def test_one_that_hangs_is_told(tmp_path: Path) -> None:
    environment = fake(tmp_path, "sleep 60")

    with pytest.raises(ToolchainError, match=r"did not answer within 0\.5 s"):
        run_npu_smi(["info"], environment=environment, timeout_s=0.5)


def test_one_that_cannot_be_started_or_found_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = fake(tmp_path, "")
    (tmp_path / "bin" / "npu-smi").write_bytes(b"\x7fELF of another machine")

    with pytest.raises(ToolchainError, match="cannot be started"):
        run_npu_smi(["info"], environment=environment)
    monkeypatch.setattr(npu_smi, "USUAL_PLACES", ())  # a machine with a driver has one there
    with pytest.raises(ToolchainError, match="not on PATH"):
        run_npu_smi(["info"], environment={"PATH": "/nowhere"})


def environment_of(folder: Path, script: str) -> dict[str, str]:
    """In which npu-smi is this script."""
    return play(folder, "npu-smi", f'[ "$*" = info ] && echo x >> {folder}/tables\n{script}')


def seen(environment: dict[str, str], least: int = 1) -> list[DeviceReading]:
    """What a watch has seen once it looked so often."""
    with watched(0, interval_s=0.01, environment=environment) as readings:
        until(lambda: len(readings) >= least)
    return readings


def until(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_card_is_looked_at_for_as_long_as_the_block_runs(tmp_path: Path) -> None:
    table = (CAPTURES / "info_23_0_6.txt").read_text()
    for index, watts in enumerate(("100.0", "300.0", "200.0")):
        (tmp_path / f"{index}.txt").write_text(table.replace("101.5", watts))
    script = (
        f'case "$*" in info) n=$(wc -l < {tmp_path}/tables); cat {tmp_path}/$(( (n - 1) % 3 )).txt;; '
        f'"info -m") cat {CAPTURES}/mapping.txt;; esac'
    )

    readings = seen(environment_of(tmp_path, script), least=6)

    assert [reading.power_w for reading in readings[:4]] == [100, 300, 200, 100]
    assert {reading.memory_bytes for reading in readings} == {58626 << 20}


def test_without_npu_smi_the_block_still_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npu_smi, "USUAL_PLACES", ())

    assert set(seen({"PATH": "/nowhere"})) == {DeviceReading()}
