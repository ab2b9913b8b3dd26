"""The converter of dumps and of the overflow check: pyacl.md §5.6."""

import json
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.emulated_cann import emulated_environment
from workbench.cann_emulator.acl.dumping import AI_CORE_INFO, AI_CORE_STATUS, STATUS_BYTES
from workbench.cann_emulator.dump_file import Values, dump_bytes

NAME = "Opdebug.Node_OpDebug.3.0.1732082705016774"


def convert(folder: Path, dump: Path) -> subprocess.CompletedProcess[str]:
    environment = emulated_environment(folder)
    program = Path(environment["ASCEND_HOME_PATH"]) / "tools/operator_cmp/compare/msaccucmp.py"
    command = [sys.executable, str(program), "convert", "-d", str(dump), "-out", str(folder / "out"), "-v", "2"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def status(bits: int) -> bytes:
    content = bytearray(STATUS_BYTES)
    struct.pack_into("<6Q", content, AI_CORE_INFO, 1, 5, 3, 0, 16, 0)
    struct.pack_into("<3Q", content, AI_CORE_STATUS, 0, 2, bits)
    values = Values(array=np.frombuffer(bytes(content), np.uint8), dtype="uint8")
    return dump_bytes("Node_OpDebug", (), (values,), time_us=1, emulator="test")


def test_a_file_of_the_overflow_check_becomes_json(tmp_path: Path) -> None:
    dump = tmp_path / NAME
    dump.write_bytes(status(256))

    done = convert(tmp_path, dump)

    assert (done.returncode, done.stderr) == (0, "")
    (result,) = (tmp_path / "out").iterdir()
    assert result.name == f"{NAME}.output.0.json"
    core = json.loads(result.read_text())["AI Core"]
    assert (core["model_id"], core["stream_id"], core["task_id"], core["pc_start"]) == (1, 5, 3, "0x10")
    assert (core["block_idx"], core["status"]) == (2, 256)


def test_an_operators_dump_becomes_an_array_for_each_tensor(tmp_path: Path) -> None:
    read = Values(array=np.arange(6, dtype=np.float16).reshape(2, 3), dtype="float16")
    made = Values(array=np.full((2,), 0x3F80, np.uint16), dtype="bfloat16")
    (tmp_path / "dump").mkdir()
    (tmp_path / "dump/Add.a.1.2.3").write_bytes(dump_bytes("a", (read,), (made,), time_us=1, emulator="test"))

    assert convert(tmp_path, tmp_path / "dump").returncode == 0

    assert np.load(tmp_path / "out/Add.a.1.2.3.input.0.npy").tolist() == [[0, 1, 2], [3, 4, 5]]
    assert np.load(tmp_path / "out/Add.a.1.2.3.output.0.npy").tolist() == [1.0, 1.0]


@pytest.mark.parametrize("content", [b"\x5a\x5a\xff", b"[]" * 8, status(1)[:-1], status(1) + b"x", None])
def test_another_file_is_refused(tmp_path: Path, content: bytes | None) -> None:
    dump = tmp_path / NAME
    if content is not None:
        dump.write_bytes(content)

    done = convert(tmp_path, dump)

    assert (done.returncode, "cannot be converted" in done.stdout) == (1, True)
    assert not (tmp_path / "out").exists()
