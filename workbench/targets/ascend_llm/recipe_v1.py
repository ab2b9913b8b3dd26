"""Recipes of the newer generation, `apiversion: modelslim_v1` (msmodelslim.md §7.2)."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from functools import partial
from typing import Literal

from workbench.quantization.llm.checkpoint import LlmModel
from workbench.quantization.llm.recipe import (
    TYPES,
    Group,
    LinearRecipe,
    LlmRecipe,
    Observer,
    Phase,
    Quantize,
    QuantizeCache,
    Rotate,
    Smooth,
    Stage,
    Type,
    WeightMethod,
)
from workbench.quantization.llm.run import check_rotation
from workbench.targets.ascend_llm.recipe_v0 import expect, exponents
from workbench.values.documents.yaml_reader import Section
from workbench.values.errors import ConfigError

_STRENGTH: tuple[Type, ...] = ("FLOAT", "W8A16", "W8A8_DYNAMIC", "W8A8_MIX", "W8A8")
SCOPES: dict[str, Type] = {"per_tensor": "W8A8", "per_token": "W8A8_DYNAMIC", "pd_mix": "W8A8_MIX"}
_OBSERVERS: dict[str, Observer] = {"minmax": "extremes", "histogram": "histogram"}
_WEIGHTS: dict[str, WeightMethod] = {"minmax": "minmax", "ssz": "ssz", "mse": "mse", "output_mse": "output_mse"}
_GROUPS: tuple[Group, ...] = ("norm-linear", "ov", "up-down")
_PROCESSES = (
    "linear_quant",
    "dynamic_cache",
    "smooth_quant",
    "iter_smooth",
    "flex_smooth_quant",
    "flex_awq_ssz",
    "awq",
    "quarot",
)
_REPLACED_EPSILON = 1e-6
"""Of the norms that iter_smooth and smooth_quant put in place of a model's (msmodelslim.md §6)."""
_ADVICE = f"Computed: {', '.join(_PROCESSES)}."


def read_v1(spec: Section, model: LlmModel) -> tuple[LlmRecipe, float]:
    """The recipe, and the most gigabytes of one weight file (0: one file)."""
    spec.text("runner", default="auto", choices=("auto", "layer_wise", "model_wise", "dp_layer_wise"))
    if spec.raw("prior", None):
        spec.refuse("prior", "stages before the main one are not computed here.", "Leave the key out.")
    stages: list[Stage] = []
    rotate: Rotate | None = None
    quantized: dict[str, Type] = {}
    if not spec.has("process"):
        spec.refuse("process", "is missing.", _ADVICE)
    for section in spec.items("process"):
        with section:
            kind = section.text("type")
            if kind not in _PROCESSES:
                section.refuse("type", f"{kind!r} is not computed here.", _ADVICE)
                section.leave_the_rest()
            elif kind == "quarot":
                if stages:
                    section.refuse("type", "quarot must be the first process.")
                rotate = _rotation(section, model)
            elif kind == "linear_quant":
                stages.append(_linears(section, model, quantized))
            elif kind == "dynamic_cache":
                stages.append(_cache(section, model))
            else:
                stages.append(_smoothing(section, kind, model))
    strongest = max(quantized.values(), key=_STRENGTH.index, default=TYPES[-1])
    size = 4.0
    for section in spec.items("save"):
        with section:
            expect(section, type="ascendv1_saver")
            size = section.number("part_file_size", default=4.0, minimum=0.0, maximum=1e6)
    return LlmRecipe(generation="v1", type=strongest, phases=(Phase(stages=tuple(stages)),), rotate=rotate), size


def _rotation(section: Section, model: LlmModel) -> Rotate:
    expect(section, online=False)
    block = section.integer("block_size", default=-1, minimum=-1)
    rotate = Rotate(block=None if block == -1 else block)
    try:
        check_rotation(model.config, rotate)
    except ConfigError as error:
        section.refuse("block_size", error.rule, error.hint)
    section.integer("max_tp_size", default=4, minimum=1)  # of online rotations alone, as the next
    section.integers("down_proj_online_layers", default=())
    section.flag("export_extra_info", default=True)
    return rotate


def _linears(section: Section, model: LlmModel, quantized: dict[str, Type]) -> Quantize:
    linear = _linear(section.section("qconfig"))
    chosen = [name for name in _matching(section, list(model.linears())) if name not in quantized]
    quantized.update(dict.fromkeys(chosen, linear.type))
    return Quantize(generation="v1", linears=dict.fromkeys(chosen, linear))


def _linear(config: Section) -> LinearRecipe:
    method, refinements = _weight(config, "weight")
    kind, observer, symmetric = _activation(config)
    return LinearRecipe(type=kind, observer=observer, symmetric=symmetric, weight=method, refinements=refinements)


def _weight(config: Section, key: str) -> tuple[WeightMethod, int]:
    """The method, and how many steps ssz takes at most."""
    with config.section(key) as weight:
        if not config.has(key):
            config.refuse(key, "is missing.", "scope per_channel, dtype int8, symmetric true, method minmax.")
        expect(weight, scope="per_channel", dtype="int8", symmetric=True)
        method = weight.text("method", default="minmax")
        if method not in _WEIGHTS:
            advice = "minmax and ssz are, and of our own methods mse and output_mse."
            weight.refuse("method", f"{method} is not computed here.", advice)
            method = "minmax"
        steps = 50
        if method == "ssz":
            steps = weight.section("ext").integer("step", default=50, minimum=1, maximum=10_000)
        else:
            _no_extras(weight)
        return _WEIGHTS[method], steps


