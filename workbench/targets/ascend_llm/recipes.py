"""The quantizer's YAML recipes, read as ours and written from a candidate's settings: one reader serves files of users
and candidates alike, and the vendor's tool can be given the same recipe.

`apiversion` says which of the two generations a file is of. The tool itself knows `minmax` for weights alone: recipes
with `mse` or `output_mse` are the workbench's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from workbench.quantization.llm.checkpoint import LlmModel, block_shapes
from workbench.quantization.llm.recipe import LlmRecipe, Quantize, Smooth, Survey
from workbench.targets.ascend_llm.description import FUSED, GROUPS, STATIC, LinearType, LlmSettings, mixed_types
from workbench.targets.ascend_llm.recipe_v0 import W_METHODS, read_v0
from workbench.targets.ascend_llm.recipe_v1 import SCOPES, read_v1
from workbench.values.documents.yaml_reader import read_yaml

APIS = ("modelslim_v0", "modelslim_v1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRecipe:
    """A recipe and what else its file asks for.

    Attributes:
        data, smoothing_data: names of data sets as they are written; None where the file names none.
        smoothing_batch: samples of the smoothing data that are padded to one length.
        part_bytes: the most of one weight file; 0 for one file.
    """

    recipe: LlmRecipe
    data: str | None
    smoothing_data: str | None
    smoothing_batch: int
    part_bytes: int


def read_recipe(path: Path, model: LlmModel) -> ReadRecipe:
    """A recipe file for a model.

    Raises:
        ConfigError: with file, line, key and rule: not YAML, an unknown key, a value that is refused, a name that no
            linear of the model has.
    """
    with read_yaml(path, version=None) as top:
        api = top.text("apiversion", choices=APIS)
        top.raw("metadata", None)
        top.leave_anchors()  # the vendor's own recipes write a qconfig once, at the top
        spec = top.section("spec")
        if not top.has("spec"):
            top.refuse("spec", "is missing.", "The recipe stands below it.")
        top.settle()
        with spec:
            v0 = api == "modelslim_v0"
            recipe, saved = (read_v0 if v0 else read_v1)(spec, model)
            keys = ("calib_dataset", "anti_dataset") if v0 else ("dataset",)
            data, smoothing = (*(spec.text(key) if spec.has(key) else None for key in keys), None)[:2]
            batch = spec.integer("batch_size", default=4, minimum=1, maximum=1024) if v0 else 1
    return ReadRecipe(
        recipe=recipe, data=data, smoothing_data=smoothing, smoothing_batch=batch, part_bytes=round(saved * 1e9)
    )


_ACT_METHODS = {"minmax": 1, "histogram": 2, "automatic": 3}
_STRONGEST: tuple[LinearType, ...] = ("W8A8_MIX", "W8A8", "W8A8_DYNAMIC", "W8A16")
"""A recipe of v0 has one type, and others by pattern: the first of these that occurs is taken for the whole."""


def recipe_text(settings: LlmSettings, left_float: Sequence[str] = ()) -> str:
    """The YAML of a recipe that quantizes something; ends with a line feed."""
    spec = _v0(settings, left_float) if settings.of_generation == "v0" else _v1(settings, left_float)
    # JSON is YAML, and one line for each part is as readable as the tool's own files
    lines = [f"  {key}: {json.dumps(value)}" for key, value in spec.items()]
    return "\n".join([f"apiversion: modelslim_{settings.of_generation}", "spec:", *lines, ""])


def _v0(settings: LlmSettings, left_float: Sequence[str]) -> dict[str, object]:
    kinds = {group: settings.type_of(group) for group in GROUPS}
    whole = next(kind for kind in _STRONGEST if kind in kinds.values())
    found: dict[str, object] = {}
    if settings.smoothing is not None:
        anti: dict[str, object] = {"anti_method": settings.smoothing}
        if settings.strength is not None:
            anti["flex_config"] = {"alpha": settings.strength, "beta": 1 - settings.strength}
        found["anti_cfg"] = anti
    found["calib_cfg"] = {
        "w_bit": 8,
        "a_bit": 16 if whole == "W8A16" else 8,
        "mm_tensor": False,
        "act_method": _ACT_METHODS[settings.activations or "minmax"],
        "w_method": _named(W_METHODS, settings.weights or "minmax"),
        "is_dynamic": whole == "W8A8_DYNAMIC",
        "pdmix": whole == "W8A8_MIX",
        **({"disable_names": list(left_float)} if left_float else {}),
    }
    others = [group for group, kind in kinds.items() if kind != whole]
    mixed = {_pattern(linear): kinds[group].lower() for group in others for linear in GROUPS[group]}
    return found | ({"calib_params": {"mix_cfg": mixed}} if mixed else {})


def _v1(settings: LlmSettings, left_float: Sequence[str]) -> dict[str, object]:
    process: list[dict[str, object]] = [{"type": "quarot"}] if settings.rotate else []
    if settings.smoothing is not None:
        strength = settings.strength
        given = {} if strength is None else {"alpha": strength}
        if settings.smoothing == "flex_smooth_quant" and strength is not None:
            given["beta"] = 1 - strength
        process.append({"type": settings.smoothing, **given})
    kinds = {group: settings.type_of(group) for group in GROUPS}
    for kind in dict.fromkeys(each for each in kinds.values() if each != "FLOAT"):
        linears = [linear for group, names in GROUPS.items() if kinds[group] == kind for linear in names]
        left = [name for name in left_float if name.endswith(tuple(linears))]
        process.append(
            {
                "type": "linear_quant",
                "qconfig": _config(settings, kind),
                "include": [_pattern(linear) for linear in linears],
                **({"exclude": left} if left else {}),
            }
        )
    if settings.kv_cache:
        process.append(
            {
                "type": "dynamic_cache",
                "qconfig": {"scope": "per_channel", "dtype": "int8", "symmetric": True, "method": "minmax"},
            }
        )
    return {"process": process, "save": [{"type": "ascendv1_saver", "part_file_size": 4}]}


def _config(settings: LlmSettings, kind: LinearType) -> dict[str, object]:
    weight = {"scope": "per_channel", "dtype": "int8", "symmetric": True, "method": settings.weights or "minmax"}
    if kind == "W8A16":
        return {"weight": weight}
    histogram = kind == "W8A8" and settings.activations == "histogram"
    act = {
        "scope": _named(SCOPES, kind),
        "dtype": "int8",
        "symmetric": kind not in STATIC,
        "method": "histogram" if histogram else "minmax",
    }
    return {"act": act, "weight": weight}


def _named(names: Mapping[str, str], meant: str) -> str:
    """What the tool's files call it."""
    return next(name for name, ours in names.items() if ours == meant)


