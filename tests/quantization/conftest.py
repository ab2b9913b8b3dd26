"""Machine code is compiled before the first test: a second that no test's deadline has to allow for."""

import pytest

from workbench.quantization.counting import compiled_count


@pytest.fixture(scope="session", autouse=True)
def compiled() -> None:
    compiled_count()
