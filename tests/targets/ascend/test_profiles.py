"""Tables of msprof, of several versions and damaged ones: idle time and its causes, what kernels come to."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from workbench.targets.ascend.profiles import tasks as reading
from workbench.targets.ascend.profiles.read import read_profile
from workbench.targets.ascend.profiles.tasks import kernel_us, read_tasks

HEADER = (
    "Device_id,Model ID,Task ID,Stream ID,Infer ID,Op Name,OP Type,OP State,Task Type,Task Start Time(us),"
    "Task Duration(us),Task Wait Time(us),Block Dim,Input Shapes,Input Data Types,Input Formats,Output Shapes,"
    "Output Data Types,Output Formats"
)
TASK_TIME = "Device_id,kernel_name,kernel_type,stream_id,task_id,task_time(us),task_start(us),task_stop(us)"
EPOCH_US = 1_717_575_960_208_070


def operator(name: str, at: float, took: float, kind: str = "MatMulV2", core: str = "AI_CORE", **ids: int) -> str:
    """A row of op_summary; `at` microseconds behind the start of the run."""
    device, stream, execution = ids.get("device", 0), ids.get("stream", 1), ids.get("execution", 1)
    shapes = '"16,64;64,32",FLOAT16;FLOAT16,ND;ND,"16,32",FLOAT16,ND'
    return f'{device},4,1,{stream},{execution},{name},{kind},static,{core},"{_exact(at)}\t",{took},0,20,{shapes}'


def task(kind: str, at: float, took: float, *, stream: int = 0, device: int = 0) -> str:
    """A row of task_time."""
    return f"{device},N/A,{kind},{stream},1,{took},{_exact(at)}\t,{_exact(at + took)}\t"


def put(folder: Path, operators: Sequence[str], tasks: Sequence[str] = (), *, header: str = HEADER) -> Path:
    """A PROF_* folder."""
    place = folder / "PROF_000001_20261121_ABC" / "mindstudio_profiler_output"
    place.mkdir(parents=True, exist_ok=True)
    if operators:
        (place / "op_summary_20261121.csv").write_text("\n".join([header, *operators, ""]))
    if tasks:
        (place / "task_time_20261121.csv").write_text("\n".join([TASK_TIME, *tasks, ""]))
    return place.parent


def _exact(at: float) -> str:
    """A float of the epoch in microseconds cannot hold nanoseconds."""
    ns = EPOCH_US * 1000 + round(at * 1000)
    return f"{ns // 1000}.{ns % 1000:03d}"


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


def test_a_table_that_ends_early_is_read_and_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = put(tmp_path / "cut", [operator("a", 0, 10), operator("b", 20, 12.5)])
    assert read_profile([folder]).operators_us == 22.5
    file = next(folder.rglob("op_summary_*.csv"))
    whole = file.read_text()
    file.write_text(whole[: whole.index("12.5") + 1])  # within the number: 1 would be read where 12.5 stood
    monkeypatch.setattr(reading, "MOST_ROWS", 5)  # half a million rows would take the suite a minute
    long = put(tmp_path / "long", [operator(f"n{n}", 20 * n, 10) for n in range(9)])

    for place, total, words in ((folder, 10, "ends within a row"), (long, 50, "were read")):
        found = read_profile([place])
        assert found.operators_us == total
        assert any(words in note for note in found.notes)


def test_a_profile_says_what_it_cannot_tell_and_that_an_emulator_made_it(tmp_path: Path) -> None:
    folder = put(tmp_path / "a", [operator("a", 0, 10), operator("b", 30, 10)])
    alone = read_profile([folder])
    both = read_profile([put(tmp_path / "b", [operator("a", 0, 10)], [task("EVENT_RECORD", 10, 0)])])

    assert any("no task_time table" in note for note in alone.notes)
    assert not any("task_time" in note for note in both.notes)
    assert not alone.modelled
    (folder / "device_0").mkdir()
    (folder / "device_0/emulated.txt").write_text("Emulated")
    assert read_profile([folder]).modelled


def test_kernels_add_up_to_the_execution_with_what_starts_them_and_last_longer_than_others(tmp_path: Path) -> None:
    behind = [operator("a", 0, 10), operator("b", 12, 10), operator("c", 22, 5)]
    beside = [operator("a", 0, 30, stream=1), operator("b", 5, 10, stream=2), operator("c", 10, 25, stream=2)]

    for rows, expected in ((behind, {"a": 10, "b": 12, "c": 5}), (beside, {"a": 30, "b": 0, "c": 5})):
        assert kernel_us(read_tasks([put(tmp_path, rows)])[0]) == expected


def test_each_gap_has_its_neighbours_and_what_filled_it(tmp_path: Path) -> None:
    operators = [
        operator("a", 0, 10),
        operator("b", 40, 10),  # 10 … 40: 20 of them a copy on another stream
        operator("host", 52, 30, kind="NonZero", core="AI_CPU"),
        operator("c", 90, 10),  # 50 … 90: 30 of them the operator on the AI CPU
        operator("d", 200, 10, execution=2),  # 100 … 200: nothing at all
        operator("e", 300, 10, execution=2),  # 210 … 300: 60 of them waiting, of which 20 are a copy too
    ]
    tasks = [task("MEMCPY_ASYNC", 15, 20), task("EVENT_WAIT", 220, 60), task("MEMCPY_ASYNC", 230, 20)]

    found = read_profile([put(tmp_path, operators, tasks)])

    assert [(b.cause, b.total_us) for b in found.bubbles] == [
        ("host launch", 100),
        ("synchronization", 90),
        ("host operator", 40),
        ("host copy", 30),
    ]
    bubbles = {f"{bubble.before}-{bubble.after}": bubble for bubble in found.bubbles}
    assert {pair: bubble.within for pair, bubble in bubbles.items()} == {
        "a-b": {"host copy": 20, "scheduling": 10},
        "b-c": {"host operator": 30, "scheduling": 10},
        "c-d": {"host launch": 100},
        "d-e": {"synchronization": 40, "host copy": 20, "scheduling": 30},
    }
    assert bubbles["b-c"].tasks == ("host (NonZero)",)
    causes = {"host launch": 100, "host operator": 30, "synchronization": 40, "host copy": 40, "scheduling": 50}
    assert (found.causes, found.computing_us, found.idle_us, found.span_us) == (causes, 50, 260, 310)


def test_all_idle_time_is_told_also_what_is_no_bubble(tmp_path: Path) -> None:
    operators = [
        operator("a", 0, 10),
        operator("b", 10.4, 10),  # a gap that is too short
        operator("c", 30.4, 5),  # one of 10
        operator("a", 7, 20, device=1),
    ]
    tasks = [
        task("MEMCPY_ASYNC", -50, 20),  # 50 before the first operator
        task("MEMCPY_ASYNC", 40.4, 3),  # 8 behind the last
        task("MEMCPY_ASYNC", 27, 4, device=1),  # 4 behind the other device's
        task("MEMCPY_ASYNC", 100, 4, device=2),  # a device on which no operator ran
    ]

    found = read_profile([put(tmp_path, operators, tasks)])

    assert (found.edges_us, found.short_gaps_us, found.causes) == (66, 0.4, {"scheduling": 10})
    assert found.idle_us == pytest.approx(76.4)
