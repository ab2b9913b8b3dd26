"""The emulated CANN as an environment, for tests that start programs or import the vendor's modules."""

import os
from pathlib import Path

from workbench.cann_emulator.tree import Cann, search_paths, variables, write_tree


def emulated_environment(folder: Path, *, cann: Cann = "8.5.0", **changes: str) -> dict[str, str]:
    """What `eval "$(workbench emulator env)"` leaves, its tree and state below `folder`."""
    root = write_tree(folder / "cann", cann)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ASCEND_", "CANN_EMULATOR_"))}
    paths = {
        name: ":".join([*map(str, folders), *filter(None, [kept.get(name)])])
        for name, folders in search_paths(root).items()
    }
    state = {"CANN_EMULATOR_VERSION": cann, "CANN_EMULATOR_STATE": str(folder / "state")}
    return kept | paths | variables(root) | state | changes
