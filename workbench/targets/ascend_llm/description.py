"""What the target for language models says of itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING

from workbench.targets.ascend_llm.dimensions import DIMENSIONS
from workbench.targets.ascend_llm.first_space import FIRST_SPACE
from workbench.targets.ascend_llm.settings import LlmSettings
from workbench.targets.description import TargetDescription
from workbench.values.errors import ToolchainError
from workbench.values.finding import Finding

if TYPE_CHECKING:
    from pathlib import Path

    from workbench.targets.base import Target
    from workbench.values.artifact import Artifact
    from workbench.values.candidate import Candidate

_GROUP = "Language models (Ascend)"
_PACKAGES = ("torch", "safetensors", "transformers")


def _missing() -> list[str]:
    return [name for name in _PACKAGES if find_spec(name) is None]


def _make() -> Target:
    if missing := _missing():
        raise ToolchainError(f"Language models need {' and '.join(missing)}. Run `pip install 'int8-workbench[llm]'`.")
    from workbench.targets.ascend_llm.target import AscendLlmTarget

    return AscendLlmTarget()


def _findings(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Without importing torch, which takes seconds."""
    if missing := _missing():
        yield Finding(
            group=_GROUP,
            name="packages",
            status="warn",
            value=f"{' and '.join(missing)} not installed",
            remedy="Only language models need them: pip install 'int8-workbench[llm]'",
        )
        return
    said = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    yield Finding(group=_GROUP, name="packages", status="ok", value=f"{said}; no card is needed, times are modelled")


def _loading(artifact: Artifact, candidate: Candidate) -> tuple[str, ...]:
    if candidate.quantization.scheme == "none":
        return ("the float model as it was; no engine needs to be told anything",)
    return ("vLLM-Ascend reads the folder with `--quantization ascend`; MindIE wants its type in config.json",)


def _engine_files(folder: Path, name: str) -> Mapping[str, str]:
    from workbench.targets.ascend_llm.serving_files import served_facts, serving_files

    facts = served_facts(folder, name)
    return serving_files(facts, facts.config.written)


TARGET = TargetDescription(
    name="ascend-llm",
    title="Ascend LLM",
    named=False,
    settings=LlmSettings,
    dimensions=DIMENSIONS,
    make=_make,
    findings=_findings,
    loading=_loading,
    engine_files=_engine_files,
    packages=_PACKAGES,
    language=True,
    first_space=FIRST_SPACE,
)
