"""Tables of several versions of msprof, damaged ones, and what kernels come to."""

from pathlib import Path

import pytest

from tests.targets.ascend.profiles.tables_of import operator, put, task
from workbench.targets.ascend.profiles import tasks as reading
from workbench.targets.ascend.profiles.read import read_profile
from workbench.targets.ascend.profiles.tasks import kernel_us, read_tasks

# Headers as public repositories show them: the vendor's own tests of several years, and torch_npu's
CANN_6 = (
    "Model Name,Model ID,Task ID,Stream ID,Infer ID,Op Name,OP Type,Task Type,Task Start Time,Task Duration(us),"
    "Task Wait Time(us),Block Dim,Input Shapes,Input Data Types,Input Formats,Output Shapes,mac_int8_ratio"
)
TORCH_NPU = (
    "Device_id,Model ID,Task ID,Stream ID,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),"
    "Block Dim,Input Shapes,Input Data Types,Input Formats,Output Shapes,cube_utilization(%)"
)
OLD_ROW = 'bert,1,{n},3,1,mm{n},MatMulV2,AI_CORE,"{at}.500\t",10,0,8,"16,64;64,32",INT8;INT8,ND;ND,"16,32",0.5'
TORCH_ROW = '0,1,{n},3,mm{n},MatMulV2,MIX_AIC,{at}.500,10,0,8,"16,64;64,32",DT_BF16;DT_BF16,ND;ND,"16,32",40'


def test_the_columns_of_every_version_are_read_by_name(tmp_path: Path) -> None:
    for header, row, int8 in ((CANN_6, OLD_ROW, True), (TORCH_NPU, TORCH_ROW, False)):
        lines = [row.format(n=n, at=1_717_575_960_208_000 + 30 * n) for n in range(3)]

        found = read_profile([put(tmp_path / str(int8), lines, header=header)])

        assert [(b.before, b.total_us) for b in found.bubbles] == [("mm0", 20), ("mm1", 20)]
        assert (found.int8_share, found.product_share) == (float(int8), 1.0)


def test_the_unfinished_row_of_a_run_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    folder = put(tmp_path, [operator("a", 0, 10), operator("b", 20, 12.5)])
    file = next(folder.rglob("op_summary_*.csv"))
    whole = file.read_text().rstrip("\n")
    assert read_profile([folder]).operators_us == 22.5

    cut = whole.index("12.5")
    file.write_text(whole[: cut + 1])  # within the number: 1 would be read where 12.5 stood

    found = read_profile([folder])
    assert found.operators_us == 10
    assert any("ends within a row" in note for note in found.notes)


def test_only_so_many_rows_are_read_and_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = put(tmp_path, [operator(f"n{n}", 20 * n, 10) for n in range(9)])
    monkeypatch.setattr(reading, "MOST_ROWS", 5)  # half a million rows would take the suite a minute

    found = read_profile([folder])

    assert found.operators_us == 50
    assert any("were read" in note for note in found.notes)


def test_without_task_time_the_profile_says_what_it_cannot_tell(tmp_path: Path) -> None:
    alone = read_profile([put(tmp_path / "a", [operator("a", 0, 10), operator("b", 30, 10)])])
    both = read_profile([put(tmp_path / "b", [operator("a", 0, 10)], [task("EVENT_RECORD", 10, 0)])])

    assert any("no task_time table" in note for note in alone.notes)
    assert not any("task_time" in note for note in both.notes)


def test_a_profile_of_the_emulator_is_modelled_wherever_it_is_read(tmp_path: Path) -> None:
    folder = put(tmp_path, [operator("a", 0, 10)])
    assert not read_profile([folder]).modelled

    (folder / "device_0").mkdir()
    (folder / "device_0/emulated.txt").write_text("Emulated")

    assert read_profile([folder]).modelled


def test_kernels_add_up_to_the_execution_with_what_starts_them_and_last_longer_than_others(tmp_path: Path) -> None:
    behind = [operator("a", 0, 10), operator("b", 12, 10), operator("c", 22, 5)]
    beside = [operator("a", 0, 30, stream=1), operator("b", 5, 10, stream=2), operator("c", 10, 25, stream=2)]

    for rows, expected in ((behind, {"a": 10, "b": 12, "c": 5}), (beside, {"a": 30, "b": 0, "c": 5})):
        assert kernel_us(read_tasks([put(tmp_path, rows)])[0]) == expected
