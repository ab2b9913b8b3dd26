import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.targets.ascend.played_atc import play
from workbench.targets.ascend import npu_smi
from workbench.targets.ascend.npu_smi import CardWatch, watched
from workbench.targets.base import DeviceLoad

CAPTURES = Path(__file__).parent / "npu_smi"


def environment_of(folder: Path, script: str) -> dict[str, str]:
    """In which npu-smi is this script."""
    return play(folder, "npu-smi", f'[ "$*" = info ] && echo x >> {folder}/tables\n{script}')


def seen(environment: dict[str, str], least: int = 1) -> CardWatch:
    """What a watch has seen once it looked so often."""
    with watched(0, interval_s=0.01, environment=environment) as watch:
        until(lambda: len(watch.readings) >= least)
    return watch


def until(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_medians_over_the_block(tmp_path: Path) -> None:
    table = (CAPTURES / "info_23_0_6.txt").read_text()
    for index, watts in enumerate(("100.0", "300.0", "200.0")):
        (tmp_path / f"{index}.txt").write_text(table.replace("101.5", watts))
    script = (
        f'case "$*" in info) n=$(wc -l < {tmp_path}/tables); cat {tmp_path}/$(( (n - 1) % 3 )).txt;; '
        f'"info -m") cat {CAPTURES}/mapping.txt;; esac'
    )

    watch = seen(environment_of(tmp_path, script), least=6)

    assert [reading.power_w for reading in watch.readings[:4]] == [100, 300, 200, 100]
    assert watch.load().power_w == pytest.approx(200, abs=50)
    assert {reading.memory_bytes for reading in watch.readings} == {58626 << 20}


def test_without_npu_smi_the_block_still_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npu_smi, "USUAL_PLACES", ())

    assert seen({"PATH": "/nowhere"}).load() == DeviceLoad()
