"""The converter of the overflow check: pyacl.md §5.6."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.emulated_cann import emulated_environment

BODY = {
    "emulated": True,
    "DHA Atomic Add": {"status": 0},
    "L2 Atomic Add": {"status": 0},
    "AI Core": {"model_id": 1, "stream_id": 0, "task_id": 3, "status": 256},
}


def convert(folder: Path, dump: Path) -> subprocess.CompletedProcess[str]:
    environment = emulated_environment(folder)
    program = Path(environment["ASCEND_HOME_PATH"]) / "tools/operator_cmp/compare/msaccucmp.py"
    command = [sys.executable, str(program), "convert", "-d", str(dump), "-out", str(folder / "out"), "-v", "2"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_a_file_of_the_overflow_check_becomes_json(tmp_path: Path) -> None:
    dump = tmp_path / "Opdebug.Node_OpDebug.3.0.1732082705016774"
    dump.write_text(json.dumps(BODY))

    done = convert(tmp_path, dump)

    assert (done.returncode, done.stderr) == (0, "")
    (result,) = (tmp_path / "out").iterdir()
    assert result.name == f"{dump.name}.output.0.json"
    assert json.loads(result.read_text()) == BODY


@pytest.mark.parametrize("content", [b"\x5a\x5a\xff", b"[]", b"{}", None])
def test_another_file_is_refused(tmp_path: Path, content: bytes | None) -> None:
    dump = tmp_path / "Opdebug.Node_OpDebug.3.0.1"
    if content is not None:
        dump.write_bytes(content)

    done = convert(tmp_path, dump)

    assert (done.returncode, "is no overflow file of the emulated acl" in done.stdout) == (1, True)
    assert not (tmp_path / "out").exists()
