import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where atc is started and leaves its side files; nothing of the shell's own settings shows through."""
    for variable in [name for name in os.environ if name.startswith(("ASCEND_", "CANN_EMULATOR_", "NPU_"))]:
        monkeypatch.delenv(variable)
    monkeypatch.chdir(tmp_path)
