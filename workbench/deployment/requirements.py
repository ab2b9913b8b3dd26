"""Exactly the packages that serving a bundle imports, at the versions installed here.

Resolved from what each installed package declares, so that the file can be installed with `--no-deps`: the image then
holds these packages and no other, whatever was published since.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping

from workbench.ascend_settings import ASCEND
from workbench.errors import ToolchainError

SERVING = (
    *("numpy", "onnx", "onnxruntime", "tokenizers", "psutil"),
    *("litserve", "prometheus-client", "uvloop", "httptools", "cryptography"),
)
"""What `workbench.serve`, `preprocess`, `bundle` and every target import; onnxruntime comes in with `quantization`,
and cryptography where a signature is required."""
OF_TARGET = {"onnxruntime": (), "openvino": ("openvino",), ASCEND: ()}  # acl is part of CANN
LEFT_OUT = {
    "huggingface-hub": "tokenizers declares it to download tokenizers by name; a bundle carries its own file",
    "openvino-telemetry": "openvino declares it to report its use over the network; it works without",
}
"""Declared by a package above, never imported when serving."""


def requirements(target: str, made_with: Mapping[str, str]) -> str:
    """The text of requirements-serve.txt.

    Args:
        made_with: component → version of the bundle's toolchain, which go before what is installed here.

    Raises:
        ToolchainError: a package is not installed here.
    """
    versions = {name: made_with.get(name, version) for name, version in closure((*SERVING, *OF_TARGET[target])).items()}
    left_out = "".join(f"# left out: {name} ({why})\n" for name, why in LEFT_OUT.items())
    lines = "".join(f"{name}=={version}\n" for name, version in sorted(versions.items()))
    return f"# Install with --no-deps: this is the whole list.\n{left_out}{lines}"


def closure(roots: tuple[str, ...]) -> dict[str, str]:
    """Canonical name → installed version of the packages and all they need here, without `LEFT_OUT`.

    Raises:
        ToolchainError: one is not installed.
    """
    from packaging.requirements import Requirement  # comes with onnxruntime; only whoever writes a bundle needs it
    from packaging.utils import canonicalize_name

    found: dict[str, str] = {}
    waiting: list[tuple[str, frozenset[str]]] = [(canonicalize_name(name), frozenset()) for name in roots]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, extras = waiting.pop()
        if name in LEFT_OUT or (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            raise ToolchainError(
                f"{name} is not installed here, so the version that serving needs is unknown. "
                "Install the workbench again: pip install int8-workbench."
            ) from None
        found[name] = distribution.version
        for text in distribution.requires or ():
            needed = Requirement(text)
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
                waiting.append((canonicalize_name(needed.name), frozenset(needed.extras)))
    return found
