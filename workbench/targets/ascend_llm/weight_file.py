"""Weight files written tensor by tensor, so that no more than one tensor is in memory (the safetensors format)."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from workbench.values.documents.canonical import canonical_json

_NAMES = {
    torch.int8: "I8",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
}
_ALIGNMENT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A tensor to be written.

    Attributes:
        read: gives its values, when it is its turn.
    """

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    read: Callable[[], torch.Tensor]

    @property
    def size_bytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape)


def stored(name: str, value: torch.Tensor) -> Stored:
    """A tensor that is in memory."""
    return Stored(name=name, dtype=value.dtype, shape=tuple(value.shape), read=lambda: value)


def write_weights(tensors: Sequence[Stored], file: Path, metadata: Mapping[str, str] | None = None) -> None:
    """One safetensors file, the tensors in the order given; equal tensors give equal bytes.

    Tensors may share memory, which safetensors' own writer refuses: tied embeddings, ranges of q, k and v.

    Raises:
        OSError: as the disk says it.
    """
    entries: dict[str, object] = {"__metadata__": {"format": "pt", **(metadata or {})}}
    at = 0
    for each in tensors:
        end = at + each.size_bytes
        entries[each.name] = {"dtype": _NAMES[each.dtype], "shape": list(each.shape), "data_offsets": [at, end]}
        at = end
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % _ALIGNMENT)
    with file.open("wb") as stream:
        stream.write(struct.pack("<Q", len(header)))
        stream.write(header)
        for each in tensors:
            value = each.read()
            assert (value.dtype, tuple(value.shape)) == (each.dtype, each.shape), each.name
            stream.write(value.contiguous().view(-1).view(torch.uint8).numpy().data)


def write_sharded(
    tensors: Sequence[Stored], folder: Path, stem: str, part_bytes: int, written: Callable[[str], None]
) -> tuple[Path, ...]:
    """STEM.safetensors, or with `part_bytes` STEM-00001-of-0000N.safetensors and an index (msmodelslim.md §3.6).

    Args:
        written: told each file's name.

    Raises:
        OSError: as the disk says it.
    """
    if part_bytes <= 0:
        file = folder / f"{stem}.safetensors"
        write_weights(tensors, file)
        written(file.name)
        return (file,)
    parts: list[list[Stored]] = [[]]
    for each in tensors:
        if parts[-1] and sum(other.size_bytes for other in parts[-1]) + each.size_bytes > part_bytes:
            parts.append([])
        parts[-1].append(each)
    files, places = [], {}
    for number, part in enumerate(parts, 1):
        file = folder / f"{stem}-{number:05}-of-{len(parts):05}.safetensors"
        write_weights(part, file)
        written(file.name)
        files.append(file)
        places.update({each.name: file.name for each in part})
    total = sum(each.size_bytes for each in tensors)
    index = folder / f"{stem}.safetensors.index.json"
    index.write_text(canonical_json({"metadata": {"total_size": total}, "weight_map": places}) + "\n")
    return (*files, index)
