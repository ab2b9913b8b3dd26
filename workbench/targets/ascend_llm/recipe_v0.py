"""Recipes of the older generation, `apiversion: modelslim_v0` (msmodelslim.md §7.1)."""

from __future__ import annotations

import fnmatch
from dataclasses import replace

from workbench.quantization.llm.checkpoint import HEAD, LlmModel
from workbench.quantization.llm.recipe import (
    Group,
    LinearRecipe,
    LlmRecipe,
    Observer,
    Phase,
    Quantize,
    Smooth,
    Survey,
    Type,
    WeightMethod,
)
from workbench.values.documents.yaml_reader import Section
from workbench.values.errors import nearest

_OBSERVERS: dict[int, Observer] = {1: "mean_extremes", 2: "truncated_histogram", 3: "automatic"}
W_METHODS: dict[str, WeightMethod] = {"MinMax": "minmax", "MSE": "mse", "OutputMSE": "output_mse"}
_MIXED: dict[str, Type] = {"w8a8": "W8A8", "w8a16": "W8A16", "w8a8_dynamic": "W8A8_DYNAMIC", "float": "FLOAT"}
_NORMS: tuple[Group, ...] = ("norm-linear",)
_ALL: tuple[Group, ...] = ("norm-linear", "ov", "up-down")
_SMOOTHING = {
    "m1": Smooth(method="power", generation="v0", groups=_NORMS, norm_bias=True),
    "m2": Smooth(method="outlier_suppression", generation="v0", groups=_NORMS, norm_bias=True),
    "m3": Smooth(method="awq", generation="v0", groups=_NORMS, norm_bias=True),
    "m4": Smooth(method="power", generation="v0", groups=_ALL, alpha=0.9, beta=1 - 0.9, norm_bias=True),
    "m5": Smooth(method="cbq", generation="v0", groups=_NORMS, norm_bias=True),
    "m6": Smooth(method="search", generation="v0", groups=_ALL, alpha=0.0, beta=0.0, head_reduction="max"),
}
"""As on other families than Qwen3, where m4 shifts too."""
_FIXED = {
    **{"w_bit": 8, "pr": 1.0, "disable_last_linear": True, "use_fa_quant": False, "co_sparse": False},
    **{"is_lowbit": False, "do_smooth": False, "nonuniform": False, "use_sigma": False},
}
_WITHOUT_EFFECT = ("fraction", "sigma_factor", "percdamp", "fa_amp", "open_outlier", "group_size")
"""Of methods that are refused; alone they do nothing."""


def expect(section: Section, **values: object) -> None:
    """Refuse whatever else stands at keys of which one value is computed here."""
    for key, value in values.items():
        found = section.raw(key, value)
        if found != value or isinstance(found, bool) != isinstance(value, bool):
            section.refuse(key, f"{found} is not computed here.", f"{value} is.")


def exponents(section: Section) -> tuple[float | None, float | None]:
    """alpha and beta of a smoothing, None where one is not given."""
    alpha, beta = (
        section.optional(key, lambda key: section.number(key, minimum=0.0, maximum=1.0)) for key in ("alpha", "beta")
    )
    return alpha, beta


def read_v0(spec: Section, model: LlmModel) -> tuple[LlmRecipe, float]:
    """The recipe, and the most gigabytes of one weight file (0: one file)."""
    phases = []
    smoothing = _smoothing(spec, model)
    if smoothing is not None:
        phases.append(Phase(stages=(smoothing,), data="smoothing"))
    kind, linear, names, cache = _calibration(spec.section("calib_cfg"), model)
    worst, by_name = _parameters(spec.section("calib_params"), model, linear)
    if linear.observer == "automatic" or worst or cache:
        phases.append(Phase(stages=(Survey(worst=worst, cache=cache),)))
    linears = {name: by_name.get(name, linear) for name in model.linears() if name not in names}
    phases.append(Phase(stages=(Quantize(generation="v0", linears=linears),)))
    part = spec.section("calib_save_params").number("part_file_size", default=0.0, minimum=0.0, maximum=1e6)
    return LlmRecipe(generation="v0", type=kind, phases=tuple(phases)), part


def _smoothing(spec: Section, model: LlmModel) -> Smooth | None:
    parameters = spec.section("anti_params")
    if parameters.has("norm_class_name"):
        parameters.text("norm_class_name")  # the tool finds norms by it; ours are known
    if not spec.has("anti_cfg"):
        return None
    with spec.section("anti_cfg") as section:
        method = section.text("anti_method", default="m2", choices=tuple(_SMOOTHING))
        expect(section, w_bit=8)
        bits = section.integer("a_bit", default=8)
        if bits not in ((8, 16) if method == "m3" else (8,)):
            section.refuse("a_bit", f"{bits} is not allowed with {method}.", "8 is; m3 also takes 16.")
        symmetric = section.flag("w_sym", default=True)
        if not symmetric and method != "m3":
            section.refuse("w_sym", f"is true with {method}.", "m3 alone takes false.")
        skipped = _linears(section, "disable_anti_names", model)
        if skipped and method not in ("m3", "m4", "m6"):
            section.refuse("disable_anti_names", f"has no effect with {method}.", "It works with m3, m4 and m6.")
        alpha, beta = exponents(section.section("flex_config"))
        found = replace(_SMOOTHING[method], skipped=skipped, symmetric_weights=symmetric)
        if method == "m6" and alpha is not None and beta is not None:
            return replace(found, method="power", alpha=alpha, beta=beta)
        if model.config.family != "qwen3":
            return found
        if method not in ("m4", "m6"):
            section.refuse("anti_method", f"{method} does not run on Qwen3 in the vendor's tool.", "m4 and m6 do.")
        return replace(found, alpha=0.5, beta=0.5, shift=True) if method == "m4" else found


