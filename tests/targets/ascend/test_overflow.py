"""The overflow check (pyacl.md §5.6) and runs under msprof (§5.4)."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.targets.ascend.played_atc import CHAIN, play
from workbench.cann_emulator.dump_file import Values, dump_bytes
from workbench.targets.ascend.profiling import (
    CONVERTER,
    AscendProfiler,
    Overflow,
    decode_overflow,
    overflow_text,
    read_overflows,
    run_msprof,
)
from workbench.values.artifact import Artifact
from workbench.values.errors import MeasureError, ToolchainError


def content(ai_core: int) -> dict[str, Any]:
    plain = {"model_id": 514, "stream_id": 563, "task_id": 57, "task_type": 0, "pc_start": "0x0", "para_base": "0x0"}
    return {
        "DHA Atomic Add": {**plain, "status": 0},
        "L2 Atomic Add": {**plain, "status": 0},
        "AI Core": {**plain, "kernel_code": "0x1008005ae000", "block_id": 1, "status": ai_core},
    }


def dumped(dump: Path, stamp: int = 20_000_000) -> Path:
    file = dump / f"20261121120000/0/bert/1/0/Opdebug.Node_OpDebug.57.563.{stamp}"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"\0" * 16)
    return file


def toolkit(root: Path, code: str) -> Path:
    """A toolkit whose converter is this program: `file` and `to` are its arguments."""
    program = root / CONVERTER
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"import json, sys\nfile, to = sys.argv[3], sys.argv[5]\n{code}\n")
    return root


def told(tmp_path: Path, body: dict[str, Any], **options: bool) -> tuple[Overflow, ...]:
    """What a converter that says this of every file makes of the dump."""
    (tmp_path / "content.json").write_text(json.dumps(body))
    root = toolkit(
        tmp_path / "cann",
        "assert sys.argv[1:] == ['convert', '-d', file, '-out', to, '-v', '2'], sys.argv\n"
        f"open(to + '/r.json', 'w').write(open({str(tmp_path / 'content.json')!r}).read())",
    )
    return read_overflows(tmp_path / "dump", root, tmp_path / "results", **options)


def test_status_bits_are_told_in_words() -> None:
    for status, causes, suspect in (
        (0x8, ("negation of the smallest integer",), False),
        (0x10, ("integer addition, subtraction, multiplication or multiply-add",), False),
        (0x80, ("negative float to unsigned integer",), False),
        (256, ("float32 or int32 to float16",), True),
        (0x120, ("floating-point arithmetic", "float32 or int32 to float16"), True),
        (0x402, ("accumulation in the cube unit", "unknown bits 0x2"), False),
    ):
        (found,) = decode_overflow(content(status))
        assert (found.unit, found.causes, found.suspect) == ("AI Core", causes, suspect)
        assert (found.stream_id, found.task_id) == (563, 57)
    with pytest.raises(ValueError, match="keys are something"):
        list(decode_overflow({"something": 1}))


def test_a_converter_that_fails_or_is_missing_is_not_taken_for_no_overflow(tmp_path: Path) -> None:
    dumped(tmp_path / "dump")

    with pytest.raises(ToolchainError, match="belongs to the CANN toolkit package"):
        read_overflows(tmp_path / "dump", tmp_path, tmp_path / "results")
    for code in ("sys.exit('no numpy')", "pass", "open(to + '/r.json', 'w').write('[]')"):
        with pytest.raises(MeasureError, match=r"msaccucmp|no overflow status") as caught:
            read_overflows(tmp_path / "dump", toolkit(tmp_path / "cann", code), tmp_path / "results")
        assert caught.value.log_path == tmp_path / "results/0.log"


def operator(folder: Path, name: str, result: list[float], *, task: int = 57, given: float = 1.0) -> Path:
    """The dump that a device writes beside a status."""
    read = Values(array=np.full(4, given, np.float16), dtype="float16")
    made = Values(array=np.array(result, np.float16), dtype="float16", origin=("encoder.residual", 0))
    file = folder / f"Mul.{name}.{task}.563.10000000"
    file.write_bytes(dump_bytes("encoder/grow", (read,), (made,), time_us=1, emulator=""))
    return file


def test_the_operator_of_each_status_is_named_with_what_overflowed(tmp_path: Path) -> None:
    status = dumped(tmp_path / "dump")
    dumped(tmp_path / "dump", 20_000_001)
    file = operator(status.parent, "encoder_grow", [1, np.inf, np.nan, -np.inf])
    operator(status.parent, "another", [1], task=58)

    found, again = told(tmp_path, content(0x100))

    assert found == again
    assert (found.operator, found.op_type, found.node) == ("encoder/grow", "Mul", "encoder.residual")
    assert (found.tensors, found.passed_on) == (("output 0, float16: 2 infinite and 1 NaN of 4",), False)
    text = overflow_text([found, again], 1)
    assert "SUSPECT encoder/grow (Mul, from node encoder.residual); AI Core, task 57" in text
    assert ", 2 times: float32 or int32 to float16" in text
    assert "compile.keep_dtype: encoder.residual" in text
    assert len(told(tmp_path, content(0x100), once=True)) == 1
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(MeasureError, match=r"Mul\.encoder_grow.*truncated"):
        told(tmp_path, content(32))


def test_an_operator_that_was_given_an_infinity_and_the_unit_of_the_newer_layout_are_told(tmp_path: Path) -> None:
    """msaccucmp writes one object under acc_list."""
    operator(dumped(tmp_path / "dump").parent, "grow", [np.inf] * 2, given=np.inf)
    entry = {"valid": 1, "acc_type": "AIV", "data": {"status": 32, "task_id": 57, "stream_id": 563}}

    (found,) = told(tmp_path, {"magic": "0x5a5a5a5a", "version": 2, "acc_list": entry})

    assert (found.unit, found.status, found.task_id, found.passed_on) == ("AI Core (vector)", 32, 57, True)
    assert "which was given an infinity or NaN already" in overflow_text([found], 1)


SUMMARY = (Path(__file__).parent / "msprof" / "op_summary.csv").read_text(encoding="utf-8")


FILES = Artifact(target="ascend910b3", files=(), toolchain=CHAIN, int8_ops=0, float_matmuls_left=0, kernels={})


def msprof(folder: Path, script: str) -> dict[str, str]:
    """An environment whose msprof is this shell script; `$out` is its output folder."""
    return play(folder, "msprof", f"out=${{2#--output=}}\n{script}")


def test_a_program_runs_under_msprof_and_only_its_own_result_is_read(tmp_path: Path) -> None:
    old = tmp_path / "out/PROF_1/mindstudio_profiler_output/op_summary_1.csv"
    old.parent.mkdir(parents=True)
    for file in (old, tmp_path / "table.csv"):
        file.write_text(SUMMARY)
    environment = msprof(
        tmp_path,
        f'echo "$1" > {tmp_path}/said; mkdir -p "$out/PROF_2/mindstudio_profiler_output"; '
        f'cp {tmp_path}/table.csv "$out/PROF_2/mindstudio_profiler_output/op_summary_2.csv"',
    )

    replay = [sys.executable, "run it.py"]
    found = AscendProfiler().where_time_goes(replay, FILES, tmp_path, tmp_path / "out", environment=environment)

    assert found.operators_us == 100
    assert (tmp_path / "said").read_text().strip() == f"--application={sys.executable} 'run it.py'"


def test_a_run_that_fails_carries_the_log_and_what_msprof_cannot_work_with_is_told_before(tmp_path: Path) -> None:
    for script, words, timeout_s in (
        ("echo '[ERROR] no device'; exit 3", r"failed with exit code 3: \[ERROR\] no device", 20),
        ("sleep 60", r"took longer than \d s", 0.5),
    ):
        with pytest.raises(MeasureError, match=words) as caught:
            run_msprof(["x"], tmp_path / "out", environment=msprof(tmp_path, script), timeout_s=timeout_s)
        assert caught.value.log_path == tmp_path / "out/msprof.log"
        assert caught.value.transient is (timeout_s < 1)
    with pytest.raises(MeasureError, match="No op_summary_") as caught:
        AscendProfiler().where_time_goes(["x"], FILES, tmp_path, tmp_path, environment=msprof(tmp_path, "true"))
    assert caught.value.log_path == tmp_path / "msprof.log"

    environment = msprof(tmp_path, f"touch {tmp_path}/ran")
    for surroundings, words in (
        (environment | {"ASCEND_RT_VISIBLE_DEVICES": "0"}, "ASCEND_RT_VISIBLE_DEVICES is set"),
        ({"PATH": "/nowhere"}, "msprof is not on PATH"),
    ):
        with pytest.raises(ToolchainError, match=words):
            run_msprof(["x"], tmp_path / "out", environment=surroundings)
    assert not (tmp_path / "ran").exists()
