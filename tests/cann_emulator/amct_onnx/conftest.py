from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the test runs: AMCT leaves its log in the current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