def _calibration(section: Section, model: LlmModel) -> tuple[Type, LinearRecipe, frozenset[str], bool]:
    """Type of the whole, recipe of a linear, linears left float, and whether the cache is quantized."""
    with section:
        expect(section, **_FIXED)
        for key in _WITHOUT_EFFECT:
            section.raw(key, None)
        bits = section.integer("a_bit", default=8)
        if bits not in (8, 16):
            section.refuse(
                "a_bit", f"activations of {bits} bits are not computed here.", "8 is, and 16 for weights alone."
            )
        act = section.integer("act_method", default=1, minimum=1, maximum=3)
        method = section.text("w_method", default="MinMax")
        if method not in W_METHODS:
            own = ", ".join(list(W_METHODS)[1:])
            section.refuse("w_method", f"{method} is not computed here.", f"Computed: MinMax, and {own} of our own.")
            method = "MinMax"
        by_tensor = section.flag("mm_tensor", default=True)
        symmetric = section.flag("w_sym", default=True)
        dynamic, mixed = section.flag("is_dynamic", default=False), section.flag("pdmix", default=False)
        if bits == 8 and not symmetric:
            section.refuse("w_sym", "must be true where a_bit is 8.")
        if bits == 16 and (dynamic or mixed):
            section.refuse("is_dynamic" if dynamic else "pdmix", "needs a_bit 8.")
        if dynamic and mixed:
            section.refuse("pdmix", "and is_dynamic exclude each other.")
        names = _linears(section, "disable_names", model)
        cache = section.flag("use_kvcache_quant", default=False)
        if cache and model.config.qk_norm:
            section.refuse(
                "use_kvcache_quant",
                "writes empty scales on models with norms of q and k in the vendor's tool (msmodelslim.md §4.8).",
                "A v1 recipe with dynamic_cache quantizes their cache.",
            )
        kind: Type = "W8A16" if bits == 16 else "W8A8_DYNAMIC" if dynamic else "W8A8_MIX" if mixed else "W8A8"
        linear = LinearRecipe(
            type=kind,
            observer=_OBSERVERS[act],
            weight=W_METHODS[method],
            weight_symmetric=symmetric,
            by_channel=not by_tensor,
        )
        return kind, linear, names, cache


def _parameters(section: Section, model: LlmModel, linear: LinearRecipe) -> tuple[int, dict[str, LinearRecipe]]:
    """How many linears stay float by rank, and linears whose type differs from the rest."""
    with section:
        level = section.text("disable_level", default="L0")
        if not (level[:1] == "L" and level[1:].isdigit() and len(level) < 7):
            section.refuse("disable_level", f"{level!r} is no level.", "L0, L1, L2 … leave so many linears float.")
            level = "L0"
        mixed = section.section("mix_cfg")
        wanted: dict[str, Type] = {}
        for pattern in mixed.names():
            kind = mixed.text(pattern)
            if kind not in _MIXED:
                mixed.refuse(pattern, f"{kind} is not computed here.", nearest(kind, _MIXED))
                continue
            if not any(pattern == name or fnmatch.fnmatchcase(name, pattern) for name in (*model.linears(), HEAD)):
                mixed.refuse(pattern, "names no linear of this model.", nearest(pattern, _near(model)))
            wanted[pattern] = _MIXED[kind]
        found: dict[str, LinearRecipe] = {}
        for name in model.linears():
            matching = next((kind for pattern, kind in wanted.items() if fnmatch.fnmatchcase(name, pattern)), None)
            if (chosen := wanted.get(name, matching)) is not None:
                found[name] = replace(linear, type=chosen, ranged=chosen == "W8A8_DYNAMIC" != linear.type)
        return int(level[1:]), found


def _linears(section: Section, key: str, model: LlmModel) -> frozenset[str]:
    names = section.texts(key, default=())
    known = {*model.linears(), HEAD}
    for name in names:
        if name not in known:
            section.refuse(key, f"{name!r} is no linear of this model.", nearest(name, _near(model)))
    return frozenset(names)


def _near(model: LlmModel) -> list[str]:
    """Names to propose instead: of the first and the last block, since all are too many to compare."""
    known = list(model.linears())
    return [*known[:7], *known[-7:]]
