"""Weights of a model folder, read block by block from where they lie (safetensors, one file or shards with an index).

Pickled weights are never opened. Files are mapped, so what is not asked for costs no memory.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import torch
from safetensors import SafetensorError, safe_open

from workbench.quantization.llm.config import LlmConfig, read_config
from workbench.values.documents.canonical import file_digest
from workbench.values.documents.input_files import is_file, open_file
from workbench.values.documents.json_reader import read_json
from workbench.values.errors import ConfigError

LINEARS = (
    *("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
    *("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
)
"""Linears of a block, in the order in which a block uses them; names are relative to the block."""
NORMS = ("input_layernorm", "post_attention_layernorm")
EMBEDDING, FINAL_NORM, HEAD = "model.embed_tokens", "model.norm", "lm_head"
_FLOATS = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32}
_MOST_INDEX_BYTES = 1 << 26

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmModel:
    """A model folder whose tensors were all found with the right shape; their values are read when asked for.

    Attributes:
        places: full name of a tensor → the file that holds it.
        surplus: tensors of the files that the architecture has no use for.
        cast: tensors stored in another float type than the model's; they are rounded to it when read.
    """

    folder: Path
    config: LlmConfig
    places: Mapping[str, Path]
    surplus: tuple[str, ...]
    cast: tuple[str, ...]

    def content(self) -> dict[str, str]:
        """Name → sha256 of config.json and of every weight file."""
        files = dict.fromkeys((self.folder / "config.json", *self.places.values()))
        return {file.name: file_digest(file) for file in files}

    def prefix(self, block: int) -> str:
        """`model.layers.3`."""
        return f"model.layers.{block}"

    def linears(self) -> Iterator[str]:
        """Full names of the linears of all blocks, in the order in which the model uses them."""
        for block in range(self.config.layers):
            yield from (f"{self.prefix(block)}.{name}" for name in LINEARS)


def open_model(folder: Path) -> LlmModel:
    """Look at a folder: config.json, the headers of its weight files, and whether the two fit.

    Raises:
        ConfigError: an unsupported architecture, no or only pickled weights, a missing shard, a damaged header, a
            tensor that is missing, or of another shape or type than config.json says.
    """
    config = read_config(folder)
    places = _places(folder)
    headers = {file: header(file) for file in dict.fromkeys(places.values())}
    for name, file in places.items():
        if name not in headers[file]:
            raise ConfigError(f"does not hold {name}, which the index places in it.", file=file)
    found = {name: headers[file][name] for name, file in places.items()}
    expected = tensor_shapes(config)
    if config.tied and f"{HEAD}.weight" not in found:
        expected.pop(f"{HEAD}.weight")
    if missing := [name for name in expected if name not in found]:
        bare = missing[0].removeprefix("model.")
        hint = "The weights are of another architecture or size than config.json says."
        if other := next((name for name in found if f".{name}".endswith(f".{bare}")), None):
            hint = (
                f"It is named {other!r} there, as a part of the model was saved alone or inside another. Load it with "
                "transformers' AutoModelForCausalLM and save_pretrained() it to a new folder."
            )
        more = f" and {len(missing) - 1} more." if missing[1:] else "."
        raise ConfigError(f"has no tensor {missing[0]!r}{more}", file=folder, hint=hint)
    for name, shape in expected.items():
        kind, stored = found[name]
        if stored != shape:
            raise ConfigError(f"{name} has shape {list(stored)}, config.json means {list(shape)}.", file=places[name])
        if kind not in _FLOATS:
            raise ConfigError(
                f"{name} is of type {kind}.",
                file=places[name],
                hint="Weights must be F16, BF16 or F32: give the float model.",
            )
    return LlmModel(
        folder=folder,
        config=config,
        places=MappingProxyType({name: places[name] for name in expected}),
        surplus=tuple(name for name in found if name not in expected and not name.endswith("rotary_emb.inv_freq")),
        cast=tuple(name for name in expected if _FLOATS[found[name][0]] != config.dtype),
    )


def tensor_shapes(config: LlmConfig) -> dict[str, tuple[int, ...]]:
    """Full name → shape of every tensor of the architecture, in the order of a forward pass."""
    shapes: dict[str, tuple[int, ...]] = {f"{EMBEDDING}.weight": (config.vocabulary, config.hidden)}
    for block in range(config.layers):
        shapes.update({f"model.layers.{block}.{name}": shape for name, shape in block_shapes(config).items()})
    return {
        **shapes,
        f"{FINAL_NORM}.weight": (config.hidden,),
        f"{HEAD}.weight": (config.vocabulary, config.hidden),
    }


def block_shapes(config: LlmConfig) -> dict[str, tuple[int, ...]]:
    """The same for one block, names relative to it."""
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    sizes = {
        "self_attn.q_proj": (queries, config.hidden, config.qkv_bias),
        "self_attn.k_proj": (keys, config.hidden, config.qkv_bias),
        "self_attn.v_proj": (keys, config.hidden, config.qkv_bias),
        "self_attn.o_proj": (config.hidden, queries, config.output_bias),
        "mlp.gate_proj": (config.intermediate, config.hidden, config.mlp_bias),
        "mlp.up_proj": (config.intermediate, config.hidden, config.mlp_bias),
        "mlp.down_proj": (config.hidden, config.intermediate, config.mlp_bias),
    }
    shapes: dict[str, tuple[int, ...]] = {}
    for name, (rows, columns, biased) in sizes.items():
        shapes[f"{name}.weight"] = (rows, columns)
        if biased:
            shapes[f"{name}.bias"] = (rows,)
        if name == "self_attn.o_proj" and config.qk_norm:
            shapes |= {f"self_attn.{which}_norm.weight": (config.head_dim,) for which in ("q", "k")}
    return shapes | {f"{name}.weight": (config.hidden,) for name in NORMS}


def read_block(model: LlmModel, block: int) -> dict[str, torch.Tensor]:
    """The tensors of one block in the model's dtype, by names relative to it."""
    prefix = model.prefix(block)
    read = read_tensors(model, [f"{prefix}.{name}" for name in block_shapes(model.config)])
    # a copy: products of a vector and a mapped weight are summed in an order that its address decides
    return {name.removeprefix(f"{prefix}."): value.clone() for name, value in read.items()}


