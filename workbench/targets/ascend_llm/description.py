"""What the target for language models says of itself, and what a space may say about a recipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from workbench.targets.ascend_llm.settings import (
    GROUPS,
    Activations,
    Generation,
    LinearType,
    LlmSettings,
    SmoothingV0,
    SmoothingV1,
    Weights,
)
from workbench.targets.description import TargetDescription
from workbench.values.dimension import Dimension
from workbench.values.errors import ToolchainError
from workbench.values.finding import Finding
from workbench.values.versions import install_command

_LINEARS = {
    "qkv": "q_proj, k_proj and v_proj, which engines load as one",
    "o": "o_proj",
    "gate_up": "gate_proj and up_proj, which engines load as one",
    "down": "down_proj",
}

DIMENSIONS: Mapping[str, Dimension] = {
    "quantization.scheme": Dimension(
        about="none is the float model as it is stored; recipe follows the settings of `recipe.`",
        values=("none", "recipe"),
    ),
    **{
        f"recipe.{group}": Dimension(
            about=f"type of {_LINEARS[group]}: W8A8 (static ranges), W8A8_DYNAMIC (by token), W8A8_MIX (dynamic in "
            "prefill, static in decode), W8A16 (weights alone), FLOAT",
            values=get_args(LinearType),
            excludes="W8A8 beside W8A8_MIX",
            source="msmodelslim.md §3.2, §8",
        )
        for group in GROUPS
    },
    "recipe.activations": Dimension(
        about="how static ranges are found; automatic is of v0 alone",
        values=get_args(Activations),
        source="msmodelslim.md §4.4, §4.7",
    ),
    "recipe.weights": Dimension(
        about="how a weight's scale is chosen; mse and output_mse are the workbench's own", values=get_args(Weights)
    ),
    "recipe.smoothing": Dimension(
        about="moves outliers of activations into weights: m1 to m6 of the tool's v0, the others of its v1",
        values=(*get_args(SmoothingV0), *get_args(SmoothingV1)),
        may_be_off=True,
        excludes="m1, m2, m3 and m5 on Qwen3",
        source="msmodelslim.md §5, §6",
    ),
    "recipe.strength": Dimension(
        about="exponent of the activations' extremes in smoothing, 0 to 1; off takes the tool's own or its search",
        kind=float,
        may_be_off=True,
        excludes="means nothing beside m1, m2, m4 and m5",
        source="msmodelslim.md §5, §6",
    ),
    "recipe.rotate": Dimension(
        about="quarot: turn the residual stream by a Hadamard matrix",
        values=(False, True),
        kind=bool,
        excludes="m1 to m6; hidden sizes that are no power of two",
        source="msmodelslim.md §6",
    ),
    "recipe.generation": Dimension(
        about="order of operations where neither smoothing nor rotation says it",
        values=get_args(Generation),
        source="msmodelslim.md §1",
    ),
    "recipe.float_down": Dimension(
        about="down_proj of so many blocks stays float, the most sensitive first (`workbench sensitivity`)", kind=int
    ),
    "recipe.float_groups": Dimension(
        about="so many more of any block's qkv, o, gate_up and down stay float, the most sensitive first", kind=int
    ),
    "recipe.kv_cache": Dimension(
        about="C8 keeps keys and values as int8",
        values=("C8",),
        may_be_off=True,
        excludes="m1 to m6, and generation v0",
        source="msmodelslim.md §4.8",
    ),
}


if TYPE_CHECKING:
    from workbench.targets.base import Target
    from workbench.values.artifact import Artifact
    from workbench.values.candidate import Candidate

_GROUP = "Language models (Ascend)"
_PACKAGES = ("torch", "safetensors", "transformers")


def _missing() -> list[str]:
    return [name for name in _PACKAGES if find_spec(name) is None]


def _make() -> Target:
    if missing := _missing():
        raise ToolchainError(f"Language models need {' and '.join(missing)}. Run: {install_command('llm')}")
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
            remedy=f"Only language models need them: {install_command('llm')}",
        )
        return
    said = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    yield Finding(group=_GROUP, name="packages", status="ok", value=f"{said}; no card is needed, times are modelled")


def _loading(artifact: Artifact, candidate: Candidate) -> tuple[str, ...]:
    if candidate.quantization.scheme == "none":
        return ("the float model as it was; no engine needs to be told anything",)
    return ("vLLM-Ascend reads the folder with `--quantization ascend`; MindIE wants its type in config.json",)


def _engine_files(folder: Path, name: str) -> Mapping[str, str]:
    from workbench.targets.ascend_llm.serving_files import serving_files

    return serving_files(folder, name)


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
    first_space=Path(__file__).with_name("first_space.yaml").read_text(encoding="utf-8"),
)
