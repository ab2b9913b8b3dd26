from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ATC leaves its reports in the folder it is started in (atc.md §4.4, §5.6)."""
    monkeypatch.chdir(tmp_path)
