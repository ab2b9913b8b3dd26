"""Tables as msprof writes them, for tests that read them."""

from collections.abc import Sequence
from pathlib import Path

HEADER = (
    "Device_id,Model ID,Task ID,Stream ID,Infer ID,Op Name,OP Type,OP State,Task Type,Task Start Time(us),"
    "Task Duration(us),Task Wait Time(us),Block Dim,Input Shapes,Input Data Types,Input Formats,Output Shapes,"
    "Output Data Types,Output Formats"
)
TASK_TIME = "Device_id,kernel_name,kernel_type,stream_id,task_id,task_time(us),task_start(us),task_stop(us)"
EPOCH_US = 1_717_575_960_208_070


def operator(
    name: str,
    at: float,
    took: float,
    *,
    kind: str = "MatMulV2",
    core: str = "AI_CORE",
    stream: int = 1,
    execution: int = 1,
    device: int = 0,
) -> str:
    """A row of op_summary; `at` microseconds behind the start of the run."""
    start = f'"{_exact(at)}\t"'
    shapes = '"16,64;64,32",FLOAT16;FLOAT16,ND;ND,"16,32",FLOAT16,ND'
    return f"{device},4,1,{stream},{execution},{name},{kind},static,{core},{start},{took},0,20,{shapes}"


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
