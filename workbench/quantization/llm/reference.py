"""The float model's logits for every checkpoint that is judged, from one pass over its blocks.

What is kept is what the last block gives, [1, tokens, hidden] a window; its logits are made when they are asked for.
So a window of 512 tokens of a model with 152 000 tokens and 896 channels costs 0.9 MB in bfloat16 rather than 156 MB,
and the head's product again. Made again from kept states, logits are the same to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from workbench.quantization.llm.checkpoint import LlmModel
from workbench.quantization.llm.fixed_order import kernels
from workbench.quantization.llm.forward import check_ids
from workbench.quantization.llm.forwards import embedded, float_decoder, head_logits, through
from workbench.values.documents.canonical import digest, file_digest
from workbench.values.documents.json_reader import JsonError, loads
from workbench.values.system.files import temporary_beside, write_json_atomically
from workbench.values.system.source_closure import closure_digest

MOST_KEPT_BYTES = 2 << 30
"""Of all files in a folder of kept states."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FloatReference:
    """The float model behind its last block.

    Attributes:
        states: [1, tokens, hidden] of every window, in the model's dtype.
    """

    model: LlmModel
    states: tuple[torch.Tensor, ...]

    def logits(self, first: int = 0, end: int | None = None) -> Iterator[torch.Tensor]:
        """[1, tokens, vocabulary] of the windows from `first` to before `end`, one at a time."""
        return head_logits(float_decoder(self.model), self.states[first:end])


def float_reference(model: LlmModel, ids: Sequence[torch.Tensor], *, kept_in: Path | None = None) -> FloatReference:
    """Run the float model over windows, one block in memory at a time.

    Args:
        ids: [1, tokens] of every window.
        kept_in: a folder that keeps the states by the digest of all that decides them, with their own; a damaged file
            is made again. States above 2 GiB are not kept, and the oldest leave when there are more than that.

    Raises:
        ConfigError: a window is longer than the context or has tokens beyond the vocabulary, or weights are damaged.
        OSError: the folder cannot be written.
    """
    check_ids(model.config, ids)
    size = sum(each.numel() for each in ids) * model.config.hidden * model.config.dtype.itemsize
    if kept_in is None or size > MOST_KEPT_BYTES:
        return FloatReference(model=model, states=_states(model, ids))
    file = kept_in / f"{_key(model, ids)}.safetensors"
    states = _kept(file)
    if states is None:
        states = _states(model, ids)
        kept_in.mkdir(parents=True, exist_ok=True)
        with temporary_beside(file) as draft:
            save_file({f"{number:06}": state for number, state in enumerate(states)}, draft)
        write_json_atomically(_seal(file), {"sha256": file_digest(file)})
        _make_room(kept_in)
    return FloatReference(model=model, states=states)


def _states(model: LlmModel, ids: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    decoder = float_decoder(model)
    hidden = embedded(decoder, ids)
    for _ in through(decoder, hidden, "prefill"):
        pass
    return tuple(hidden)


def _kept(file: Path) -> tuple[torch.Tensor, ...] | None:
    """States of such a file; None where there is none or it is damaged."""
    try:
        if loads(_seal(file).read_bytes()) != {"sha256": file_digest(file)}:
            return None
        read = load_file(file)
    except (OSError, JsonError, SafetensorError):
        return None
    file.touch()
    return tuple(read[name] for name in sorted(read))


def _seal(file: Path) -> Path:
    return file.with_suffix(".json")


def _make_room(folder: Path) -> None:
    """Remove the files that nobody asked for longest."""
    left = MOST_KEPT_BYTES
    for file in sorted(folder.glob("*.safetensors"), key=lambda each: -each.stat().st_mtime):
        left -= file.stat().st_size
        if left < 0:
            file.unlink(missing_ok=True)
            _seal(file).unlink(missing_ok=True)


def _key(model: LlmModel, ids: Sequence[torch.Tensor]) -> str:
    return digest(
        {
            "config": file_digest(model.folder / "config.json"),
            "weights": {file.name: file_digest(file) for file in dict.fromkeys(model.places.values())},
            "ids": [each.tolist() for each in ids],
            "code": closure_digest(__name__),
            "kernels": kernels(),
        }
    )
