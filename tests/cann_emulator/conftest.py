import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module", autouse=True)
def folder_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """ATC leaves its reports in the folder it is started in (atc.md §4.4, §5.6)."""
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("started"))
    yield
    os.chdir(before)
