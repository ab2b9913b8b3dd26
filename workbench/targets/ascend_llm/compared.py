"""Two folders side by side: a float model or a finished checkpoint each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from workbench.quantization.llm.checkpoint import open_model
from workbench.quantization.llm.config import LlmConfig, read_config
from workbench.quantization.llm.forwards import float_decoder
from workbench.quantization.llm.side_by_side import Turned, side_by_side
from workbench.targets.ascend_llm.execution import served_decoder
from workbench.targets.ascend_llm.quant_description import DESCRIPTION
from workbench.targets.ascend_llm.served import read_served
from workbench.targets.ascend_llm.texts import calibration_samples, read_tokenizer
from workbench.targets.prompted import Ids, SideValues
from workbench.values.errors import ConfigError

_ROTATION = "optional/quarot.safetensors"


def ids_of(folder: Path, texts: Sequence[str], tokens: int) -> list[list[int]]:
    """The first tokens of texts by a model's own tokenizer."""
    tokenizer = read_tokenizer(folder, read_config(folder, quantized=True))
    return [sample[0, :tokens].tolist() for sample in calibration_samples(texts, tokenizer, folder)]


def compared(a: Path, b: Path, windows: Sequence[Ids]) -> Iterator[SideValues]:
    """See `targets.prompted.AnswersPrompts.compared`."""
    (first, types), (second, others) = _side(a), _side(b)
    if _sizes(first.decoder.config) != _sizes(second.decoder.config):
        raise ConfigError(f"is another model than {a}: their sizes differ.", file=b)
    kinds = others or types
    for name, ours, theirs in side_by_side(first, second, [torch.tensor([list(ids)]) for ids in windows]):
        yield name, kinds.get(name, "block" if name.startswith("model.") else "lm_head"), ours.numpy(), theirs.numpy()


def _side(folder: Path) -> tuple[Turned, dict[str, str]]:
    if not (folder / DESCRIPTION).is_file():
        return Turned(decoder=float_decoder(open_model(folder))), {}
    served = read_served(folder)
    return Turned(decoder=served_decoder(served), rotation=_rotation(folder, served.config)), dict(served.types)


def _rotation(folder: Path, config: LlmConfig) -> torch.Tensor | None:
    file = folder / _ROTATION
    if not file.is_file():
        return None
    try:
        with safe_open(file, framework="pt") as stored:
            found: torch.Tensor = stored.get_tensor("global_rotation")
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"cannot be read: {error}.", file=file) from error
    if tuple(found.shape) != (config.hidden, config.hidden):
        raise ConfigError(f"global_rotation has shape {list(found.shape)}, the stream {config.hidden}.", file=file)
    return found


def _sizes(config: LlmConfig) -> tuple[int, ...]:
    return (config.layers, config.hidden, config.vocabulary)
