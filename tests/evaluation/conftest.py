"""A workplace for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.evaluation.workplace import Workplace


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Workplace]:
    workplace = Workplace(tmp_path)
    yield workplace
    workplace.bench.store.close()
