"""The module `acl.mdl`: models, descriptions, datasets, execution."""

from __future__ import annotations

from workbench.cann_emulator.acl import mdl_describe, mdl_run
from workbench.cann_emulator.acl.call import declared

__all__ = declared(globals(), mdl_describe, mdl_run)


def __dir__() -> list[str]:
    return sorted(__all__)
