"""Tables of several versions of msprof, damaged ones, and what kernels and products come to."""

from pathlib import Path

import pytest

from tests.targets.ascend.profiles.tables_of import HEADER, operator, put, task
from workbench.targets.ascend.profiles import read as reading
from workbench.targets.ascend.profiles.read import read_profile
from workbench.targets.ascend.profiles.tables import Reading, Row
from workbench.targets.ascend.profiles.tasks import Tasks, kernel_us, product_macs, read_tasks

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
    for header, row, dtype, active in ((CANN_6, OLD_ROW, "int8", None), (TORCH_NPU, TORCH_ROW, "bfloat16", 40)):
        lines = [row.format(n=n, at=1_717_575_960_208_000 + 30 * n) for n in range(3)]

        found = read_profile([put(tmp_path / dtype, lines, header=header)], chip="Ascend910B3")

        assert [(b.before, b.total_us) for b in found.bubbles] == [("mm0", 20), ("mm1", 20)]
        (use,) = found.cube
        assert (use.dtype, use.macs, use.active_percent) == (dtype, 3 * 16 * 64 * 32, active)
        assert use.peak_tops == pytest.approx(589.824 if dtype == "int8" else 294.912)


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
    monkeypatch.setattr(reading, "MOST_ROWS", 5)  # two million rows would take the suite a minute

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


def tasks(folder: Path, rows: list[str], header: str = HEADER) -> Tasks:
    return read_tasks([put(folder, rows, header=header)], Reading(left=1000))[0]


def test_kernels_add_up_to_the_execution_with_what_starts_them(tmp_path: Path) -> None:
    rows = [operator("a", 0, 10), operator("b", 12, 10), operator("c", 22, 5)]

    found = kernel_us(tasks(tmp_path, rows))

    assert found == {"a": 10, "b": 12, "c": 5}


def test_what_runs_beside_another_counts_as_far_as_it_lasts_longer(tmp_path: Path) -> None:
    rows = [operator("a", 0, 30, stream=1), operator("b", 5, 10, stream=2), operator("c", 10, 25, stream=2)]

    assert kernel_us(tasks(tmp_path, rows)) == {"a": 30, "b": 0, "c": 5}


def test_multiply_accumulates() -> None:
    places = {"input_shapes": 0, "output_shapes": 1, "input_formats": 2}
    for kind, shapes, result, formats, expected in (
        ("MatMulV2", "16,64;64,32", "16,32", "ND;ND", 16 * 64 * 32),
        ("MatMulV3", "2,16,64;64,32", "2,16,32", "ND;ND", 2 * 16 * 64 * 32),
        ("BatchMatMul", "2,4,16,64;2,4,64,32", "2,4,16,32", "ND;ND", 8 * 16 * 64 * 32),
        ("BatchMatMul", "8,4,1,16,16;8,2,4,16,16", "8,2,1,16,16", "FRACTAL_NZ;FRACTAL_NZ", 8 * 16 * 64 * 32),
        ("MatMulV2", "16,64;2,4,16,16", "16,32", "ND;FRACTAL_NZ", 16 * 64 * 32),
        ("Conv2D", "1,3,224,224;64,3,7,7", "1,64,112,112", "NCHW;NCHW", 112 * 112 * 64 * 3 * 49),
        ("Conv2D", "1,1,224,224,16;49,4,16,16", "1,4,112,112,16", "NC1HWC0;FRACTAL_Z", 112 * 112 * 64 * 49 * 16),
        ("SoftmaxV2", "16,64", "16,64", "ND", -1),
        ("MatMulV2", "", "16,32", "", -1),
        ("MatMulV2", ";".join(["999999999,999999999,999999999"] * 2), "999999999,999999999", "ND;ND", -1),
    ):
        row = Row(places, [f'"{shapes}"', result, formats])
        assert product_macs(kind, row) == expected, (kind, shapes)
