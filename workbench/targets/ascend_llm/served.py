"""A finished checkpoint folder as vLLM-Ascend's loader sees it, ours or the vendor's (msmodelslim.md §3, §8).

Here stand the rules that headers decide: which files, which tensors, of which type and shape. What values have to be
stands in `execution`, which reads one block at a time. Everything that the engine would refuse, or load and compute
wrongly, is refused with file, tensor and reason.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from workbench.quantization.llm.checkpoint import (
    EMBEDDING,
    HEAD,
    LINEARS,
    header,
    tensor_shapes,
    weight_map,
)
from workbench.quantization.llm.config import LlmConfig, read_config
from workbench.quantization.llm.recipe import TYPES, Type
from workbench.targets.ascend_llm.description import STATIC, mixed_types
from workbench.targets.ascend_llm.tensors import CACHE_TYPE, CACHED, DESCRIPTION
from workbench.values.documents.input_files import is_file
from workbench.values.documents.json_reader import read_json
from workbench.values.errors import ConfigError, nearest

_FLOATS = ("F16", "BF16", "F32")
_MOST_DESCRIPTION_BYTES = 1 << 26
_MOST_FILES = 1000
_CACHE_PARTS = ("scale", "offset")
_ABOUT_ALL = {
    *("version", "model_quant_type", "kv_cache_type", "kv_quant_type", "group_size", "metadata", "optional"),
    *("fa_quant_type", "reduce_quant_type"),
}
"""Keys of the description that are no tensor's (msmodelslim.md §3.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A checkpoint whose files, names, types and shapes an engine would take.

    Attributes:
        kind: what the description calls the whole.
        types: full name of a linear → its type, every linear.
        places: full name of a tensor → its file; without biases that the engine skips, as `quant_bias` holds them.
        cached: blocks whose keys and values are kept as int8.
        unserved: sentences on why the engine would not run this model, though it is computed here: a float32 model.
    """

    folder: Path
    config: LlmConfig
    kind: str
    types: Mapping[str, Type]
    places: Mapping[str, Path]
    cached: frozenset[int]
    unserved: tuple[str, ...]


_Wanted = tuple[tuple[int, ...], tuple[str, ...], bool]
"""Shape and types of a tensor that the engine has a parameter for, and whether it starts from a value that serves."""


def read_served(folder: Path) -> Served:
    """Look at a folder: config.json, the description, the headers of all weight files, and whether they fit.

    Raises:
        ConfigError: with file, tensor and reason.
    """
    config = read_config(folder, quantized=True)
    file = folder / DESCRIPTION
    kind, description = _description(file)
    places, headers = _held(folder)
    types, cached = _types(config, description, file), _cached(config, description, file)
    wanted = dict(_wanted(config, types, cached, description))
    skipped = {name for name in places if name not in wanted and _skipped(name, places[name], config, types)}
    # the description and the files name the same tensors (msmodelslim.md §3.1)
    for name in description:
        if name not in places and not (config.tied and name == f"{HEAD}.weight"):
            raise ConfigError(
                "is listed, but in no weight file of the folder.",
                file=file,
                key=name,
                hint="A weight file is missing; copy the whole folder.",
            )
    for name, place in places.items():
        if name not in description:
            raise ConfigError(f"{name} is not listed in {DESCRIPTION}.", file=place)
    for name, want in wanted.items():
        _check_header(name, want, headers.get(name), types, config, places.get(name, folder))
    unserved = []
    if config.dtype == torch.float32:
        unserved.append("a float32 model: vLLM-Ascend computes quantized models in bfloat16 and float16 alone.")
        if set(STATIC) & set(types.values()):
            unserved.append("a float32 model: it knows no deq_scale for it. The factors are taken whole here.")
    return Served(
        folder=folder,
        config=config,
        kind=kind,
        types=types,
        places={name: place for name, place in places.items() if name not in skipped},
        cached=cached,
        unserved=tuple(unserved),
    )


def _description(file: Path) -> tuple[str, dict[str, str]]:
    """(what the whole is called, name of a tensor → its type)."""
    found = read_json(file, limit_bytes=_MOST_DESCRIPTION_BYTES)
    if not isinstance(found, dict):
        raise ConfigError("holds no JSON object.", file=file)
    metadata, cache, groups = found.get("metadata"), found.get("kv_cache_type"), found.get("group_size")
    types = {key: value for key, value in found.items() if key not in _ABOUT_ALL}
    wrong = {key: f"expected the name of a type, got {kind!r}." for key, kind in types.items() if type(kind) is not str}
    if found.get("fa_quant_type"):
        wrong["fa_quant_type"] = "quantized attention is not computed here."
    if groups:
        wrong["group_size"] = f"scales of groups of {groups} columns are not computed here."
    if isinstance(metadata, dict) and metadata.get("quarot"):
        wrong["metadata.quarot"] = "rotations at run time are not computed here."
    if cache not in (None, CACHE_TYPE):
        wrong["kv_cache_type"] = f"{cache!r} is not {CACHE_TYPE!r}, the only kind of cache that the engine reads here."
    elif cache is None and CACHE_TYPE in types.values():
        rule = f"is missing although {CACHE_TYPE} tensors are listed; the engine would keep a float cache."
        wrong["kv_cache_type"] = rule
    for key, rule in wrong.items():
        raise ConfigError(rule, file=file, key=key)
    return str(found.get("model_quant_type", "FLOAT")), types


def _held(folder: Path) -> tuple[dict[str, Path], dict[str, tuple[str, tuple[int, ...]]]]:
    """Every tensor of every .safetensors file of the folder, and its header: the engine loads them all, whatever an
    index says."""
    files = sorted(path for path in folder.glob("*.safetensors") if is_file(path))
    if not files or len(files) > _MOST_FILES:
        raise ConfigError(
            f"holds {len(files)} weight files; expected from 1 to {_MOST_FILES} .safetensors.", file=folder
        )
    names = {path.name for path in files}
    for index in sorted(folder.glob("*.safetensors.index.json")):
        listed = set(weight_map(index).values())
        if missing := sorted(listed - names):
            raise ConfigError(
                f"shard {missing[0]} is missing.", file=index, hint="Copy the whole folder, or calibrate again."
            )
        if index.name == "model.safetensors.index.json" and (left_out := sorted(names - listed)):
            raise ConfigError(
                f"does not list {left_out[0]}; the engine loads only what an index of this name lists.",
                file=index,
                hint="It is the float model's; remove it.",
            )
    places, headers = dict[str, Path](), dict[str, tuple[str, tuple[int, ...]]]()
    for file in files:
        found = header(file)
        for name in found:
            if name in places:
                raise ConfigError(
                    f"{name} is in {places[name].name} too; the engine loads every .safetensors file of a folder.",
                    file=file,
                    hint="Remove the file that does not belong to this checkpoint, such as the float model's.",
                )
        places |= dict.fromkeys(found, file)
        headers |= found
    return places, headers


def _types(config: LlmConfig, description: Mapping[str, str], file: Path) -> dict[str, Type]:
    found: dict[str, Type] = {}
    linears = [f"model.layers.{block}.{linear}" for block in range(config.layers) for linear in LINEARS]
    for name in (*linears, EMBEDDING, *((HEAD,) if not config.tied or f"{HEAD}.weight" in description else ())):
        key, hint = f"{name}.weight", ""
        kind = description.get(key)
        if kind is None:
            rule = "is missing; the engine looks up the type of every linear, of the embedding and the head."
        elif kind not in TYPES:
            rule, hint = f"{kind!r} is not computed here.", nearest(kind, TYPES) or f"Types: {', '.join(TYPES)}."
        elif name in (EMBEDDING, HEAD) and kind != "FLOAT":
            rule = f"{kind} is not computed here; embedding and head stay FLOAT."
        else:
            found[name] = kind
            continue
        raise ConfigError(rule, file=file, key=key, hint=hint or None)
    types = {name: found[name] for name in linears}
    for prefix, sentence in mixed_types(types, config.layers):
        raise ConfigError(sentence, file=file, key=prefix, hint="Quantize them alike, or leave all of them float.")
    return types


def _cached(config: LlmConfig, description: Mapping[str, str], file: Path) -> frozenset[int]:
    found = set()
    for block in range(config.layers):
        keys = [f"model.layers.{block}.{linear}.kv_cache_{part}" for linear in CACHED.values() for part in _CACHE_PARTS]
        there = [key for key in keys if key in description]
        if there and (missing := [key for key in keys if key not in description]):
            raise ConfigError(f"is missing although {there[0]} is listed.", file=file, key=missing[0])
        if there:
            found.add(block)
    return frozenset(found)


def _wanted(
    config: LlmConfig, types: Mapping[str, Type], cached: frozenset[int], description: Mapping[str, str]
) -> Iterator[tuple[str, _Wanted]]:
    """Every tensor that the engine has a parameter for (msmodelslim.md §3.2)."""
    for name, shape in tensor_shapes(config).items():
        module, _, part = name.rpartition(".")
        kind = types.get(module, "FLOAT")
        if part == "bias":
            yield name, (shape, _FLOATS, kind == "W8A8")
            continue
        yield name, (shape, _FLOATS if kind == "FLOAT" else ("I8",), name == f"{HEAD}.weight" and config.tied)
        if len(shape) == 1 and f"{module}.bias" in description:  # of a norm
            yield f"{module}.bias", (shape, _FLOATS, False)
        if kind == "FLOAT":
            continue
        rows = shape[0]
        for part in ("weight_scale", "weight_offset"):
            yield f"{module}.{part}", ((rows, 1), _FLOATS, kind == "W8A8")
        if kind in STATIC:
            yield f"{module}.input_scale", ((1,), _FLOATS, False)
            yield f"{module}.input_offset", ((1,), (*_FLOATS, "I8"), False)
            yield f"{module}.quant_bias", ((rows,), ("I32",), False)
            factors = "F32" if config.dtype == torch.bfloat16 else "I64"
            yield f"{module}.deq_scale", ((rows,), (factors,), False)
    for block, linear, part in itertools.product(sorted(cached), CACHED.values(), _CACHE_PARTS):
        size = config.kv_heads * config.head_dim
        yield f"model.layers.{block}.{linear}.kv_cache_{part}", ((size,), _FLOATS, False)


def _check_header(
    name: str,
    want: _Wanted,
    told: tuple[str, tuple[int, ...]] | None,
    types: Mapping[str, Type],
    config: LlmConfig,
    place: Path,
) -> None:
    shape, dtypes, optional = want
    linear, _, part = name.rpartition(".")
    kind = f" of a {types[linear]} linear" if linear in types else ""
    if told is None:
        if optional:
            return
        raise ConfigError(
            f"has no tensor {name}{kind}; the engine would compute with whatever is in its memory.",
            file=place,
            hint="The checkpoint is not whole; copy it again.",
        )
    dtype, stored = told
    if dtype not in dtypes:
        why = ""
        if part == "deq_scale":
            why = f" for a {config.dtype} model (bfloat16: float32; float16: the bits of float32 as int64)"
        raise ConfigError(f"{name}{kind} is {dtype}, not {' or '.join(dtypes)}{why}.", file=place)
    if stored != shape:
        hint = None
        if part in ("weight_scale", "weight_offset"):
            hint = "The engine reads one scale for each output channel (mm_tensor: False)."
        raise ConfigError(
            f"{name}{kind} has shape {list(stored)}, the engine has {list(shape)}.", file=place, hint=hint
        )


def _skipped(name: str, place: Path, config: LlmConfig, types: Mapping[str, Type]) -> bool:
    """Whether the engine, which has no parameter for a tensor, skips it, and rightly so; raises where it does not.

    That biases are skipped is [inferred] from vLLM's loader of these families; quant_bias of W8A8 has them.
    """
    if name.endswith("rotary_emb.inv_freq"):
        return False
    linear, _, part = name.rpartition(".")
    if part == "bias" and linear in types:
        if types[linear] == "W8A8":
            return True
        rule = (
            f"{name}: {config.family} has no bias there, so the engine skips it, and a {types[linear]} linear has "
            "it nowhere else. What comes out would lack the shift of the smoothing."
        )
        hint = "Use W8A8 for this linear, or a smoothing without shift."
    else:
        rule, hint = (
            f"{name} is no tensor of this architecture; the engine would stop at it.",
            "v0 writes such names for a quantized cache of Qwen3; use dynamic_cache of v1."
            if "kv_cache" in name
            else "The file belongs to another model, or was written by another tool.",
        )
    raise ConfigError(rule, file=place, hint=hint)
