"""The converter of the overflow check refuses what is none (pyacl.md §5.6); what it makes of one is read by the
target's own tests."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.emulated_cann import emulated_environment


@pytest.mark.parametrize("content", [b"\x5a\x5a\xff", b"[]" * 8, None])
def test_another_file_is_refused(tmp_path: Path, content: bytes | None) -> None:
    dump = tmp_path / "Opdebug.Node_OpDebug.3.0.1732082705016774"
    if content is not None:
        dump.write_bytes(content)
    environment = emulated_environment(tmp_path)
    program = Path(environment["ASCEND_HOME_PATH"]) / "tools/operator_cmp/compare/msaccucmp.py"

    command = [sys.executable, str(program), "convert", "-d", str(dump), "-out", str(tmp_path / "out"), "-v", "2"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)

    assert (done.returncode, "cannot be converted" in done.stdout) == (1, True)
    assert not (tmp_path / "out").exists()
