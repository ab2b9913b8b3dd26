"""The list of packages is closed, exact, and free of what only searching needs."""

import importlib.metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.shipping.deployment.manifests import TARGETS
from workbench.bundle.requirements import closure, left_out, pins
from workbench.values.errors import ToolchainError


def listed(target: str, made_with: dict[str, str] | None = None) -> dict[str, str]:
    return dict(pin.split("==") for pin in pins(target, made_with or {}))


def test_each_package_is_pinned_to_what_is_installed_here() -> None:
    for target in TARGETS:
        found = listed(target)

        assert {"uvicorn", "tokenizers", "numpy", "onnxruntime", "prometheus-client"} <= found.keys()
        assert ("openvino" in found) == (target == "openvino")
        for name, version in found.items():
            assert importlib.metadata.version(name) == version


def test_the_list_is_closed_under_what_packages_declare() -> None:
    for target in TARGETS:
        found = listed(target)

        for name in found:
            for text in importlib.metadata.requires(name) or ():
                needed = Requirement(text)
                if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                    wanted = canonicalize_name(needed.name)
                    assert wanted in found or wanted in left_out(), f"{name} needs {wanted}"
                    if wanted in found:
                        assert found[wanted] in needed.specifier


def test_the_bundles_own_versions_go_before_those_installed_here() -> None:
    found = listed("onnxruntime", {"onnxruntime": "1.2.3", "platform": "Linux x86_64"})

    assert found["onnxruntime"] == "1.2.3"
    assert "platform" not in found


def test_a_package_that_is_not_installed_is_named() -> None:
    with pytest.raises(ToolchainError, match="no-such-package is not installed here"):
        closure(("no-such-package",))