def _pattern(linear: str) -> str:
    return f"*.{linear.rpartition('.')[2]}"


# --- what an engine makes of the checkpoint (msmodelslim.md §8) ------------------------------------------------------


_MOST_BLOCKS = 3


def types_of(recipe: LlmRecipe, model: LlmModel) -> dict[str, str]:
    """Full name of every linear → its type in the description."""
    types = dict.fromkeys(model.linears(), "FLOAT")
    for stage in recipe.stages:
        if isinstance(stage, Quantize):
            types.update({name: how.type for name, how in stage.linears.items()})
    return types


def refused_by_engine(recipe: LlmRecipe, model: LlmModel) -> tuple[str, ...]:
    """Sentences on what the engine would refuse, or compute wrongly, of a checkpoint of this recipe."""
    types, config = types_of(recipe, model), model.config
    linears = [how for stage in recipe.stages if isinstance(stage, Quantize) for how in stage.linears.values()]
    smooths = [stage for stage in recipe.stages if isinstance(stage, Smooth)]
    mixed = [f"{prefix}: {sentence}" for prefix, sentence in mixed_types(types, config.layers)]
    said = mixed[:_MOST_BLOCKS]
    if len(mixed) > _MOST_BLOCKS:
        said.append(f"… and {len(mixed) - _MOST_BLOCKS} more blocks.")
    if any(how.type == "W8A16" and not how.weight_symmetric for how in linears):
        said.append(
            "W8A16 with asymmetric weights: vLLM-Ascend hands weight_offset to a kernel that adds it, while the "
            "file means a subtraction."
        )
    if any(how.type != "FLOAT" and not how.by_channel for how in linears):
        said.append(
            "one scale for a whole weight: vLLM-Ascend reads one for each output channel. Set mm_tensor: False."
        )
    if lost := _skipped_biases(types, model) if any(stage.shift for stage in smooths) else []:
        said.append(
            f"{lost[0]} and {len(lost) - 1} more: the shift is in a bias that vLLM-Ascend skips. Use W8A8 there."
        )
    if any(isinstance(stage, Survey) and stage.cache for stage in recipe.stages):
        said.append(
            "use_kvcache_quant takes the ranges of keys before rotation; vLLM-Ascend quantizes keys after it. Use "
            "dynamic_cache of modelslim_v1."
        )
    if recipe.rotate is not None and config.tied:
        said.append(
            "a rotation changes embedding and head in different ways, and config.json ties them: vLLM-Ascend would "
            "take the embedding for both. Write tie_word_embeddings: false into the checkpoint's config.json."
        )
    if config.dtype == torch.float32 and set(STATIC) & set(types.values()):
        said.append(
            "a float32 model: vLLM-Ascend knows no deq_scale for it. Convert the model to bfloat16 or float16 first."
        )
    if (
        config.group > 1
        and not config.qkv_bias
        and any(each.generation == "v1" and each.method == "awq" and "ov" in each.groups for each in smooths)
    ):
        said.append(
            "awq from v_proj to o_proj where query heads share values: the vendor's tool scales o_proj and leaves "
            "v_proj, so the model computes something else. Give enable_subgraph_type norm-linear and up-down alone."
        )
    return tuple(said)


def _skipped_biases(types: Mapping[str, str], model: LlmModel) -> list[str]:
    """A shift becomes a bias of the linears behind a norm; only a static linear holds it in integers as well."""
    shapes, behind_norms = block_shapes(model.config), {name for parts in FUSED.values() for name in parts}
    return [
        f"{name} ({kind})"
        for name, kind in types.items()
        for linear in [name.partition("layers.")[2].partition(".")[2]]
        if kind != "W8A8" and linear in behind_norms and f"{linear}.bias" not in shapes
    ]
