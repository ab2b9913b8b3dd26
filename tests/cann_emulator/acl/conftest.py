from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cann_emulator.acl.library import Loaded, X, multilayer, opened, saved, start_over
from workbench.cann_emulator import acl
from workbench.cann_emulator.acl import rt_device
from workbench.cann_emulator.tree import write_tree


@pytest.fixture(autouse=True)
def fresh_library(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The library as a new process finds it."""
    monkeypatch.setitem(rt_device.REPORTING, "on", False)
    start_over()
    yield
    start_over()


@pytest.fixture
def device(fresh_library: None) -> int:
    """The library initialised, device 0 current."""
    assert acl.init() == 0
    assert acl.rt.set_device(0) == 0
    return 0


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CANN-shaped folder, from which programs import `acl`."""
    return write_tree(tmp_path_factory.mktemp("cann") / "8.5.0")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return saved(multilayer(), tmp_path)


@pytest.fixture
def model(device: int, path: str) -> Loaded:
    loaded = opened(path)
    loaded.put(X)
    return loaded
