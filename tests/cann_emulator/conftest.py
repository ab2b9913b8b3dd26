import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a test runs, as ATC and AMCT leave reports in the folder they are started in (atc.md §4.4, §5.6); nothing
    of the shell's own settings (`workbench emulator env`) shows through."""
    for variable in [name for name in os.environ if name.startswith(("ASCEND_", "CANN_EMULATOR_", "NPU_"))]:
        monkeypatch.delenv(variable)
    monkeypatch.chdir(tmp_path)
    return tmp_path
