"""What the Ascend 910B3 target says of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.targets.description import TargetDescription
from workbench.values.ascend_settings import ASCEND, AscendCompile

if TYPE_CHECKING:
    from workbench.targets.base import Target


def _make() -> Target:
    from workbench.targets.ascend.target import AscendTarget

    return AscendTarget()


TARGET = TargetDescription(name=ASCEND, title="Ascend 910B3", settings=AscendCompile, make=_make, on_host=False)
