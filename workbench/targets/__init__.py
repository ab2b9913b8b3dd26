"""The targets by name. Adding one costs a module, a line here and a fixture for the conformance suite.

Whatever differs by vendor stands here and nowhere above; nothing here knows an experiment, a dataset or a sweep.
"""

from __future__ import annotations

import importlib

from workbench.targets.base import Target
from workbench.values.ascend_settings import ASCEND
from workbench.values.errors import ConfigError, nearest

TARGETS = {
    "onnxruntime": "workbench.targets.onnxruntime.target:OnnxRuntimeTarget",
    "openvino": "workbench.targets.openvino.target:OpenVinoTarget",
    ASCEND: "workbench.targets.ascend.target:AscendTarget",
}


ON_DEVICES = (ASCEND,)
"""Targets that compute beside the host; every other has one device, the host."""


def device_count(name: str) -> int:
    """How many devices this process could open sessions on, without importing a target that computes on the host.

    Raises:
        ConfigError: no such target.
        ToolchainError: the environment names devices wrongly.
    """
    return 1 if name in TARGETS and name not in ON_DEVICES else open_target(name).devices()


def open_target(name: str) -> Target:
    """The target of that name; its vendor's library is imported here, not before.

    Raises:
        ConfigError: no such target.
    """
    if name not in TARGETS:
        raise ConfigError(f"{name!r} is not a target.", key="target", hint=nearest(name, TARGETS))
    module, _, attribute = TARGETS[name].partition(":")
    target: Target = getattr(importlib.import_module(module), attribute)()
    return target