def _activation(config: Section) -> tuple[Type, Observer, bool]:
    if not config.has("act"):
        return "W8A16", "extremes", True
    with config.section("act") as act:
        scope = act.text("scope", choices=tuple(SCOPES))
        expect(act, dtype="int8")
        symmetric = act.flag("symmetric", default=scope == "per_token")
        if scope == "per_token" and not symmetric:
            act.refuse("symmetric", "per_token is symmetric.", "Write true.")
        if scope == "pd_mix" and symmetric:
            act.refuse("symmetric", "pd_mix is asymmetric.", "Write false.")
        method = act.text("method", default="minmax", choices=tuple(_OBSERVERS))
        if method == "histogram" and scope != "per_tensor":
            act.refuse("method", "histogram is for per_tensor.", "Write minmax.")
        mean = act.section("ext").text("aggregation_type", default="max", choices=("max", "mean")) == "mean"
        if mean and method != "minmax":
            act.refuse("ext", "aggregation_type is for minmax.", "Leave it out.")
        observer: Observer = "mean_wide" if mean else _OBSERVERS.get(method, "extremes")
        return SCOPES.get(scope, "W8A8"), observer, symmetric


def _no_extras(section: Section) -> None:
    if section.raw("ext", {}):
        section.refuse("ext", "no extras are known of this method.")


def _cache(section: Section, model: LlmModel) -> QuantizeCache:
    with section.section("qconfig") as config:
        expect(config, scope="per_channel", dtype="int8", symmetric=True, method="minmax")
        _no_extras(config)
    names = {f"{model.prefix(block)}.self_attn": block for block in range(model.config.layers)}
    return QuantizeCache(blocks=frozenset(names[name] for name in _matching(section, list(names))))


def _smoothing(section: Section, kind: str, model: LlmModel) -> Smooth:
    groups = _groups(section, kind, model)
    sources = [
        f"{model.prefix(block)}.{name}"
        for block in range(model.config.layers)
        for name in ("input_layernorm", "post_attention_layernorm", "self_attn.v_proj", "mlp.up_proj")
    ]
    left = frozenset(sources) - frozenset(_matching(section, sources))
    smooth = partial(Smooth, generation="v1", groups=groups, skipped=left)
    if kind == "awq":
        method, _ = _weight(section, "weight_qconfig")
        if method != "minmax":
            section.refuse("weight_qconfig", f"{method} is not computed here for awq.", "minmax is.")
        return smooth(method="awq", steps=section.integer("n_grid", default=20, minimum=1, maximum=1000))
    if kind in ("flex_smooth_quant", "flex_awq_ssz"):
        judged = _linear(section.section("qconfig")) if kind == "flex_awq_ssz" else None
        alpha, beta = exponents(section)
        if judged is not None:  # beta is read and not used there
            judged = judged if alpha is None else None
            return smooth(method="flex_awq", alpha=alpha or 0.0, head_reduction="max", judged=judged)
        if (alpha is None) != (beta is None):
            section.refuse("alpha", "and beta are given together or not at all.", "The tool would look for both again.")
        heads: Literal["mean", "max"] = "max" if model.config.family == "qwen3" else "mean"
        method_of: Literal["search", "power"] = "search" if alpha is None else "power"
        return smooth(method=method_of, alpha=alpha or 0.0, beta=beta or 0.0, head_reduction=heads, per_token=True)
    alpha = section.number("alpha", default=0.5 if kind == "smooth_quant" else 0.9, minimum=0.0, maximum=1.0)
    shift = not section.flag("symmetric", default=True)
    smallest = section.number("scale_min", default=1e-5, minimum=0.0, maximum=1.0) if kind == "iter_smooth" else 1e-5
    return smooth(
        method="power",
        alpha=alpha,
        beta=1 - alpha,
        smallest=smallest,
        shift=shift,
        norm_bias=shift or kind == "smooth_quant",
        signed_weights=kind == "iter_smooth",
        epsilon=_REPLACED_EPSILON,
    )


def _groups(section: Section, kind: str, model: LlmModel) -> tuple[Group, ...]:
    """What the tool's adapter of a family offers to a process (msmodelslim.md §6), less what a recipe leaves out."""
    family = model.config.family
    if kind == "awq" and family == "llama":
        section.refuse("type", "awq does not run on Llama in the vendor's tool.", "flex_awq_ssz does.")
    offered: Sequence[Group] = _GROUPS if family == "qwen3" and kind != "smooth_quant" else _GROUPS[:1]
    if kind == "awq" and family == "qwen2":
        offered = ("norm-linear", "up-down")
    if kind == "smooth_quant" or not section.has("enable_subgraph_type"):
        return tuple(offered)
    wanted = section.texts("enable_subgraph_type")
    for each in wanted:
        if each not in (*_GROUPS, "linear-linear"):
            section.refuse("enable_subgraph_type", f"{each!r} is no type of a subgraph.")
    return tuple(each for each in offered if each in wanted)


def _matching(section: Section, names: Sequence[str]) -> list[str]:
    """Of the names those that a pattern includes and none excludes; a pattern that names nothing is refused."""
    found: dict[str, set[str]] = {}
    for key, default in (("include", ("*",)), ("exclude", ())):
        found[key] = set()
        for pattern in section.texts(key, default=default):
            matched = fnmatch.filter(names, pattern)
            if not matched and "lm_head" not in pattern and "embed_tokens" not in pattern:
                section.refuse(key, f"{pattern!r} names nothing of this model.", f"Names are like {names[0]}.")
            found[key].update(matched)
    return [name for name in names if name in found["include"] and name not in found["exclude"]]
