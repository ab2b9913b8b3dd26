"""What the OpenVINO target says of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.targets.description import TargetDescription
from workbench.values.candidate import OpenVinoCompile

if TYPE_CHECKING:
    from workbench.targets.base import Target


def _make() -> Target:
    from workbench.targets.openvino.target import OpenVinoTarget

    return OpenVinoTarget()


TARGET = TargetDescription(name="openvino", title="OpenVINO", settings=OpenVinoCompile, make=_make)
