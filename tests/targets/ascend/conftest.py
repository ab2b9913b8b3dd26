import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from workbench.targets.ascend.acl import calls as acl_calls
from workbench.targets.ascend.acl import process as acl_process


@pytest.fixture
def acl(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The emulated pyACL in the place of the vendor's, strict about what no document covers; nothing may be left."""
    from workbench.cann_emulator import acl as emulated
    from workbench.cann_emulator.acl import errors, handles

    monkeypatch.setitem(sys.modules, "acl", emulated)
    monkeypatch.setitem(errors.STRICT, "on", True)
    yield emulated
    errors.arm("")
    acl_process.shut_down()
    acl_calls.clear_doubt()
    assert handles.left_behind() == []
