"""The emulated CANN as an environment, for tests that start programs or import the vendor's modules."""

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from workbench.cann_emulator.tree import search_paths, variables, write_tree
from workbench.targets.ascend.acl import process as acl_process
from workbench.targets.ascend.toolchain import forget_toolchain


def emulated_environment(folder: Path, **changes: str) -> dict[str, str]:
    """What `eval "$(workbench emulator env)"` leaves, its tree and state below `folder`."""
    root = write_tree(folder / "cann")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ASCEND_", "CANN_EMULATOR_"))}
    paths = {
        name: ":".join([*map(str, folders), *filter(None, [kept.get(name)])])
        for name, folders in search_paths(root).items()
    }
    state = {"CANN_EMULATOR_VERSION": "8.5.0", "CANN_EMULATOR_STATE": str(folder / "state")}
    return kept | paths | variables(root) | state | changes


@contextlib.contextmanager
def switched_on(environment: Mapping[str, str]) -> Iterator[None]:
    """The vendor's module is the emulated one in this process too, and gone afterwards with nothing left behind."""
    from workbench.cann_emulator import acl as emulated

    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.setitem(sys.modules, "acl", emulated)
        forget_toolchain()
        try:
            yield
        finally:
            acl_process.shut_down()
            forget_toolchain()