def read_tensors(model: LlmModel, names: Sequence[str]) -> dict[str, torch.Tensor]:
    """Tensors by their full names, in the model's dtype."""
    read = stored_tensors(model.places, names)
    return {name: read[name].to(model.config.dtype) for name in names}


def stored_tensors(places: Mapping[str, Path], names: Sequence[str]) -> dict[str, torch.Tensor]:
    """Tensors as they are stored, by file; none holds NaN or infinity."""
    read: dict[str, torch.Tensor] = {}
    for file in dict.fromkeys(places[name] for name in names):
        try:
            with safe_open(file, framework="pt") as stored:
                for name in (each for each in names if places[each] == file):
                    value = read[name] = stored.get_tensor(name)
                    if value.is_floating_point() and not bool(torch.isfinite(value).all()):
                        raise ConfigError(
                            f"{name} holds {int((~torch.isfinite(value)).sum())} values that are NaN or infinite.",
                            file=file,
                            hint="The checkpoint is damaged; fetch or copy it again.",
                        )
        except (SafetensorError, OSError) as error:
            raise ConfigError(f"cannot be read: {error}.", file=file, hint="Fetch or copy it again.") from error
    return read


def head_name(model: LlmModel) -> str:
    """The tensor that the output projection multiplies with: its own, or the embedding where both are one."""
    own = f"{HEAD}.weight"
    return f"{EMBEDDING}.weight" if model.config.tied or own not in model.places else own


def block_bytes(config: LlmConfig) -> int:
    """Of the weights of one block in the model's dtype."""
    return config.dtype.itemsize * sum(math.prod(shape) for shape in block_shapes(config).values())


def _places(folder: Path) -> dict[str, Path]:
    """Tensor → file, by the index where there is one, else by the single file's header."""
    index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
    if is_file(index):
        named = weight_map(index)
        if not named:
            raise ConfigError("holds no map from tensors to files.", file=index, key="weight_map")
        files = dict.fromkeys(named.values())
        for each in files:
            if Path(each).name != each or not each.endswith(".safetensors"):
                rule = f"{each!r} is no name of a .safetensors file beside it."
                raise ConfigError(rule, file=index, key="weight_map")
        if missing := [each for each in files if not is_file(folder / each)]:
            more = f" and {len(missing) - 1} more shards are" if missing[1:] else " is"
            rule = f"shard {missing[0]}{more} missing of {len(files)}."
            raise ConfigError(rule, file=folder, hint="Fetch the model again, or copy the whole folder.")
        return {name: folder / file for name, file in named.items()}
    if is_file(single):
        return dict.fromkeys(header(single), single)
    rule, hint = "holds no weights.", "model.safetensors, or shards with model.safetensors.index.json, are read."
    if pickled := sorted(each.name for pattern in ("*.bin", "*.pt", "*.pth") for each in folder.glob(pattern)):
        rule = f"holds only pickled weights ({pickled[0]}), which can run code."
        hint += " Where you trust their origin, load them once and save_pretrained(safe_serialization=True)."
    raise ConfigError(rule, file=folder, hint=hint)


def weight_map(index: Path) -> dict[str, str]:
    """Tensor → name of its file."""
    listed = read_json(index, limit_bytes=_MOST_INDEX_BYTES)
    named = listed.get("weight_map") if isinstance(listed, dict) else None
    if not isinstance(named, dict) or not all(isinstance(each, str) for each in named.values()):
        raise ConfigError("holds no map from tensors to files.", file=index, key="weight_map")
    return named


def header(file: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Tensor → (type, shape) of a safetensors file."""
    open_file(file, limit_bytes=sys.maxsize).close()
    try:
        with safe_open(file, framework="pt") as stored:
            return {
                name: (piece.get_dtype(), tuple(piece.get_shape()))
                for name in stored.keys()  # noqa: SIM118  # no mapping: it has no iterator
                for piece in [stored.get_slice(name)]
            }
    except (SafetensorError, OSError) as error:
        raise ConfigError(
            f"is no readable safetensors file: {error}.",
            file=file,
            hint="It is damaged or cut short; fetch or copy it again.",
        ) from error
