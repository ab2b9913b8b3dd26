"""A quantized block as tensors of the vendor's weight file with their types in the description (msmodelslim.md §3), and
that file, written tensor by tensor: those that are mapped from kept files are in memory one at a time."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from workbench.quantization.llm.affine import Affine, QuantizedLinear
from workbench.quantization.llm.recipe import Generation
from workbench.quantization.llm.walk import WorkingBlock
from workbench.values.documents.canonical import canonical_json

CACHED = {"key": "self_attn.k_proj", "value": "self_attn.v_proj"}
CACHE_TYPE = "C8"
DESCRIPTION = "quant_model_description.json"
"""The type of every tensor of a finished checkpoint (msmodelslim.md §3.1)."""


_TYPES = {
    **{torch.int8: "I8", torch.int32: "I32", torch.int64: "I64"},
    **{torch.float16: "F16", torch.bfloat16: "BF16", torch.float32: "F32"},
}
"""As safetensors names them."""
_ALIGNMENT = 8


class Stored(NamedTuple):
    """A tensor to be written; `type` is what the description says of it."""

    name: str
    value: torch.Tensor
    type: str = "FLOAT"


def block_entries(block: WorkingBlock, generation: Generation) -> Iterator[Stored]:
    """Every tensor of a block that all stages are through with."""
    for name, value in block.tensors.items():
        yield Stored(f"{block.prefix}.{name}", value)
    for name, linear in block.linears.items():
        yield from linear_entries(linear, f"{block.prefix}.{name}", generation, block.config.dtype)
    for what, by in block.cache.items():
        for part, value in (("scale", by.scale), ("offset", by.offset)):
            yield Stored(f"{block.prefix}.{CACHED[what]}.kv_cache_{part}", value, CACHE_TYPE)


def linear_entries(linear: QuantizedLinear, name: str, generation: Generation, dtype: torch.dtype) -> Iterator[Stored]:
    """The tensors of one linear: v0 in the model's dtype, v1 in float32 (msmodelslim.md §3.2)."""

    def entry(part: str, value: torch.Tensor) -> Stored:
        wide = generation == "v1" and value.is_floating_point()
        return Stored(f"{name}.{part}", value.to(torch.float32) if wide else value, linear.type)

    yield entry("weight", linear.weight)
    if linear.bias is not None:
        yield entry("bias", linear.bias)._replace(type="FLOAT")
    if generation == "v0" or linear.type != "W8A8":
        yield entry("weight_scale", linear.by.scale)
        yield entry("weight_offset", linear.by.offset)
    if linear.input is None:
        return
    yield entry("input_scale", linear.input.scale)
    yield entry("input_offset", linear.input.offset)
    # in the dtype of the two, widened to float32 (msmodelslim.md §3.3)
    deq = (linear.input.scale * linear.by.scale).to(torch.float32).expand(len(linear.weight), 1).flatten()
    yield entry("quant_bias", integer_bias(linear, linear.input, deq, generation))
    # for float16 the vendor's operators take the bits of float32 as signed integers, widened to int64
    yield entry("deq_scale", deq if dtype == torch.bfloat16 else deq.contiguous().view(torch.int32).to(torch.int64))


def integer_bias(linear: QuantizedLinear, given: Affine, deq: torch.Tensor, generation: Generation) -> torch.Tensor:
    """round(bias / deq − offset · Σ_k q) as int32 [N] (msmodelslim.md §3.4)."""
    correction = given.offset.to(torch.float32) * linear.weight.to(torch.float32).sum(1)
    if linear.bias is None:
        return torch.round(-correction).to(torch.int32)
    if generation == "v1":  # in the dtype of the scales: that of the model, or float32 behind a histogram
        deq = deq.to(given.scale.dtype)
    return torch.round((linear.bias / deq).to(torch.float32) - correction).to(torch.int32)


def write_weights(tensors: Sequence[Stored], file: Path, metadata: Mapping[str, str] | None = None) -> None:
    """One safetensors file, the tensors in the order given; equal tensors give equal bytes.

    Tensors may share memory, which safetensors' own writer refuses: tied embeddings, ranges of q, k and v.
    """
    entries: dict[str, object] = {"__metadata__": {"format": "pt", **(metadata or {})}}
    at = 0
    for each in tensors:
        end = at + each.value.nbytes
        dtype, shape = _TYPES[each.value.dtype], list(each.value.shape)
        entries[each.name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, end]}
        at = end
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % _ALIGNMENT)
    with file.open("wb") as stream:
        stream.write(struct.pack("<Q", len(header)))
        stream.write(header)
        for each in tensors:
            stream.write(each.value.contiguous().view(-1).view(torch.uint8).numpy().data)


def write_sharded(tensors: Sequence[Stored], folder: Path, stem: str, part_bytes: int) -> None:
    """STEM.safetensors, or with `part_bytes` STEM-00001-of-0000N.safetensors and an index (msmodelslim.md §3.6)."""
    if part_bytes <= 0:
        write_weights(tensors, folder / f"{stem}.safetensors")
        return
    parts: list[list[Stored]] = [[]]
    for each in tensors:
        if parts[-1] and sum(other.value.nbytes for other in parts[-1]) + each.value.nbytes > part_bytes:
            parts.append([])
        parts[-1].append(each)
    places: dict[str, str] = {}
    for number, part in enumerate(parts, 1):
        name = f"{stem}-{number:05}-of-{len(parts):05}.safetensors"
        write_weights(part, folder / name)
        places.update(dict.fromkeys((each.name for each in part), name))
    total = sum(each.value.nbytes for each in tensors)
    index = folder / f"{stem}.safetensors.index.json"
    index.write_text(canonical_json({"metadata": {"total_size": total}, "weight_map": places}) + "\n")
