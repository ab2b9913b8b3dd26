"""The float model's logits for every checkpoint that is evaluated, from one pass over its blocks.

What is kept is what the last block gives, [1, tokens, hidden] a window; its logits are made when they are asked for.
So a window of 512 tokens of a model with 152 000 tokens and 896 channels costs 0.9 MB in bfloat16 rather than 156 MB,
and the head's product again. Made again from kept states, logits are the same to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from workbench.quantization.llm.checkpoint import LlmModel
from workbench.quantization.llm.fixed_order import kernels
from workbench.quantization.llm.forwards import embedded, float_decoder, head_logits, through
from workbench.values.documents.canonical import digest, file_digest
from workbench.values.documents.sealed_json import Unsound, read_sealed, write_sealed
from workbench.values.paired_scores import TokenWindow
from workbench.values.system.files import temporary_beside
from workbench.values.system.source_closure import closure_digest

MOST_KEPT_BYTES = 2 << 30
"""Of all files in a folder of kept states."""


FloatReference = Callable[[int, int], Iterator[torch.Tensor]]
"""(first, end) → the float model's logits [1, tokens, vocabulary] of the windows from `first` to before `end`, one at a
time."""


def float_reference(model: LlmModel, windows: Sequence[TokenWindow], *, kept_in: Path | None = None) -> FloatReference:
    """Run the float model over windows, one block in memory at a time.

    Args:
        kept_in: a folder that keeps the states by the digest of all that decides them, with their own; a damaged file
            is made again. States above 2 GiB are not kept, and the oldest leave when there are more than that.

    Raises:
        ConfigError: a window is longer than the context or has tokens beyond the vocabulary, or weights are damaged.
        OSError: the folder cannot be written.
    """
    size = sum(len(each.ids) for each in windows) * model.config.hidden * model.config.dtype.itemsize
    file = None if kept_in is None or size > MOST_KEPT_BYTES else kept_in / f"{_key(model, windows)}.safetensors"
    if file is not None and _sound(file):
        file.touch()
        read = load_file(file)
        return _logits(model, [read[name] for name in sorted(read)])
    decoder = float_decoder(model)
    states = embedded(decoder, [torch.from_numpy(each.ids)[None] for each in windows])
    for _ in through(decoder, states, "prefill"):
        pass
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        with temporary_beside(file) as draft:
            save_file({f"{number:06}": state for number, state in enumerate(states)}, draft)
        write_sealed(file.with_suffix(".json"), {"file": file_digest(file)})
        left = MOST_KEPT_BYTES
        for other in sorted(file.parent.glob("*.safetensors"), key=lambda each: -each.stat().st_mtime):
            left -= other.stat().st_size
            if left < 0:
                other.unlink(missing_ok=True)
                other.with_suffix(".json").unlink(missing_ok=True)
    return _logits(model, states)


def _logits(model: LlmModel, states: Sequence[torch.Tensor]) -> FloatReference:
    """Of what the last block gave of every window, [1, tokens, hidden]."""
    return lambda first, end: head_logits(float_decoder(model), states[first:end])


def _sound(file: Path) -> bool:
    try:
        return bool(read_sealed(file.with_suffix(".json"))["file"] == file_digest(file))
    except (OSError, Unsound):
        return False


def _key(model: LlmModel, windows: Sequence[TokenWindow]) -> str:
    return digest(
        {
            "model": model.content(),
            "ids": [[each.ids.tolist()] for each in windows],
            "code": closure_digest(__name__),
            "kernels": kernels(),
        }
    )
