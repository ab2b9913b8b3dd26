"""Tables of msprof: pyacl.md §5.4."""

import sys
from pathlib import Path

import pytest

from tests.targets.ascend.played_atc import play
from workbench.targets.ascend.profiles.read import read_profile
from workbench.targets.ascend.profiling import profile
from workbench.values.errors import MeasureError, ToolchainError

SUMMARY = (Path(__file__).parent / "msprof" / "op_summary.csv").read_text(encoding="utf-8")
STATISTIC = """\
Device_id,Model Name,OP Type,Core Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),Ratio(%)
0,bert,MatMulV2,AI_CORE,4,75.0,1,2,3,75
0,bert,Cast,AI_VECTOR_CORE,2,25.0,1,2,3,25
"""


def put(folder: Path, name: str, text: str) -> Path:
    file = folder / "PROF_000001_20261121_ABC" / "mindstudio_profiler_output" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return folder / "PROF_000001_20261121_ABC"


def test_time_is_summed_by_operator_the_costliest_first(tmp_path: Path) -> None:
    found = read_profile([put(tmp_path, "op_summary_20261121.csv", SUMMARY)])

    assert found.operators_us == 100
    assert [(o.op_type, o.core, o.total_us, o.int8) for o in found.operators[:2]] == [
        ("MatMulV2", "AI_CORE", 40, True),
        ("MatMulV2", "MIX_AIC", 20, False),
    ]
    assert found.conversion_share == pytest.approx(0.2)
    assert found.quantization_share == pytest.approx(0.1)
    assert found.product_share == pytest.approx(0.6)
    assert found.int8_share == pytest.approx(2 / 3)


def test_without_data_types_nothing_is_said_of_int8(tmp_path: Path) -> None:
    found = read_profile([put(tmp_path, "op_statistic_1.csv", STATISTIC)])

    assert found.int8_share is None
    assert found.streams == ()
    assert "no starts" in found.notes[-1]


def msprof(folder: Path, script: str) -> dict[str, str]:
    """An environment whose msprof is this shell script; `$out` is its output folder."""
    return play(folder, "msprof", f"out=${{2#--output=}}\n{script}")


def test_a_program_runs_under_msprof_and_only_its_own_result_is_read(tmp_path: Path) -> None:
    put(tmp_path / "out", "op_summary_old.csv", SUMMARY)
    (tmp_path / "table.csv").write_text(STATISTIC.replace("75.0", "175.0"))
    environment = msprof(
        tmp_path,
        f'echo "$1" > {tmp_path}/said; mkdir -p "$out/PROF_2/mindstudio_profiler_output"; '
        f'cp {tmp_path}/table.csv "$out/PROF_2/mindstudio_profiler_output/op_statistic_2.csv"',
    )

    found = profile([sys.executable, "run it.py"], tmp_path / "out", environment=environment)

    assert found.operators_us == 200
    assert (tmp_path / "said").read_text().strip() == f"--application={sys.executable} 'run it.py'"


@pytest.mark.parametrize(
    ("script", "words", "transient"),
    [
        ("echo '[ERROR] no device'; exit 3", r"failed with exit code 3: \[ERROR\] no device", False),
        ("sleep 60", r"took longer than \d s", True),
        ("true", "No op_summary_", False),
    ],
)
def test_a_failure_carries_the_log(tmp_path: Path, script: str, words: str, transient: bool) -> None:
    with pytest.raises(MeasureError, match=words) as caught:
        profile(["x"], tmp_path / "out", environment=msprof(tmp_path, script), timeout_s=0.5 if transient else 20)

    assert caught.value.log_path == tmp_path / "out/msprof.log"
    assert caught.value.log_path.exists()
    assert caught.value.transient is transient


def test_what_msprof_cannot_work_with_is_told_before_it_runs(tmp_path: Path) -> None:
    environment = msprof(tmp_path, f"touch {tmp_path}/ran") | {"ASCEND_RT_VISIBLE_DEVICES": "0"}

    with pytest.raises(ToolchainError, match="ASCEND_RT_VISIBLE_DEVICES is set"):
        profile(["x"], tmp_path / "out", environment=environment)
    with pytest.raises(ToolchainError, match="msprof is not on PATH"):
        profile(["x"], tmp_path / "out", environment={"PATH": "/nowhere"})
    assert not (tmp_path / "ran").exists()
