"""What the target for language models says of itself, and a candidate's recipe: what becomes of each fused group of
linears, smoothing, layers left float, the cache.

Groups are those that vLLM-Ascend loads as one (msmodelslim.md §8), so that no candidate breaks its rule of one type for
q, k and v, and one for gate and up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

from workbench.targets.description import TargetDescription
from workbench.values.compile_settings import CompileSettings
from workbench.values.dimension import Dimension
from workbench.values.documents.canonical import digest
from workbench.values.errors import ConfigError, ToolchainError
from workbench.values.finding import Finding
from workbench.values.versions import install_command

if TYPE_CHECKING:
    from workbench.targets.base import Target
    from workbench.values.artifact import Artifact
    from workbench.values.candidate import Candidate

LinearType = Literal["W8A8", "W8A8_DYNAMIC", "W8A8_MIX", "W8A16", "FLOAT"]
Activations = Literal["minmax", "histogram", "automatic"]
Weights = Literal["minmax", "mse", "output_mse"]
SmoothingV0 = Literal["m1", "m2", "m3", "m4", "m5", "m6"]
SmoothingV1 = Literal["smooth_quant", "iter_smooth", "flex_smooth_quant"]
Generation = Literal["v0", "v1"]

GROUPS: dict[str, tuple[str, ...]] = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "o": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}
"""Group → its linears, by names relative to a block."""
FUSED = {f"{group}_proj": linears for group, linears in GROUPS.items() if len(linears) > 1}
"""Linears that the engine loads as one, which has one type."""
STATIC = ("W8A8", "W8A8_MIX")
WITH_STRENGTH = ("m6", "smooth_quant", "iter_smooth", "flex_smooth_quant")
"""Smoothing whose exponents can be given; of m6 and flex_smooth_quant they are searched otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmSettings(CompileSettings):
    """The defaults leave everything float; `DIMENSIONS` says what each setting means. What means nothing
    beside the other settings is dropped, so that equal recipes are equal candidates.

    Attributes:
        activations: 'minmax' is the mean of the samples' extremes in v0 (msmodelslim.md §4.4), the extremes of all in
            v1 (§4.7). None where no group is static.
        weights: None where nothing is quantized.
        strength: the exponent of the weights' extremes is 1 − strength; None for the tool's own, which m6 and
            flex_smooth_quant search.
        generation: 'v0' where it is not given, and 'v1' beside a quantized cache.
    """

    part: ClassVar[str] = "recipe"

    qkv: LinearType = "FLOAT"
    o: LinearType = "FLOAT"
    gate_up: LinearType = "FLOAT"
    down: LinearType = "FLOAT"
    activations: Activations | None = None
    weights: Weights | None = None
    smoothing: SmoothingV0 | SmoothingV1 | None = None
    strength: float | None = None
    rotate: bool = False
    generation: Generation | None = None
    float_down: int = 0
    float_groups: int = 0
    kv_cache: Literal["C8"] | None = None

    def __post_init__(self) -> None:
        for name in ("float_down", "float_groups"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{getattr(self, name)} is negative.", key=f"recipe.{name}")
        if self.strength is not None and not 0 <= self.strength <= 1:
            raise ConfigError(f"{self.strength} is outside [0, 1].", key="recipe.strength")
        self._complete()
        self._check_generation()

    def _complete(self) -> None:
        """Defaults where something is quantized, and nothing where it would mean nothing."""
        types = [self.type_of(group) for group in GROUPS]
        quantized = any(each != "FLOAT" for each in types)
        static = any(each in STATIC for each in types)
        self._set("activations", (self.activations or "minmax") if static else None)
        self._set("weights", (self.weights or "minmax") if quantized else None)
        self._set("float_down", self.float_down if self.down != "FLOAT" else 0)
        self._set("float_groups", self.float_groups if quantized else 0)
        if not quantized:
            self._set("smoothing", None)
            self._set("rotate", False)
            self._set("kv_cache", None)
        if self.smoothing not in WITH_STRENGTH:
            self._set("strength", None)
        said = self.smoothing is not None or self.rotate
        usual: Generation = "v0" if self.kv_cache is None else "v1"
        self._set("generation", None if said or not quantized else self.generation or usual)

    def _check_generation(self) -> None:
        if self.rotate and self.smoothing in get_args(SmoothingV0):
            raise ConfigError(
                f"rotation is of the tool's v1, {self.smoothing} of its v0.",
                key="recipe.rotate",
                hint="Take iter_smooth, flex_smooth_quant or smooth_quant beside it.",
            )
        if self.kv_cache is not None and self.of_generation == "v0":
            raise ConfigError(
                "v0 takes the ranges of keys before rotation, and vLLM-Ascend quantizes keys after it.",
                key="recipe.kv_cache",
                hint="Take iter_smooth, flex_smooth_quant, smooth_quant or no smoothing beside it.",
            )
        types = {self.type_of(group) for group in GROUPS}
        if {"W8A8", "W8A8_MIX"} <= types:
            raise ConfigError(
                "W8A8 and W8A8_MIX in one recipe: pdmix is a switch of the whole recipe (msmodelslim.md §7.1).",
                key="recipe.qkv",
                hint="Take one of the two for every static group.",
            )
        if self.activations == "automatic" and self.of_generation == "v1":
            raise ConfigError("'automatic' is act_method 3 of v0.", key="recipe.activations", hint="Take minmax.")

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @property
    def of_generation(self) -> Generation:
        """Whose order of operations the recipe means."""
        if self.rotate or self.smoothing in get_args(SmoothingV1):
            return "v1"
        return "v0" if self.smoothing is not None else self.generation or "v0"

    def type_of(self, group: str) -> LinearType:
        """Of one of `GROUPS`."""
        found: LinearType = getattr(self, group)
        return found

    @property
    def left_float(self) -> int:
        """How many groups of single blocks a ranking leaves float."""
        return self.float_down + self.float_groups

    def check(self, candidate: Candidate) -> None:
        """Refuse a recipe that nobody asked for, and one that does nothing."""
        scheme, plain = candidate.quantization.scheme, self == type(self)()
        if scheme == "none" and not plain:
            raise ConfigError("the scheme none has no recipe.", key="recipe", hint="Add when: {quantization.scheme: …}")
        if scheme == "recipe" and plain:
            raise ConfigError(
                "every group is FLOAT: nothing is quantized.", key="recipe.qkv", hint="Quantize one group at least."
            )
        if scheme == "cfg" and not plain:
            raise ConfigError("a recipe of the quantizer says all of it.", key="recipe", hint="Leave the key out.")
        if scheme not in ("none", "recipe", "cfg"):
            raise ConfigError(
                f"{scheme!r} is no scheme of a language model.", key="quantization.scheme", hint="Take none or recipe."
            )

    def numbers(self, candidate: Candidate) -> str:
        """'float', or the types: 'W8A8', 'W8A8, down W8A8_DYNAMIC'; of a recipe of the quantizer its digest."""
        if candidate.quantization.cfg is not None:
            return f"recipe {digest(candidate.quantization.cfg)[:6]}"
        types = {group: self.type_of(group) for group in GROUPS}
        kinds = list(types.values())
        usual = max(dict.fromkeys(kinds), key=kinds.count)
        words = [f"{group} {kind}" for group, kind in types.items() if kind != usual]
        return ", ".join(["float" if usual == "FLOAT" else usual, *words])

    def words(self, candidate: Candidate) -> tuple[str, ...]:
        """What else is said of it in a row."""
        found = []
        if self.smoothing is not None:
            found.append(self.smoothing + ("" if self.strength is None else f" {self.strength:g}"))
        found += ["rotated"] if self.rotate else []
        found += [f"ranges {self.activations}"] if self.activations not in (None, "minmax") else []
        found += [f"weights {self.weights}"] if self.weights not in (None, "minmax") else []
        found += ["v1"] if self.generation == "v1" else []
        found += [f"{self.float_down} down_proj in float"] if self.float_down else []
        found += [f"{self.float_groups} groups in float"] if self.float_groups else []
        found += ["cache C8"] if self.kv_cache else []
        return tuple(found)


def mixed_types(types: Mapping[str, str], layers: int) -> Iterator[tuple[str, str]]:
    """(block, sentence) for linears that the engine loads as one and that have several types."""
    for fused, parts in FUSED.items():
        for block in range(layers):
            kinds = {part: types[f"model.layers.{block}.{part}"] for part in parts}
            if len(set(kinds.values())) > 1:
                told = ", ".join(f"{part.rpartition('.')[2]} {kind}" for part, kind in kinds.items())
                yield (
                    f"model.layers.{block}",
                    f"{told}. vLLM-Ascend loads them as one {fused} and needs one type.",
                )


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
